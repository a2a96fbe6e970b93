"""Copies of one log of another program, and of a run's figures, are one measurement; what only looks alike is not."""

from __future__ import annotations

import gzip
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import Made, write_run

from hpc_llm.errors import PassedOverWarning
from hpc_llm.records.files import write_json
from hpc_llm.reporting.collect import collect
from hpc_llm.reporting.same_logs import text_digest

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


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text + b"\n",
        lambda text: text.rstrip(b"\n"),
        lambda text: gzip.compress(text.replace(b"\n", b"\r\n") + b"\r\n\r\n"),
    ],
)
def test_a_copy_is_one_whatever_ends_its_lines(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG.encode())
    (tmp_path / "b.log").write_bytes(change(LOG.encode()))
    with pytest.warns(PassedOverWarning, match="a copy of .*: one measurement counts once"):
        assert len(collect([tmp_path])) == 1


def test_a_text_is_told_however_it_is_read() -> None:
    text = (b"ab\n\n" * 9 + b"\r" * 5 + b"c\rd\n") * (1 << 16)
    assert text_digest(io.BytesIO(text)) == text_digest(io.BytesIO(text.replace(b"\n", b"\r\n") + b"\n" * (3 << 20)))
    assert text_digest(io.BytesIO(text)) != text_digest(io.BytesIO(text.replace(b"\n\n", b"\n")))


UUID = "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b"
ARCHIVED = ("experiment.json", "result.json", "steps.jsonl")


def archived(run: Path, place: Path, *files: str) -> None:
    """What somebody keeps of a run beside a paper."""
    place.mkdir(parents=True)
    for name in files:
        shutil.copy(run / name, place)


@pytest.mark.parametrize("files", [ARCHIVED, ARCHIVED[:2], ("experiment.json", "steps.jsonl")])
@pytest.mark.parametrize("is_first", [False, True])
def test_what_was_copied_of_a_run_without_its_job_counts_once(
    files: tuple[str, ...], is_first: bool, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    for name in "abc":
        run = write_run(tmp_path / "logs", Made(run_id=name, cluster="delta", method="z3", seed=ord(name)))
        job = {"schema": 2, "scheduler": "local", "uuid": f"{UUID[:-1]}{name}", "run_id": name, "job_id": "1"}
        write_json(run / "job.json", job)
        archived(run, kept / name, *files)
        archived(run, kept / f"renamed-{name}", *files)
    logs = [kept, tmp_path / "logs"] if is_first else [tmp_path / "logs", kept]
    with pytest.warns(PassedOverWarning, match="a copy of .*: one measurement counts once") as told:
        runs = collect(logs)
    assert len(told) == 6
    assert sorted(run.source for run in runs) == [str(tmp_path / "logs" / name) for name in "abc"]


def test_copies_alone_count_once_and_a_name_given_twice_is_no_copy(tmp_path: Path) -> None:
    run = write_run(tmp_path / "logs", Made(run_id="a", cluster="delta", method="z3"))
    archived(run, tmp_path / "kept" / "a", *ARCHIVED)
    archived(run, tmp_path / "kept" / "b", *ARCHIVED)
    write_run(tmp_path / "others", Made(run_id="a", cluster="delta", method="z3", seed=1, rate_per_gpu=301.0))
    with pytest.warns(PassedOverWarning, match="one measurement counts once"):
        runs = collect([tmp_path / "kept", tmp_path / "others"])
    assert [Path(one.source).parent.name for one in runs] == ["kept", "others"]


def titan(rank: int, second: int = 0, loss: float = 10.0) -> str:
    """What each rank of eight prints of one training; its own rate differs a little."""
    at = f"[rank{rank}]:[titan] 2025-10-01 12:00:{second:02}"
    steps = "".join(
        f"{at},{n:03} - root - INFO - step: {n:2}  loss: {loss - n / 20:.4f}  memory: 2.50GiB(3.1%)  tps: {5850 + rank}  mfu: 34.29%\n"
        for n in (1, *range(10, 101, 10))
    )
    return f"{at},000 - root - INFO - Starting job: x\n{at},001 - root - INFO - Building 1-D device mesh with ['dp_shard'], [8]\n{steps}"


@pytest.mark.parametrize("name", ["none_abc/attempt_0/{}/stdout.log", "train-123456_{}.out", "log_node{}.txt"])
def test_the_logs_of_the_ranks_of_one_training_count_once(tmp_path: Path, name: str) -> None:
    for rank in range(4):
        path = tmp_path / "one" / name.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(titan(rank))
    with pytest.warns(
        PassedOverWarning, match="of another rank of the training of .*: one measurement counts once"
    ) as told:
        [run] = collect([tmp_path / "one"])
    assert len(told) == 3 and run.row.tokens_per_second == 8 * 5850
    for number, (second, loss) in enumerate([(0, 10.0), (30, 10.0), (0, 10.1)]):  # begun later, or another seed
        path = tmp_path / "three" / f"run{number}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text(titan(0, second, loss))
    assert len(collect([tmp_path / "three"])) == 3
