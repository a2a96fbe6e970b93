"""hpc-llm render: print the exact batch script."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hpc_llm.cli.asking import asked
from hpc_llm.cli.options import JsonOption, ManyOptions, RunOptions, output_file, with_run_options
from hpc_llm.cli.output import json_text, note, terminal_width
from hpc_llm.cli.study_text import run_documents, run_list, unplanned_list
from hpc_llm.cli.terminal import write_exactly
from hpc_llm.errors import RequestError
from hpc_llm.records.files import replacing_output
from hpc_llm.records.run import is_run

if TYPE_CHECKING:
    from hpc_llm.api.batches import Places
    from hpc_llm.api.request import Request
    from hpc_llm.job.batch import Batch
    from hpc_llm.job.support import Support


_NARROWEST = 40
"""Columns below which nobody could read it any more."""

_HEAD = 1 << 16
_OTHER_OUTPUT = re.compile(rb'# the plan|--- [^\n]*\n\+\+\+ this script\n|(?:\[\s*)?\{\s*"script": "#!')
"""How the plan, a difference and the document begin."""


def register(app: typer.Typer) -> None:
    app.command("render", cls=ManyOptions)(render)


@with_run_options
def render(
    options: RunOptions,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the whole plan, and where its values and the script's lines come from."),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Show the file of functions too that the script checks and uses.")
    ] = False,
    diff: Annotated[
        Optional[str],
        typer.Option(
            metavar="RUN|CLUSTER",
            help="Show what differs from a run, or from another cluster: the plan, then the script.",
        ),
    ] = None,
    run: Annotated[
        Optional[str], typer.Option(metavar="NAME", help="Of a study: show what this run of it would be.")
    ] = None,
    output: Annotated[
        Optional[Path],
        typer.Option("-o", "--output", metavar="FILE", callback=output_file, help="Write the script there."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the exact batch script that submit would send; only the run id is decided at submission. Of a study, list its runs."""
    if sum((explain, full, as_json, diff is not None)) > 1:
        raise RequestError(
            "--explain, --full, --json and --diff exclude each other: --json holds all but a difference."
        )
    if output is not None and output.is_file():
        _refuse_other_files(output)
    request, places = asked(options)
    is_list = run is None and len(request.study) > 1
    if is_list and not as_json and (full or diff is not None or output is not None):
        raise RequestError(f"the study has {len(request.study)} runs: say with --run NAME whose script is meant.")
    alone = request if run is None else request.only(run)
    if diff is not None:
        request, run = alone, None
    is_list = is_list and not (explain or as_json)
    found = _planned(request, places, run, is_list)
    if is_list:
        write_exactly(run_list(found, terminal_width()))
        return
    for batch in found:
        tell_arguments(batch)
    if as_json:
        documents = [_document(batch, i) for batch in found for i in range(len(batch.distinct_scripts))]
        text = json_text(documents[0] if len(documents) == 1 else documents)
    elif diff is not None:
        text = "".join(_difference(batch, diff, request, places, _room(output)) for batch in found)
        if not text:
            note(f"nothing differs from {diff}")
    elif explain:
        text = "\n".join(_explained(batch, _width(output)) for batch in found)
    else:
        texts = [script.text for batch in found for script in batch.distinct_scripts]
        text = "\n".join([*texts, *(_carried(batch.support) for batch in found[:1] if full)])
    is_script = not (as_json or explain or full or diff is not None)
    _write(text, output, ", to look at: hpc-llm submit with the same options sends it" if is_script else "")


def _refuse_other_files(output: Path) -> None:
    """Raise RequestError where the file is no earlier output of `render`, or lies in a run's folder: it would be lost."""
    run = next((one for one in output.resolve().parents if is_run(one)), None)
    if run is not None:
        raise RequestError(f"-o {output} is of the run in {run}, and would be replaced: give another file.")
    with output.open("rb") as file:
        begin = file.read(_HEAD)
    is_script = begin.startswith(b"#!") and b"\nrun_dir=" in begin and b"begin_run" in begin
    if begin and not is_script and not _OTHER_OUTPUT.match(begin):
        raise RequestError(
            f"-o {output} is a file that render did not write, and would be replaced: give another file, or remove it first."
        )


def _planned(request: Request, places: Places, run: str | None, is_list: bool) -> list[Batch]:
    """What submit would send; of a study only what concerns the run of that name."""
    from hpc_llm.api.batches import batches
    from hpc_llm.api.corpora import MISSING

    try:
        return _of_run(batches(request, places, preview=True), run)
    except MISSING:
        if is_list:  # what the runs are needs neither their data nor an account; what is missing is said beside it
            write_exactly(unplanned_list(request.runs, terminal_width()))
        raise


