"""`--verbose` reads every line with care, plain `parse` most of them by the chunk: both give the same rows, of logs of any format."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpc_llm.parsing import Row, fast, parse_paths, scan

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "logs"
_LARGEST = 1 << 17
"""Bytes of a log that is read in small chunks: sixteen are enough for every way in which a line can lie across two."""
OWN = (ROOT / "logs", ROOT / "tests" / "diagnose" / "corpus", ROOT / "tests" / "runs")

SETUP = "using world size: 8, data-parallel size: 8, tensor-model-parallel size: 1, pipeline-model-parallel size: 1\n"
MEGATRON = (
    " iteration {i:8}/   10000 | elapsed time per iteration (ms): {t} | learning rate: 1.0E-04 |"
    " global batch size:    64 | lm loss: 8.5E+00 | grad norm: 0.1 |\n"
)
SAGEMAKER = "Batch {i} Loss: 2.5, Speed: {t} samples/sec, Model TFLOPS/GPU: 150.5\n"
OF_OTHERS = {
    "nothing": "",
    "every step": "0: some text of a rank\n1: some text of a rank\n",
    "a GPU": "|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off | 0 | Bus-Id\n",
    "a job": "SLURM_JOB_ID=4711\n",
}


def both(path: Path) -> tuple[list[Row], list[Row]]:
    return list(parse_paths([path], jobs=1)), list(parse_paths([path], jobs=1, verbose=True))


def same(plain: list[Row], careful: list[Row]) -> None:
    """Alike in every column; sums may be taken in another order."""
    assert len(plain) == len(careful)
    for one, other in zip(plain, careful, strict=True):
        wanted = {k: pytest.approx(v, rel=1e-9) if isinstance(v, float) else v for k, v in other.to_dict().items()}
        assert one.to_dict() == wanted


def files(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.fixture(params=["as it is", "small chunks"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "small chunks":
        monkeypatch.setattr(scan, "CHUNK", 8192)
        monkeypatch.setattr(scan, "SLOW_CHUNK", 2048)
        monkeypatch.setattr(fast, "FEWEST_STEPS", 4)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("folder", [*([SHARED] if SHARED.is_dir() else []), *OWN], ids=lambda folder: folder.name)
def test_every_log_gives_the_same_rows_with_verbose(folder: Path) -> None:
    assert folder.is_dir()
    largest = _LARGEST if scan.CHUNK == 8192 else math.inf
    for path in files(folder):
        if path.stat().st_size <= largest:
            same(*both(path))


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("between", OF_OTHERS)
@pytest.mark.parametrize("often", [1, 150])
@pytest.mark.parametrize("line", [MEGATRON, SAGEMAKER], ids=["megatron", "sagemaker"])
def test_steps_of_which_some_are_taken_by_the_chunk(tmp_path: Path, line: str, between: str, often: int) -> None:
    """Steps whose tokens per second follow from their time: of 2 s on the careful lane, of 1 s behind it."""
    told = [OF_OTHERS[between] if i % often == 0 else "" for i in range(1, 1200)]
    steps = [line.format(i=i, t=2000.0 if i < 300 else 1000.0) for i in range(1, 1200)]
    head = f"{SETUP}  seq_length ...................................... 4096\n"
    (tmp_path / "a.log").write_text(head + "".join(a + b for a, b in zip(steps, told, strict=True)))
    plain, careful = both(tmp_path / "a.log")
    same(plain, careful)
    [row] = plain
    if line is MEGATRON:
        assert row.tokens_per_second == pytest.approx(64 * 4096 / row.step_time_s_mean)
