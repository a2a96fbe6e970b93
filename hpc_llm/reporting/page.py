"""The HTML page: one file with its styles, scripts, plots and the records behind its numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from hpc_llm import __version__
from hpc_llm.errors import counted
from hpc_llm.parsing import UNKNOWN_FORMAT
from hpc_llm.records.files import write_output
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.baseline import Change
from hpc_llm.reporting.bundle import vega_bundle
from hpc_llm.reporting.comparison import NOT_OVER, best, count, figure, has_several_data, text
from hpc_llm.reporting.endings import cause_title, endings
from hpc_llm.reporting.figure import ALL_MODELS, CURVES, Figure
from hpc_llm.reporting.figures import figures, method_names
from hpc_llm.reporting.files import gpus, interval, method, reading_metrics
from hpc_llm.reporting.metric import METRICS, TOKENS_PER_GPU, Metric
from hpc_llm.reporting.profiles import profile_tables
from hpc_llm.reporting.records import plain, records
from hpc_llm.reporting.reference_text import HEADERS, reference_rows
from hpc_llm.reporting.report import Report, best_rate, regressions
from hpc_llm.reporting.sections import Section, identity_columns, shape
from hpc_llm.reporting.table import Cells
from hpc_llm.text.shown import shown

_SHORT = {"OOM_DEVICE": "OOM", "OOM_HOST": "host OOM"}


def write_page(report: Report, path: Path, created: datetime | None = None, *, is_plotted: bool = True) -> None:
    """Write the page to `path`; `created` is the time that it shows, now if left out. With `is_plotted` it has plots."""
    library = vega_bundle() if is_plotted else ""
    write_output(path, render_page(report, library, created or datetime.now(timezone.utc)))


def render_page(report: Report, plotting_library: str, created: datetime) -> str:
    """The page as text; without a library it has tables alone."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_visible
    )
    drawn, ended = figures(report) if plotting_library else [], endings(report)
    row_of = {member: index for index, row in report.compared.items() for member in row["members"]}
    return environment.from_string(_asset("page.html.j2")).render(
        created=created.strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        counted=counted,
        num_runs=len(report.runs) - len(report.unread),
        outcomes=_outcomes(report),
        highlights=_highlights(report),
        sections=[_section(report, section, drawn) for section in report.sections],
        all_models=[f for f in drawn if f.section in ALL_MODELS],
        profiles=profile_tables(report),
        filters=_filters(report),
        num_rows=len(report.compared),
        references=reference_rows(report.references),
        reference_headers=HEADERS,
        orders=report.references.orders,
        invalid=[one for one in ended if one.outcome == Outcome.INVALID.value],
        ended=[(one, row_of[one.run]) for one in ended if one.run in row_of],
        unread=[(run.row.source, run.row.outcome_reason) for run in report.runs if not run.is_known],
        baseline=report.baseline,
        regressions=regressions(report),
        notes=report.notes,
        css=_inline(_asset("page.css")),
        script=_inline(_asset("page.js")),
        plotting_library=_inline(plotting_library),
        data=_json({"methods": method_names(drawn), "figures": [_drawn(f) for f in drawn], **records(report)}),
    )


def _visible(value: Any) -> Any:
    """Every text that the page takes in, but its own scripts."""
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _asset(name: str) -> str:
    return files("hpc_llm.reporting").joinpath(name).read_text(encoding="utf-8")


