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


@pytest.mark.parametrize(
    ("sound", "said"),
    [
        (b"7 0 obj<</Length 34>>stream", r", page 2: Object 7 0 not defined"),
        (b"6 0 obj<</Type/Page/Parent 2 0 R", r": Ignoring wrong pointing object 6 0"),
        (b"xref\n0 10\n0000000000 65535 f", r": "),
        (b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj", r": "),
    ],
)
def test_a_hole_in_a_file_is_damage_and_no_page_is_left_out(tmp_path: Path, sound: bytes, said: str) -> None:
    path = tmp_path / "a.pdf"
    pdf(path, ["one", "two", "three"])
    content = path.read_bytes()
    assert content.count(sound) == 1
    path.write_bytes(content.replace(sound, bytes(len(sound))))
    with pytest.raises(DataFileError, match=r"a\.pdf cannot be read as PDF" + said):
        texts(path)


def test_a_stream_that_is_damaged_within_is_damage(tmp_path: Path) -> None:
    import zlib

    import pypdf

    pdf(tmp_path / "plain.pdf", ["one " * 500, "".join(map(str, range(2000)))])
    writer = pypdf.PdfWriter(clone_from=tmp_path / "plain.pdf")
    for page in writer.pages:
        page.compress_content_streams()
    writer.write(tmp_path / "a.pdf")
    content = (tmp_path / "a.pdf").read_bytes()
    assert len(texts(tmp_path / "a.pdf")[0]) > 2000 and zlib.compress(b"")[:1] in content
    end = content.rindex(b"endstream")
    (tmp_path / "a.pdf").write_bytes(content[: end - 700] + bytes(64) + content[end - 636 :])
    with pytest.raises(DataFileError, match=r"a\.pdf cannot be read as PDF, page 2: "):
        texts(tmp_path / "a.pdf")


@pytest.mark.parametrize(
    ("counted", "kids", "said"),
    [("9", "4 0 R 6 0 R", r"it has 2 of the 9 pages that it counts"), ("0", "", r"it has no page")],
)
def test_pages_that_a_file_counts_and_has_not_are_lost(tmp_path: Path, counted: str, kids: str, said: str) -> None:
    path = tmp_path / "a.pdf"
    pdf(path, ["one", "two"])
    content = path.read_text()
    path.write_text(content.replace("/Count 2/Kids[4 0 R 6 0 R]", f"/Count {counted}/Kids[{kids}]".ljust(26)))
    with pytest.raises(DataFileError, match=r"a\.pdf cannot be read as PDF: " + said):
        texts(path)


def test_what_sound_files_let_pypdf_warn_of_is_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.pdf"
    pdf(path, ["one", "two"])
    content = path.read_text().replace("/F1 12 Tf", "/F1 1- Tf").replace("/Count 2", "/Count 1")
    path.write_text(content.replace("trailer<</Size 8", "trailer<</Size 8/Size 8"))
    assert texts(path)[0].split() == ["one", "two"]
    warned = " ".join(record.getMessage() for record in caplog.records)
    assert "Multiple definitions" in warned and "NumberObject" in warned


def test_a_file_that_a_library_wrote_is_read(tmp_path: Path) -> None:
    import pypdf

    pdf(tmp_path / "plain.pdf", ["one", "two"])
    writer = pypdf.PdfWriter(clone_from=tmp_path / "plain.pdf")
    writer.add_blank_page(100, 100)
    writer.encrypt("")
    writer.write(tmp_path / "a.pdf")
    with_update = pypdf.PdfWriter(tmp_path / "plain.pdf", incremental=True)
    with_update.add_blank_page(100, 100)
    with_update.write(tmp_path / "b.pdf")
    for name in ("a.pdf", "b.pdf"):
        assert texts(tmp_path / name)[0].split() == ["one", "two"]


WORDS = [" ".join(f"w{page}x{number}" for number in range(40)) for page in range(3)]


def compressed(folder: Path) -> bytes:
    import pypdf

    pdf(folder / "plain.pdf", WORDS)
    writer = pypdf.PdfWriter(clone_from=folder / "plain.pdf")
    for page in writer.pages:
        page.compress_content_streams()
    writer.write(folder / "compressed.pdf")
    return (folder / "compressed.pdf").read_bytes()


@pytest.mark.parametrize("is_compressed", [False, True])
def test_no_hole_of_zeros_takes_a_word_in_silence(tmp_path: Path, is_compressed: bool) -> None:
    """Wherever it is: pypdf takes zeros for blanks, and goes on where a stream cannot be unpacked."""
    pdf(tmp_path / "plain.pdf", WORDS)
    sound = compressed(tmp_path) if is_compressed else (tmp_path / "plain.pdf").read_bytes()
    path = tmp_path / "a.pdf"
    path.write_bytes(sound)
    whole = texts(path)
    for size in (24, 256):
        for at in range(0, len(sound) - size, 19):
            path.write_bytes(sound[:at] + bytes(size) + sound[at + size :])
            try:
                assert texts(path) == whole, (size, at)
            except DataFileError:
                continue


@pytest.mark.parametrize(
    ("sound", "said"),
    [
        (b"stream\nBT /F1 12 Tf 72 720 Td (two)", r": there is a hole of zeros at byte \d+|, page 2: "),
        (b"/Contents 7 0 R", r": there is a hole of zeros at byte \d+|, page 2: "),
        (b"F1 12 Tf 72 720 Td (two) Tj", r", page 2: there is a hole of zeros among its words"),
    ],
)
def test_a_page_that_a_hole_empties_is_told(tmp_path: Path, sound: bytes, said: str) -> None:
    path = tmp_path / "a.pdf"
    pdf(path, ["one", "two", "three"])
    content = path.read_bytes()
    assert content.count(sound) == 1
    path.write_bytes(content.replace(sound, bytes(len(sound))))
    with pytest.raises(DataFileError, match=rf"a\.pdf cannot be read as PDF(?:{said})"):
        texts(path)


def test_zeros_where_a_sound_file_may_have_them_are_no_hole(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    image = f"BI /W 8 /H 8 /BPC 8 /CS /G ID {chr(0) * 64} EI"
    pdf(path, ["one", f"two) Tj ET {image} BT (2"])
    content = path.read_bytes()
    path.write_bytes(content + b"\n" + bytes(4096))
    assert texts(path)[0].split()[0] == "one" and "two" in texts(path)[0]
