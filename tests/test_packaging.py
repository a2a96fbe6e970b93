"""The wheel: built, installed elsewhere, used from another folder; what a user edits is in it."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from checkout import ROOT
from packaging.requirements import Requirement
from rendering import script

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tracked tree, so that nothing is left in the checkout and nothing untracked gets in."""
    source = tmp_path_factory.mktemp("source")
    for name in ("hpc_llm", "clusters", "configs", "experiments", "templates"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = target.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    install = [*PIP, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return target


def test_the_wheel_holds_all_code_and_all_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("clusters", "configs", "experiments", "templates"):
        for path in (ROOT / folder).rglob("*.*"):
            assert f"hpc_llm/_data/{path.relative_to(ROOT).as_posix()}" in names
    for path in (ROOT / "hpc_llm").rglob("*.py"):
        assert path.relative_to(ROOT).as_posix() in names
    assert "hpc_llm/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "logs")) or name.endswith(".pyc")]


def needed(name: str, seen: set[str]) -> set[str]:
    """The distributions that pip installs for `name` without extras, itself included, as they are installed here."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key not in seen:
        seen.add(key)
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed(requirement.name, seen)
    return seen


def test_the_base_install_is_small_and_holds_nothing_that_computes(wheel: Path) -> None:
    found = needed_of_wheel(wheel)
    assert not found & {"pandas", "numpy", "matplotlib", "torch"}
    files = [file.locate() for name in found for file in metadata.files(name) or ()]
    size = sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file())
    with zipfile.ZipFile(wheel) as ours:
        size += sum(one.file_size for one in ours.infolist())
    assert 10_000_000 < size < 60_000_000, f"{size / 1e6:.1f} MB in {', '.join(sorted(found))}"


def needed_of_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as ours:
        (path,) = [name for name in ours.namelist() if name.endswith(".dist-info/METADATA")]
        lines = email.message_from_bytes(ours.read(path)).get_all("Requires-Dist", [])
    found: set[str] = set()
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed(requirement.name, found)
    return found


def from_elsewhere(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(installed), "HOME": str(folder)}
    command = [sys.executable, str(installed / "bin" / "hpc-llm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environ)


def test_the_installed_command_finds_its_data_from_any_folder(installed: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [sys.executable, "-c", "import hpc_llm; print(hpc_llm.__file__)"],
        capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)},
    )  # fmt: skip
    assert where.stdout.startswith(str(installed)), "the checkout was tested, not the installed package"
    listed = from_elsewhere(installed, tmp_path, "clusters")
    assert listed.returncode == 0, listed.stderr
    assert all(name in listed.stdout for name in ("taiwania2", "mi210", "delta", "local"))
    assert "z3o-hpc2" in from_elsewhere(installed, tmp_path, "methods").stdout
    rendered = from_elsewhere(
        installed, tmp_path, "render", "--cluster", "taiwania2", "--method", "z3", "--account", "ACD110018", "--logs", "/work/someone/logs"
    )  # fmt: skip
    assert rendered.returncode == 0, rendered.stderr
    digest = re.compile(r"[0-9a-f]{12}-\d+\.sh|[0-9a-f]{64}")
    ours, theirs = (digest.sub("…", text) for text in (script("taiwania2", "z3"), rendered.stdout))
    assert theirs == ours
    assert not (tmp_path / "logs").exists()


def test_the_installed_command_prefers_a_users_own_files(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "mine.yaml").write_text("extends: local\ntitle: my own machine\n")
    assert "my own machine" in from_elsewhere(installed, tmp_path, "clusters").stdout


def test_the_worker_has_a_command_of_its_own(installed: Path) -> None:
    assert all((installed / "bin" / name).is_file() for name in ("pretrain_llm", "finetune_llm", "infer_llm"))


@pytest.mark.parametrize("has_environment", [False, True])
def test_make_names_a_python_that_is_too_old_and_the_way_to_another(tmp_path: Path, has_environment: bool) -> None:
    for name in ("Makefile", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / (".venv/bin/python" if has_environment else "python3.9")
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = (3, 9, 18)\n$2"\n')
    old.chmod(0o755)
    python = sys.executable if has_environment else "./python3.9"
    done = subprocess.run(
        ["make", "demo", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    name = ".venv/bin/python" if has_environment else "./python3.9"
    said = f"{name} is no Python 3.10 or newer, which is needed: make clean demo PYTHON=python3.12"
    assert done.returncode == 2 and done.stderr.splitlines()[0].split() == said.split()
    assert (tmp_path / ".venv").exists() is has_environment
