"""A compressed log that was cut or damaged at its end is read as far as it holds, and that is said."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import hpc_llm
from hpc_llm.errors import Notice
from hpc_llm.text.inflate import Gzip

MORE = gzip.compress(b"more\n")
DRAW = random.Random(5)
STEPS = "".join(
    f"{{'loss': {3 - i / 1000:.6f}, 'grad_norm': {DRAW.random():.9f}, 'learning_rate': 1e-05, 'epoch': {i / 300:.4f}}}\n"
    for i in range(1, 301)
)
LOG = (
    STEPS
    + "{'train_runtime': 120.0, 'train_samples_per_second': 1.6, 'train_steps_per_second': 2.5, 'train_loss': 2.8, 'epoch': 1.0}\n"
).encode()


def whole(path: Path) -> bytes:
    """All that can be read of a gzip file."""
    file, found = Gzip(path), io.BytesIO()
    try:
        while text := file.read(1000):
            found.write(text)
    except EOFError:
        pass
    finally:
        file.close()
    return found.getvalue()


@pytest.mark.parametrize("left_out", [1, 4, 7, 8])
@pytest.mark.parametrize("text", [LOG, LOG * 20], ids=["small", "large"])
def test_a_log_that_lacks_bytes_of_the_check_behind_it_is_whole(tmp_path: Path, text: bytes, left_out: int) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(text)[:-left_out])
    assert whole(path) == text
    path.write_bytes(gzip.compress(LOG)[:-left_out])
    with pytest.warns(Notice, match="cut or damaged at its end"):
        [row] = hpc_llm.parse(path)
    assert (row.outcome, row.loss_last) == ("COMPLETED", 2.7)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_what_stands_before_a_cut_is_read(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a.log.gz"
    packed = gzip.compress(LOG)
    path.write_bytes(packed[: int(share * len(packed))])
    found = whole(path)
    assert LOG.startswith(found) and len(found) > (share - 0.15) * len(LOG)


def test_what_stands_before_damage_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    packed = bytearray(gzip.compress(LOG))
    packed[-6] ^= 0xFF  # of the sum of all bytes
    path.write_bytes(packed)
    assert whole(path) == LOG


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_sound_file_is_read_without_a_word(
    tmp_path: Path, pack: Callable[[bytes], bytes], recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "a.log.packed"
    path.write_bytes(pack(STEPS.encode()) + pack(LOG[len(STEPS) :]))
    [row] = hpc_llm.parse(path)
    assert row.outcome == "COMPLETED" and not list(recwarn)


@pytest.mark.parametrize("behind", [b"\0" * 40_000, b"no member", b"\x1f", b"\0" * 40_000 + MORE])
def test_what_stands_behind_a_member_is_another_or_passed_over(tmp_path: Path, behind: bytes) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(LOG) + behind)
    assert whole(path) == LOG + (b"more\n" if behind.endswith(MORE) else b"")
