"""Aligned tables that fit a terminal: a row that is too wide goes on below itself, and no value is broken within."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpc_llm.text.prose import broken

GAP = "  "
INDENT = "    "
"""Before the lines on which a row goes on."""
_NARROWEST = 24
"""Columns of a terminal that words need to be read."""


def table(rows: Sequence[Sequence[str]], headers: Sequence[str], width: int | None = None) -> list[str]:
    """The lines of the table: figures to the right, texts to the left; none longer than `width`, if there is one.

    Of a last column of words the words go on in that column. Any other table that is too wide has several lines a row.
    A single value that is wider loses its middle.

    >>> print("\\n".join(table([["a", "1"], ["bb", "22"]], ["name", "n"])))
    name      n
    ------  ---
    a         1
    bb       22
    """
    right, widths = _figures(rows, headers), _widths(rows, headers)
    groups = [list(range(len(headers)))]
    if width is not None and _width(widths) > width >= _width(_widths(rows, headers, padding=0)):
        widths = _widths(rows, headers, padding=0)
    elif width is not None and _width(widths) > width:
        if (words := _words_fit(rows, headers, width)) is not None:
            return _with_words(rows, headers, right, words)
        rows = [[shortened(cell, width - (len(INDENT) if i else 0)) for i, cell in enumerate(row)] for row in rows]
        widths = _widths(rows, headers, padding=0)
        groups = _groups(widths, width)
    lines: list[str] = []
    for line in (headers, ["-" * one for one in widths], *rows):
        for number, group in enumerate(groups):
            cells = (_cell(line[i], widths[i], right[i]) for i in group)
            lines.append(((INDENT if number else "") + GAP.join(cells)).rstrip())
    return lines


def fits(rows: Sequence[Sequence[str]], headers: Sequence[str], width: int) -> bool:
    """Whether each row of the table keeps all its columns beside each other in so narrow a terminal."""
    return _width(_widths(rows, headers, padding=0)) <= width or _words_fit(rows, headers, width) is not None


def shortened(text: str, width: int) -> str:
    """The text with its middle left out where it is longer.

    >>> shortened("20260501-100000-taiwania2-z3", 16)
    '20260501…nia2-z3'
    """
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def wrapped(text: str, width: int | None, indent: int) -> str:
    """Prose broken between words and outside of commands, its further lines indented so far; as it is without a width."""
    if width is None or width - indent < _NARROWEST:
        return text
    return ("\n" + " " * indent).join(broken(text, width - indent))


def _cell(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _widths(rows: Sequence[Sequence[str]], headers: Sequence[str], padding: int = 2) -> list[int]:
    longest = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    return [max(width, len(header) + padding) for width, header in zip(longest, headers, strict=True)]


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _groups(widths: Sequence[int], width: int) -> list[list[int]]:
    """Which columns stand on which line of a row."""
    groups: list[list[int]] = [[]]
    for column in range(len(widths)):
        indent = len(INDENT) if len(groups) > 1 else 0
        if groups[-1] and indent + _width([widths[i] for i in (*groups[-1], column)]) > width:
            groups.append([])
        groups[-1].append(column)
    return groups


def _words_fit(rows: Sequence[Sequence[str]], headers: Sequence[str], width: int) -> int | None:
    """The width that is left for a last column of words; None where there is none."""
    if len(headers) < 2 or not any(" " in row[-1] for row in rows):
        return None
    left = width - _width(_widths(rows, headers)[:-1]) - len(GAP)
    longest = max((len(word) for row in rows for word in row[-1].split()), default=0)
    return left if left >= max(_NARROWEST, longest) else None


def _with_words(rows: Sequence[Sequence[str]], headers: Sequence[str], right: Sequence[bool], words: int) -> list[str]:
    lines = [[(*row[:-1], line) if not i else ("",) * (len(row) - 1) + (line,) for i, line in enumerate(broken(row[-1], words))]
             for row in rows]  # fmt: skip
    flat = [line for of_row in lines for line in of_row]
    widths = _widths(flat, headers)
    widths[-1] = min(widths[-1], words)
    return list(_aligned([tuple(headers), tuple("-" * one for one in widths), *flat], widths, [*right[:-1], False]))


def _aligned(lines: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    for line in lines:
        yield GAP.join(_cell(c, w, r) for c, w, r in zip(line, widths, right, strict=True)).rstrip()


def _figures(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> list[bool]:
    """Which columns hold nothing but figures."""
    columns = [[row[i] for row in rows if row[i]] for i in range(len(headers))]
    return [bool(cells) and all(_is_figure(cell) for cell in cells) for cells in columns]


def _is_figure(cell: str) -> bool:
    return cell[0].isdigit() and not any(c.isalpha() for c in cell)
