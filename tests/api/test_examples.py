"""The examples run as they are, in a folder of their own; so does what README says of Python."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from checkout import ROOT

import hpc_llm

EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def outcomes() -> list[str | None]:
    """How the runs of this folder ended."""
    return [row.outcome for row in hpc_llm.results()]


def code_cells(notebook: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in _cells(notebook) if cell["cell_type"] == "code"]


def _cells(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text())["cells"]
    return cells


@pytest.mark.train
@pytest.mark.usefixtures("copied_ranks")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    notebook: Path, own_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    matplotlib.use("Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(code_cells(notebook), start=1):
        exec(compile(source, f"{notebook.name}, cell {number}", "exec"), names)
    assert outcomes() == ["COMPLETED", "COMPLETED"]
    assert names["figure"].axes[1].get_lines()[0].get_ydata().size == 30
    assert "z2o COMPLETED" in capfd.readouterr().out


@pytest.mark.train
def test_the_script_makes_the_plot(own_folder: Path) -> None:
    script = EXAMPLES / "compare_methods.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert outcomes() == ["COMPLETED", "COMPLETED"] and "tokens_per_second" in done.stdout
    assert Path("compare_methods.png").stat().st_size > 10_000


def test_notebooks_hold_no_outputs() -> None:
    assert NOTEBOOKS
    for cell in (cell for notebook in NOTEBOOKS for cell in _cells(notebook)):
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None


@pytest.mark.train
def test_the_example_of_readme_runs(own_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    section = (ROOT / "README.md").read_text().split("\n## From Python\n", 1)[1].split("\n## ", 1)[0]
    [program] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    assert outcomes() == ["COMPLETED", "COMPLETED"]
    assert "tokens_per_second" in capfd.readouterr().out
