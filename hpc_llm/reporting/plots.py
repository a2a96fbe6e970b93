"""The plots as PNG, SVG and PDF files, for papers and slides: the same figures as on the page, on white."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpc_llm.outside import away_from_here
from hpc_llm.records.files import replacing
from hpc_llm.records.run import file_name_part
from hpc_llm.reporting.figure import ALL_MODELS, Figure
from hpc_llm.reporting.figures import figures, method_names
from hpc_llm.reporting.labels import shortened
from hpc_llm.reporting.profiles import KINDS
from hpc_llm.reporting.report import Report

# Told apart without colour too; the darker variants keep 3:1 on white. The page has the same order.
_COLOURS = ("#0067a5", "#c24e00", "#007a5c", "#a8397f", "#8a6400", "#5a4fcf", "#4d5660", "#0086a8")
_MARKERS = ("o", "s", "^", "D", "P", "v", ">")
_DASHES: tuple[Any, ...] = ("-", (0, (6, 3)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (10, 4)), (0, (4, 4, 1, 4)))
_ACROSS = 3
_MOST_NAMED = 16
"""Lines or points of more names than these have no legend: nobody could tell them apart by it."""
_DPI = 150
_POINTS = 9
"""Size of the letters."""
_BESIDE = 6 * _POINTS
"""Points that stand beside a name in a legend: the line, and the space to the next."""
_HINTED = 1.15
"""Letters that are drawn on few dots are wider by so much."""
_BOLD = 1.15
"""Letters of a panel's title are wider by so much."""
_BESIDE_TITLE = 0.8
"""Inches that the names of an axis take beside a panel and its title."""
_LINE = 1.7 * _POINTS / 72
"""Inches of a line of a title or a legend."""
_PLOT = 2.4
"""Inches that the names beside an axis leave of a panel."""
_BARS = ("rates", "profile", "bars")
"""Kinds with a line of text for each run, or row, which no two panels have in common."""


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Write each figure as `<kind>-<model and shape>`, bars under their own name, as `.png`, `.svg` and `.pdf`; returns the files."""
    titles = dict.fromkeys(ALL_MODELS, "all models") | {section.id: section.title for section in report.sections}
    drawn = figures(report)
    styles = method_styles(method_names(drawn))
    written: list[Path] = []
    for figure in drawn:
        name = (
            figure.section if figure.kind == "bars" else f"{figure.kind}-{file_name_part(titles[figure.section], 60)}"
        )
        if folder / f"{name}.png" in written:
            name = f"{name}-{figure.section}"
        written += _write(figure, titles[figure.section], styles, folder / name)
    return written


def method_styles(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and line of each method, told apart without colour too."""
    cycles = {"color": _COLOURS, "marker": _MARKERS, "linestyle": _DASHES}
    return {name: {what: c[i % len(c)] for what, c in cycles.items()} for i, name in enumerate(methods)}


def _matplotlib() -> Any:
    """The library, imported where no file of others is read for its settings: it looks for them in the working directory first."""
    if "matplotlib" in sys.modules:
        return sys.modules["matplotlib"]
    with away_from_here():
        import matplotlib

        return matplotlib


def _write(figure: Figure, section: str, styles: Mapping[str, dict[str, Any]], path: Path) -> list[Path]:
    matplotlib = _matplotlib()
    # Names come from logs, so no mathematics in them; text stays text, and two reports of the same runs are equal bytes.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "hpc-llm", "text.parse_math": False, "font.size": _POINTS}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whoever imported it may have read anybody's
        matplotlib.rcParams.update(settings)
        canvas = draw(figure, f"{figure.title}: {section}", styles)
        _save(canvas, Path(f"{path}.png"), dpi=_DPI)
        canvas.set_layout_engine("none")  # what is laid out stays so: it is a third of the time
        described = {"Date": None, "Title": figure.title, "Description": figure.caption}
        _save(canvas, Path(f"{path}.svg"), metadata=described)
        _save(canvas, Path(f"{path}.pdf"), metadata={"CreationDate": None, "Title": figure.title})
    return [Path(f"{path}{suffix}") for suffix in (".png", ".svg", ".pdf")]


def _save(canvas: Any, path: Path, **options: Any) -> None:
    """Draw it into a new file in place of what may be there."""
    with replacing(path) as file:
        canvas.savefig(file.buffer, format=path.suffix.removeprefix("."), **options)


