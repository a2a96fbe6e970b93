"""What is read of a parquet file, what is refused of it, and how much memory that takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpc_llm.corpus.sources import PARQUET, SourceFile
from hpc_llm.errors import DataFileError
from hpc_llm.worker.preparing.rows import rows_of

pa = pytest.importorskip("pyarrow")


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
        match=rf"a\.parquet row {at} is not written in UTF-8 in the column 'text', it looks like LATIN1\.",
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
