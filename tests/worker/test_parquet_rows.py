"""What is read of a parquet file, what is refused of it, and how much memory that takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hpc_llm.corpus.sources import PARQUET, SourceFile
from hpc_llm.errors import DataFileError
from hpc_llm.worker.preparing.rows import rows_of


def written(folder: Path, columns: dict[str, Any], **how: Any) -> SourceFile:
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), folder / "a.parquet", **how)
    return SourceFile(str(folder / "a.parquet"), PARQUET, "train")


def no_utf8(values: list[bytes]) -> Any:
    """A column of text, as a program writes it that does not look whether it is UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


@pytest.mark.parametrize("how", [{}, {"use_dictionary": False}], ids=["dictionary", "plain"])
@pytest.mark.parametrize("at", [1, 1500])
def test_text_that_is_no_utf8_is_refused_by_row_and_column(tmp_path: Path, how: dict[str, Any], at: int) -> None:
    values = [b"x"] * (at - 1) + ["café".encode("latin-1"), b"y"]
    file = written(tmp_path, {"id": range(at + 1), "text": no_utf8(values)}, **how)
    with pytest.raises(
        DataFileError,
        match=rf"a\.parquet row {at} is not written in UTF-8 in the column 'text', it may be WINDOWS-1252 ",
    ):
        list(rows_of(file))


def test_text_that_is_no_utf8_within_a_list_is_refused_by_its_column(tmp_path: Path) -> None:
    values = pa.StructArray.from_arrays([no_utf8([b"a", b"\xff", b"c"])], ["content"])
    file = written(tmp_path, {"messages": pa.ListArray.from_arrays([0, 1, 3], values)})
    with pytest.raises(DataFileError, match=r"a\.parquet row 2 is not written in UTF-8 in the column 'messages'"):
        list(rows_of(file))


def test_a_value_that_python_has_none_for_is_refused_by_its_row(tmp_path: Path) -> None:
    file = written(tmp_path, {"text": ["a", "b"], "at": pa.array([0, 2**60], pa.timestamp("us"))})
    with pytest.raises(DataFileError, match=r"a\.parquet row 2 cannot be read in the column 'at': "):
        list(rows_of(file))


MIB = 2**20
MEASURED = """
import resource, sys
import pyarrow.parquet
from hpc_llm.corpus.sources import PARQUET, SourceFile
from hpc_llm.worker.preparing import parquet
from hpc_llm.worker.preparing.rows import rows_of
parquet._MOST_TIMES = 10**9  # what is measured here is memory
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(len(row[sys.argv[2]]) > 0 for _, row in rows_of(SourceFile(sys.argv[1], PARQUET, "train")))
print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def one_of_all(text: str, count: int) -> Any:
    """A column that has one text in all rows, of which a file keeps one."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


@pytest.mark.parametrize("store_schema", [True, False], ids=["dictionary", "text"])
def test_a_dictionary_that_stands_for_gigabytes_takes_little_memory(tmp_path: Path, store_schema: bool) -> None:
    file = written(tmp_path, {"text": one_of_all("x" * (4 * MIB), 600)}, compression="zstd", store_schema=store_schema)
    assert Path(file.path).stat().st_size < 2000
    assert_little_memory(file, "text", 600)


def test_a_list_of_a_dictionary_takes_little_memory(tmp_path: Path) -> None:
    content = one_of_all("x" * MIB, 1200).cast(pa.string())
    file = written(tmp_path, {"list": pa.ListArray.from_arrays(range(0, 1201, 4), content)}, compression="zstd")
    assert_little_memory(file, "list", 300)


def test_plain_rows_that_are_packed_small_take_little_memory(tmp_path: Path) -> None:
    rows = pa.chunked_array([["x" * (3 * MIB)] * 100] * 5)
    file = written(tmp_path, {"text": rows}, compression="zstd", use_dictionary=False)
    assert_little_memory(file, "text", 500)


def assert_little_memory(file: SourceFile, column: str, count: int) -> None:
    """In a process of its own, for the most that a process had at a time stays the most."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, file.path, column], capture_output=True, text=True, timeout=120, check=True
    )
    rows, mib = map(int, done.stdout.split())
    assert rows == count
    assert mib < 2000


def test_a_row_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, {"text": ["y", "x" * (257 * MIB)]}, compression="zstd", use_dictionary=False)
    with pytest.raises(DataFileError, match=r"a\.parquet row 2 holds 257 MiB, and at most 256 MiB are read of a row"):
        list(rows_of(file))


def test_rows_of_many_groups_are_all_read_in_order(tmp_path: Path) -> None:
    texts = [f"{number % 7} {'x' * (number % 900)}" for number in range(5000)]
    file = written(tmp_path, {"text": texts, "id": range(5000)}, row_group_size=1700)
    found = list(rows_of(file))
    assert [row["text"] for _, row in found] == texts
    assert [place for place, _ in found] == [f"{file.path} row {number}" for number in range(1, 5001)]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("text", ["x", "x" * 100, "x" * 70_000, "x" * 3_000_000])
def test_the_size_of_a_dictionary_is_read_from_its_page(tmp_path: Path, version: str, text: str) -> None:
    from pyarrow import parquet

    from hpc_llm.worker.preparing.parquet import _dictionary

    file = written(tmp_path, {"text": [text] * 3, "none": [None] * 3}, data_page_version=version, compression="zstd")
    group = parquet.read_metadata(file.path).row_group(0)
    with Path(file.path).open("rb") as headers:
        assert _dictionary(group.column(0), headers) == len(text) + 4
    written(tmp_path, {"text": [text] * 3}, data_page_version=version, use_dictionary=False)
    with Path(file.path).open("rb") as headers:
        assert _dictionary(parquet.read_metadata(file.path).row_group(0).column(0), headers) == 0


@pytest.mark.parametrize("store_schema", [True, False], ids=["dictionary", "text"])
def test_a_file_of_a_few_bytes_does_not_fill_the_disk(tmp_path: Path, store_schema: bool) -> None:
    """A dictionary of one value that stands for millions of rows."""
    content = one_of_all("x" * 20_000, 30_000)
    file = written(tmp_path, {"text": content}, compression="zstd", store_schema=store_schema)
    assert Path(file.path).stat().st_size < 100_000
    with pytest.raises(DataFileError, match=r"a\.parquet unpacks to more than 200 times its size .* Write it as JSONL"):
        for _ in rows_of(file):
            pass


def test_much_that_is_said_twice_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, {"text": ["the same " * 100] * 20_000}, compression="zstd")
    assert sum(1 for _ in rows_of(file)) == 20_000
