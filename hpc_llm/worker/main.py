"""What every task's program does around its task: ranks, request, failure, result. Standard library only.

A module of a task names a `Program` and ends in `command(PROGRAM)`; the job script starts it on every rank.

Exit codes: 0 the run came to its end and result.json says how it went, 1 it failed and result.json says why,
2 the request was wrong before anything started, 143 SIGTERM. SIGUSR1 prints where each rank stands, and the run goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from hpc_llm.errors import HpcLlmError
from hpc_llm.records.compiled import caches_of
from hpc_llm.records.run import file_name_part
from hpc_llm.text.own_secrets import without_own_secrets
from hpc_llm.worker import failure, request, signals
from hpc_llm.worker.importing import uncollected
from hpc_llm.worker.ranks import Ranks, find_ranks
from hpc_llm.worker.result import Record, ToldToStop


@dataclass(frozen=True)
class Program:
    """The program of one task."""

    name: str
    """What it calls itself where it speaks."""
    module: str
    """Holds `train(record)`, which writes the result. Imported late: torch is slow, and may be missing."""
    parse: Callable[[Sequence[str], str], argparse.Namespace] = request.parse_run_folder
    """Its command line, with `run_dir` among what comes of it; the second argument is the program's name."""
    read: Callable[[argparse.Namespace, Ranks], request.RunRequest] = request.read_run_folder


def main(program: Program, argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    faulthandler.enable()
    signals.survive()
    # torch warns of names that DeepSpeed uses, at every call.
    warnings.filterwarnings("ignore", message=".*(all_gather_into_tensor|reduce_scatter_tensor)")
    arguments = program.parse(sys.argv[1:] if argv is None else argv, program.name)
    try:
        record = prepare(program, arguments)
    except HpcLlmError as error:
        failure.say(f"{program.name}: {without_own_secrets(str(error))}", to_stderr=True)
        failure.report_refusal(arguments.run_dir, error)
        return error.exit_code
    signals.listen(record)
    return run(program, record)


def command(program: Program) -> NoReturn:
    """Entry point of a process of its own: ends it at once when all is written.

    The interpreter's teardown is left out: after a failure the peers hang in a collective and it would too, and after a
    success a thread of the collectives that is still there aborts the process now and then, which fails a good job.
    """
    code = main(program)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # on a full disk the code is what is left to say
            stream.flush()
    os._exit(code)


def prepare(program: Program, arguments: argparse.Namespace) -> Record:
    """Read the rank and the request. Raises HpcLlmError where one of them is wrong."""
    ranks = find_ranks(os.environ)
    wanted = program.read(arguments, ranks)
    for variable, folder in caches_of(file_name_part(wanted.plan.cluster), str(Path.home())).items():
        os.environ.setdefault(variable, folder)  # what the script, a profile or the user says stays
    return Record(
        paths=wanted.paths, ranks=ranks, plan=wanted.plan, program=program.name, adaptations=list(wanted.sentences)
    )


def run(program: Program, record: Record) -> int:
    """Do what the record's plan says. Whatever happens ends in result.json."""
    try:
        if record.ranks.world_size != record.plan.parallel.world_size:
            raise failure.RunIsInvalid(
                f"{record.ranks.world_size} ranks were started, the plan is for {record.plan.parallel.world_size}: look at the "
                f"launch line, {record.ranks.launcher} was read (HPC_LLM_LAUNCHER overrules)."
            )
        with uncollected():
            module = import_module(program.module)
        module.train(record)
    except ToldToStop as stop:
        failure.report_sigterm(record, str(stop))
        failure.say(f"{program.name}: {stop}", to_stderr=True)
        return signals.EXIT_AFTER_SIGTERM
    except BaseException as error:
        failure.say_error(error)
        failure.report_error(record, error)
        return 1
    return 0
