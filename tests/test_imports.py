"""The import rule: who may import whom, and what the login side and the worker's modules do without."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from hpc_llm.submit.snapshot import _MODULES

TRAINING = {"torch", "transformers", "deepspeed", "peft", "bitsandbytes", "accelerate"}
HEAVY = {"pandas", "matplotlib", "numpy"}

COMMANDS = [
    ["--help"],
    ["--version"],
    ["clusters"],
    ["clusters", "delta"],
    ["clusters", "--schema"],
    ["methods"],
    ["methods", "z3+o", "--deepspeed-json"],
    ["models"],
    ["models", "tiny", "--json"],
    ["render", "--cluster", "mi210", "--method", "z3o"],
    ["render", "--cluster", "taiwania2", "--method", "z3o", "--account", "ACD1", "--explain"],
    ["submit", "--dry-run", "--cluster", "local", "--method", "z2o,z3"],
    ["status"],
]

PROBE = """
import json, sys
sys.argv[0] = "hpc-llm"
from hpc_llm.cli import run
code = run(json.loads(sys.argv[1]))
sys.stdout.flush()
print("\\n@@" + json.dumps([code, sorted({name.split(".")[0] for name in sys.modules})]))
"""


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[:2]))
def test_login_side_commands_leave_the_training_stack_alone(arguments: list[str], own_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(arguments)], capture_output=True, text=True, check=False
    )
    assert "\n@@" in done.stdout, done.stderr
    code, modules = json.loads(done.stdout.rsplit("\n@@", 1)[1])
    assert code == 0, done.stderr
    assert "hpc_llm" in modules
    assert not (TRAINING | HEAVY) & set(modules)


def test_modules_that_travel_need_the_standard_library_only() -> None:
    """Under -S -I no installed package can be imported: what these modules need must come with Python."""
    names = [f"hpc_llm.{name}" for name in _MODULES if name != "__init__"] + [
        "hpc_llm.worker",
        "hpc_llm.worker.request",
    ]
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import importlib
for name in {names!r}:
    importlib.import_module(name)
own = set(sys.stdlib_module_names) | {{"hpc_llm", "__main__"}}
print(sorted({{name.split(".")[0] for name in sys.modules}} - own))
"""
    done = subprocess.run([sys.executable, "-S", "-I", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_all_that_the_worker_imports_travels_with_it() -> None:
    """The copy on PYTHONPATH is complete: a module left out would be missed only on a compute node."""
    package = ROOT / "hpc_llm"
    travelling = [package / f"{name}.py" for name in _MODULES] + sorted((package / "worker").rglob("*.py"))
    wanted = set()
    for path in travelling:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "hpc_llm":
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hpc_llm."):
                wanted.add(str(node.module).split(".")[1])
            elif isinstance(node, ast.Import):
                wanted |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("hpc_llm.")}
    assert "experiment" in wanted
    assert wanted - {"__version__"} <= {*_MODULES, "worker"}


def test_the_import_contracts_hold() -> None:
    """The directions of [tool.importlinter] in pyproject.toml."""
    lint = Path(sys.executable).with_name("lint-imports")
    assert lint.is_file(), "lint-imports is missing: python -m pip install -e '.[dev]'"
    done = subprocess.run(
        [str(lint), "--config", "pyproject.toml", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout
    assert "4 kept, 0 broken" in done.stdout


def test_no_module_is_left_out_of_the_contracts() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    contracts = text[text.index("[tool.importlinter]") :].split("[[tool.importlinter.contracts]]")
    layers, worker, login = contracts[1:4]
    package = ROOT / "hpc_llm"
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    modules -= {"__init__", "__main__", "worker"}
    assert modules >= {"cli", "planning", "run"}
    assert [name for name in sorted(modules) if not re.search(rf"\b{name}\b", layers)] == []
    assert [name for name in sorted(modules) if f'"hpc_llm.{name}"' not in login] == []
    travelling = {*_MODULES}
    assert [name for name in sorted(modules - travelling) if f'"hpc_llm.{name}"' not in worker] == []


def test_a_forbidden_import_breaks_a_contract(tmp_path: Path) -> None:
    """The contracts are not vacuous: one wrong line in a copy is found."""
    import shutil

    shutil.copytree(ROOT / "hpc_llm", tmp_path / "hpc_llm", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "hpc_llm" / "worker" / "ranks.py").open("a") as file:
        file.write("\nfrom hpc_llm import planning\n")
    with (tmp_path / "hpc_llm" / "run.py").open("a") as file:
        file.write("\nimport yaml\n")
    with (tmp_path / "hpc_llm" / "cluster.py").open("a") as file:
        file.write("\nimport torch\nfrom hpc_llm import render\n")
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(lint), "--config", "pyproject.toml", "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "0 kept, 4 broken" in done.stdout, done.stdout[-3000:]
