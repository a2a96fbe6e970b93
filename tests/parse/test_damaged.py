"""Logs of which bytes are lost: in the last line, which was being written, and in a hole. What is left of a number is a number, too."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

import hpc_llm
from hpc_llm.cli import run
from hpc_llm.diagnosis import diagnose_files
from hpc_llm.errors import Notice, RequestError
from hpc_llm.parsing import parse_stream
from hpc_llm.parsing.read import parse_stream_steps


def megatron(steps: Iterable[int]) -> str:
    return "".join(
        f" iteration {step:8}/      60 | consumed samples: {16 * step:12} | elapsed time per iteration (ms): {540 + step % 7}.2 | "
        f"throughput per GPU (TFLOP/s/GPU): 123.4 | learning rate: 1.000E-04 | global batch size:    16 | "
        f"lm loss: {5.4 - step / 50:.6E} | loss scale: 1.0 | grad norm: 1.{step:03} | number of skipped iterations:   0 |\n"
        for step in steps
    )


def titan(steps: Iterable[int]) -> str:
    return "".join(
        f"[rank0]:[titan] 2025-10-21 23:15:59,0{step:02} - root - INFO - step: {step:2}  loss: {12 - step / 20:.5f}  grad_norm:  1.6123  "
        f"memory: 10.98GiB(13.2%)  tps: 7,{100 + step % 7}  tflops: 110.35  mfu: 11.05%\n"
        for step in steps
    )


def trainer(steps: Iterable[int]) -> str:
    return "".join(
        f"{{'loss': {2.31 - step / 100:.4f}, 'grad_norm': 1.1, 'learning_rate': 5e-05, 'epoch': {step / 50}}}\n"
        for step in steps
    )


def nanogpt(steps: Iterable[int]) -> str:
    return "".join(
        f"iter {step}: loss {10.9 - step / 10:.4f}, time {310 + step % 5}.73ms, mfu 17.0{step % 9}%\n" for step in steps
    )


def homework(steps: Iterable[int]) -> str:
    return "".join(
        f"[Step {step}/60] Loss: {12 - step / 8:.4f} | Global Tokens/s: {5100 + step}.55 | GPU Mem (GB): 13.10 | Peak Mem: 24.25\n"
        for step in steps
    )


SERVED = """============ Serving Benchmark Result ============
Successful requests:                     1000
Benchmark duration (s):                  123.45
Total input tokens:                      217393
Total generated tokens:                  185616
Request throughput (req/s):              8.10
Output token throughput (tok/s):         1503.57
Total Token throughput (tok/s):          3264.55
---------------Time to First Token----------------
Mean TTFT (ms):                          123.45
Median TTFT (ms):                        112.34
P99 TTFT (ms):                           456.78
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          23.45
"""
PROGRAMS = [megatron, titan, trainer, nanogpt, homework]


def said(text: bytes) -> set[tuple[int, int | None, str, Any]]:
    """Each figure of each step: which run, which step, what, and how much."""
    found = set()
    for one in parse_stream_steps("a.log", io.BytesIO(text)):
        columns = one.to_dict()
        found |= {(one.run_id, one.step, name, value) for name, value in columns.items() if value is not None}
    return found


def cuts(text: bytes, last: int) -> Iterator[bytes]:
    yield from (text[:end] for end in range(len(text) - last, len(text)))


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_step_of_a_log_that_ends_in_a_line_says_what_the_whole_one_does_not(
    program: Callable[[Iterable[int]], str],
) -> None:
    text = program(range(1, 41)).encode()
    line = len(text) - text.rstrip(b"\n").rfind(b"\n")
    whole = said(text)
    assert len(whole) > 40
    for cut in cuts(text, line):
        assert said(cut) <= whole, cut[-90:]


def test_no_result_of_a_table_that_ends_in_a_line_is_another() -> None:
    whole = parse_stream("a.log", io.BytesIO(SERVED.encode())).rows[0]
    assert (whole.time_per_output_token_s_mean, whole.elapsed_s, whole.tokens_per_second) == (0.02345, 123.45, 3264.55)
    for cut in cuts(SERVED.encode(), len(SERVED) - 60):
        for row in parse_stream("a.log", io.BytesIO(cut)).rows:
            for name in (
                "elapsed_s",
                "time_to_first_token_s_p50",
                "time_per_output_token_s_mean",
                "queries_per_second",
            ):
                assert getattr(row, name) in (None, getattr(whole, name)), (name, cut[-60:])
            # older releases print the two parts alone, of which the sum is made
            assert row.tokens_per_second in (None, 3264.55), cut[-60:]


def test_no_step_of_a_real_log_that_ends_in_a_line_says_what_the_whole_one_does_not(real_logs: Path) -> None:
    seen = 0
    for path in sorted(real_logs.rglob("*")):
        if (
            not path.is_file()
            or not 2000 < path.stat().st_size < 100_000
            or path.suffix in (".gz", ".xz", ".bz2", ".zst", ".ipynb", ".json", ".jsonl")
        ):
            continue
        text = path.read_bytes()
        if b"fwd_microstep" in text:  # DeepSpeed's own figures of the step stand in for those of a line that is cut
            continue
        whole = said(text)
        steps = [one for one in text.split(b"\n") if b"loss" in one.lower()][-1:] if whole else []
        for line in steps:
            begin = text.rfind(line)
            # Without the line a library's lines may stand in for it.
            figures = {(step, name, value) for _, step, name, value in whole | said(text[:begin])}
            for end in range(begin + len(line) // 3, begin + len(line), 1 + len(line) // 4):
                found = {(step, name, value) for _, step, name, value in said(text[:end]) if name != "run_id"}
                assert found <= figures, (path.name, text[begin:end])
            seen += 1
    assert seen >= 5


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_number_is_taken_of_a_line_with_a_hole(program: Callable[[Iterable[int]], str]) -> None:
    text = program(range(1, 41)).encode()
    whole = said(text)
    begin, end = text.find(b"\n", len(text) // 3), text.find(b"\n", len(text) // 2)
    for first in range(begin + 30, begin + 90, 7):
        for last in range(end + 30, end + 90, 9):
            holed = text[:first] + b"\0" * (last - first) + text[last:]
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                assert said(holed) <= whole, (text[first - 40 : first], text[last : last + 40])
            assert "a.log: no number is taken of 1 line with a hole" in str(told[-1].message)


def test_a_hole_may_lie_anywhere_and_have_any_size() -> None:
    text = SERVED.encode()
    whole = parse_stream("a.log", io.BytesIO(text)).rows[0]
    for begin in range(90, len(text) - 40, 5):
        for holed in (text[:begin] + b"\0" * 20 + text[begin + 20 :], text[:begin] + b"\0" * 700_000 + text[begin:]):
            with pytest.warns(Notice, match="no number is taken of 1 line"):
                rows = parse_stream("a.log", io.BytesIO(holed)).rows
            for name in (
                "elapsed_s",
                "time_to_first_token_s_p50",
                "time_per_output_token_s_mean",
                "queries_per_second",
            ):
                assert getattr(rows[0], name) in (None, getattr(whole, name)), (name, begin)


def test_what_stands_behind_a_hole_is_still_read_for_the_cause(tmp_path: Path) -> None:
    log = tmp_path / "a.out"
    log.write_bytes(
        titan(range(1, 9)).encode()[:-40] + b"\0" * 5000 + b"nel\nTraceback (most recent call last):\n"
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB\n"
    )
    found = diagnose_files([log])
    assert found.cause is not None and found.cause.id == "device_oom" and found.evidence[-1].line == 10


def test_text_of_two_bytes_a_letter_has_no_holes() -> None:
    assert {what[1:] for what in said(nanogpt(range(1, 9)).encode("utf-16-le"))} == {
        what[1:] for what in said(nanogpt(range(1, 9)).encode())
    }


TORN = [
    (titan, b"tps: 7,10", b"tps: 7WARNING: node n1 slow\n,10"),
    (titan, b"tps: 7,10", b"tps: 7,\n10"),
    (titan, b"tps: 7,10", b"tps: 7[rank1]: a word\n,10"),
    (titan, b"loss: 11.50000", b"loss: 1WARNING: slow\n1.50000"),
    (megatron, b"(TFLOP/s/GPU): 123.4", b"(TFLOP/s/GPU): 1\n23.4"),
    (megatron, b"(TFLOP/s/GPU): 123.4", b"(TFLOP/s/GPU): 1WARNING: slow\n23.4"),
    (nanogpt, b"loss 9.9000", b"loss 9WARNING: slow\n.9000"),
    (homework, b"Global Tokens/s: 5110.55", b"Global Tokens/s: 51WARNING: slow\n10.55"),
]


@pytest.mark.parametrize(("program", "whole", "torn"), TORN)
def test_no_figure_is_taken_of_a_number_that_something_tore(
    program: Callable[[Iterable[int]], str], whole: bytes, torn: bytes
) -> None:
    text = program(range(1, 41)).encode()
    place = text.find(whole, len(text) // 5)
    assert place > 0
    damaged = text[:place] + torn + text[place + len(whole) :]
    assert said(damaged) <= said(text)


@pytest.mark.parametrize("torn", [torn for program, _, torn in TORN if program is titan and torn.startswith(b"tps")])
def test_a_torn_line_far_down_in_a_long_log_changes_no_mean(torn: bytes) -> None:
    """Where steps are read many at a time."""
    text = titan(range(1, 6000)).encode()
    place = text.find(b"tps: 7,10", len(text) // 2)
    damaged = text[:place] + torn + text[place + len(b"tps: 7,10") :]
    [whole], [row] = (parse_stream("a.log", io.BytesIO(one)).rows for one in (text, damaged))
    assert row.tokens_per_second_per_gpu == pytest.approx(whole.tokens_per_second_per_gpu, rel=1e-5)


def test_no_result_is_taken_of_a_number_that_something_tore() -> None:
    whole = parse_stream("a.log", io.BytesIO(SERVED.encode())).rows[0]
    for torn in ("1WARNING: node n1 slow\n12.34", "1\n12.34"):
        [row] = parse_stream("a.log", io.BytesIO(SERVED.replace("112.34", torn).encode())).rows
        assert row.time_to_first_token_s_p50 is None and row.elapsed_s == whole.elapsed_s


def test_a_table_never_replaces_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_folder = make_run(tmp_path / "logs", "one", {}, "").root
    Path("a.txt").write_text(titan(range(1, 9)))
    records = {path: path.read_bytes() for path in (Path("a.txt"), *run_folder.rglob("*.json*"))}
    for arguments in (["a.txt"], ["."], ["logs"], [str(run_folder)], [str(run_folder), "--steps"]):
        for target in records:
            if (target.name == "a.txt") == (arguments[0] in ("a.txt", ".")):
                assert run(["parse", *arguments, "-o", str(target), "--format", "csv"]) == 2, (arguments, target)
                assert "would be replaced by the table: give another file." in capsys.readouterr().err
    with pytest.raises(RequestError, match=r"a\.txt is what is to be read"):
        hpc_llm.parse("a.txt").write("a.txt", "csv")
    assert all(path.read_bytes() == content for path, content in records.items())
    for target in ("t.csv", str(run_folder / "t.csv")):
        assert run(["parse", "a.txt", "-o", target]) == 0 and run(["parse", "a.txt", "-o", target]) == 0


def test_no_script_replaces_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.yaml").write_text("cluster: local\nmethod: ddp\nmodel: tiny\n")
    assert run(["render", "e.yaml", "-o", "e.yaml"]) == 2
    assert "-o e.yaml is a file that render did not write" in capsys.readouterr().err and Path(
        "e.yaml"
    ).read_text().startswith("cluster")


def test_a_name_with_two_values_has_none() -> None:
    state = b'{"log_history": [{"loss": 2.0, "loss": 1.0, "step": 1}, {"loss": 1.5, "loss": 1.5, "step": 2}], "global_step": 2, "max_steps": 2}'
    [row] = parse_stream("trainer_state.json", io.BytesIO(state)).rows
    assert row.loss_last == 1.5 and row.loss_first != 1.0
