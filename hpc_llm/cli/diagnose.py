"""hpc-llm diagnose: why it failed, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hpc_llm.cli.options import JsonOption, LogsOption
from hpc_llm.cli.output import print_facts, print_json, terminal_width, with_logs
from hpc_llm.errors import OURS
from hpc_llm.text.secrecy import redacted
from hpc_llm.text.tables import wrapped

if TYPE_CHECKING:
    from hpc_llm.causes.cause import Cause
    from hpc_llm.diagnosis import Diagnosis, Evidence


_MEANT = {
    "oom": ("device_oom", "host_oom"),
    "out_of_memory": ("device_oom", "host_oom"),
    "time_limit": ("walltime",),
    "nccl": ("collective_timeout", "unreachable"),
    "network": ("unreachable",),
    "ssh": ("unreachable",),
    "hang": ("collective_timeout",),
    "nan": ("nan_loss",),
    "killed": ("host_oom", "cancelled"),
    "conda": ("conda_not_initialised",),
    "import": ("package_missing",),
    "segv": ("segfault",),
    "sigsegv": ("segfault",),
    "ecc": ("gpu_hardware",),
    "enospc": ("disk_full",),
    "estale": ("file_system",),
    "ninja": ("build_failed",),
}
"""What people call causes otherwise."""
_IN_DOUBT = "not known whether it ends so again"
_SHOWN = 240
"""Characters of an evidence line on the terminal; --json has more of it."""


def register(app: typer.Typer) -> None:
    app.command("diagnose")(diagnose)


def diagnose(
    targets: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="[RUN|PATH]…",
            help="Runs, log files, folders of logs, or - for stdin; with --list causes, or outcomes as tables have them.",
        ),
    ] = None,
    list_causes: Annotated[
        bool, typer.Option("--list", help="List the causes that are known, what they mean and what to do.")
    ] = False,
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> None:
    """Why a run or any training log ended: the cause, the evidence lines, what to do."""
    from hpc_llm.errors import RequestError

    if list_causes:
        _list(targets, as_json)
        return
    if not targets:
        raise RequestError(
            "diagnose needs a run, a log file, a folder, or - for stdin. `hpc-llm status` lists the runs."
        )
    found = [one for is_stdin, some in groupby(targets, "-".__eq__) for one in _diagnose(list(some), is_stdin, logs)]
    if not found:
        raise RequestError(
            f"there is no run and no log in {', '.join(targets)}: give a run, a log file, or a folder that holds some."
        )
    if as_json:
        print_json([d.to_dict() for d in found] if len(found) != 1 else found[0].to_dict())
        return
    for number, diagnosis in enumerate(found):
        if number:
            typer.echo()
        _show(diagnosis)


def _diagnose(targets: list[str], is_stdin: bool, logs: Path) -> Iterable[Diagnosis]:
    """Those that are named together: two files may be of one job."""
    from hpc_llm.api import diagnose
    from hpc_llm.api.answers import diagnose_stream

    return [diagnose_stream(sys.stdin.buffer) for _ in targets] if is_stdin else diagnose(targets, logs=logs)


def _list(ids: list[str] | None, as_json: bool) -> None:
    from hpc_llm.api.catalogue import causes
    from hpc_llm.errors import RequestError, unknown_name

    by_id = {cause.id: cause for cause in causes()}
    by_outcome: dict[str, list[Cause]] = {}
    for cause in by_id.values():
        by_outcome.setdefault(cause.outcome.value, []).append(cause)
    for one in ids or ():
        if one not in by_id and one.upper() not in by_outcome:
            raise RequestError(unknown_name("cause", one, by_id, meant=_MEANT.get(one.lower(), ())))
    named = [cause for one in ids or by_id for cause in ([by_id[one]] if one in by_id else by_outcome[one.upper()])]
    chosen = list({cause.id: cause for cause in named}.values())
    if as_json:
        print_json([_as_json(cause) for cause in chosen])
        return
    for number, cause in enumerate(chosen):
        if number:
            typer.echo()
        typer.echo(f"{cause.id} ({cause.title})")
        print_facts(
            [
                ("what", cause.meaning),
                ("do", cause.remedy.splitlines()),
                ("retry as is", "yes" if cause.retry else "no"),
                ("listed as", cause.outcome.value),
            ]
        )


def _as_json(cause: Cause) -> dict[str, Any]:
    return {
        "cause": cause.id,
        "title": cause.title,
        "meaning": cause.meaning,
        "remedy": cause.remedy,
        "retry": cause.retry,
        "outcome": cause.outcome.value,
        "precedence": cause.precedence,
        "explains": sorted(cause.explains),
        "signs": [{"pattern": s.source, "role": s.role.value, "confidence": s.confidence} for s in cause.signs],
    }


def _cut(text: str) -> str:
    """The text in some lines; that of an error of ours whole, as it ends in what is to be done."""
    return text if len(text) <= _SHOWN or OURS in text else text[: _SHOWN - 1] + "…"


def _retry(diagnosis: Diagnosis) -> str:
    """Whether the very same is worth another try; what was kept is gone on with, which is something else."""
    if diagnosis.cause.id == "none":
        return ""
    if diagnosis.retry:
        return "yes"
    has_kept = "kept_step" in diagnosis.details
    if diagnosis.is_in_doubt:
        return f"{_IN_DOUBT}; to go on is another thing" if has_kept else _IN_DOUBT
    return "no: begun anew it ends so again; to go on is another thing" if has_kept else "no"


def _show(diagnosis: Diagnosis) -> None:
    said = f"{diagnosis.cause.id} ({diagnosis.cause.title}), confidence {diagnosis.confidence:.2f}"
    line = f"{diagnosis.source}: {said if diagnosis.is_over else 'not over'}"
    typer.echo(wrapped(redacted(line), terminal_width(), 2))
    print_facts(
        [
            ("what", with_logs(" ".join(t for t in (diagnosis.summary, diagnosis.meaning) if t))),
            ("evidence", [f"{_place(e)}: {_cut(e.text)}" for e in diagnosis.evidence]),
            ("chain", " -> ".join(diagnosis.chain) if len(diagnosis.chain) > 1 else ""),
            ("do", with_logs(diagnosis.remedy).splitlines()),
            ("retry as is", _retry(diagnosis)),
            ("runs in it", [_of_run(one) for one in diagnosis.runs] or diagnosis.several),
        ]
    )


def _place(evidence: Evidence) -> str:
    file = redacted(evidence.file)
    return file if evidence.line is None else f"{file}:{evidence.line}"


def _of_run(run: Diagnosis) -> str:
    """One run of a log that holds several: name, outcome, cause and why."""
    why = f": {_cut(run.reason)}" if run.reason else ""
    return f"{redacted(run.source)}  {run.outcome}, {run.cause.id}{why}"
