"""Jupyter notebooks: the text that their cells printed, a run or more a cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpc_llm.causes.jupyter import KERNEL_DIED
from hpc_llm.parsing import facts
from hpc_llm.text import notebooks, sources
from hpc_llm.text.json_text import figures

_TABLE_KEYS = {"epoch": "epoch", "step": "step", "training loss": "loss", "validation loss": "eval_loss"}


def is_notebook(text: bytes) -> bool:
    """Whether `text` is, or begins like, a notebook."""
    return text.lstrip()[:1] == b"{" and b'"cell_type"' in text and b'"cells"' in text


def printed(text: bytes) -> bytes | None:
    """What the cells of a notebook printed, as they ran, parted by `facts.CELL`; None where the text is not whole."""
    try:
        notebook = figures(text)
    except ValueError:
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return None
    cells = [cell for cell in cells if isinstance(cell, dict)]
    parts: list[str] = []
    for place in notebooks.as_run(cells):
        said = "".join(_outputs(cells[place]))
        if parts and _did_not_run(cells[place], said):
            parts[-1] += said
        elif said:
            parts.append(said)
    return facts.CELL.join(part.encode("utf-8", "replace") for part in parts)


def _did_not_run(cell: dict[str, Any], said: str) -> bool:
    """Whether all that stands below a cell is what an editor says of a kernel that did not start."""
    outputs = cell.get("outputs")
    told = [isinstance(one, dict) and "traceback" in one and not notebooks.is_raised(one) for one in outputs or ()]
    return (
        bool(told) and all(told) and KERNEL_DIED.pattern.search(sources.clean(said.encode("utf-8", "replace"))) is None
    )


def _outputs(cell: dict[str, Any]) -> Iterator[str]:
    found = cell.get("outputs")
    outputs = [output for output in found if isinstance(output, dict)] if isinstance(found, list) else []
    displays = [_Display.of(output.get("data")) for output in outputs]
    for place, (output, display) in enumerate(zip(outputs, displays, strict=True)):
        yield _joined(output.get("text"))
        data = output.get("data")
        if display is not None:
            is_kept = any(later is not None and display.is_early_state_of(later) for later in displays[place + 1 :])
            yield "" if is_kept else display.lines()
        elif isinstance(data, dict):
            yield _joined(data.get("text/plain"))
        if isinstance(output.get("traceback"), list):
            shown = "\n".join(map(str, output["traceback"])) + "\n"
            is_raised = notebooks.is_raised(output)
            yield (
                f"Traceback (most recent call last)\n{shown}{output['ename']}: {output.get('evalue')}\n"
                if is_raised
                else shown
            )


def _joined(text: object) -> str:
    """Notebooks hold a text as it is or as a list of its lines."""
    joined = "".join(map(str, text)) if isinstance(text, list) else text if isinstance(text, str) else ""
    return joined if not joined or joined.endswith("\n") else joined + "\n"


_STATE = re.compile(r"\[ {0,20}(\d{1,12})/(\d{1,12}) [^\]<]{0,60}(?:<[^\]<]{0,60})?, Epoch (\d{1,9}/)?")
"""Where training stands, and how many steps it has, above the table; the epoch is a whole number where training is over, and between steps
the display is one ahead."""


@dataclass(frozen=True)
class _Display:
    """The Trainer's progress and its table of losses, as a notebook shows them in one place and replaces them as training goes on."""

    markup: str
    rows: list[list[str]]
    """The first one names the columns."""
    state: tuple[int, int] | None
    """The step at which training stands, and how many it has."""
    is_over: bool
    """It came to the last of them."""

    @staticmethod
    def of(data: object) -> _Display | None:
        """The display among the forms of an output; None of another output."""
        markup = _joined(data.get("text/html")) if isinstance(data, dict) else ""
        rows = [_cells(row) for row in markup.split("</tr>")[:-1]] if "Training Loss" in markup else []
        if not rows or "training loss" not in (name.lower() for name in rows[0]):
            return None
        state = _STATE.search(markup)
        if state is None:
            return _Display(markup, rows, None, is_over=False)
        done, total = int(state[1]), int(state[2])
        return _Display(markup, rows, (done, total), is_over=done == total and state[3] is not None)

    def is_early_state_of(self, later: _Display) -> bool:
        """Whether both were kept of one training: the later one goes on with all rows of this one, or is the same."""
        if self.state is None or later.state is None or self.state[1] != later.state[1]:
            return False
        goes_on = self.state < later.state or (self.state == later.state and len(self.rows) < len(later.rows))
        return self.markup == later.markup or (goes_on and later.rows[: len(self.rows)] == self.rows)

    def lines(self) -> str:
        """What the Trainer prints of it outside of notebooks."""
        lines = [] if self.state is None else [f"  Total optimization steps = {self.state[1]}\n"]
        keys = [_TABLE_KEYS.get(name.lower()) for name in self.rows[0]]
        logged, step = "", ""
        for row in self.rows[1:]:
            pairs = {key: value for key, value in zip(keys, row, strict=False) if key and value}
            loss, is_evaluation = pairs.get("loss", ""), "eval_loss" in pairs
            # Each evaluation shows the loss that was logged last, which may be that of an earlier step.
            shown, logged = _NOT_LOGGED if is_evaluation and loss == logged else loss, loss
            step = pairs.get("step", step)
            if _is_number(shown) or shown == _NOT_LOGGED:
                lines.append(_line(shown, {key: pairs.get(key, "") for key in ("epoch", "step")}))
            if _is_number(pairs.get("eval_loss", "")):
                lines.append(f"{{'eval_loss': {pairs['eval_loss']}}}\n")
            elif is_evaluation:
                lines.append("***** Running Evaluation *****\n")
        if self.is_over and self.state is not None and step.isdecimal() and int(step) < self.state[1]:
            lines.append(_line(_NOT_LOGGED, {"step": str(self.state[1])}))
            lines.append(f"TrainOutput(global_step={self.state[1]}, )\n")
        return "".join(lines)


_NOT_LOGGED = "No log"
"""What stands in the table for the loss of steps before the first that was logged."""


def _line(loss: str, place: dict[str, str]) -> str:
    """The Trainer's line of a step, or of an epoch."""
    at = [f", '{key}': {value}" for key, value in place.items() if _is_number(value)]
    return f"{{'loss': {loss}{''.join(at)}}}\n"


def _cells(row: str) -> list[str]:
    """The texts of a table row's cells."""
    import html  # its table of entities is large

    parts = re.split("</t[hd]>", row)[:-1]
    return [html.unescape(part[part.rfind(">") + 1 :]).strip() for part in parts]


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(?:\.\d+)?(?:e-?\d+)?|nan", text))
