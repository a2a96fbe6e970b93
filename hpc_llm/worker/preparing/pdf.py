"""The documents of a PDF file. Of one that is damaged nothing is read: pypdf goes on without what it cannot find."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hpc_llm.errors import DataFileError, WorkerError
from hpc_llm.records.files import open_plain
from hpc_llm.worker.preparing.packages import needed
from hpc_llm.worker.preparing.pdf_damage import damage_heard
from hpc_llm.worker.preparing.pdf_holes import hole_between_streams, hole_in_page

PAGES_A_DOCUMENT = 30
_LONGEST_REASON = 200


def pdf_documents(path: str) -> Iterator[tuple[str, str]]:
    """The place and the text of each document, which is so many pages. Raises DataFileError where a page cannot be read."""
    pypdf = needed("pypdf", "PDF files")
    with open_plain(path) as opened:
        with _refused(path), damage_heard() as of_file:
            reader = pypdf.PdfReader(opened)
            pages = list(reader.pages)
            opened.seek(0)
            hole = hole_between_streams(opened)
            of_file += [hole] if hole is not None else []
            of_file += _pages_lost(reader.root_object["/Pages"].get_object().get("/Count"), len(pages))
        for first in range(0, len(pages), PAGES_A_DOCUMENT):
            last = min(first + PAGES_A_DOCUMENT, len(pages))
            texts = [_text(page, path, number) for number, page in enumerate(pages[first:last], first + 1)]
            yield f"{path} pages {first + 1} to {last}", "\n".join(texts).strip()
    # Last, for mostly a page lacks what the file does, and then its number was told.
    if of_file:
        raise _damaged(path, None, of_file[0])


def _pages_lost(counted: Any, found: int) -> list[str]:
    """What is wrong with the number of pages. Where the file counts fewer than it has none is lost."""
    if not found:
        return ["it has no page"]
    if isinstance(counted, int) and counted > found:
        return [f"it has {found} of the {counted} pages that it counts"]
    return []


def _text(page: Any, path: str, number: int) -> str:
    """The text of a page, of which a font without a table of its letters leaves some that are none."""
    with _refused(path, number), damage_heard() as damage:
        text: str = page.extract_text()
        hole = hole_in_page(page)
        damage += [hole] if hole is not None else []
    if damage:
        raise _damaged(path, number, damage[0])
    return text.replace("\0", "").encode("utf-8", "replace").decode()


@contextmanager
def _refused(path: str, page: int | None = None) -> Iterator[None]:
    """What pypdf raises, as a sentence. A damaged file lets it raise anything: what it reads is not of the kind it takes it for."""
    errors = needed("pypdf.errors", "PDF files")
    try:
        yield
    except (MemoryError, WorkerError):
        raise
    except (ImportError, errors.DependencyError) as error:
        raise WorkerError(f"{path} cannot be read as PDF: {_reason(error)}. Install that package here.") from None
    except Exception as error:
        # A place that cannot be is sought where a number in the file is wrong; any other error of the system is not of the file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise _damaged(path, page, _reason(error)) from None


def _reason(error: BaseException) -> str:
    name, said = type(error).__name__, " ".join(str(error).split())
    is_sentence = type(error).__module__.partition(".")[0] == "pypdf"
    return said if said and is_sentence else f"{name}: {said}" if said else name


def _damaged(path: str, page: int | None, reason: str) -> DataFileError:
    place = f", page {page}" if page else ""
    said = "".join(one if one.isprintable() else "?" for one in reason[:_LONGEST_REASON]).rstrip(".")
    return DataFileError(f"{path} cannot be read as PDF{place}: {said}. Repair the file or leave it out.")
