"""Only lines that hold one of some words are looked at for an end, or for another attempt: each that is one holds one of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpc_llm.causes.attempts import _AGAIN, _WORDS, begins_in
from hpc_llm.causes.life import END, END_WORDS, last_ends
from hpc_llm.causes.lines import lines_with

CORPUS = Path(__file__).parent / "corpus"
ENDS = [
    b"{'train_runtime': 12.5}", b'{"train_runtime": 12.5}', b"predict_runtime   = 0:00:12", b"Training done", b"x Training complete!", b"training finished",
    b"my training is done", b"[after training is done] datetime", b"[exiting program after 235.1 minutes]", b"[exiting program at iteration 10]",
    b"`Trainer.fit` stopped: `max_steps=100` reached", b'{"key": "run_stop", "metadata": {"status": "success"}}', b"Reporting training SUCCESS",
    b"Training job completed", b"INFO done training in 12.5 seconds", b"Finished Training", b"finished training",
    b"submitit INFO (x) - Job completed successfully", b"Successfully completed.\n\nResource usage summary:", b"Exit_status=0", b" Exit_status = 0",
    b"Successful requests:     100", b"Throughput: 12.5 requests/s",
]  # fmt: skip
AGAIN = [
    b"3/3 attempts left; will restart worker group", b"Starting attempt 2 of 3", b"RETRY 2", b"Try=2", b"restart #3", b"Re-trying (attempt 2)",
    b"Training crashed, retrying in 5 s", b"job failed with 1: re-starting", b"The run has died. Resuming from step 5", b"SCRIPT EXITED, STARTING OVER",
    b"program failed, trying again",
]  # fmt: skip


@pytest.mark.parametrize("line", ENDS)
@pytest.mark.parametrize("around", [b"%b", b"one line\n%b\nand another", b"%b\n%b"])
def test_an_end_is_seen_on_whatever_line_it_stands(line: bytes, around: bytes) -> None:
    text = around.replace(b"%b", line)
    position, _ = last_ends(text)
    assert position is not None and text.rfind(line) <= position < text.rfind(line) + len(line)


@pytest.mark.parametrize("line", AGAIN)
def test_another_attempt_is_seen_on_whatever_line_it_stands(line: bytes) -> None:
    [position] = begins_in([(7, b"one line\n" + line + b"\nand another")])
    assert 7 + 9 <= position < 7 + 9 + len(line)


def test_no_line_of_a_log_is_passed_over_that_one_of_them_would_match() -> None:
    seen = 0
    for path in sorted(CORPUS.rglob("*")):
        text = path.read_bytes() if path.is_file() else b""
        for pattern, words in ((END, END_WORDS), (_AGAIN, _WORDS)):
            matches = [match for match in pattern.finditer(text) if match[0].strip()]
            starts = {start for start, _ in lines_with(text.lower() if pattern is _AGAIN else text, words)}
            for match in matches:
                assert text.rfind(b"\n", 0, match.start() + len(re.match(rb"\s*", match[0])[0])) + 1 in starts, match
                seen += 1
    assert seen > 20
