"""What a warning quotes, or a sentence supposes, is no cause; what is said of the program's own end stays one."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]
BEHIND = "Loading the model\nepoch=4: accuracy=81.2\n"
ERRORS = {
    "CUDA error: invalid device function": "driver_mismatch",
    "[Errno 28] No space left on device": "disk_full",
    "No module named 'lab._version'": "package_missing",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": "device_oom",
    "RuntimeError: No CUDA GPUs are available": "gpu_missing",
    "OSError: [Errno 24] Too many open files": "open_files",
}
WARNED = {
    "one line": "/e/lab/cache.py:46: UserWarning: {}. It goes on without.\n  warnings.warn('%s. It goes on without.' % (e,))\n",
    "no source": "/e/lab/cache.py:46: ResourceWarning: {}\n",
    "no place": "UserWarning: {}, so it runs in one process\n",
    "a notebook's": "/tmp/ipykernel_17/12345.py:3: RuntimeWarning: {}\n  helper()\n",
    "on the next line": "/e/lab/info.py:8: RuntimeWarning: Failed to read the commit:\n{}\n  from lab.version import __version__ as VERSION\n",
    "of an actor": "(main_task pid=457) /e/lab/info.py:8: RuntimeWarning: Failed to read:\n(main_task pid=457) {}\n(main_task pid=457)   from lab.version import V\n",
    "of a rank": "[rank1]: /e/lab/info.py:8: UserWarning: Failed:\n[rank1]: {}\n[rank1]:   warnings.warn(msg)\n",
    "behind several": "/e/lab/setup.py:149: UserWarning: Found two files.\nThis might go wrong:\nit says\n{}\n  warn(msg)\n",
    "with its traceback": '/e/lab/a.py:5: UserWarning: no kernels:\nTraceback (most recent call last):\n  File "/e/lab/a.py", line 3, in get\n    load()\n'
    "{}\n  warnings.warn(text)\n",
    "passed on to a logger": "WARNING:py.warnings:/e/lab/cache.py:46: UserWarning: {}\n  warnings.warn(e)\n",
    "behind a bar": "  0%|          | 0/10 [00:00<?, ?it/s]/e/lab/cache.py:46: lab.errors.SlowWarning: {}\n  warnings.warn(e)\n",
}
SUPPOSED = (
    "If you get `{}` errors, the above might be the cause.",
    "if you see {}, lower the batch size",
    "In case you run into '{}', update the driver first.",
    "When the job fails with {}: ask the site",
    "Note: too many workers may lead to {}",
    "Large images can cause {}.",
    "This setting might result in {} on older cards",
    "We keep it off to avoid {}",
    "Should you ever encounter {}, write to us.",
    "If you get the following error:\n{}\nread the manual",
)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("shape", WARNED)
def test_what_pythons_warning_says_is_no_cause(shape: str, error: str, diagnose: Diagnose) -> None:
    text = WARNED[shape].format(error) + BEHIND
    assert diagnose(text).cause.id == "unknown"
    assert parse_stream("x", io.BytesIO(text.encode())).rows[-1].outcome == "UNKNOWN"


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("sentence", SUPPOSED)
def test_an_error_that_may_come_is_no_cause(sentence: str, error: str, diagnose: Diagnose) -> None:
    assert diagnose(sentence.format(error) + "\n" + BEHIND).cause.id == "unknown"


@pytest.mark.parametrize(("error", "cause"), ERRORS.items())
@pytest.mark.parametrize(
    "before",
    [
        "/e/lab/cache.py:46: UserWarning: slow\n  warnings.warn('slow')\n",
        "/e/lab/cache.py:46: UserWarning: slow\n",
        "If you like it, tell others.\n",
        "To avoid waiting, it begins at once\n",
        "It may take some minutes.\n",
    ],
)
def test_an_error_behind_a_warning_is_one(before: str, error: str, cause: str, diagnose: Diagnose) -> None:
    names = {"driver_mismatch": "RuntimeError: ", "package_missing": "ImportError: ", "disk_full": "OSError: "}
    name = "ModuleNotFoundError: " if error.startswith("No module") else names.get(cause, "")
    raised = f'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f()\n{name}{error}\n'
    assert diagnose(before + raised).cause.id == cause


def test_a_warning_that_was_raised_is_an_exception(diagnose: Diagnose) -> None:
    raised = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f()\nUserWarning: no data\n'
    assert diagnose(raised).cause.id == "python_exception"


def test_a_warning_of_what_the_program_lacks_still_explains_its_end(diagnose: Diagnose) -> None:
    warned = "/e/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n  return x > 0\n"
    raised = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f()\nValueError: no device\n'
    assert diagnose(warned + raised).cause.id == "driver_mismatch"
