"""What logs look like in real life: several runs, several ranks, terminal codes, cut lines, compression, notebooks."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from pace import is_within

from hpc_llm.diagnosis import diagnose_files
from hpc_llm.errors import PassedOverWarning, RequestError
from hpc_llm.parsing import parse_paths, parse_steps, write_rows

STEP = "[Step {i}/{n}] Loss: {loss:.4f} | Global Tokens/s: {tps:.2f} | GPU Mem (GB): 3.10 | Peak Mem: {peak:.2f}\n"
END = "\nTraining done in 12.34 seconds.\nAvg Global Tokens/s: 1003.21\nPeak GPU Mem (GB): 4.25\n"


def lines(first: int = 1, last: int = 5, total: int = 5, prefix: str = "") -> str:
    return "".join(
        prefix + STEP.format(i=i, n=total, loss=6 - i / 100, tps=1000 + i, peak=4 + i / 1000)
        for i in range(first, last + 1)
    )


def test_resubmission_in_one_log(read):
    text = (
        lines(1, 60, 100)
        + "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO PREEMPTION ***\n"
    )
    rows = read(text + "loading modules again\n" * 200 + lines(41, 100, 100) + END).rows
    assert [(r.run_id, r.outcome, r.measured_steps) for r in rows] == [
        ("job", "PREEMPTED", 60),
        ("job#2", "COMPLETED", 60),
    ]
    assert [r.job_id for r in rows] == ["7", None]  # the next job may be that one again, or another one


@pytest.mark.parametrize(
    "prefix",
    ["{}: ", " {}: ", "[rank{}]: ", "[rank{}]:", "[default{}]:", "[1,{}]<stdout>: ", "(Worker pid={}, ip=10.0.0.1) "],
)
def test_ranks_interleaved(row, prefix):
    text = (
        "".join(lines(i, i, 40, prefix.format(rank)) for i in range(1, 41) for rank in (3, 0, 2, 1))
        + prefix.format(3)
        + "Training done in 9.00 seconds.\n"
    )
    found = row(text)
    assert (found.measured_steps, found.outcome, found.elapsed_s) == (40, "COMPLETED", 9.0)


def test_ranks_that_lag_behind(row):
    ahead = [lines(i, i, 40, "1: ") for i in range(1, 41)]
    behind = ["", "", "", *(lines(i, i, 40, "0: ") for i in range(1, 41))]
    assert row("".join(a + b for a, b in zip(ahead, behind, strict=False)) + "".join(behind[40:])).measured_steps == 40


def test_unprefixed_copies_of_every_rank(row):
    assert row("".join(lines(i, i, 40) * 8 for i in range(1, 41))).measured_steps == 40


def test_peaks_are_the_largest_of_all_ranks(row):
    text = "".join(
        STEP.format(i=i, n=9, loss=5, tps=1, peak=rank).join((f"{rank}: ", "")) for i in (1, 2) for rank in (1, 7, 3)
    )
    assert row(text).peak_allocated_bytes == 7 * 2**30


@pytest.mark.parametrize(
    ("dirty", "why"),
    [
        (lambda t: t.replace("\n", "\r\n"), "CRLF"),
        (lambda t: t.replace("Loss", "\x1b[32mLoss\x1b[0m").replace("[Step", "\x1b[1m[Step"), "ANSI"),
        (lambda t: t.replace("Loss", "[32mLoss[0m"), "ANSI without its escape character"),
        (lambda t: t.replace("Loss", "\0L\0oss\0"), "NUL"),
        (lambda t: t.encode("utf-16-le"), "UTF-16"),
        (lambda t: t.replace("Global Tokens/s: 1", "Global Tokens/s: 1,"), "thousands separators"),
        (lambda t: "Downloading:  50%|##\r100%|####\r" + t, "progress bars"),
        (lambda t: t.encode().replace(b"Training", b"\xff\xfe garbage \x80\nTraining"), "bytes that are no UTF-8"),
        (lambda t: t.replace("\n", "#015\n"), "carriage returns as a log service writes them"),
    ],
)
def test_dirt(row, dirty, why):
    found, clean = row(dirty(lines() + END)), row(lines() + END)
    assert found == clean, why


@pytest.mark.parametrize(
    "kept", ["Peak Mem: 4.0", "Peak Mem: 4.", "Peak Mem: ", "GPU Mem (GB): 3.1", "Global Tokens/s: 10", "Loss: 5.9"]
)
def test_half_written_last_line_is_not_taken(row, steps, kept):
    text = lines(1, 4)
    cut = text[: text.rindex(kept.split(":")[0] + ": ")] + kept
    assert row(cut).peak_allocated_bytes == round(4.0 * 2**30)
    assert [s.step for s in steps(cut)] == [1, 2, 3]


def test_last_line_without_a_newline_is_taken_when_it_is_whole(steps):
    assert [s.step for s in steps(lines(1, 4).rstrip("\n"))] == [1, 2, 3, 4]


def compressed_with_zstd(text: bytes) -> bytes:
    import zstandard  # of the extra "test": the standard library has it from Python 3.14 on

    return zstandard.ZstdCompressor().compress(text)


@pytest.mark.parametrize(
    ("compress", "ending"),
    [(gzip.compress, "gz"), (lzma.compress, "xz"), (bz2.compress, "bz2"), (compressed_with_zstd, "zst")],
)
def test_compressed(tmp_path: Path, compress, ending):
    path = tmp_path / f"train.out.{ending}"
    path.write_bytes(compress((lines() + END).encode()))
    (found,) = parse_paths([path])
    assert (found.run_id, found.tokens_per_second, found.outcome) == ("train", 1003.21, "COMPLETED")
    path.rename(tmp_path / "no_ending")
    assert next(iter(parse_paths([tmp_path / "no_ending"]))).tokens_per_second == 1003.21


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress, compressed_with_zstd])
def test_compressed_and_cut_short_keeps_what_is_there(tmp_path: Path, compress):
    packed = compress((lines(1, 30000, 50000)).encode())
    (tmp_path / "log").write_bytes(packed[: len(packed) * 3 // 4])
    (found,) = parse_paths([tmp_path / "log"])
    assert found.outcome == "UNKNOWN"


def xz_with_a_large_dictionary(text: bytes) -> bytes:
    packed = bytearray(lzma.compress(text, check=lzma.CHECK_CRC32, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}]))
    size = (
        packed[12] + 1
    ) * 4  # of the block's header: its flags, the filter's id and length, the size of the dictionary
    place = packed.index(b"\x21\x01", 13) + 2
    packed[place] = 37  # 768 MiB
    packed[12 + size - 4 : 12 + size] = zlib.crc32(packed[12 : 12 + size - 4]).to_bytes(4, "little")
    return bytes(packed)


def zstd_with_a_large_window(text: bytes) -> bytes:
    import zstandard

    wide = zstandard.ZstdCompressionParameters.from_level(1, window_log=29, write_content_size=False)
    packed = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    return packed.compress(text) + packed.flush()


@pytest.mark.parametrize("compress", [xz_with_a_large_dictionary, zstd_with_a_large_window])
def test_what_would_take_much_memory_to_decompress_is_named_and_not_read(tmp_path: Path, compress):
    (tmp_path / "log").write_bytes(compress((lines() + END).encode()))
    with pytest.warns(PassedOverWarning, match="its dictionary has more than 64 MiB"):
        (found,) = parse_paths([tmp_path / "log"])
    assert found.outcome == "UNKNOWN"
    assert found.outcome_reason is not None and found.outcome_reason.startswith("it was not read: its dictionary")
    with pytest.warns(PassedOverWarning, match="its dictionary has more than 64 MiB"):
        told = diagnose_files([tmp_path / "log"])
    assert told.cause.id == "unknown" and told.summary.startswith("The output was not read: its dictionary")


def test_xz_at_its_highest_setting_and_in_several_streams(tmp_path: Path):
    whole = (lines() + END).encode()
    parts = [lzma.compress(whole[:500], preset=9), bytes(8), lzma.compress(whole[500:], preset=9 | lzma.PRESET_EXTREME)]
    (tmp_path / "log").write_bytes(b"".join(parts))
    (found,) = parse_paths([tmp_path / "log"])
    assert (found.tokens_per_second, found.outcome) == (1003.21, "COMPLETED")


NESTED, LONG = '{"a":' * 100_000, "9" * 100_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trainer_state.json", '{"log_history": [{"step": 1, "loss": %s}]}'),
        ("bench.json", '{"total_token_throughput": 1.5, "duration": %s}'),
        ("trainer_log.jsonl", '{"current_steps": 1, "total_steps": 2, "loss": 1.5, "percentage": 50.0, "throughput": %s}\n'),
        ("log.out", ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "train_loss", "value": %s}\n'),
        ("book.ipynb", '{"cells": [{"cell_type": "code", "outputs": %s}]}'),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "value", [NESTED, LONG, f"1e{LONG}", "NaN", "-Infinity"], ids=["deep", "long", "huge", "nan", "inf"]
)
def test_json_that_was_made_to_do_harm_does_none(tmp_path: Path, name: str, text: str, value: str):
    (tmp_path / name).write_text(text % value)
    started = time.process_time()
    assert len(list(parse_paths([tmp_path / name]))) <= 1
    assert is_within(time.process_time() - started, 5)


def test_a_loss_that_is_no_number_is_still_seen(tmp_path: Path):
    history = [{"step": step, "loss": 1.5 if step < 5 else float("nan")} for step in range(1, 9)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": 8, "max_steps": 8}))
    (found,) = parse_paths([tmp_path / "trainer_state.json"])
    assert (found.outcome, found.invalid_reason) == ("INVALID", "the loss is not a finite number at step 5")
    assert found.loss_last == 1.5, "the last that is one"


def test_zstd_without_its_package_says_what_to_do(tmp_path: Path, monkeypatch):
    (tmp_path / "log.zst").write_bytes(b"\x28\xb5\x2f\xfd rest")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    with pytest.raises(RequestError, match="pip install zstandard"):
        list(parse_paths([tmp_path / "log.zst"]))


def notebook(*cells: list[dict]) -> str:
    return json.dumps(
        {"cells": [{"cell_type": "code", "outputs": outputs} for outputs in cells], "nbformat": 4}, indent=1
    )


def test_notebook_with_several_runs(read):
    text = notebook(
        [{"output_type": "stream", "text": (lines() + END).splitlines(keepends=True)}],
        [{"output_type": "stream", "text": "nothing to see\n"}],
        [{"output_type": "stream", "text": lines(1, 2)},
         {"output_type": "error", "ename": "RuntimeError", "evalue": "no", "traceback": ["File x", "RuntimeError: no"]}],
        [{"output_type": "display_data", "data": {"text/html": [
            "<table><tr><th>Step</th><th>Training Loss</th><th>Validation Loss</th></tr>",
            "<tr><td>10</td><td>2.500000</td><td>2.25</td></tr><tr><td>20</td><td>2.125000</td><td>No log</td></tr></table>"]}}],
    )  # fmt: skip
    rows = read(text, "experiments.ipynb").rows
    assert [(r.run_id, r.format, r.outcome) for r in rows] == [
        ("experiments", "homework-v1", "COMPLETED"),
        ("experiments#2", "homework-v1", "FAILED"),
        ("experiments#3", "hf-trainer", "UNKNOWN"),
    ]
    assert (rows[2].loss_first, rows[2].loss_last, rows[2].eval_loss) == (2.5, 2.125, 2.25)


def test_notebook_cut_short_is_read_as_text(read):
    whole = notebook([{"output_type": "stream", "text": [f"{{'loss': 2.{i}, 'epoch': 0.{i}}}\n" for i in range(1, 9)]}])
    rows = read(whole[: len(whole) // 2], "cut.ipynb").rows
    assert rows[0].loss_first == 2.1


def test_stdin_reads_to_the_end():
    code = "import sys; from hpc_llm.parsing import *; write_rows(parse_paths(['-']), 'json', sys.stdout)"
    done = subprocess.run([sys.executable, "-c", code], input=lines() + END, capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)
    assert (found["run_id"], found["source"], found["tokens_per_second"]) == ("stdin", "-", 1003.21)


def test_steps_are_yielded_before_the_end_of_the_input(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text(lines(1, 60000, 60000))
    found = parse_steps([path])
    assert next(found).step == 1
    found.close()


def test_metric_like_lines_that_are_not_parsed_are_counted(read):
    text = lines() + "my own loss: 3.5\nvalidation perplexity = 12.5\nthe loss of time is great\n"
    assert read(text).unparsed.count == 0
    unparsed = read(text, verbose=True).unparsed
    assert unparsed.count == 2
    assert unparsed.examples == ["my own loss: 3.5", "validation perplexity = 12.5"]


@pytest.mark.parametrize(
    "line",
    [
        "val_loss: 1.5", "loss train (curr): 1.6", "iter time: 298 ms", "SamplesPerSec=12.5", "'tokens_per_second': '7'",
        "steps_per_second = 3", "step_time | 0.5", "MFU: 45%", "TFLOPS: 3",
    ],
)  # fmt: skip
def test_a_line_of_a_program_nobody_knows_looks_like_a_metric(read, line):
    assert read(f"starting\n{line}\n", verbose=True).unparsed.examples == [line]


def test_the_second_line_of_a_metric_is_parsed_with_the_first(read):
    text = "{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.5}\n 50%|#####     | 10/20 [00:05<00:05,  2.00it/s]\n"
    assert read(text * 2, verbose=True).unparsed.count == 0


def test_unknown_inputs_are_named_with_a_reason(tmp_path: Path):
    (tmp_path / "a_empty.log").write_text("\n")
    (tmp_path / "b_binary.log").write_bytes(bytes(range(1, 9)) * 1000)
    (tmp_path / "c_other.log").write_text("hello\n")
    (tmp_path / "code.py").write_text("print('loss: 3')\n")
    (tmp_path / ".hidden.log").write_text(lines())
    rows = list(parse_paths([tmp_path]))
    assert [(r.run_id, r.format) for r in rows] == [
        ("a_empty", "unknown"),
        ("b_binary", "unknown"),
        ("c_other", "unknown"),
    ]
    assert [r.outcome_reason.split(",")[0] for r in rows] == [
        "the input is empty",
        "binary data",
        "no line of a known format",
    ]


def test_missing_path_is_a_clear_error(tmp_path: Path):
    with pytest.raises(RequestError, match="there is no file or folder"):
        list(parse_paths([tmp_path / "nothing"]))


def test_job_id_from_the_name_that_slurm_gives(read):
    assert read(lines() + END, "slurm-4711.out").rows[0].job_id == "4711"
    assert read(lines() + END, "run-4711.out").rows[0].job_id is None


def test_gpu_from_the_table_of_nvidia_smi(row):
    table = (
        "| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |\n"
        "|   0  Tesla V100-SXM2-32GB           On  | 00000000:1B:00.0 Off |                    0 |\n"
    )
    assert row(table + lines() + END).gpu == "V100-SXM2-32GB"


def test_started_at_is_the_first_time_of_each_run(read):
    text = "[2026-01-01 10:00:00,123] hello\n" + lines() + END + "[2026-01-02 11:00:00,123] hello\n" + lines() + END
    assert [r.started_at for r in read(text).rows] == ["2026-01-01T10:00:00", "2026-01-02T11:00:00"]


def test_failure_before_any_step_then_success(read):
    failed = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB.\n"
    assert [r.outcome for r in read(failed + lines(1, 50, 50) + END).rows] == ["COMPLETED"]


def test_rows_and_steps_tell_the_same_runs(read, steps):
    text = lines(1, 9, 50) + "x\n" * 3000 + lines(1, 50, 50) + END
    assert {r.run_id for r in read(text).rows} == {s.run_id for s in steps(text)}


def test_csv_of_a_log(read):
    file = io.StringIO()
    write_rows(read(lines() + END).rows, "csv", file)
    assert file.getvalue().splitlines()[1].startswith("job,job.log,homework-v1,")


@pytest.mark.parametrize(
    "text",
    [
        STEP.format(i=1, n=2, loss=2, tps=5, peak=1) + "2026-01-01 10:00:00 saving\n",
        STEP.format(i=1, n=2, loss=2, tps=5, peak=1)
        + "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T10:00:00 ***\n",
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***\n",
        'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 1\nRoot Cause:\n  time      : 2026-01-01_10:00:00\n',
        STEP.format(i=1, n=1, loss=2, tps=5, peak=1) + "Training completed at 2026-01-01 10:00:00\n",
        " 10%|#    | 150/1500 [3:00:00<30:00:00, 72.00s/it]\n2026-01-01 10:00:00 WARNING slow\n",
        "KeyError: 1\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_10:00:00\n  host      : n1\n",
        "[2026-01-01T10:00:00.530] error: *** STEP 77.0 ON n1 CANCELLED [2026-01-01T10:00:00.531] error: *** JOB 77 ON n1 CANCELLED \nAT 2026-01-01T10:00:00 DUE TO PREEMPTION ***\n",
        "  train_runtime            = 1:41:22.36\n01/01/2026 WARNING\n[INFO|trainer.py:3719] 2026-01-01 10:00:00,665 >> evaluates\n",
        "[INFO 2026-01-01 10:00:00] 0/2650, SamplesPerSec=13.1\n[INFO 2026-01-01 10:00:15] 0/2700, SamplesPerSec=13.2\n",
        "[titan] 2026-01-01 10:00:00,735 - root - INFO - [GC] Performing collection\n"
        + "".join(
            f"[titan] 2026-01-01 10:00:{i // 10},735 - root - INFO - step: {i}  loss:  6.1  memory: 49.66GiB(52.28%)  tps: 5,856  mfu: 34.29%\n"
            for i in (200, 210, 220)
        ),
    ],
)
def test_the_time_of_an_end_is_no_start(read, text):
    assert [r.started_at for r in read(text).rows] == [None]


@pytest.mark.parametrize(
    ("above", "began"),
    [
        ("EPOCH 1 COMPLETED @ 10:00 AM\nSENTENCE: hello\n", None),
        ("Epoch [3/10] finished\n", None),
        ("Finished epoch 2, saving\n", None),
        ("02:13:05 INFO reading data\n", None),
        ("[02:13:05] reading data\n", None),
        ("begun at 2:13 PM\n", None),
        ("09:59:58 INFO reading data\n", "2026-01-01T09:59:58"),
        ("begun at 9:59 AM\n", "2026-01-01T09:59:00"),
        (
            "preparing epoch 1\nmodel of 1:24:36 layers, 00:12 each\n 10%|#  | 1/10 [00:02<00:18, 2.00s/it]\n",
            "2026-01-01T10:00:00",
        ),
    ],
)
@pytest.mark.parametrize("between", ["", "x\n" * 300_000])
def test_the_first_date_is_no_start_where_something_above_it_was_earlier(read, above, began, between):
    """The text between fills more than one piece of what is read at once."""
    row = read(above + between + "2026-01-01 10:00:00,847 [INFO] filling the buffer\n" + lines() + END).rows[0]
    assert row.started_at == began


COLUMNS = "JobID     {:>19} {:>19} {:>19}\n--------- ------------------- ------------------- -------------------\n"
WAITED, BEGAN, ENDED = "2026-01-01T08:00:00", "2026-01-01T10:00:00", "2026-01-01T11:00:00"


@pytest.mark.parametrize(
    ("summary", "start"),
    [
        (f"Submit time  : {WAITED}\nStart time   : {BEGAN}\nEnd time     : {ENDED}\n", BEGAN),
        (f"Submit              : {WAITED}\nEligible            : {WAITED}\nStart               : {BEGAN}\n", BEGAN),
        (f"Submitted at: {WAITED}\nEnded at: {ENDED}\n", None),
        (f"Submission date: {WAITED}\n", None),
        (f"   SubmitTime={WAITED} EligibleTime={WAITED}\n   AccrueTime={WAITED}\n   StartTime={BEGAN} EndTime={ENDED}\n", BEGAN),
        (f"Queued since {WAITED}, started {BEGAN}\n", BEGAN),
        (f"000 (7.0.0) {WAITED} Job submitted from host: a\n001 (7.0.0) {BEGAN} Job executing on host: b\n", BEGAN),
        (f"Job 7 was submitted from host a by me on {WAITED}\n", None),
        (COLUMNS.format("Submit", "Start", "End") + f"7         {WAITED} {BEGAN} {ENDED}\n7.batch   {BEGAN} {BEGAN} {ENDED}\n", BEGAN),
        (COLUMNS.format("Submit", "Eligible", "End") + f"7         {WAITED} {WAITED} {ENDED}\n7.batch   {BEGAN} {BEGAN} {ENDED}\n", None),
        (f"JobID|Submit|Start|End\n7|{WAITED}|{BEGAN}|{ENDED}\n", BEGAN),
        (f"[{BEGAN}] submit.py: 4 requests are submitted\n", BEGAN),
    ],
)  # fmt: skip
@pytest.mark.parametrize("said", ["train.py: error: unrecognized arguments: --lrr 1\n", "slurmstepd: error: a node\n"])
def test_the_time_at_which_a_job_was_submitted_is_no_start(read, summary: str, start: str | None, said: str) -> None:
    """What a site's epilogue, scontrol, sacct or HTCondor's log tells of a job."""
    (row,) = read(said + "=" * 78 + "\n" + summary).rows
    assert row.started_at == start


MEGATRON = " iteration {i:8}/ {n:8} | consumed samples: 16 | elapsed time per iteration (ms): 5.0 | learning rate: 1.0E-04 | global batch size: 16 | lm loss: 2.5E+00 |\n"


@pytest.mark.parametrize(
    ("last", "end", "outcome", "reason"),
    [
        (30, "[exiting program after 235.01 minutes] datetime: 2026-01-01 10:00:00", "COMPLETED", "after 235.01 minutes, at step 30 of 100"),
        (30, "[exiting program at iteration 30] datetime: 2026-01-01 10:00:00", "COMPLETED", "at iteration 30, at step 30 of 100"),
        (100, "[exiting program after 235.01 minutes] datetime: 2026-01-01 10:00:00", "COMPLETED", None),
        (100, "[after training is done] datetime: 2026-01-01 10:00:00", "COMPLETED", None),
        (30, "[exiting program after receiving SIGTERM.] datetime: 2026-01-01 10:00:00", "CANCELLED", "[exiting program after receiving SIGTERM.]"),
    ],
)  # fmt: skip
def test_a_planned_stop_before_the_last_step_is_said(read, last, end, outcome, reason):
    text = "".join(MEGATRON.format(i=i, n=100) for i in range(10, last + 1, 10)) + end + "\n"
    [row] = read(text).rows
    assert row.outcome == outcome
    assert (row.outcome_reason is None) if reason is None else reason in row.outcome_reason, row.outcome_reason


DEEPSPEED = (
    "[Rank 0] step={i}, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]\n"
    "[timer.py:260:stop] epoch=0/micro_step={i}/global_step={i}, RunningAvgSamplesPerSec=20.1, CurrSamplesPerSec=20.5, "
    "MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n"
    "[Rank 0] time (ms) | fwd: 10.0 | bwd: 20.0 | step: 5.0\n"
)


@pytest.mark.parametrize(("lines", "measured"), [(1, 1), (2, 2), (3, 2), (10, 9)])
def test_deepspeeds_timers_measure_the_steps_that_they_print(read, lines, measured):
    [row] = read("".join(DEEPSPEED.format(i=10 * i) for i in range(1, lines + 1))).rows
    assert (row.format, row.measured_steps, row.step_time_s_mean) == ("deepspeed", measured, 0.035)


def test_no_memory_is_none_and_not_zero(read):
    line = "[Step {i}/3] Loss: 2.5 | Global Tokens/s: 5.50 | GPU Mem (GB): n/a | Peak Mem: n/a\n"
    text = "".join(line.format(i=i) for i in (1, 2, 3)) + "Training done in 1.00 seconds.\nPeak GPU Mem (GB): n/a\n"
    [row] = read(text).rows
    assert (row.outcome, row.peak_allocated_bytes) == ("COMPLETED", None)
    assert row.loss_last == 2.5


def test_a_time_in_a_text_that_is_printed_is_no_start(read):
    """unslothai/notebooks, nb/AMD-Qwen3_8B_FP8_GRPO.ipynb prints an answer of the model, made of a page of 2017."""
    answer = "' - Answers\\nWhat is the sqrt of 101?\\nWiki User\\n\u2219 2017-11-17 11:59:41\\nStudy now'\n"
    shown = "Wiki User \u2219 2017-11-17 11:59:41 Study now\n"
    long = "It was said " + "again and " * 20 + "on 2017-11-17 11:59:41\n"
    steps = "".join(f"{{'loss': {3 - i / 10}, 'learning_rate': 0.001, 'epoch': {i / 10}}}\n" for i in range(1, 5))
    for text in (answer, shown, long):
        assert read(text + steps).rows[0].started_at is None
        found = read(text + "[2026-01-01 10:00:00,123] [INFO] begins\n" + steps).rows[0]
        assert found.started_at == "2026-01-01T10:00:00"


@pytest.mark.parametrize(
    ("stamp", "began"),
    [
        ("11/22/2023 00:30:45", "2023-11-22T00:30:45"),
        ("05/05/2023 00:30:45", "2023-05-05T00:30:45"),
        ("05/06/2023 00:30:45", None),  # of which month it is cannot be told
        ("05/06/2023 00:36:45", "2023-06-05T00:36:45"),  # a moment before the date below, which tells its day
        ("5/6/23 00:30:45", None),
        ("06.05.2023 00:30:45", None),
        ("06/05/2023 12:30:45 AM", None),
    ],
)
def test_a_date_with_month_and_day_before_the_year_is_the_first_one(read, stamp, began):
    """As the example scripts of transformers write it, before the Trainer writes dates of its own."""
    head = f"{stamp} - WARNING - __main__ - Process rank: 0, device: cuda:0, n_gpu: 1\n"
    trainer = "[INFO|trainer.py:1720] 2023-06-05 00:37:05,889 >> ***** Running training *****\n"
    step = "{'loss': 3.5, 'learning_rate': 4e-05, 'epoch': 0.01}\n"
    assert [r.started_at for r in read(head + trainer + step).rows] == [began]
