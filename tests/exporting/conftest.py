"""What these tests share: a run that trained for real, and runs with any records in them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))

from command import PROGRAM, SECRET
from copied_ranks import variables_for
from run_folders import Folder


@pytest.fixture(scope="session")
def needs() -> Callable[..., None]:
    """`needs(modules…)`: where one is missing the test says how to get it, and fails in CI."""

    def check(*modules: str) -> None:
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        if not missing:
            return
        message = f"{', '.join(missing)} is missing: python -m pip install '.[test]'"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)

    return check


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, copies: Path) -> Path:
    """The folder of a run that trained here, with a variable of its user's in its plan."""
    logs = tmp_path_factory.mktemp("trained") / "logs"
    asked = ("--cluster", "local", "--method", "ddp", "--model", "tiny", "--steps", "6", "--warmup-steps", "2")
    sizes = ("--micro-batch-size", "2", "--sequence-length", "16", "--set", "env.MY_OWN=of-nobodys-concern")
    done = subprocess.run(
        [PROGRAM, "submit", *asked, *sizes, "--run-id", "real", "--logs", logs, "--wait"],
        env={**os.environ, **variables_for(copies), "HF_TOKEN": SECRET}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return logs / "real"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A run that came to its end, with 20 steps and two evaluations."""
    made = (
        Folder(tmp_path / "logs" / "run-1").exit(0).result("COMPLETED", loss_last=3.0, rouge={"rouge1": 0.25}).steps()
    )
    evaluations = [{"step": k, "eval_loss": 2.5, "perplexity": 12.2, "rouge": None} for k in (10, 20)]
    made.run.evaluations.write_text("".join(json.dumps(one) + "\n" for one in evaluations))
    return made
