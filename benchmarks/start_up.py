"""How long short commands take, beside `python -c "import typer"`: CPU time of whole processes, the best of many, in turn.

    python benchmarks/start_up.py --repeats 20

The time of the processor (user and system) is little changed by what else the machine does; the best of many even less. The
sources are compiled first, as an installation does. Exit code 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EMPTY = """
import gc; gc.set_threshold(100_000, 10, 5)
from typing import Annotated, Optional
import typer, jinja2.sandbox, yaml
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
@app.command()
def main(one: Annotated[Optional[str], typer.Option()] = None): pass
try: app()
finally: gc.freeze()
"""
"""A command that does nothing, with the packages that `render` needs: what no program on them can go below."""
RENDER = "-m hpc_llm render"
COMMANDS: tuple[tuple[str, list[str], float | None], ...] = (
    ("nothing, with typer, jinja2, yaml", ["-c", EMPTY], None),
    ("--help", "-m hpc_llm --help".split(), 2.5),
    ("render, delta z3o", f"{RENDER} --cluster delta --method z3o --account abcd-delta-gpu".split(), 4.0),
    ("render, mi210 z3o", f"{RENDER} --cluster mi210 --method z3o".split(), 4.0),
    ("render, local z2", f"{RENDER} --cluster local --method z2".split(), 4.0),
    (
        "render, delta, four methods",
        f"{RENDER} --cluster delta --method z2o,z3,z3o,q --account abcd-delta-gpu".split(),
        4.0,
    ),
    ("render, a study of twelve runs", f"{RENDER} examples/study.yaml".split(), None),
)
"""Name, words, and how many times as long it may take."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    compileall.compile_dir(ROOT / "hpc_llm", quiet=1)
    words = [["-c", "import typer"], *(command for _, command, _ in COMMANDS)]
    best = [min(times) for times in zip(*([cpu_s(one) for one in words] for _ in range(repeats)), strict=True)]
    print(f"{'import typer':<34} {best[0]:>7.3f} s")
    missed = False
    for (name, _, limit), seconds in zip(COMMANDS, best[1:], strict=True):
        ratio = seconds / best[0]
        is_over = limit is not None and ratio > limit
        missed |= is_over
        held = "" if limit is None else f"  limit {limit:g}{'  MISSED' if is_over else ''}"
        print(f"{name:<34} {seconds:>7.3f} s {ratio:>6.2f} times{held}")
    return int(missed)


def cpu_s(words: list[str]) -> float:
    """User and system seconds of one process. Raises CalledProcessError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *words], check=True, cwd=ROOT, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "0"}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