def draw(figure: Figure, title: str, styles: Mapping[str, dict[str, Any]]) -> Any:
    """A matplotlib figure with the panels of `figure`; `styles` says how each method looks."""
    _matplotlib()
    from matplotlib.figure import Figure as Canvas

    across = min(_ACROSS, len(figure.panels))
    down = -(-len(figure.panels) // across)
    width = max(4.5, _width(figure, across))
    heading, names = _wrapped(width, title), _in_legend(figure, styles)
    lines = heading.count("\n") + -(-len(names) // _columns(width, names))
    canvas = Canvas(figsize=(width, _height(figure) * down + 0.8 + lines * _LINE), layout="constrained")
    axes = list(canvas.subplots(down, across, squeeze=False, sharex=True, sharey=figure.kind not in _BARS).flat)
    for ax in axes[len(figure.panels) :]:
        ax.remove()
    for panel, ax in zip(figure.panels, axes, strict=False):
        _DRAW[figure.kind](ax, figure, [r for r in figure.records if r["panel"] == panel], styles)
        ax.set_title(shortened(panel), fontsize=9, loc="left", fontweight="bold")
        ax.set_xlabel(figure.x_title)
        ax.set_ylabel(figure.y_title)
        ax.tick_params(labelbottom=True, labelleft=True)
        ax.grid(alpha=0.3, linewidth=0.6)
    canvas.suptitle(heading, fontsize=10, x=0.01, ha="left")
    if figure.kind == "profile":
        canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=3, frameon=False)
    elif names:
        _legend(canvas, figure, styles, names)
    return canvas


def _height(figure: Figure) -> float:
    """Of a panel, inches: bars of many runs need room for their names."""
    if figure.kind != "bars":
        return 3.1
    most = max(sum(r["panel"] == panel for r in figure.records) for panel in figure.panels)
    return float(max(1.6, 0.9 + 0.19 * most))


def _in_legend(figure: Figure, styles: Mapping[str, dict[str, Any]]) -> list[str]:
    """The names in the legend; none where it has no or another one."""
    methods = {r["method"] for r in figure.records}
    return [name for name in styles if name in methods] if _has_legend(figure) else []


def _legend(canvas: Any, figure: Figure, styles: Mapping[str, dict[str, Any]], names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    hidden = {"memory": {"linestyle": ""}, "scaling": {"linestyle": "-"}, "tries": {"linestyle": "-"}}.get(
        figure.kind, {"marker": ""}
    )
    lines = [Line2D([], [], label=name, **{**styles[name], **hidden}) for name in names]
    columns = _columns(canvas.get_figwidth(), names)
    canvas.legend(handles=lines, loc="outside lower left", ncols=columns, frameon=False, handlelength=3)


def _columns(width: float, names: Sequence[str]) -> int:
    """So many names side by side that none of them is cut at the edge."""
    return max(1, min(6, len(names), int(width * 72 / (_widest(names) + _BESIDE))))


def _widest(names: Sequence[str]) -> float:
    """Points that the widest of the names takes."""
    from matplotlib.textpath import TextPath

    widths = (TextPath((0, 0), name, size=_POINTS).get_extents().width for name in names if name.strip())
    return _HINTED * max(widths, default=0.0)


def _width(figure: Figure, across: int) -> float:
    """Of the whole, inches: names beside an axis leave enough of the panel, and one in a legend is not cut."""
    if figure.kind in _BARS:
        return across * max(3.6, _PLOT + _widest([r["name"] for r in figure.records]) / 72)
    in_legend = {r["method"] for r in figure.records} if _has_legend(figure) else set()
    titles = _BOLD * _widest(list(map(shortened, figure.panels))) / 72 + _BESIDE_TITLE
    return max(max(3.6, titles) * across, (_widest(sorted(in_legend)) + _BESIDE) / 72)


def _has_legend(figure: Figure) -> bool:
    return figure.kind not in _BARS and len({r["method"] for r in figure.records}) <= _MOST_NAMED


def _wrapped(width: float, title: str) -> str:
    """A title in as many lines as it takes."""
    if not title:
        return title
    letter = (_widest([title]) or 1) / len(title) * (_POINTS + 1.5) / _POINTS
    return "\n".join(textwrap.wrap(title, max(int(width * 72 / letter), 10))) or title


def _rates(ax: Any, figure: Figure, records: list[dict[str, Any]], styles: Mapping[str, dict[str, Any]]) -> None:
    ordered = sorted(records, key=lambda r: r["x"])
    for place, r in enumerate(ordered):
        style = styles[r["method"]]
        half = None if r["low"] is None else [[r["x"] - r["low"]], [r["high"] - r["x"]]]
        ax.errorbar(r["x"], place, xerr=half, color=style["color"], marker=style["marker"], ecolor="black", capsize=3)
    ax.set_yticks(range(len(ordered)), [r["name"] for r in ordered])
    ax.margins(y=0.1)
    _rate_axis(ax, "x", figure)


def _bars(ax: Any, figure: Figure, records: list[dict[str, Any]], styles: Mapping[str, dict[str, Any]]) -> None:
    for place, r in enumerate(records):
        ax.barh(place, r["x"], height=0.7, color=styles[r["method"]]["color"])
    ax.set_yticks(range(len(records)), [r["name"] for r in records], fontsize=7)
    ax.set_xlim(0, 1.05 * max(r["x"] for r in figure.records) or 1)
    most = max(sum(r["panel"] == panel for r in figure.records) for panel in figure.panels)
    ax.set_ylim(most - 0.4, -0.6)  # bars of all panels are equally thick
    ax.set_axisbelow(True)


def _memory(ax: Any, figure: Figure, records: list[dict[str, Any]], styles: Mapping[str, dict[str, Any]]) -> None:
    for r in records:
        style = styles[r["method"]]
        ax.plot(r["x"], r["y"], linestyle="", color=style["color"], marker=style["marker"])
    ax.set_xlim(0, 1.08 * max(r["x"] for r in figure.records))
    _rate_axis(ax, "y", figure)


def _scaling(ax: Any, figure: Figure, records: list[dict[str, Any]], styles: Mapping[str, dict[str, Any]]) -> None:
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    for name in dict.fromkeys(r["method"] for r in records):
        series = sorted((r for r in records if r["method"] == name), key=lambda r: r["x"])
        style = styles[name]
        ax.plot([r["x"] for r in series], [r["y"] for r in series], color=style["color"], marker=style["marker"])
        ax.plot([r["x"] for r in series], [r["ideal"] for r in series], color="0.4", linestyle="--", linewidth=0.8)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())


def _loss(ax: Any, figure: Figure, records: list[dict[str, Any]], styles: Mapping[str, dict[str, Any]]) -> None:
    curves: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for r in records:
        curves.setdefault((r["method"], r["run"], r["row"]), []).append(r)
    for (name, _, _), curve in curves.items():
        style = styles[name]
        line = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 1}
        ax.plot([r["x"] for r in curve], [r["y"] for r in curve], **line)
    if figure.is_log:
        from matplotlib.ticker import NullFormatter, StrMethodFormatter

        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())


