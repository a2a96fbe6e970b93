"""Jupyter notebooks: the text that their cells printed, a run or more a cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hpc_llm.parsing import facts
from hpc_llm.text.json_text import figures

_TABLE_KEYS = {"step": "step", "training loss": "loss", "validation loss": "eval_loss"}


def is_notebook(text: bytes) -> bool:
    """Whether `text` is, or begins like, a notebook."""
    return text.lstrip()[:1] == b"{" and b'"cell_type"' in text and b'"cells"' in text


def printed(text: bytes) -> bytes | None:
    """What the cells of a notebook printed, in order, parted by `facts.CELL`; None where the text is not whole."""
    try:
        notebook = figures(text)
    except ValueError:
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return None
    outputs = ("".join(_outputs(cell)) for cell in cells if isinstance(cell, dict))
    return facts.CELL.join(out.encode("utf-8", "replace") for out in outputs if out)


def _outputs(cell: dict[str, Any]) -> Iterator[str]:
    found = cell.get("outputs")
    for output in found if isinstance(found, list) else ():
        if not isinstance(output, dict):
            continue
        yield _joined(output.get("text"))
        data = output.get("data")
        if isinstance(data, dict):
            table = _table(_joined(data.get("text/html")))
            yield table or _joined(data.get("text/plain"))
        if isinstance(output.get("traceback"), list):
            yield "Traceback (most recent call last)\n" + "\n".join(map(str, output["traceback"])) + "\n"
            yield f"{output.get('ename')}: {output.get('evalue')}\n"


def _joined(text: object) -> str:
    """Notebooks hold a text as it is or as a list of its lines."""
    joined = "".join(map(str, text)) if isinstance(text, list) else text if isinstance(text, str) else ""
    return joined if not joined or joined.endswith("\n") else joined + "\n"


def _table(markup: str) -> str:
    """The Trainer's table of losses as the lines that it prints outside of notebooks; empty for other tables."""
    rows = [_cells(row) for row in markup.split("</tr>")] if "Training Loss" in markup else []
    if not rows or "training loss" not in (name.lower() for name in rows[0]):
        return ""
    keys = [_TABLE_KEYS.get(name.lower()) for name in rows[0]]
    lines = []
    for row in rows[1:]:
        pairs = {key: value for key, value in zip(keys, row, strict=False) if key and _is_number(value)}
        ordered = sorted(pairs, key=lambda key: key != "loss")
        lines.append("{" + ", ".join(f"'{key}': {pairs[key]}" for key in ordered) + "}\n")
    return "".join(lines)


def _cells(row: str) -> list[str]:
    """The texts of a table row's cells."""
    import html  # its table of entities is large

    parts = re.split("</t[hd]>", row)[:-1]
    return [html.unescape(part[part.rfind(">") + 1 :]).strip() for part in parts]


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(?:\.\d+)?(?:e-?\d+)?|nan", text))
