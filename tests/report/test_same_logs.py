"""Copies of one log of another program are one measurement; logs that only look alike are not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hpc_llm.errors import PassedOverWarning
from hpc_llm.reporting.collect import collect

LOG = "".join(
    f" iteration {n:8d}/      40 | consumed samples: {n * 16:12d} | elapsed time per iteration (ms): {1000 + n}.0 |"
    f" learning rate: 1.0E-04 | global batch size:    16 | lm loss: {9 - n / 10:.6E} | loss scale: 1.0 |\n"
    for n in range(1, 41)
)


def test_copies_of_a_log_count_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOG)
    (tmp_path / "a (1).log").write_text(LOG)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(LOG.encode()))
    with pytest.warns(PassedOverWarning, match="a copy of .*: one measurement counts once") as told:
        runs = collect([tmp_path])
    assert len(runs) == 1 and len(told) == 2
    assert runs[0].row.step_time_s_mean is not None


def test_logs_with_the_same_figures_and_another_text_are_repeats(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("node gpu001\n" + LOG)
    (tmp_path / "b.log").write_text("node gpu002\n" + LOG)
    assert len(collect([tmp_path])) == 2


def test_copies_of_a_log_without_figures_stay(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("ModuleNotFoundError: No module named 'torch'\n")
    assert len(collect([tmp_path])) == 2
