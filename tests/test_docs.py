"""What README, CONTRIBUTING and docs/ lead to is there: files, folders and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpc_llm.records.run import RunPaths

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    """Where the page leads within the repository."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in target:
            yield target


def anchors(page: Path) -> set[str]:
    """Of its headings, as they are made from them where pages are shown."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    missing = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert not missing


@pytest.mark.parametrize("page", PAGES[:2], ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    named = re.findall(r"`([\w/.-]+/[\w-]+\.(?:py|sh|j2|csv|md))`", prose(page))
    assert len(named) > 10
    placeholders = [name for name in named if re.search(r"[A-Z]{4,}(?!.*RESULTS)", name)]
    missing = [
        name
        for name in set(named) - set(placeholders)
        if not (ROOT / name).exists() and not (ROOT / "hpc_llm" / name).exists()
    ]
    assert not missing


def test_each_package_stands_in_the_tree() -> None:
    tree = (ROOT / "README.md").read_text(encoding="utf-8")
    packages = [path.parent for path in (ROOT / "hpc_llm").glob("*/__init__.py")]
    within = [path.parent for path in (ROOT / "hpc_llm").glob("*/*/__init__.py") if path.parent.parent.name != "worker"]
    lacking = [folder for folder in (*packages, *within) if f"\n  {folder.relative_to(ROOT / 'hpc_llm')}/ " not in tree]
    assert len(packages) > 15 and not lacking


def test_each_page_is_reached_from_readme() -> None:
    reached = {link.partition("#")[0] for link in links(PAGES[0])}
    assert {f"docs/{page.name}" for page in PAGES[2:]} <= reached


def texts_of_advice() -> Iterator[tuple[str, str]]:
    """Name and text of everything in which somebody is told what to install."""
    for page in (*PAGES, *sorted((ROOT / "examples").iterdir()), *sorted((ROOT / "hpc_llm").rglob("*.py"))):
        if page.is_file() and page.name != "CONTRIBUTING.md":
            yield str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")


def test_what_is_advised_to_install_is_there_outside_of_the_checkout_too() -> None:
    """`.[extra]` means the folder in which one stands, and `hpc-llm[extra]` what an index has under that name."""
    found = [name for name, text in texts_of_advice() if re.search(r"pip install[^\n`]{0,80}[.\w-]\[\w", text)]
    assert not found


def test_each_file_of_a_run_is_told_of_beside_the_runs() -> None:
    run = RunPaths(Path("run"))
    made = (getattr(run, name) for name, one in vars(RunPaths).items() if isinstance(one, property))
    files = {path.relative_to(run.root).parts[0] for path in made if isinstance(path, Path)}
    told = (ROOT / "logs" / "README.md").read_text(encoding="utf-8")
    of_version_0_1 = {"submission.json"}
    assert [
        name for name in sorted(files - of_version_0_1) if f"`{name}`" not in told and f"`{name}/`" not in told
    ] == []


def test_readme_says_where_secrets_and_advice_on_memory_are_decided() -> None:
    told = (ROOT / "README.md").read_text(encoding="utf-8")
    for module in (
        "text/secrecy.py",
        "diagnosis/remedies.py",
        "diagnosis/less_device.py",
        "diagnosis/ladder.py",
        "estimating/device.py",
        "planning/engine_choice.py",
        "worker/searching/choice.py",
    ):
        assert f"`{module}`" in told and (ROOT / "hpc_llm" / module).is_file()
