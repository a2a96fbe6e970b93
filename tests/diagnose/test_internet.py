"""What was asked for over the internet, and what of it is no such thing: servers of one's own, other nodes, the Hub."""

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

HEAD = 'Traceback (most recent call last):\n  File "/work/lm/run.py", line 31, in <module>\n    start()\n'


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=8000): Max retries exceeded with url: /v1 (Caused by NewConnectionError('x: Failed to establish a new connection: [Errno 111] Connection refused'))", "python_exception"),
        ("requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.3.0.7', port=8000): Max retries exceeded with url: /v1 (Caused by NewConnectionError('x: Failed to establish a new connection: [Errno 113] No route to host'))", None),
        ("requests.exceptions.ConnectionError: HTTPConnectionPool(host='gpu01.cluster', port=8000): Max retries exceeded with url: /v1 (Caused by NameResolutionError('x'))", "python_exception"),
        ("requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /gpt2/resolve/main/config.json (Caused by NameResolutionError('x'))\"), '(Request ID: 1)')", "model_missing"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "python_exception"),
        ("httpx.ConnectError: [Errno 111] Connection refused", "python_exception"),
        ("struct.error: unpack requires a buffer of 8 bytes", "python_exception"),
        ("httpx.ConnectError: [Errno 101] Network is unreachable", "no_internet"),
    ],
)  # fmt: skip
def test_an_address_of_the_internet_is_told_from_a_server_of_ones_own(
    diagnose: Callable[[str], Diagnosis], error: str, cause: str | None
) -> None:
    found = diagnose(HEAD + error + "\n").cause.id
    assert found != "no_internet" if cause is None else found == cause


def test_a_training_that_went_on_without_its_download_is_not_ended_by_it(diagnose: Callable[[str], Diagnosis]) -> None:
    steps = "".join(f"{{'loss': {3 - i / 100:.2f}, 'learning_rate': 1e-4, 'epoch': {i / 50}}}\n" for i in range(1, 40))
    log = "curl: (6) Could not resolve host: example.org\n" + steps + HEAD + "ValueError: too long\n"
    assert diagnose(log).cause.id == "python_exception"
