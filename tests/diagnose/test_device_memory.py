"""Whose memory filled a GPU, by torch's own sentence, and what is advised of it."""

from __future__ import annotations

import io

import pytest
from tiny_plans import make_plan

from hpc_llm.diagnosis import diagnose_stream
from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.remedies import device_oom

TRAINS = "    loss.backward()\n"
ASKED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 40.00 GiB of which 0.50 GiB is free. "
OWN = "Including non-PyTorch memory, this process has {} GiB memory in use. "
OTHER = "Process {} has {} GiB memory in use. "
TORCH = "Of the allocated memory {} GiB is allocated by PyTorch, and {} GiB is reserved by PyTorch but unallocated.\n"
OTHERS_FILLED = {
    "named": ASKED + OTHER.format(77, "35.00") + OWN.format("4.50") + TORCH.format("3.00", "0.10"),
    "named after": ASKED + OWN.format("4.50") + OTHER.format(77, "35.00") + TORCH.format("3.00", "0.10"),
    "several": ASKED
    + "".join(OTHER.format(n, "5.00") for n in range(7))
    + OWN.format("4.50")
    + TORCH.format("3.00", "0.10"),
    "not named": ASKED + OWN.format("4.50") + TORCH.format("3.00", "0.10"),
    "in a container": ASKED + OTHER.format(1, "30.00") + OTHER.format(2, "9.50") + TORCH.format("8.00", "0.10"),
}
OLD = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB (GPU 0; 44.56 GiB total capacity; {} GiB already allocated; "
    "{} MiB free; {} GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb\n"
)
OTHERS_FILLED["old words"] = OLD.format("1.63", "7.91", "565.31", "7.93")
OWN_FILLED = {
    "alone": ASKED + OWN.format("39.40") + TORCH.format("37.00", "0.50"),
    "alone in a container": ASKED + OTHER.format(1, "39.40") + TORCH.format("37.00", "0.50"),
    "contexts of other ranks": ASKED + OTHER.format(1, "0.50") + OTHER.format(2, "0.50") + OWN.format("38.40") + TORCH.format("37.00", "0.50"),
    "old words": "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 40.00 GiB total capacity; 38.00 GiB already allocated; "
    "0.20 GiB free; 38.50 GiB reserved in total by PyTorch)\n",
    "old words, with NCCL": OLD.format("1.63", "42.00", "300.00", "42.30"),
    "too much at once": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 90.00 GiB. GPU 0 has a total capacity of 40.00 GiB of which 39.00 GiB is free. "
    + TORCH.format("0.10", "0.00"),
}  # fmt: skip


@pytest.mark.parametrize("text", OTHERS_FILLED.values(), ids=OTHERS_FILLED)
def test_what_others_hold_is_told_and_no_smaller_batch_advised(text: str) -> None:
    found = diagnose_stream(io.BytesIO(text.encode()))
    assert found.cause.id == "device_oom" and "nvidia-smi" in found.remedy and "LOCAL_RANK" in found.remedy
    assert "micro batch" not in found.remedy and "in the hands of other processes" in found.meaning
    assert found.details["held_by_others"] in found.summary
    lines = device_oom(Case(plan=make_plan("z3"), facts=found.details))
    assert "another process" in lines[0] and not any("micro-batch" in line for line in lines)


@pytest.mark.parametrize("text", OWN_FILLED.values(), ids=OWN_FILLED)
def test_what_the_run_holds_itself_is_laid_to_nobody_else(text: str) -> None:
    found = diagnose_stream(io.BytesIO((TRAINS + text).encode()))
    assert found.cause.id == "device_oom" and "process" not in found.remedy and "expandable" not in found.remedy
    assert "halve the micro batch" in found.remedy or "1/4 of it" in found.remedy
    assert not any("another process" in line for line in device_oom(Case(plan=make_plan("z3"), facts=found.details)))


def test_a_part_in_other_hands_is_told_beside_what_saves_memory() -> None:
    named = ASKED + OTHER.format(7, "8.00") + OWN.format("31.50") + TORCH.format("30.00", "0.50")
    for text, held in ((named, "8.0 GiB"), (OLD.format("1.63", "27.91", "565.31", "27.93"), "about 15.1 GiB")):
        found = diagnose_stream(io.BytesIO((TRAINS + text).encode()))
        remedy = found.remedy
        assert f"other processes held {held}" in found.summary, found.summary
        assert remedy.index("nvidia-smi") < remedy.index("halve the micro batch")


