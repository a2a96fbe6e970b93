"""Makes what pip leaves of a package, from the files of `outside` or from other text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

Cli = Callable[..., subprocess.CompletedProcess[str]]
"""The console script beside what is installed."""

OUTSIDE = Path(__file__).parent / "outside"
POINTS = {
    "hpc_llm.tasks": "polite = their_task:KIND",
    "hpc_llm.engines": "counting = their_engine:FACTS",
    "hpc_llm.launchers": "envrun = their_launcher:LAUNCHER",
    "hpc_llm.schedulers": "toy = their_scheduler:SCHEDULER",
    "hpc_llm.log_formats": "toytrainer = their_log_format:FORMAT",
    "hpc_llm.causes": "theirs = their_cause:CAUSES",
    "hpc_llm.trackers": "ledger = their_tracker:TRACKER",
}


def install(site: Path, modules: Mapping[str, str], points: Mapping[str, str], name: str = "theirs") -> Path:
    """A distribution with these modules and these entry points, one a group, where PYTHONPATH is to lead."""
    about = site / f"{name}-1.dist-info"
    about.mkdir(parents=True)
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text("".join(f"[{group}]\n{line}\n" for group, line in points.items()))
    return site


def install_outside(site: Path) -> Path:
    """All that `outside` has."""
    return install(site, {f"their_{path.stem}": path.read_text() for path in OUTSIDE.glob("*.py")}, POINTS)


def hpc_llm(*arguments: str, site: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the console script beside what is installed in `site`, with the configuration folder `site / "config"`."""
    program = Path(sys.executable).parent / "hpc-llm"
    environ = {**os.environ, "PYTHONPATH": str(site), "XDG_CONFIG_HOME": str(site / "config")}
    return subprocess.run(
        [program, *arguments], env=environ, cwd=cwd, capture_output=True, text=True, timeout=200, check=False
    )
