"""What libraries say in words of their own, and who else uses the same words."""

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

HEAD = 'Traceback (most recent call last):\n  File "/work/lm/run.py", line 31, in <module>\n    start()\n'
STREAM = (
    HEAD + '  File "/e/site-packages/datasets/iterable_dataset.py", line 7, in __iter__\n    for row in rows:\n'
    '  File "/e/site-packages/fsspec/implementations/http.py", line 9, in _fetch\n    r.raise_for_status()\n'
)
BARRIER = "RuntimeError: Timed out initializing process group in store based barrier on rank: 5, for key: k:1 "
GEMM = "RuntimeError: CUDA error: CUBLAS_STATUS_{} when calling `cublasGemmEx( handle)`\n"


def test_ranks_that_do_not_come_to_the_barrier_of_their_group_are_waited_for(
    diagnose: Callable[[str], Diagnosis],
) -> None:
    made = diagnose(HEAD + BARRIER + "(world_size=12, worker_count=11, timeout=0:10:00)\n")
    assert made.cause.id == "collective_timeout" and made.retry
    assert "11 of 12" in made.summary and "failed first" not in made.summary


def test_more_ranks_in_the_store_than_there_are_have_all_come(diagnose: Callable[[str], Diagnosis]) -> None:
    made = diagnose(HEAD + BARRIER + "(world_size=4, worker_count=8, timeout=0:10:00)\n")
    assert made.cause.id == "python_exception"


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        ('  File "/e/site-packages/datasets/data_files.py", line 3, in resolve_pattern\n    raise e\n', "data_missing"),
        ('  File "/work/tools/fonts.py", line 3, in find\n    raise e\n', "python_exception"),
    ],
)
def test_files_that_datasets_does_not_find_are_data(
    diagnose: Callable[[str], Diagnosis], where: str, cause: str
) -> None:
    assert diagnose(f"{HEAD}{where}FileNotFoundError: Unable to find 'data/part-*.csv'\n").cause.id == cause


@pytest.mark.parametrize(
    "error",
    [
        "aiohttp.client_exceptions.ClientOSError: [Errno 104] Connection reset by peer\n",
        "RuntimeError: Cannot send a request, as the client has been closed.\n",
    ],
)
def test_a_stream_of_data_that_broke_may_be_tried_again(diagnose: Callable[[str], Diagnosis], error: str) -> None:
    made = diagnose(STREAM + error)
    assert made.cause.id == "data_missing" and made.retry and "checkpoint" in made.remedy
    other = diagnose(HEAD + error)
    assert other.cause.id != "data_missing" and not other.retry


def test_cublas_words_say_no_more_than_they_do(diagnose: Callable[[str], Diagnosis]) -> None:
    failed, refused = diagnose(HEAD + GEMM.format("EXECUTION_FAILED")), diagnose(HEAD + GEMM.format("INVALID_VALUE"))
    assert (failed.cause.id, failed.is_in_doubt) == ("kernel_failed", True)
    assert refused.cause.id == "python_exception" and "shapes" in refused.remedy
    asserted = "/a/Loss.cu:94: f: block: [0,0,0], thread: [1,0,0] Assertion `x >= 0` failed.\n"
    assert "Assertion" in diagnose(asserted + HEAD + GEMM.format("INTERNAL_ERROR")).evidence[0].text


WAITED = "ray.exceptions.{}: The actor 7d1f0a died unexpectedly or does not answer.\n"
DEAD = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Lease ID: 01 "
    "Worker IP address: 10.4.0.17 Worker port: 38117 Worker PID: 5120 Worker exit type: SYSTEM_ERROR\n"
)


@pytest.mark.parametrize("name", ["ActorUnavailableError", "ActorDiedError", "RayActorError"])
def test_who_waited_for_a_worker_of_ray_is_not_what_failed(diagnose: Callable[[str], Diagnosis], name: str) -> None:
    made = diagnose(HEAD + WAITED.format(name) + DEAD)
    assert made.cause.id == "unknown" and "5120" in made.remedy and "10.4.0.17" in made.remedy
    alone = diagnose(HEAD + WAITED.format(name))
    assert alone.cause.id == "unknown" and "session_latest" in alone.remedy and "{" not in alone.remedy
    own = diagnose(HEAD + "KeyError: 'reward'\n" + HEAD + WAITED.format(name) + DEAD)
    assert own.cause.id == "python_exception" and "reward" in own.summary
