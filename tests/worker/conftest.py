"""Runs the worker in this process, one engine after another, and puts the process back as it was."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from copied_ranks import variables_for
from tiny_plans import RunPlan
from worlds import Worlds

from hpc_llm.planning.experiment import Plan
from hpc_llm.records.agreement import contradictions
from hpc_llm.records.files import read_json
from hpc_llm.records.possible import possible
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.progress import read_steps
from hpc_llm.worker.main import run as run_program
from hpc_llm.worker.pretrain_llm import PROGRAM
from hpc_llm.worker.ranks import find_ranks
from hpc_llm.worker.result import Record


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory, copies: Path) -> Iterator[Worlds]:
    """Starts ranks in a moment."""
    made = Worlds(tmp_path_factory.mktemp("worlds"), variables_for(copies))
    yield made
    made.close()


@pytest.fixture(scope="session")
def _imported() -> None:
    """DeepSpeed collects garbage often: what was imported, and what pytest knows of all tests, is not looked through."""
    import peft
    import transformers

    from hpc_llm.worker.engines import deepspeed

    assert deepspeed.imported() and peft and transformers
    gc.collect()
    gc.freeze()


@pytest.fixture
def run_plan(tmp_path: Path, _imported: None) -> Iterator[RunPlan]:
    """Train a plan on one rank; the content of its result.json. Its folder is tmp_path / "run"."""
    import torch

    before = dict(os.environ)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are too small for more

    def run(plan: Plan) -> dict[str, Any]:
        paths = RunPaths(tmp_path / "run")
        paths.root.mkdir(exist_ok=True)
        record = Record(paths=paths, ranks=find_ranks({}), plan=plan)
        code = run_program(PROGRAM, record)
        result = read_json(paths.result)
        assert result is not None
        assert contradictions(possible(plan.flat()), possible(result)) == []
        assert read_steps(paths.steps, possible(plan.flat())).contradiction is None
        assert (code == 0) == (result["outcome"] in ("COMPLETED", "INVALID") and result["error"] is None)
        return result

    yield run
    if torch.distributed.is_initialized():
        from deepspeed import comm

        comm.destroy_process_group() if comm.is_initialized() else torch.distributed.destroy_process_group()
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(before)