@pytest.mark.parametrize(
    ("text", "option"),
    [
        (ASKED + OWN.format("39.40") + TORCH.format("25.00", "13.00"), "expandable_segments:True"),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 40.00 GiB total capacity; 25.00 GiB already allocated; 0.20 GiB "
            "free; 38.50 GiB reserved in total by PyTorch)\n",
            "max_split_size_mb:",
        ),
    ],
)
def test_memory_in_pieces_is_answered_with_an_option_that_this_torch_has(text: str, option: str) -> None:
    """torch 2.0 ends with `Unrecognized CachingAllocator option: expandable_segments`; its sums are those of before 2.1."""
    found = diagnose_stream(io.BytesIO(text.encode()))
    assert found.remedy.startswith(f"export PYTORCH_CUDA_ALLOC_CONF={option}")
    assert device_oom(Case(plan=make_plan("z3"), facts=found.details))[0].startswith(
        "--set env.PYTORCH_CUDA_ALLOC_CONF="
    )


OLD_FREE = "RuntimeError: CUDA out of memory. Tried to allocate {} (GPU 0; 8.00 GiB total capacity; {} already allocated; {} free; {}{} reserved in total by PyTorch)\n"
NEW_FREE = (
    "torch.OutOfMemoryError: {} out of memory. Tried to allocate {}. GPU 0 has a total capacity of {} of which {} is free. {}"
    "Of the allocated memory {} is allocated by PyTorch, and {} is reserved by PyTorch but unallocated.\n"
)
REFUSED = {
    "page file": OLD_FREE.format("304.00 MiB", "142.76 MiB", "6.32 GiB", "", "158.00 MiB"),
    "small": OLD_FREE.format("20.00 MiB", "1.00 GiB", "4.10 GiB", "", "1.10 GiB"),
    "bytes": OLD_FREE.format("512 bytes", "3.00 GiB", "3.00 GiB", "", "3.10 GiB"),
    "new words": NEW_FREE.format("CUDA", "2.00 GiB", "79.10 GiB", "60.00 GiB", "Process 9 has 3.00 GiB memory in use. ", "1.00 GiB", "0.10 GiB"),
    "AMD": NEW_FREE.format("HIP", "256.00 MiB", "63.98 GiB", "40.00 GiB", "", "20.00 GiB", "0.10 GiB"),
    "others beside": NEW_FREE.format("CUDA", "1.00 GiB", "40.00 GiB", "9.00 GiB", OTHER.format(7, "20.00"), "9.00 GiB", "0.10 GiB"),
    "own limit": NEW_FREE.format("CUDA", "2.00 GiB", "79.10 GiB", "60.00 GiB", "15.82 GiB allowed; ", "14.00 GiB", "0.10 GiB"),
    "own limit, behind what it holds": NEW_FREE.format("CUDA", "2.00 GiB", "79.10 GiB", "60.00 GiB", "Including non-PyTorch memory, this process has 15.10 GiB memory in use. 15.82 GiB allowed; ", "14.00 GiB", "0.10 GiB"),
    "own limit, old words": OLD_FREE.format("304.00 MiB", "1.42 GiB", "6.00 GiB", "1.60 GiB allowed; ", "1.50 GiB"),
}  # fmt: skip
FULL = {
    "all but a little of nearly all": NEW_FREE.format("CUDA", "1.00 GiB", "79.10 GiB", "3.10 GiB", "Including non-PyTorch memory, this process has 76.00 GiB memory in use. 75.14 GiB allowed; ", "74.50 GiB", "0.20 GiB"),
    "all but a little": NEW_FREE.format("CUDA", "2.00 GiB", "79.10 GiB", "1.90 GiB", "", "70.00 GiB", "0.10 GiB"),
    "rounded up": NEW_FREE.format("CUDA", "2.00 GiB", "79.10 GiB", "2.01 GiB", "", "70.00 GiB", "0.10 GiB"),
    "read a moment later": OLD_FREE.format("20.00 MiB", "7.00 GiB", "150.00 MiB", "", "7.20 GiB"),
    "a large piece of an empty card": NEW_FREE.format("CUDA", "90.00 GiB", "79.10 GiB", "78.00 GiB", "", "0.10 GiB", "0.10 GiB"),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_card_that_is_not_full_is_not_called_full(text: str) -> None:
    found = diagnose_stream(io.BytesIO(text.encode()))
    assert found.cause.id == "device_oom" and "clearly more of it was free" in found.meaning
    advised = [found.remedy, "\n".join(device_oom(Case(plan=make_plan("z3"), facts=found.details)))]
    for remedy in advised:
        assert not any(word in remedy for word in ("micro", "ZeRO", "recompute", "--method", "LOCAL_RANK")), remedy
        limited = "allowed; " in text
        assert ("the program limits itself to 1" in remedy) is limited and ("page file" in remedy) is not limited


@pytest.mark.parametrize("text", FULL.values(), ids=FULL)
def test_what_does_not_fit_is_not_laid_to_something_else(text: str) -> None:
    found = diagnose_stream(io.BytesIO((TRAINS + text).encode()))
    assert "do not fit" in found.meaning and "halve the micro batch" in found.remedy


HUGE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of 80.00 GiB of which {} GiB is free. "


@pytest.mark.parametrize(
    ("asked", "free", "part"), [("256.00", "60.00", 8), ("130.00", "60.00", 4), ("640.00", "1.00", 16)]
)
def test_an_array_that_no_gpu_of_that_size_holds_is_not_answered_with_half_a_batch(
    asked: str, free: str, part: int
) -> None:
    text = HUGE.format(asked, free) + OWN.format("19.00") + TORCH.format("18.00", "0.30")
    found = diagnose_stream(io.BytesIO((TRAINS + text).encode()))
    assert found.cause.id == "device_oom" and f"1/{part} of it" in found.remedy
    assert "halve the micro batch" not in found.remedy and "sdpa" in found.remedy
    fits = diagnose_stream(io.BytesIO((TRAINS + text.replace(asked, "79.90")).encode()))
    assert "1/" not in fits.remedy


def tensorflow(free: list[str], made: list[int]) -> str:
    """What TensorFlow says of its GPUs when it starts."""
    said = "".join(
        f"I gpu_device.cc:1432] Found device {n} with properties: \nname: A major: 6 minor: 1\npciBusID: 0000:0{n}:00.0\n"
        f"totalMemory: 8.00GiB freeMemory: {one}\n"
        for n, one in enumerate(free)
    )
    return said + "".join(
        f"I gpu_device.cc:1115] Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:{n} with {one} MB memory) -> "
        f"physical GPU (device: {n}, name: A)\n"
        for n, one in enumerate(made)
    )


def refused(first_mb: int, times: int) -> str:
    amounts = [int((first_mb << 20) * 0.9**n) for n in range(times)]
    return "".join(
        f"E cuda_driver.cc:806] failed to allocate {one / 2**30:.2f}G ({one} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
        for one in amounts
    )


ON_GPU = "W op_kernel.cc:1273] OP_REQUIRES failed at a.cc:1 : Resource exhausted: OOM when allocating tensor with shape[16,64] and type float on /job:localhost/replica:0/task:0/device:GPU:{} by allocator b\n"


@pytest.mark.parametrize(
    ("text", "by_others"),
    [
        (tensorflow(["7.80GiB"] * 2, [7600, 7600]) + refused(7600, 20), True),  # all that it was promised, and a fifth of it, is gone
        (tensorflow([], [7600]) + refused(7600, 20), True),
        (tensorflow(["7.80GiB"], [7600]) + refused(7600, 2), False),  # a little less was there
        (tensorflow(["7.80GiB"], [7600]) + refused(2048, 20), False),  # it held the rest
        (tensorflow(["7.80GiB", "0.20GiB"], [7600, 100]) + ON_GPU.format(1), True),
        (tensorflow(["7.80GiB", "210.50MiB"], [7600, 100]) + ON_GPU.format(0), False),
        (tensorflow(["7.80GiB"], [7600]) + ON_GPU.format(0), False),
        (tensorflow(["300.00MiB"], [100]) + refused(100, 2), True),
        (refused(7600, 20), False),
    ],
)  # fmt: skip
def test_what_others_hold_is_told_by_tensorflows_own_figures(text: str, by_others: bool) -> None:
    found = diagnose_stream(io.BytesIO(text.encode()))
    assert found.cause.id == "device_oom"
    assert ("in the hands of other processes" in found.meaning) == by_others
    assert ("nvidia-smi" in found.remedy.splitlines()[0]) == by_others
    assert ("micro batch" in found.remedy) != by_others
