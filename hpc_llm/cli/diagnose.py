"""hpc-llm diagnose: why it failed, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hpc_llm.cli.options import JsonOption, LogsOption
from hpc_llm.cli.output import print_facts, print_json, print_table

if TYPE_CHECKING:
    from hpc_llm.diagnose import Diagnosis


_SHOWN = 240
"""Characters of an evidence line on the terminal; --json has more of it."""


def register(app: typer.Typer) -> None:
    app.command("diagnose")(diagnose)


def diagnose(
    targets: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="[RUN|PATH]…", help="Runs, log files, folders of logs, or - for stdin."),
    ] = None,
    list_causes: Annotated[bool, typer.Option("--list", help="List the causes that are known.")] = False,
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> None:
    """Why a run or any training log ended: the cause, the evidence lines, what to do."""
    from hpc_llm.errors import RequestError

    if list_causes:
        _list(as_json)
        return
    if not targets:
        raise RequestError(
            "diagnose needs a run, a log file, a folder, or - for stdin. `hpc-llm status` lists the runs."
        )
    found = [diagnosis for target in targets for diagnosis in _diagnose(target, logs)]
    if as_json:
        print_json([d.to_dict() for d in found] if len(found) != 1 else found[0].to_dict())
        return
    for number, diagnosis in enumerate(found):
        if number:
            typer.echo()
        _show(diagnosis)


def _diagnose(target: str, logs: Path) -> Iterable[Diagnosis]:
    from hpc_llm.cli.runs import find_run
    from hpc_llm.diagnose import diagnose_files, diagnose_run, diagnose_stream, jobs_under
    from hpc_llm.run import RunPaths, is_run

    path = Path(target)
    if target == "-":
        yield diagnose_stream(sys.stdin.buffer)
    elif is_run(path):
        yield diagnose_run(RunPaths(path.absolute()))
    elif path.exists():
        for files in jobs_under([path]):
            yield diagnose_run(RunPaths(files[0].absolute())) if is_run(files[0]) else diagnose_files(files)
    else:
        yield diagnose_run(find_run(target, logs))


def _list(as_json: bool) -> None:
    from hpc_llm.diagnose import CAUSES

    if as_json:
        print_json(
            [
                {
                    "cause": c.id,
                    "title": c.title,
                    "meaning": c.meaning,
                    "remedy": c.remedy,
                    "retry": c.retry,
                    "precedence": c.precedence,
                    "explains": sorted(c.explains),
                    "signs": [
                        {"pattern": s.pattern.pattern.decode(), "role": s.role.value, "confidence": s.confidence}
                        for s in c.signs
                    ],
                }
                for c in CAUSES
            ]
        )
        return
    print_table(
        [[c.id, c.title, "yes" if c.retry else "no", len(c.signs)] for c in CAUSES],
        ["cause", "what", "retry as is", "signs"],
    )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _show(diagnosis: Diagnosis) -> None:
    typer.echo(
        f"{diagnosis.source}: {diagnosis.cause.id} ({diagnosis.cause.title}), confidence {diagnosis.confidence:.2f}"
    )
    print_facts(
        [
            ("what", " ".join(t for t in (diagnosis.summary, diagnosis.meaning) if t)),
            ("evidence", [f"{e.file}:{e.line}: {_cut(e.text)}" for e in diagnosis.evidence]),
            ("chain", " -> ".join(diagnosis.chain) if len(diagnosis.chain) > 1 else ""),
            ("do", diagnosis.remedy.splitlines()),
            ("retry as is", "" if diagnosis.cause.id == "none" else "yes" if diagnosis.retry else "no"),
        ]
    )
