"""A PDF file that is damaged is refused by its name and the page: what is lost of it is in no other file."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from pdf_file import pdf

from hpc_llm.corpus.sources import PDF, SourceFile
from hpc_llm.errors import DataFileError, WorkerError
from hpc_llm.worker.preparing.rows import rows_of


def texts(path: Path) -> list[str]:
    return [row["text"] for _, row in rows_of(SourceFile(str(path), PDF, "train"))]


@pytest.mark.parametrize(
    ("sound", "damaged", "said"),
    [
        (b"(two) Tj", b"/two( Tj", r", page 2: "),
        (b"/Type/Catalog/Pages 2 0 R", b"/Type/Catalog/Pages[2 0R]", r": "),
    ],
)  # fmt: skip
def test_whatever_a_damaged_file_makes_pypdf_raise_names_file_and_page(
    tmp_path: Path, sound: bytes, damaged: bytes, said: str
) -> None:
    path = tmp_path / "a.pdf"
    pdf(path, ["one", "two", "three"])
    content = path.read_bytes()
    assert content.count(sound) == 1 and len(sound) == len(damaged)
    path.write_bytes(content.replace(sound, damaged))
    with pytest.raises(
        DataFileError, match=r"a\.pdf cannot be read as PDF" + said + r".*Repair the file or leave it out\.$"
    ):
        texts(path)


ERRORS = [AssertionError(), AttributeError("x"), TypeError("x"), ValueError("x"), KeyError("/X"), RecursionError("x"), OSError(errno.EINVAL, "x")]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_exception_of_any_kind_is_one_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with pytest.raises(DataFileError, match=rf"a\.pdf cannot be read as PDF, page 1: {type(error).__name__}"):
        failing(tmp_path, monkeypatch, error)


@pytest.mark.parametrize("error", [MemoryError("x"), KeyboardInterrupt("x")], ids=lambda error: type(error).__name__)
def test_what_is_not_of_the_file_stays_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        failing(tmp_path, monkeypatch, error)


def test_a_disk_that_fails_and_a_package_that_is_missing_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pypdf.errors import DependencyError

    with pytest.raises(DataFileError, match=r"a\.pdf cannot be read: Input/output error\.$"):
        failing(tmp_path, monkeypatch, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(WorkerError, match=r"a\.pdf .*cryptography is required.*Install that package here") as caught:
        failing(tmp_path, monkeypatch, DependencyError("cryptography is required for AES"))
    assert not isinstance(caught.value, DataFileError)


def failing(folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    import pypdf

    def fail(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(pypdf.PageObject, "extract_text", fail)
    pdf(folder / "a.pdf", ["one"])
    texts(folder / "a.pdf")