def _write(text: str, output: Path | None, what_for: str) -> None:
    if output is None:
        write_exactly(text)
    else:
        with replacing_output(output) as file:
            file.write(text)
        note(f"written to {output}{what_for}")


def _of_run(found: list[Batch], name: str | None) -> list[Batch]:
    """Of a study only what concerns the run of that name."""
    from hpc_llm.api.request import position

    if name is None:
        return found
    places = [(batch, i) for batch in found for i in range(len(batch.planned))]
    names = [one.study.name for batch in found for one in batch.planned if one.study]
    batch, number = places[position(name, names)]
    return [batch.of_run(number)]


def _carried(support: Support) -> str:
    """The file of functions, which is the same for all scripts, below a line that says where it lies."""
    return f"# {support.path}, SHA-256 {support.digest}:\n{support.text}"


def tell_arguments(batch: Batch) -> None:
    """Say what the scheduler's command gets beside each script; only submission draws the UUID."""
    from hpc_llm.api.batches import arguments_beside

    command, arguments = arguments_beside(batch)
    for words in arguments:
        note(f"beside the script {command} gets {shlex.join(words)}, and submission draws the UUID")


def _document(batch: Batch, index: int) -> dict[str, Any]:
    script = batch.scripts[index]
    plans = [p.plan.to_dict() for p in batch.planned]
    document: dict[str, Any] = {
        "script": script.text,
        "support": batch.support.text,
        "plan": plans[index],
        "origins": [{"line": n, "origin": origin} for n, origin in enumerate(script.origins, start=1)],
    }
    if batch.array:
        document["plans"] = plans
    if batch.planned[0].study is not None:
        document["runs"] = run_documents(batch) if batch.array else run_documents(batch)[index : index + 1]
    return document


def _room(output: Path | None) -> int | None:
    """Columns of the terminal that shows a difference; None where a program reads it, as `patch` does, for whom no line is broken."""
    return _width(output) if output is None and terminal_width() is not None else None


def _width(output: Path | None) -> int:
    """Columns of what is printed for reading: fewer where a narrow terminal shows it."""
    from hpc_llm.api.layout import WIDTH

    columns = terminal_width() if output is None else None
    return WIDTH if columns is None else max(min(columns, WIDTH), _NARROWEST)


def _explained(batch: Batch, width: int) -> str:
    """The plans and the scripts, for reading."""
    from hpc_llm.cli.plan_text import explained

    plans = "".join(f"{row}\n" for row in explained(batch.planned, width))
    scripts = (
        f"# the script; without an arrow: the template\n{script.explained(width)}" for script in batch.distinct_scripts
    )
    return "\n".join((plans + _memory(batch, width), *scripts))


def _memory(batch: Batch, width: int) -> str:
    """What the first plan needs, where that can be told."""
    from hpc_llm.api.estimating import with_own_memory
    from hpc_llm.api.fit import as_asked, memory_there
    from hpc_llm.api.layout import folded
    from hpc_llm.cli.estimate_text import places
    from hpc_llm.cli.plan_text import name_of

    memory = memory_there(as_asked(batch.planned[0]), with_own_memory(batch.cluster))
    which = name_of(batch.planned[0]) if len(batch.planned) > 1 else "it"
    lines = [f"# what {which} needs; `hpc-llm estimate` says more", *places(memory)] if memory else []
    return "".join(f"{row}\n" for line in lines for row in folded(line, width))


def _difference(batch: Batch, other: str, request: Request, places: Places, width: int | None) -> str:
    """What this request changes: in the plan, field by field, and in the script, as a unified diff, in lines as they are without a `width`."""
    from hpc_llm.api.comparing import compare
    from hpc_llm.api.layout import folded
    from hpc_llm.cli.plan_text import differences, name_of
    from hpc_llm.text.secrecy import redacted

    sides = compare(batch, other, request, places)
    fields = []
    for run, their_plan, our_plan in sides.plans:
        which = f"the plan of {name_of(run)}" if len(batch.planned) > 1 else "the plan"
        found = list(differences(their_plan, our_plan))
        fields += [f"# {which}: {other} → this request", *found] if found else []
    # A script that another version or somebody else wrote may hold what ours would refuse.
    script = map(redacted, unified(sides.their_script, sides.our_script, other, "this script"))
    rows = [row for line in (*fields, *script) for row in ([line] if width is None else folded(line, width))]
    return "".join(f"{row}\n" for row in rows)


def unified(theirs: str, ours: str, their_name: str, our_name: str) -> Iterator[str]:
    """The lines of a unified diff that makes the one text of the other byte for byte: only a newline ends a line.

    >>> list(unified("a\\rb\\nc", "a\\rb\\nd\\n", "x", "y"))[3:]
    [' a\\rb', '-c', '\\\\ No newline at end of file', '+d']
    """
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (theirs, ours))
    for line in difflib.unified_diff(before, after, their_name, our_name):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