def _utilization(ax: Any, figure: Figure, records: list[dict[str, Any]], styles: Mapping[str, dict[str, Any]]) -> None:
    _loss(ax, figure, records, styles)
    ax.set_ylim(0, 102)  # a line at 100 % stays whole


def _profile(ax: Any, figure: Figure, records: list[dict[str, Any]], styles: Mapping[str, dict[str, Any]]) -> None:
    names = list(dict.fromkeys(r["name"] for r in records))
    left = dict.fromkeys(names, 0.0)
    for kind in dict.fromkeys(r["kind"] for r in records):
        shares = {r["name"]: r["x"] for r in records if r["kind"] == kind}
        look = {
            "color": _COLOURS[KINDS.index(kind)] if kind != KINDS[-1] else "0.85",
            "edgecolor": "white",
            "height": 0.7,
        }
        ax.barh(names, list(shares.values()), left=[left[name] for name in names], label=kind, **look)
        left = {name: left[name] + shares[name] for name in names}
    ax.set_xlim(0, 100)
    ax.invert_yaxis()
    ax.set_axisbelow(True)


def _tries(ax: Any, figure: Figure, records: list[dict[str, Any]], styles: Mapping[str, dict[str, Any]]) -> None:
    for name in dict.fromkeys(r["method"] for r in records):
        style, of_method = styles[name], sorted((r for r in records if r["method"] == name), key=lambda r: r["x"])
        good, bad = ([r for r in of_method if r["fits"] == fits] for fits in (True, False))
        points = {"color": style["color"], "marker": style["marker"]}
        ax.plot([r["x"] for r in good], [r["y"] for r in good], linestyle="-", linewidth=0.8, **points)
        crosses = {"linestyle": "", "color": style["color"], "marker": "x", "clip_on": False}
        if bad:  # what is empty and not clipped lies at the canvas's corner, and the layout makes room for it
            ax.plot([r["x"] for r in bad], [r["y"] for r in bad], **crosses)
    ax.set_ylim(0, 1.1 * max(r["y"] for r in figure.records))
    if figure.is_log:
        from matplotlib.ticker import NullFormatter, StrMethodFormatter

        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())


def _rate_axis(ax: Any, which: str, figure: Figure) -> None:
    """From zero, or logarithmic where the figure says so."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    largest = max(max(r[which], r.get("high") or 0) for r in figure.records)
    low = min(r[which] for r in figure.records) / 1.5 if figure.is_log else 0
    axis = ax.xaxis if which == "x" else ax.yaxis
    high = largest * (1.5 if figure.is_log else 1.1)
    ax.set(**{f"{which}scale": "log" if figure.is_log else "linear", f"{which}lim": (low, high)})
    if not figure.is_log:
        return
    axis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_minor_formatter(NullFormatter())


_DRAW = {
    "rates": _rates,
    "memory": _memory,
    "scaling": _scaling,
    "loss": _loss,
    "utilization": _utilization,
    "profile": _profile,
    "tries": _tries,
    "bars": _bars,
}
