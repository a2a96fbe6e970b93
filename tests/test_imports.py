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

from hpc_llm.records.run import _RECORDS
from hpc_llm.schedulers.snapshot import _MODULES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]  # pytest brings it

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
    ["clean"],
    ["export", "--help"],
    ["fetch", "--help"],
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


NOT_RENDERED = {
    "hpc_llm.api.study", "hpc_llm.api.study_runs", "hpc_llm.api.find", "hpc_llm.planning.study", "hpc_llm.planning.reference",
    "hpc_llm.corpus.facts", "hpc_llm.corpus.key", "hpc_llm.corpus.sources", "hpc_llm.estimating.step_time", "hpc_llm.estimating.rates",
    "hpc_llm.runs", "hpc_llm.parsing", "hpc_llm.causes", "hpc_llm.diagnosis", "hpc_llm.reporting", "hpc_llm.worker",
    "hpc_llm.site.hardware", "submitit", "psutil", "tabulate", "asyncio", "multiprocessing", "http", "ssl", "xml", "rich",
}  # fmt: skip
"""What the script of a run without data, of no study, on a cluster that is not this machine, is made without."""


@pytest.mark.parametrize("cluster", ["mi210", "p4d"])
def test_render_loads_only_what_it_uses(cluster: str, own_folder: Path) -> None:
    """Each module costs a third of a millisecond or more: `render` takes less than four times as long as `import typer`."""
    probe = PROBE.replace('name.split(".")[0] for', "name for")
    words = ["render", "--cluster", cluster, "--method", "z3o"]
    done = subprocess.run([sys.executable, "-c", probe, json.dumps(words)], capture_output=True, text=True, check=False)
    code, modules = json.loads(done.stdout.rsplit("\n@@", 1)[1])
    assert code == 0, done.stderr
    assert "hpc_llm.planning.plan" in modules
    assert not NOT_RENDERED & set(modules)


def test_modules_that_travel_need_the_standard_library_only() -> None:
    """Under -S -I no installed package can be imported: what these modules need must come with Python."""
    names = [f"hpc_llm.{dotted(name)}" for name in _MODULES if name != "__init__"] + [
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
    imported = {module for path in travelling for module in imports_of(path, package)}
    assert "planning.experiment" in imported
    assert {name for name in imported if not name.startswith("worker")} <= {dotted(name) for name in _MODULES}


def dotted(name: str) -> str:
    """The module of a carried file: `plan/__init__` is `plan`, `plan/model` is `plan.model.name`."""
    return name.removesuffix("/__init__").replace("/", ".")


def imports_of(path: Path, package: Path) -> set[str]:
    """The modules of ours that a file imports, without the package's name before them."""
    found = set()
    tree = ast.parse(path.read_text())
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hpc_llm":
            module = str(node.module).removeprefix("hpc_llm").lstrip(".")
            inside = [f"{module}.{alias.name}".lstrip(".") for alias in node.names]
            found |= {name if is_module(package, name) else module for name in inside}
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("hpc_llm.") for alias in node.names if alias.name.startswith("hpc_llm.")}
    return found - {""}


def is_module(package: Path, name: str) -> bool:
    path = package.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def test_names_of_files_of_a_run_stand_where_its_paths_are_made() -> None:
    """In a program's text, outside of what is said to people; a file without a name is called what it holds."""
    names = {name for name in _RECORDS if "." in name}
    assert names >= {"exit.json", "steps.jsonl", "log.out"}
    package = ROOT / "hpc_llm"
    spelled = {
        (path.relative_to(package).as_posix(), node.value)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert {place for place, _ in spelled} == {"records/run.py", "records/files.py", "schedulers/local/sealed.py"}


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
    assert re.search(r"[1-9][0-9]* kept, 0 broken", done.stdout)


def test_no_module_is_left_out_of_the_contracts() -> None:
    """Every package has its place in the order, and so has every module of those whose order is written down."""
    package = ROOT / "hpc_llm"
    layers, login, worker = {}, set(), set()
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            layers[contract["containers"][0]] = set(re.findall(r"\w+", " ".join(contract["layers"])))
        elif contract["name"].startswith("The login side"):
            login = set(contract["source_modules"])
        elif contract["name"].startswith("The worker"):
            worker = set(contract["forbidden_modules"])
    tops = modules_in(package) - {"worker", "__main__"}
    assert tops >= {"cli", "planning", "records"}
    assert layers["hpc_llm"] == tops
    assert login == {f"hpc_llm.{name}" for name in tops}
    for container in layers.keys() - {"hpc_llm"}:
        assert layers[container] == modules_in(package / container.split(".")[1])
    travelling = {name.partition("/")[0] for name in _MODULES}
    inside = {f"{top}.{name}" for top in tops & travelling - {"errors"} for name in modules_in(package / top)}
    assert worker == {f"hpc_llm.{name}" for name in tops - travelling | inside - {dotted(name) for name in _MODULES}}


def modules_in(folder: Path) -> set[str]:
    """The modules and packages right under a package."""
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return packages | {path.stem for path in folder.glob("*.py")} - {"__init__"}


def test_a_forbidden_import_breaks_a_contract(tmp_path: Path) -> None:
    """The contracts are not vacuous: one wrong line in a copy is found."""
    import shutil

    shutil.copytree(ROOT / "hpc_llm", tmp_path / "hpc_llm", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "hpc_llm" / "worker" / "ranks.py").open("a") as file:
        file.write("\nfrom hpc_llm.planning import plan\n")
    with (tmp_path / "hpc_llm" / "records" / "run.py").open("a") as file:
        file.write("\nimport yaml\n")
    with (tmp_path / "hpc_llm" / "site" / "cluster.py").open("a") as file:
        file.write("\nimport torch\nfrom hpc_llm.job import render\n")
    with (tmp_path / "hpc_llm" / "schedulers" / "slurm" / "check.py").open("a") as file:
        file.write("\nfrom hpc_llm.schedulers.local import marks\n")
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
    broken = re.findall(r"^(.*) BROKEN\b", done.stdout, re.MULTILINE)
    assert len(broken) == 5, done.stdout[-3000:]


def test_what_readme_names_for_programs_is_there() -> None:
    import hpc_llm
    from hpc_llm import api

    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    section = text.partition("## From Python")[2].partition("\n## ")[0]
    names = re.search(r"^(`plan`.*?)return objects with types", section, re.MULTILINE | re.DOTALL)
    assert names is not None
    listed = set(re.findall(r"`([a-z_]+)(?:\(NAME\))?`", names[1]))
    assert {"clean", "cluster", "submit", "models"} <= listed
    assert listed | set(api.__all__) <= set(hpc_llm.__all__)
    assert listed | set(re.findall(r"hpc_llm\.([a-z_]+)\(", section)) <= {
        name for name in dir(hpc_llm) if getattr(hpc_llm, name)
    }
