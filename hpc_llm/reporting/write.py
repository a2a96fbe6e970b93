"""All files of a report."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

from hpc_llm.errors import RequestError, notice
from hpc_llm.records.files import make_own_folder
from hpc_llm.reporting.earlier import files_of_earlier, remove_earlier, write_record
from hpc_llm.reporting.endings import endings, invalid_table
from hpc_llm.reporting.figures import scaling_tables
from hpc_llm.reporting.files import write_csv, write_markdown
from hpc_llm.reporting.latex import write_latex
from hpc_llm.reporting.page import write_page
from hpc_llm.reporting.plots import write_plots
from hpc_llm.reporting.profiles import profile_tables
from hpc_llm.reporting.reference_text import reference_tables, write_reference_csv
from hpc_llm.reporting.report import Report, results_table

_PLOTTING = {"matplotlib": "matplotlib", "vl_convert": "vl-convert-python"}
_OF_THE_PAGE, _OF_FILES = _PLOTTING["vl_convert"], _PLOTTING["matplotlib"]
PAGE, CSV, MARKDOWN, LATEX = "index.html", "results.csv", "results.md", "results.tex"
REFERENCES = "references.csv"
"""Only where a study names published figures."""
_TITLE = b"<title>hpc-llm report "


def missing_plotting() -> list[str]:
    """The packages of the extra `plot` that are not there: what needs none of them is written all the same."""
    return [package for module, package in _PLOTTING.items() if find_spec(module) is None]


def tell_what_is_missing() -> None:
    """Tell the caller in one sentence that there are fewer plots, and what brings them."""
    missing = missing_plotting()
    if missing:
        left = (
            "plots" if len(missing) > 1 else "plots in the page" if _OF_THE_PAGE in missing else "plots as PNG and SVG"
        )
        notice(
            f"the tables are written without {left}, which need {' and '.join(missing)}: python -m pip install {' '.join(missing)}"
        )


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write the page, the tables and the plots into `folder`; returns the files, the page first.

    Where one of them cannot be written, none is, and the files of an earlier report stay as they are. Else they are removed.
    """
    earlier = files_of_earlier(folder)
    with _all_or_nothing(folder) as place:
        files = _write(report, place)
        write_record(place)
    remove_earlier(folder, earlier, {path.name for path in files})
    return [folder / path.name for path in files]


@contextmanager
def _all_or_nothing(folder: Path) -> Iterator[Path]:
    """A folder for new files, which come into `folder` when all of them are written."""
    is_new, place = not folder.exists(), folder / f".new-{uuid4()}"
    make_own_folder(folder)
    try:
        place.mkdir(0o700)
        yield place
        _refuse_strangers(folder, sorted(path.name for path in place.iterdir()))
        for path in place.iterdir():
            os.replace(path, folder / path.name)
        place.rmdir()
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError):
            _name_as_asked(error, place)
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise


def _refuse_strangers(folder: Path, names: Sequence[str]) -> None:
    """Raise a RequestError where one of the files would replace another than that of an earlier report."""
    taken = next((name for name in names if os.path.lexists(folder / name)), None)
    if taken is not None and not _is_report(folder / PAGE):
        raise RequestError(
            f"{folder} holds {taken}, and no report that was written there: give another folder, or move it away."
        )


def _is_report(page: Path) -> bool:
    if page.is_symlink() or not page.is_file():  # a pipe would never be read to its end
        return False
    try:
        with page.open("rb") as file:
            return _TITLE in file.read(1 << 14)
    except OSError:
        return False


def _name_as_asked(error: OSError, place: Path) -> None:
    """Give the error the name of the file that was asked for, in place of the one that it has until all are written."""
    if isinstance(error.filename, str) and Path(error.filename).is_relative_to(place):
        error.filename = os.fspath(place.parent / Path(error.filename).relative_to(place))


def _write(report: Report, folder: Path) -> list[Path]:
    write_csv(results_table(report), folder / CSV)
    if report.references.held:
        write_reference_csv(report.references, folder / REFERENCES)
    lists = {
        "Order of methods beside the references": report.references.orders,
        "Why runs did not complete": [one.line for one in endings(report)],
        "How to read the figures": report.notes,
    }
    tables = {
        **reference_tables(report.references),
        **invalid_table(endings(report)),
        **scaling_tables(report),
        **profile_tables(report),
    }
    write_markdown(report.sections, tables, lists, folder / MARKDOWN)
    write_latex(report.sections, report.notes, folder / LATEX)
    missing = missing_plotting()
    write_page(
        report, folder / PAGE, is_plotted=_OF_THE_PAGE not in missing
    )  # before the plots, whose library keeps its memory: the page needs the most
    plots = write_plots(report, folder) if _OF_FILES not in missing else []
    held = [folder / REFERENCES] if report.references.held else []
    return [*(folder / name for name in (PAGE, CSV, MARKDOWN, LATEX)), *held, *plots]
