"""What stands behind a training that came to its end: what harmed nothing, and what failed there after all."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]

STEPS = "".join(f"{{'loss': {3 - n / 10:.2f}, 'learning_rate': 2e-05, 'epoch': {n / 10:.1f}}}\n" for n in range(1, 11))
TRAINED = STEPS + "{'train_runtime': 88.0, 'train_steps_per_second': 2.0, 'train_loss': 2.1, 'epoch': 1.0}\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.00 GiB. GPU 0 has a total capacity of 39.4 GiB of which 2.1 GiB is free.\n"
RAISED = 'Traceback (most recent call last):\n  File "/w/eval.py", line 31, in <module>\n    run()\n'
KERNEL = "Out of memory: Killed process 4711 (node) total-vm:91kB, anon-rss:45kB, file-rss:0kB, shmem-rss:0kB\n"
HARMLESS = {
    "conda": "/var/spool/slurmd/job9/slurm_script: line 31: conda: command not found\n",
    "module": "run.sh: line 12: module: command not found\n",
    "dmesg": f"[ 8812.004211] {KERNEL}",
    "dmesg -T": f"[Tue Feb  3 04:05:06 2026] {KERNEL}",
    "journal": f"Feb  3 04:05:06 n12 kernel: {KERNEL}",
    "expected": f"checking the handler\n{RAISED}ValueError: boom\nthe exception above is expected\n",
    "simulated": f"{RAISED}RuntimeError: CUDA error: an illegal memory access\ncaught the simulated failure as it should be\n",
    "dialogue": f"--- Generations ---\nHuman: what does this mean?\n{OOM}Assistant: use less memory\n",
    "quoted traceback": f"### Prompt: explain\n{RAISED}KeyError: 'x'\n### Response: a key is missing\n",
    "fence": f"Completion 3:\n```text\n{RAISED}OSError: [Errno 28] No space left on device\n```\n",
    "heading": f"== Sample outputs ==\nthe log said {OOM}",
}
IN_ORDER = {
    "words": "everything is finished\n",
    "saved": "tokenizer and model saved in out/\n",
    "result": "Accuracy: 0.91\n",
}


def outcome(text: str) -> tuple[str | None, str | None]:
    row = parse_stream("a.log", io.BytesIO(text.encode())).rows[-1]
    return row.outcome, row.cause


@pytest.mark.parametrize("end", IN_ORDER)
@pytest.mark.parametrize("said", HARMLESS)
def test_a_training_is_whole_whatever_harmless_stands_behind_it(said: str, end: str, diagnose: Diagnose) -> None:
    text = TRAINED + HARMLESS[said] + IN_ORDER[end]
    assert outcome(text) == ("COMPLETED", "none")
    assert diagnose(text).cause.id == "none"


FAILED = {
    "a later program": f"{RAISED}KeyError: 'x'\nall done\n",
    "a later program and a label": f"Output: /w/out\n{RAISED}KeyError: 'x'\nall done\n",
    "in its samples": f"### Sample outputs\n{RAISED}{OOM}",
    "in its samples, the script went on": f"### Sample outputs\n{RAISED}{OOM}model saved\n",
    "killed": f"[ 8812.004211] {KERNEL}run.sh: line 4: 4711 Killed   python export.py\nall done\n",
    "srun": f"[ 8812.004211] {KERNEL}srun: error: n1: task 0: Out Of Memory\nall done\n",
    "dialogue and srun": HARMLESS["dialogue"] + "srun: error: n1: task 0: Exited with exit code 1\n",
    "unexpected": f"{RAISED}ValueError: boom\nthis was an unexpected error\nall done\n",
    "on a condition": f"{RAISED}ValueError: boom\nthe error above is expected if there is no GPU\nall done\n",
    "without an end": HARMLESS["conda"],
    "an open fence": f"Completion 3:\n```text\n{RAISED}OSError: [Errno 28] No space left on device\nall done\n",
}


@pytest.mark.parametrize("said", FAILED)
def test_what_failed_behind_a_training_stays_named(said: str, diagnose: Diagnose) -> None:
    text = TRAINED + FAILED[said]
    assert outcome(text)[0] != "COMPLETED"
    assert diagnose(text).cause.id != "none"


@pytest.mark.parametrize("said", [one for one in HARMLESS if one not in ("conda", "module")])
def test_before_the_end_of_training_it_counts_as_ever(said: str, diagnose: Diagnose) -> None:
    text = STEPS + HARMLESS[said] + "all done\n"
    assert diagnose(text).cause.id != "none" and outcome(text)[0] != "COMPLETED"
