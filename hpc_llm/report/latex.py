"""The comparison as LaTeX that fits a page of A4: its columns and rows cut into tables of that size.

The first table of a section says what each row is; the others repeat its number and first name, and hold the figures that
the first had no room for. Widths are estimated in Computer Modern at footnotesize, on the generous side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from hpc_llm.report.comparison import best
from hpc_llm.report.files import reading_metrics, reading_table
from hpc_llm.report.metric import Metric
from hpc_llm.report.sections import Section, identity_columns
from hpc_llm.text.shown import one_line

TEXT_WIDTH_PT = 345.0
"""Of the class article on A4, the narrowest of the usual ones."""
_LINES = 46
"""Lines of a table on one page, beside its caption and rules."""
_TABLES_AT_ONCE = 12
"""Tables after which they are printed: LaTeX keeps a limited number of them waiting."""
_GAP_PT = 3.0
_SIZE_PT = 8.0
_BOLD = 1.16
_WIDEST_PT = {"Run": 78.0, "Model and shape": 86.0, "Method": 72.0, "Cluster": 58.0, "GPUs": 88.0, "Outcome": 62.0}
"""A text column that would be wider has its texts broken into lines."""
_NARROW, _WIDE = frozenset("fijlrtI.,:;'!|()[]/ "), frozenset("mwMW%@&±×")
_BREAK_AFTER = frozenset("_/=.,-+: ")
_LONGEST_WORD = 10
PRINTED_AS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    '"': r"\textquotedblright{}", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "[": "{[}", "]": "{]}",
}  # fmt: skip
_LAST_KNOWN = 0x17F
"""pdfTeX stops at characters beyond Latin that nobody has declared."""


def write_latex(sections: Sequence[Section], notes: Sequence[str], path: Path) -> None:
    r"""Tables of all sections, to be included with \input; they need the package booktabs and nothing else."""
    parts = ["% Needs \\usepackage{booktabs}. The best of each column is bold; an empty cell is unknown."]
    parts += [f"% {one_line(note)}" for note in notes]
    tables = [(section.title, table) for section in sections for table in _tables(section)]
    for number, (title, table) in enumerate(tables, 1):
        parts.append(f"% {one_line(title)}\n{table}")
        if number % _TABLES_AT_ONCE == 0:
            parts.append("\\clearpage")
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def latex_text(value: str) -> str:
    r"""`value` as LaTeX text that does nothing but print.

    >>> latex_text("a_b \\input{x}")
    'a\\_b \\textbackslash{}input\\{x\\}'
    """
    return "".join(_character(c) for c in one_line(value))


def text_width(value: str) -> float:
    """Width in points at footnotesize, estimated; rather too large than too small."""
    return _SIZE_PT * sum(_em(c) for c in value)


def _character(c: str) -> str:
    return PRINTED_AS.get(c, c if ord(c) <= _LAST_KNOWN else "?")


def _em(c: str) -> float:
    if c in _NARROW:
        return 0.42
    if c in _WIDE:
        return 0.93
    return 0.77 if c.isupper() else 0.555


def _tables(section: Section) -> Iterator[str]:
    """The tables of one section: for each page of rows the blocks of columns."""
    metrics, marks = reading_metrics(section.rows), {} if section.is_mixed else best(section.rows)
    shown = reading_table(section, metrics)
    names = [*identity_columns(section), "Outcome"]
    widths = _widths(shown[names])
    bold = {m.header: marks.get(m.name, set()) for m in metrics}
    blocks = _blocks(shown, names, widths, metrics)
    pages = _pages(shown, widths)
    count = len(blocks) * len(pages)
    number = 0
    for rows in pages:
        for columns in blocks:
            number += 1
            caption = section.title if count == 1 else f"{section.title} ({number} of {count})"
            yield _table(shown.loc[rows, columns], widths, bold, caption)


def _widths(identity: pd.DataFrame) -> dict[str, float]:
    """The width of each text column; where they are too wide for the page, all but the outcome are narrower in proportion."""
    natural = {n: min(_WIDEST_PT[n], max(map(text_width, [n, *identity[n]]))) for n in identity.columns}
    outcome = natural.pop("Outcome")
    room = TEXT_WIDTH_PT - _width_of(["#", "Outcome", *natural], {"Outcome": outcome} | dict.fromkeys(natural, 0.0))
    share = min(1.0, room / sum(natural.values()))
    return {name: width * share for name, width in natural.items()} | {"Outcome": outcome}


def _blocks(shown: pd.DataFrame, names: list[str], widths: dict[str, float], metrics: list[Metric]) -> list[list[str]]:
    """The columns of each table; the first has all that says what a row is."""
    blocks = [["#", *names]]
    left = TEXT_WIDTH_PT - _width_of(blocks[0], widths)
    for metric in metrics:
        figures = _BOLD * max(map(text_width, shown[metric.header]))
        needed = max(text_width(metric.header), figures) + 2 * _GAP_PT
        if needed > left:
            blocks.append(["#", names[0]])
            left = TEXT_WIDTH_PT - _width_of(blocks[-1], widths)
        blocks[-1].append(metric.header)
        left -= needed
    return blocks


def _width_of(columns: Sequence[str], widths: dict[str, float]) -> float:
    return sum(widths.get(name, text_width("0000")) + 2 * _GAP_PT for name in columns)


def _pages(shown: pd.DataFrame, widths: dict[str, float]) -> list[list[int]]:
    """The rows of each page, as many as their lines fit."""
    pages: list[list[int]] = [[]]
    left = _LINES
    for index, row in shown.iterrows():
        lines = max(1 + int(1.15 * text_width(row[name]) // width) for name, width in widths.items())
        if lines > left and pages[-1]:
            pages.append([])
            left = _LINES
        pages[-1].append(int(str(index)))
        left -= lines
    return pages


def _table(shown: pd.DataFrame, widths: dict[str, float], bold: dict[str, set[int]], caption: str) -> str:
    table = shown.copy()
    for name in table.columns:
        width = widths.get(name)
        marked = bold.get(name, set())
        table[name] = [_cell(str(cell), width, index in marked) for index, cell in table[name].items()]
    form = "".join("l" if name in widths else "r" for name in table.columns)
    table.columns = pd.Index([latex_text(name) for name in table.columns])
    text = str(table.to_latex(index=False, escape=False, column_format=form, caption=latex_text(caption)))
    begin = "\\begin{tabular}"
    return text.replace(begin, f"\\centering\\footnotesize\\setlength{{\\tabcolsep}}{{{_GAP_PT:g}pt}}\n{begin}", 1)


def _cell(value: str, width: float | None, is_bold: bool) -> str:
    if width is not None and text_width(value) > width:
        return f"\\parbox[t]{{{width:.1f}pt}}{{\\raggedright {_breakable(value)}\\strut}}"
    return f"\\textbf{{{latex_text(value)}}}" if is_bold else latex_text(value)


def _breakable(value: str) -> str:
    """`value` as LaTeX text that can be broken after its punctuation, and within words of unusual length."""
    parts, since = [], 0
    for c in one_line(value):
        parts.append(_character(c))
        since += 1
        if c in _BREAK_AFTER or since >= _LONGEST_WORD:
            parts.append("" if c == " " else "\\allowbreak{}")
            since = 0
    return "".join(parts)
