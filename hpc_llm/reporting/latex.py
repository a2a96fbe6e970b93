"""The comparison as LaTeX that fits a page of A4: its columns and rows cut into tables of that size.

The first table of a section says what each row is; the others repeat its number and first name, and hold the figures that
the first had no room for. Widths are estimated in Computer Modern at footnotesize, on the generous side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hpc_llm.records.files import write_output
from hpc_llm.reporting.comparison import best
from hpc_llm.reporting.files import reading_metrics, reading_table
from hpc_llm.reporting.metric import Metric
from hpc_llm.reporting.sections import Section, identity_columns
from hpc_llm.reporting.table import Table
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
    write_output(path, "\n".join(parts) + "\n")


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
    widths = _widths({name: shown.column(name) for name in names})
    bold = {m.header: marks.get(m.name, set()) for m in metrics}
    blocks = _blocks(shown, names, widths, metrics)
    pages = _pages(shown, widths)
    count = len(blocks) * len(pages)
    number = 0
    for rows in pages:
        for columns in blocks:
            number += 1
            caption = section.title if count == 1 else f"{section.title} ({number} of {count})"
            yield _table(shown.only(rows), columns, widths, bold, caption)


def _widths(identity: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The width of each text column; where they are too wide for the page, all but the outcome are narrower in proportion."""
    natural = {n: min(_WIDEST_PT[n], max(map(text_width, [n, *texts]))) for n, texts in identity.items()}
    outcome = natural.pop("Outcome")
    room = TEXT_WIDTH_PT - _width_of(["#", "Outcome", *natural], {"Outcome": outcome} | dict.fromkeys(natural, 0.0))
    share = min(1.0, room / sum(natural.values()))
    return {name: width * share for name, width in natural.items()} | {"Outcome": outcome}


def _blocks(shown: Table, names: list[str], widths: dict[str, float], metrics: list[Metric]) -> list[list[str]]:
    """The columns of each table; the first has all that says what a row is."""
    blocks = [["#", *names]]
    left = TEXT_WIDTH_PT - _width_of(blocks[0], widths)
    for metric in metrics:
        figures = _BOLD * max(map(text_width, shown.column(metric.header)))
        needed = max(text_width(metric.header), figures) + 2 * _GAP_PT
        if needed > left:
            blocks.append(["#", names[0]])
            left = TEXT_WIDTH_PT - _width_of(blocks[-1], widths)
        blocks[-1].append(metric.header)
        left -= needed
    return blocks


def _width_of(columns: Sequence[str], widths: dict[str, float]) -> float:
    return sum(widths.get(name, text_width("0000")) + 2 * _GAP_PT for name in columns)


def _pages(shown: Table, widths: dict[str, float]) -> list[list[int]]:
    """The rows of each page, as many as their lines fit."""
    pages: list[list[int]] = [[]]
    left = _LINES
    for index, row in shown.items():
        lines = max(1 + int(1.15 * text_width(row[name]) // width) for name, width in widths.items())
        if lines > left and pages[-1]:
            pages.append([])
            left = _LINES
        pages[-1].append(index)
        left -= lines
    return pages


def _table(
    shown: Table, columns: Sequence[str], widths: dict[str, float], bold: dict[str, set[int]], caption: str
) -> str:
    form = "".join("l" if name in widths else "r" for name in columns)
    rows = [
        [_cell(str(row[name]), widths.get(name), index in bold.get(name, ())) for name in columns]
        for index, row in shown.items()
    ]
    lines = [
        "\\begin{table}",
        f"\\caption{{{latex_text(caption)}}}",
        f"\\centering\\footnotesize\\setlength{{\\tabcolsep}}{{{_GAP_PT:g}pt}}",
        f"\\begin{{tabular}}{{{form}}}",
        "\\toprule",
        _line(map(latex_text, columns)),
        "\\midrule",
        *map(_line, rows),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + " \\\\"


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
