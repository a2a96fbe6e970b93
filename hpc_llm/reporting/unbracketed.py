"""What rows have that do not name a setting which others of their table name in brackets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpc_llm.parsing.rows import TRAIN
from hpc_llm.reporting.collect import ReportedRun
from hpc_llm.reporting.comparison import OF_LOSSES, text
from hpc_llm.reporting.labels import short_paths, shown_setting
from hpc_llm.reporting.sections import Section
from hpc_llm.reporting.table import Cells


def note_of_unbracketed(runs: Sequence[ReportedRun], sections: Sequence[Section]) -> list[str]:
    """The value of each such setting, where these rows share one, in a sentence."""
    told = [f"{', '.join(shared)} ({one.title})" for one in sections if (shared := list(_shared(runs, one)))]
    return [f"Rows that do not name a setting which others of their table name have {'; '.join(told)}."] if told else []


def _shared(runs: Sequence[ReportedRun], section: Section) -> Iterator[str]:
    rows = [row for row in section.rows if row["kind"] == TRAIN and not section.is_mixed]
    settings = [_settings_of(runs[row["members"][0]]) for row in rows]
    paths = dict.fromkeys(path for one in settings for path in one)
    named = {path: [_names(row, path) for row in rows] for path in paths}
    short = short_paths([path for path in paths if any(named[path])])
    for path, name in short.items():
        others = [
            one[path] for one, is_named in zip(settings, named[path], strict=True) if not is_named and path in one
        ]
        if others and others[0] is not None and all(one == others[0] for one in others):
            yield shown_setting(name, others[0])


def _settings_of(run: ReportedRun) -> Mapping[str, Any]:
    return {**run.configuration, **{name: value for name, value in run.settings.items() if name in OF_LOSSES}}


def _names(row: Cells, path: str) -> bool:
    """Whether the row names the setting, by as much of the end of its path as tells it apart."""
    for part in (text(row["configuration"]) or "").split(", "):
        name, sign, _ = part.removeprefix("without ").partition("=")
        if (sign or name != part) and f".{path}".endswith(f".{name}"):
            return True
    return False
