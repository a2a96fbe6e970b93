"""The output folder of a Hugging Face Trainer tells of one training many times: in its state, in that of each checkpoint, in tables of results.

What another file of the folder says, too, is left out where the folder is searched; a file that is named itself is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hpc_llm.records.files import read_regular
from hpc_llm.text.json_text import figures

_STATE = "trainer_state.json"
_RESULTS = ("all_results.json", "train_results.json", "eval_results.json")
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
_FIGURES = ("train_runtime", "eval_loss", "perplexity", "eval_perplexity")
"""Of a table of results, what a row takes."""


def repeated(folder: Path, names: Iterable[str]) -> list[Path]:
    """The files in `folder` and its checkpoints, which holds `names`, that say nothing of a training but what another one says."""
    held = set(names)
    checkpoints = sorted((int(found[1]), name) for name in held if (found := _CHECKPOINT.fullmatch(name)))
    states = [folder / name / _STATE for _, name in checkpoints] + ([folder / _STATE] if _STATE in held else [])
    results = [folder / name for name in _RESULTS if name in held]
    if len(states) + len(results) < 2:
        return []
    repeats, told = _states(states)
    for path in results:
        table = _read(path)
        own = {name: table[name] for name in _FIGURES if name in table} if table else {}
        if own and all(any(entry.get(name) == value for entry in told) for name, value in own.items()):
            repeats.append(path)
        elif table:
            told.append(table)
    return repeats


def _states(paths: list[Path]) -> tuple[list[Path], list[Mapping[str, Any]]]:
    """Which states hold no line of training that a later one has not, of which several trainings may have left theirs, and the lines of
    the last."""
    repeats: list[Path] = []
    last: list[Any] = []
    told: list[set[str]] = []
    for path in reversed(paths):
        state = _read(path)
        history = state.get("log_history") if state else None
        if not isinstance(history, list):
            continue
        own = set(map(repr, _of_training(history)))
        if own and any(lines >= own for lines in told):
            repeats.append(path)
        else:
            told.append(set(map(repr, history)))
            last = last or history
    return repeats, [entry for entry in last if isinstance(entry, dict)]


def _of_training(history: list[Any]) -> list[Any]:
    """Its lines with a loss: evaluations on the way say nothing of the end."""
    return [entry for entry in history if isinstance(entry, dict) and "loss" in entry]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = figures(read_regular(path))
    except (OSError, ValueError):  # whoever reads it as a log says so
        return None
    return found if isinstance(found, dict) else None