def _inline(code: str) -> Markup:
    """Code of ours or of the plotting library as the content of a <script> or <style>."""
    return Markup(code.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def _json(value: Any) -> Markup:
    """JSON that no text in it can leave: the characters of markup are written as escapes."""
    data = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return Markup(data)


def _outcomes(report: Report) -> list[tuple[str, int]]:
    """Outcome and number of runs, in the order of `Outcome`."""
    counts = Counter(row["outcome"] for row in report.table if row["format"] != UNKNOWN_FORMAT)
    return [(name, counts[name]) for name in (*Outcome.__members__, NOT_OVER) if name in counts]


def _highlights(report: Report) -> list[dict[str, str]]:
    """The most tokens/s of each section."""
    found = []
    for section in report.sections:
        top = None if section.is_mixed else best_rate(section)
        if top is not None:
            value = METRICS[0].text_with_interval(
                figure(top[METRICS[0].name]), interval(top, METRICS[0]), top.get(METRICS[0].ends)
            )
            who = f"{method(top)} on {text(top['cluster']) or 'an unknown cluster'}, {gpus(top)}"
            found.append({"id": section.id, "section": section.title, "value": value, "who": who})
    return found


def _filters(report: Report) -> dict[str, list[str]]:
    rows = report.compared
    names = {name: sorted({str(v) for v in rows.column(name) if text(v)}) for name in ("cluster", "method", "outcome")}
    return {name: values for name, values in names.items() if len(values) > 1}


def _section(report: Report, section: Section, drawn: Sequence[Figure]) -> dict[str, Any]:
    metrics, marks = reading_metrics(section.rows), {} if section.is_mixed else best(section.rows)
    found = {c.row: c for c in report.baseline.changes} if report.baseline else {}
    return {
        "id": section.id,
        "title": section.title,
        "is_mixed": section.is_mixed,
        "metrics": metrics,
        "has_several_data": has_several_data(section.rows),
        "has_repeats": any(row["runs"] > 1 for row in section.rows),
        "columns": [(name, "low" if name == "GPUs" else "text") for name in identity_columns(section)],
        "rows": [_row(report, row, index, metrics, marks, found) for index, row in section.rows.items()],
        "matrix": None if section.is_mixed else _matrix(section),
        "figures": [f for f in drawn if f.section == section.id],
    }


def _identity(row: Cells) -> dict[str, dict[str, Any]]:
    """Text, smaller text and value to sort by of the columns that say what a row is."""
    ranks = count(row["world_size"])
    cells = {
        "Run": (text(row["name"]) or "", ""),
        "Model and shape": (shape(row), ""),
        "Method": (text(row["method"]) or "", text(row["configuration"]) or ""),
        "Cluster": (text(row["cluster"]) or "", ""),
        "GPUs": (gpus(row), text(row["precision"]) or ""),
    }
    values = {name: shown for name, (shown, _) in cells.items()} | {"GPUs": "" if ranks is None else str(ranks)}
    return {name: {"text": shown, "more": more, "value": values[name]} for name, (shown, more) in cells.items()}


def _row(
    report: Report,
    row: Cells,
    index: int,
    metrics: list[Metric],
    marks: dict[str, set[int]],
    found: dict[int, Change],
) -> dict[str, Any]:
    change = found.get(index)
    return {
        "id": index,
        "identity": _identity(row),
        "cluster": text(row["cluster"]) or "",
        "method": text(row["method"]) or "",
        "outcome": row["outcome"],
        "reason": text(row["outcome_reason"]) or "",
        "cause": "; ".join(dict.fromkeys(c for c in (cause_title(report.runs[i]) for i in row["members"]) if c)),
        "runs": count(row["runs"]),
        "cells": [_cell(row, m, index in marks.get(m.name, ()), change) for m in metrics],
        "regressions": change.regressions if change else (),
        "verdict": _verdict(change),
    }


def _verdict(change: Change | None) -> str:
    """Empty where there is no counterpart."""
    if change is None:
        return ""
    if change.unknown:
        return f"not compared: {'; '.join(change.unknown)}"
    return "no regression" if change.same_setting else "another setting than the baseline's"


def _cell(row: Cells, metric: Metric, is_best: bool, change: Change | None) -> dict[str, Any]:
    value, half = figure(row[metric.name]), interval(row, metric)
    ratio = change.ratios.get(metric.name) if change else None
    return {
        "text": metric.text(value),
        "spread": metric.spread(value, half, row.get(metric.ends)),
        "ratio": "" if ratio is None else f"{ratio:.3f}",
        "value": value,
        "best": is_best,
        "label": metric.header,
    }


def _matrix(section: Section) -> dict[str, Any] | None:
    """Clusters against methods: tokens/s/GPU, or how it ended; None where either has one entry only."""
    places: dict[tuple[str, str], dict[tuple[str, str], dict[str, Any]]] = {}
    columns: set[tuple[str, str]] = set()
    for index, row in section.rows.items():
        name = (text(row["method"]) or "", text(row["configuration"]) or "")
        columns.add(name)
        cells = places.setdefault((text(row["cluster"]) or "", _matrix_gpus(row)), {})
        done = row["outcome"] == Outcome.COMPLETED.value and figure(row[TOKENS_PER_GPU.name]) is not None
        if done or name not in cells:
            value = figure(row[TOKENS_PER_GPU.name]) if done else None
            shown = TOKENS_PER_GPU.text(value) if done else _SHORT.get(row["outcome"], row["outcome"])
            cells[name] = {"row": index, "text": shown, "value": value, "best": False}
    if len(places) < 2 or len(columns) < 2:
        return None
    for cells in places.values():
        known = [c["value"] for c in cells.values() if c["value"] is not None]
        for cell in cells.values():
            cell["best"] = len(known) > 1 and cell["value"] == max(known)
    names = sorted(columns)
    return {"columns": names, "rows": [(c, g, [cells.get(n) for n in names]) for (c, g), cells in places.items()]}


def _matrix_gpus(row: Cells) -> str:
    ranks = count(row["world_size"])
    what = "GPU" if text(row["gpu"]) else "rank"
    return f"{ranks} {what}{'s' if ranks > 1 else ''}" if ranks else ""


def _drawn(drawn: Figure) -> dict[str, Any]:
    """A figure for the script of the page; of curves each once with all its points."""
    curves = _curves(drawn.records) if drawn.kind in CURVES else drawn.records
    return {
        "id": drawn.id, "kind": drawn.kind, "title": drawn.title, "caption": drawn.caption, "x": drawn.x_title,
        "y": drawn.y_title, "log": drawn.is_log, "panels": drawn.panels, "records": curves,
    }  # fmt: skip


def _curves(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points of one line each to lines with `xs` and `ys`, in as many digits as can be seen."""
    found: dict[Any, dict[str, Any]] = {}
    for point in points:
        line = {name: value for name, value in point.items() if name not in ("x", "y")}
        curve = found.setdefault(tuple(line.items()), {**line, "xs": [], "ys": []})
        curve["xs"].append(_shortened(point["x"]))
        curve["ys"].append(_shortened(point["y"]))
    return list(found.values())


def _shortened(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.5g}")
