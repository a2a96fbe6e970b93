"""Two OpenMP runtimes, a flash-attn that is not there, a Hub that takes no more requests: advice that can be followed."""

from __future__ import annotations

from typing import Any

import pytest

from hpc_llm.diagnosis.packages import missing

STEPS = "".join(f"step {n} loss 2.{n}\n" for n in range(3))
OPENMP = "OMP: Error #15: Initializing {}, but found {} already initialized.\nOMP: Hint This means that multiple copies of the OpenMP runtime have been linked\n"
TOGGLED = "ImportError: FlashAttention{} has been toggled on, but it cannot be used due to the following error: the package flash_attn seems to be not installed.\n"
LIMIT = "huggingface_hub.errors.HfHubHTTPError: {} for url{} https://huggingface.co/{} (Request ID: Root=1-a)\n"


@pytest.mark.parametrize("found_there", ["libgomp.so.1", "libomp.so", "libiomp5.so", "libgomp-a34b3233.so.1"])
@pytest.mark.parametrize(
    "end", ["job.sh: line 14: 31 Aborted                 (core dumped) python t.py\n", "srun: error: n1: task 0: Segmentation fault (core dumped)\n", ""]
)  # fmt: skip
def test_two_openmp_runtimes_are_the_cause_of_the_abort_that_follows(found_there: str, end: str, diagnose: Any) -> None:
    found = diagnose(OPENMP.format("libiomp5.so", found_there) + end)
    assert (found.cause.id, found.details["found"]) == ("packages_apart", found_there)
    assert found.remedy.startswith("one OpenMP runtime") and "only to look" in found.remedy
    assert "Two OpenMP runtimes" in found.meaning


def test_a_program_that_trained_on_with_two_runtimes_crashed_of_itself(diagnose: Any) -> None:
    text = OPENMP.format("libiomp5.so", "libgomp.so.1") + STEPS + "srun: error: n1: task 0: Segmentation fault\n"
    assert diagnose(text).cause.id == "segfault"


@pytest.mark.parametrize("release", ["2", "3", "-3"])
def test_attention_that_a_setting_asks_for_is_replaced_by_that_setting(release: str, diagnose: Any) -> None:
    found = diagnose(TOGGLED.format(release))
    assert found.cause.id == "package_missing" and 'attn_implementation="sdpa"' in found.remedy.splitlines()[0]
    assert "--set" not in found.remedy and "--no-build-isolation flash-attn" in found.remedy


def test_flash_attn_that_a_program_imports_is_installed(diagnose: Any) -> None:
    found = diagnose("ModuleNotFoundError: No module named 'flash_attn'\n")
    assert found.cause.id == "package_missing" and "where the program imports it itself, install it" in found.remedy
    for facts in ({"package": "flash_attn"}, {"attention": "FlashAttention2"}):
        assert missing({**facts, "cluster": "delta"})[0].startswith("leave the letter f out of --method")


@pytest.mark.parametrize(
    "words", [("429 Client Error: Too Many Requests", ":"), ("Client error '429 Too Many Requests'", "")]
)
@pytest.mark.parametrize(
    ("address", "cause"),
    [("gpt2/resolve/main/config.json", "model_missing"), ("api/models/gpt2", "model_missing"), ("api/datasets/c4/tree/main", "data_missing")],
)  # fmt: skip
def test_a_hub_that_takes_no_more_requests_is_asked_less(
    words: tuple[str, str], address: str, cause: str, diagnose: Any
) -> None:
    found = diagnose("Traceback (most recent call last):\n  File \"t.py\", line 2, in <module>\n    load()\n" + LIMIT.format(*words, address))  # fmt: skip
    assert found.cause.id == cause and "took no more requests" in found.meaning
    assert (
        "hf download NAME" in found.remedy
        and "export HF_HUB_OFFLINE=1" in found.remedy
        and "hf auth login" in found.remedy
    )
    assert "hpc-llm" not in found.remedy and ("--repo-type dataset" in found.remedy) == (cause == "data_missing")


def test_a_further_try_of_the_hubs_client_is_no_failure(diagnose: Any) -> None:
    line = "HTTP Error 429 thrown while requesting GET https://huggingface.co/gpt2/resolve/main/config.json\nRetrying in 1s [Retry 1/5].\n"
    assert diagnose(line + STEPS).cause.id == "unknown"
    assert diagnose("openai.RateLimitError: Error code: 429 - Too Many Requests\n").cause.id != "model_missing"
