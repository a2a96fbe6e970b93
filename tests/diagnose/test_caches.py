"""What a library of the GPU keeps on disk, maps or loads while it runs: told as that, and not as an exception of the program."""

from __future__ import annotations

from typing import Any

import pytest

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    main()\n'
MIOPEN = "MIOpen Error: /src/sqlite_db.cpp:229: Internal error while accessing SQLite database: {}\n"


@pytest.mark.parametrize(
    "why",
    ["attempt to write a readonly database", "unable to open database file", "disk I/O error", "database is locked"],
)
def test_miopens_database_is_given_a_folder_of_the_nodes(why: str, diagnose: Any) -> None:
    for line in (MIOPEN.format(why), f"MIOpen(HIP): Error [SQLiteBase] {why}\n"):
        found = diagnose(line + TRACEBACK + "RuntimeError: miopenStatusInternalError\n")
        assert (found.cause.id, found.retry) == ("file_system", False)
        assert "MIOPEN_USER_DB_PATH=/tmp/" in found.remedy and "MIOpen keeps" in found.meaning


def test_miopens_warning_ends_nothing(diagnose: Any) -> None:
    said = "MIOpen(HIP): Warning [SQLiteBase] Unable to read system database file:/opt/gfx906_60.kdb Performance may degrade\n"
    assert diagnose(said).cause.id == "unknown"
    assert diagnose(said + TRACEBACK + "KeyError: 'a'\n").cause.id == "python_exception"


@pytest.mark.parametrize("path", ["model.safetensors", "/scratch/" + "a/" * 60 + "model-00001-of-00030.safetensors"])
def test_a_file_that_cannot_be_mapped_is_memory_of_the_host(path: str, diagnose: Any) -> None:
    found = diagnose(
        TRACEBACK + f"RuntimeError: unable to mmap 9976578928 bytes from file <{path}>: Cannot allocate memory (12)\n"
    )
    assert found.cause.id == "host_oom" and found.remedy.startswith("a file was mapped") and "ulimit -v" in found.remedy


def test_a_part_of_nvrtc_that_is_missing_is_a_mismatch(diagnose: Any) -> None:
    found = diagnose(TRACEBACK + "RuntimeError: nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure that\n")  # fmt: skip
    assert found.cause.id == "driver_mismatch" and "nvidia-cuda-nvrtc" in found.remedy
