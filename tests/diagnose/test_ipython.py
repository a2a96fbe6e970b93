"""Tracebacks as IPython shows them: of a notebook's cells, and in the output of what runs one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_llm.diagnosis import Diagnosis, diagnose_files, diagnose_stream
from hpc_llm.parsing import Reading, parse_stream, parse_stream_steps

Diagnose = Callable[[str], Diagnosis]
RULE = "-" * 75 + "\n"
TRAINED = "{'loss': 2.1, 'learning_rate': 1e-05, 'epoch': 0.5}\n{'loss': 2.0, 'learning_rate': 1e-05, 'epoch': 1.0}\n{'train_runtime': 9.0, 'epoch': 1.0}\n"


def shown(name: str, message: str, cell: str = "Cell In[7], line 1") -> str:
    return (
        f"{RULE}{name:<40} Traceback (most recent call last)\n{cell}\n----> 1 trainer.train()\n\n"
        "File /opt/env/lib/python3.12/site-packages/transformers/trainer.py:2273, in Trainer.train(self)\n"
        "   2272     and not is_torch_xla_available()\n-> 2273     and (torch.isnan(loss) or torch.isinf(loss))\n   2274 ):\n"
        "   2275     # if loss is nan or inf simply add the average of previous logged losses\n"
        "    253 # NB: breaks IPython async KeyboardInterrupt\n\n"
        f"{name}: {message}\n"
    )


def notebook(*cells: tuple[str, str, str] | str) -> bytes:
    """Cells that print a text, or raise what is given by name and message."""
    made = []
    for cell in cells:
        if isinstance(cell, str):
            made.append({"output_type": "stream", "name": "stdout", "text": cell.splitlines(keepends=True)})
            continue
        name, message, text = cell
        lines = [f"\x1b[0;31m{line}\x1b[0m" for line in text.rstrip("\n").split("\n")]
        made.append({"output_type": "error", "ename": name, "evalue": message, "traceback": lines})
    return json.dumps({"cells": [{"cell_type": "code", "source": [], "outputs": [one]} for one in made]}).encode()


def raised(name: str, message: str) -> tuple[str, str, str]:
    return name, message, shown(name, message)


def read(text: bytes) -> Reading:
    return parse_stream("x.ipynb", io.BytesIO(text))


@pytest.mark.parametrize(
    "cell", ["Cell In[7], line 1", "<ipython-input-7-0a1b2c> in <module>", "Input In [7], in <cell line: 1>()"]
)
@pytest.mark.parametrize("name", ["ValueError", "mylab.ShardsAreStale"])
def test_the_exception_of_a_cell_is_found(cell: str, name: str, diagnose: Diagnose) -> None:
    found = diagnose("begin\n" + shown(name, "widths differ", cell))
    assert (found.cause.id, found.details["exception"], found.details["message"]) == (
        "python_exception",
        name,
        "widths differ",
    )
    (row,) = read(notebook("begin\n", (name, "widths differ", shown(name, "widths differ", cell)))).rows
    assert (row.outcome, row.outcome_reason) == ("FAILED", f"{name}: widths differ")


def test_the_source_that_it_shows_says_nothing(diagnose: Diagnose) -> None:
    for log in (shown("KeyboardInterrupt", ""), shown("KeyboardInterrupt", "").replace("KeyboardInterrupt: \n", "")):
        assert diagnose(log).cause.id in ("cancelled", "unknown")
    found = diagnose_stream(io.BytesIO(notebook(raised("KeyboardInterrupt", ""))))
    assert found.cause.id == "cancelled" and found.evidence[0].text.startswith("KeyboardInterrupt")
    (row,) = read(notebook(raised("KeyboardInterrupt", ""))).rows
    assert row.outcome == "CANCELLED"


def test_known_messages_keep_their_cause(diagnose: Diagnose) -> None:
    assert diagnose(shown("ModuleNotFoundError", "No module named 'mylab'")).cause.id == "package_missing"
    assert (
        diagnose(shown("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB")).cause.id == "device_oom"
    )


def test_cells_that_only_raised_are_no_runs_beside_others() -> None:
    tries = (raised("NameError", "name 'a' is not defined"), raised("KeyError", "'b'"))
    (row,) = read(notebook(*tries, TRAINED, tries[0])).rows
    assert (row.outcome, row.format) == ("COMPLETED", "hf-trainer")
    (row,) = read(notebook("hello\n", *tries)).rows
    assert (row.outcome, row.outcome_reason) == ("FAILED", "KeyError: 'b'")


LOGGED = (
    "ERROR:bitsandbytes.cextension:bitsandbytes library load error: Configured CUDA binary not found at /e/bitsandbytes/libbitsandbytes_cuda124.so\n"
    'Traceback (most recent call last):\n  File "/e/dist-packages/bitsandbytes/cextension.py", line 313, in <module>\n    lib = get_native_library()\n'
    "RuntimeError: Configured CUDA binary not found at /e/dist-packages/bitsandbytes/libbitsandbytes_cuda124.so\n"
)


@pytest.mark.parametrize("behind", [(), ("CommitInfo(commit_message='Upload model')\n",)])
def test_what_a_library_logged_and_went_on_after_is_no_run_beside_others(behind: tuple[str, ...]) -> None:
    book = notebook(TRAINED, LOGGED, *behind)
    (row,) = read(book).rows
    assert (row.outcome, row.format) == ("COMPLETED", "hf-trainer")
    assert diagnose_stream(io.BytesIO(book)).cause.id == "none"
    assert read(notebook(LOGGED, "done\n")).rows[-1].outcome == "UNKNOWN"
    used = raised("RuntimeError", "Attempted to use bitsandbytes native library functionality but it's not available")
    assert read(notebook(TRAINED, LOGGED, used)).rows[-1].cause == "driver_mismatch"


@pytest.mark.parametrize("bar", ["", "Evaluating: 100%|██████████| 28/28 [00:16<00:00,  1.71it/s]\naccuracy: 83.37%\n"])
def test_a_cell_that_failed_is_no_run_where_a_bar_stands_before_it(bar: str) -> None:
    """unsloth_classification.ipynb of Lucas-JL/unsloth_lab ends what runs all cells with `1/0`."""
    failed = raised("ZeroDivisionError", "division by zero")
    (row,) = read(notebook(TRAINED, bar, failed, "Model loaded successfully.\n")).rows
    assert (row.outcome, row.format) == ("COMPLETED", "hf-trainer")


def test_of_several_that_only_raised_both_commands_tell_the_last() -> None:
    book = notebook("2 rows\n", raised("NameError", "no a"), raised("KeyError", "'b'"))
    (row,) = read(book).rows
    found = diagnose_stream(io.BytesIO(book))
    assert (found.evidence[0].text, row.outcome_reason) == ("KeyError: 'b'", "KeyError: 'b'")


def test_steps_have_the_name_of_their_run_where_cells_before_it_raised() -> None:
    book = notebook(raised("NameError", "no a"), TRAINED)
    (row,) = read(book).rows
    assert {step.run_id for step in parse_stream_steps("x.ipynb", io.BytesIO(book))} == {row.run_id} == {"x"}


def test_a_notebook_of_one_line_is_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    path.write_bytes(notebook("begin\n", raised("ValueError", "widths differ")))
    (shown_line,) = diagnose_files([path]).evidence
    assert (shown_line.text, shown_line.line) == ("ValueError: widths differ", 1)


def test_a_notebook_that_ends_with_an_error_behind_its_training_tells_it(tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    tried, last = raised("ZeroDivisionError", "all labels are -100"), raised("KeyError", "'answers'")
    path.write_bytes(notebook(tried, TRAINED, "2 rows\n", last))
    found = diagnose_files([path])
    assert found.cause.id == "none" and "KeyError: 'answers'. 1 earlier output ends" in found.summary
    assert [one.text for one in found.evidence] == ["KeyError: 'answers'", "ZeroDivisionError: all labels are -100"]
    path.write_bytes(notebook(tried, TRAINED, last, "2 rows\n"))
    assert diagnose_files([path]).summary == ""


def test_source_that_rich_shows_says_nothing(diagnose: Diagnose) -> None:
    found = diagnose(
        f"╭{'─' * 20} Traceback (most recent call last) {'─' * 20}╮\n"
        "│ /w/train.py:9 in main                       │\n│ ❱  9 │   step()  # the loss is nan here       │\n"
        f"╰{'─' * 60}╯\nValueError: rows are ragged\n"
    )
    assert found.cause.id == "python_exception"


@pytest.mark.parametrize(
    "command",
    [
        "zsh:1: command not found: apt-get\n",
        "/bin/bash: line 1: nvidia-smi: command not found\n",
        "/bin/bash: conda: command not found\n",
        "ERROR: Could not find a version that satisfies the requirement mylab (from versions: none)\nERROR: No matching distribution found for mylab\n",
        "/bin/bash: -c: line 1: syntax error near unexpected token `('\n",
        "ssh: Could not resolve hostname github.com: Temporary failure in name resolution\n",
        "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n",
        'Lmod has detected the following error: The following module(s) are unknown: "cuda/12"\n',
    ],
)
def test_a_command_that_failed_in_a_cell_hides_nothing_of_those_behind(command: str) -> None:
    raised_later = raised("OSError", "this needs git-lfs")
    for cells in (
        (command, "   a  b\n0  1  2\n", raised_later),
        (command, raised_later),
    ):
        found = diagnose_stream(io.BytesIO(notebook(*cells)))
        assert (found.cause.id, found.details["message"]) == ("python_exception", "this needs git-lfs")
        (row,) = read(notebook(*cells)).rows
        assert row.outcome_reason == "OSError: this needs git-lfs"
    (row,) = read(notebook(command, TRAINED)).rows
    assert row.outcome == "COMPLETED"


def test_a_command_that_is_not_there_says_nothing_where_more_is_told_behind_it() -> None:
    went_on = notebook("zsh:1: command not found: apt-get\n", "   a  b\n0  1  2\n")
    assert diagnose_stream(io.BytesIO(went_on)).cause.id == "unknown"
    assert read(went_on).rows[-1].outcome == "UNKNOWN"
    last = notebook("   a  b\n0  1  2\n", "zsh:1: command not found: apt-get\n")
    assert diagnose_stream(io.BytesIO(last)).cause.id == "command_missing"


def counted(book: bytes, *counts: int | None) -> bytes:
    """The notebook with these execution counts."""
    made = json.loads(book)
    for cell, count in zip(made["cells"], counts, strict=True):
        cell["execution_count"] = count
    return json.dumps(made, indent=1).encode()


@pytest.mark.parametrize(
    ("counts", "last"),
    [
        ((48, 51, 31), "TypeError: no b"),
        ((51, None, 31), "TypeError: no b"),
        ((None, 51, 48), "TypeError: no b"),
        ((1, 2, 3), "KeyError: 'c'"),
        ((3, 1, 3), "KeyError: 'c'"),  # of two kernels
        ((None, None, None), "KeyError: 'c'"),
    ],
)
def test_the_last_cell_is_the_one_that_ran_last(counts: tuple[int | None, ...], last: str) -> None:
    book = counted(
        notebook(raised("NameError", "no a"), raised("TypeError", "no b"), raised("KeyError", "'c'")), *counts
    )
    found = diagnose_stream(io.BytesIO(book))
    (row,) = read(book).rows
    assert (found.evidence[0].text, row.outcome_reason) == (last, last)
    assert (
        last in json.loads(f"[{book.splitlines()[(found.evidence[0].line or 0) - 1].decode().strip().rstrip(',')}]")[0]
    )


USAGE = (
    "Failed to start it. \nusage: tool.py [-h] [--json]\n               [subcommand]\n\nTool: Interactive Computing\n\n"
    "options:\n  -h, --help  show this\n\nTool command `tool-x` not found. "
)  # fmt: skip


@pytest.mark.parametrize("name", ["", "Error"])
def test_what_an_editor_writes_of_the_kernel_is_no_exception(name: str) -> None:
    for cells in (
        [raised("TypeError", "no list"), (name, "", USAGE)],
        [(name, "", USAGE), raised("TypeError", "no list")],
    ):
        book = notebook(*cells)
        assert diagnose_stream(io.BytesIO(book)).evidence[0].text == "TypeError: no list"
        assert [row.outcome_reason for row in read(book).rows] == ["TypeError: no list"]
    assert diagnose_stream(io.BytesIO(notebook((name, "", USAGE)))).cause.id == "unknown"


def test_an_exception_that_is_called_error_is_one() -> None:
    book = notebook(raised("Error", "line contains NUL"))
    assert diagnose_stream(io.BytesIO(book)).evidence[0].text == "Error: line contains NUL"


@pytest.mark.parametrize(
    ("name", "message", "said"),
    [
        ("Error", "Canceled", "The Kernel crashed while executing code in the current cell. Please review it."),
        ("", "", "The kernel 'env (Python 3.11.4)' died. Click here for more info."),
        ("Error", "", "Error: Canceled future for execute_request message before replies were done\nat t.dispose (x.js:2)"),
    ],
)  # fmt: skip
def test_a_kernel_that_died_is_no_exception(name: str, message: str, said: str) -> None:
    died = (name, message, said)
    for cells in ([died], [raised("NameError", "no a"), died]):
        found = diagnose_stream(io.BytesIO(notebook(*cells)))
        assert (found.cause.id, found.is_in_doubt) == ("segfault", True)
        assert "memory" in found.meaning and "without an exception" in found.meaning
        (row,) = read(notebook(*cells)).rows
        assert (row.outcome, row.cause) == ("FAILED", "segfault")
    (row,) = read(notebook(TRAINED, died)).rows
    assert row.outcome == "COMPLETED"


@pytest.mark.parametrize(
    "stopped",
    [
        raised("KeyboardInterrupt", ""),
        raised("OSError", "no such table"),
        raised("RuntimeError", "sizes differ"),
        "ssh: Could not resolve hostname github.com: Temporary failure in name resolution\n",
    ],
)
@pytest.mark.parametrize("counts", [None, (1, 2, 3, 4), (None, 3, 17, 18), (9, 2, 5, 11), (1, 2, 2, 3)])
def test_a_notebook_that_ran_on_behind_a_cell_that_stopped_is_not_told_to_have_ended_so(
    stopped: str | tuple[str, ...], counts: tuple[int | None, ...] | None
) -> None:
    book = notebook("loading\n", stopped, "result 3 ok\n", "result 4 ok\n")
    book = counted(book, *counts) if counts else book
    (row,) = read(book).rows
    assert (row.outcome, row.cause) == ("UNKNOWN", "unknown")
    assert diagnose_stream(io.BytesIO(book)).cause.id == "unknown"


def test_the_cell_that_ran_last_tells_the_end_wherever_it_stands() -> None:
    cells = ("loading\n", raised("KeyboardInterrupt", ""), "result 3 ok\n")
    (row,) = read(counted(notebook(*cells), 1, 9, 3)).rows
    assert (row.outcome, row.cause) == ("CANCELLED", "cancelled")
    (row,) = read(notebook("loading\n", raised("KeyboardInterrupt", ""), TRAINED, "bye\n")).rows
    assert row.outcome == "COMPLETED"
    (row,) = read(notebook(raised("ValueError", "a"), "result 3 ok\n", raised("OSError", "gone"))).rows
    assert row.outcome_reason == "OSError: gone"
