"""What to run: the plan in a run folder. Standard library only."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpc_llm.errors import RequestError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.ranks import Ranks

TRY = "HPC_LLM_TRY"
"""The number of this try, which the job script sets once it has put away what earlier tries left."""


@dataclass(frozen=True)
class RunRequest:
    """The plan to run, the folder of the run, and what was changed to get there."""

    plan: Plan
    paths: RunPaths
    sentences: tuple[str, ...] = ()


ReadRequest = Callable[[argparse.Namespace, Ranks], RunRequest]
"""What makes a request of a command line that was parsed. Raises RequestError."""


def parse_run_folder(argv: Sequence[str], program: str) -> argparse.Namespace:
    """The command line of a task that takes nothing but the folder of a run."""
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    add_run_folder(parser, required=True)
    return parser.parse_args(argv)


def add_run_folder(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """The option that every task has."""
    text = "folder of the run, with experiment.json"
    parser.add_argument("--run-dir", "--run_dir", type=Path, required=required, help=text)


def read_run_folder(arguments: argparse.Namespace, ranks: Ranks) -> RunRequest:
    """The request in the folder that `arguments` name. Raises RequestError."""
    folder: Path = arguments.run_dir
    paths = RunPaths(folder)
    refuse_used_folder(paths, os.environ)
    experiment = read_json(paths.experiment)
    if experiment is None or not isinstance(experiment.get("plan"), dict):
        raise RequestError(
            f"{paths.experiment} is missing or not whole: --run-dir takes the folder of a submitted run."
        )
    try:
        return RunRequest(Plan.from_dict(experiment["plan"]), paths)
    except TypeError as error:
        raise RequestError(f"{paths.experiment} does not hold a whole plan: {error}.") from None


def folder_or(of_flags: ReadRequest) -> ReadRequest:
    """Reads the folder that --run-dir names where it is given, else what `of_flags` makes of the flags beside it."""
    return lambda arguments, ranks: (read_run_folder if arguments.run_dir is not None else of_flags)(arguments, ranks)


def refuse_used_folder(paths: RunPaths, env: Mapping[str, str], flag: str = "--run-dir") -> None:
    """Raise RequestError where another start of the program wrote into the folder: its numbers would be lost or mixed.

    `flag` names the folder. Every rank looks for itself. A job script has looked already, and a node may not yet see what it moved.
    """
    left = [] if env.get(TRY) else paths.left_by_try()
    if left:
        by_script = "start it by its job.sh, which keeps what earlier tries left, or " if flag == "--run-dir" else ""
        raise RequestError(
            f"the run in {paths.root} has been started before, {', '.join(left)} would be lost: {by_script}take another {flag}."
        )
