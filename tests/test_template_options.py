"""What a template of one's own sets for its own lines, as `set -euo pipefail`: the script's functions and traps are as without it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from standin import Machine

STRICT = "set -euo pipefail; IFS=$'\\n\\t'"
OPTIONS = {
    "strict": STRICT,
    "traps": "set -eETuo pipefail; trap 'exit 9' ERR; trap ': \"$BASH_COMMAND\"' DEBUG",
    "words": "set -fCkmu; shopt -s failglob nullglob nocasematch xpg_echo",
    "posix": "set -eu -o posix",
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "a machine")


def with_own(text: str, line: str, before: str = "# modules\n") -> str:
    """The script of a template that has `line` before its modules."""
    assert text.count(before) == 1
    return text.replace(before, f"{line}\n{before}")


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("code", [0, 3])
def test_a_run_ends_as_without_them(machine: Machine, kind: str, code: int) -> None:
    text = with_own(machine.script(env_file=str(variables(machine))), OPTIONS[kind])
    machine.behave(str(code))
    ended = machine.run(text)
    record = ended.exit
    assert (ended.code, record["exit_code"], record["stage"], record["signal"]) == (code, code, "done", None)
    assert ended.stderr == "" and ended.seen is not None and ended.seen["env"]["HF_TOKEN"] == "key"


def variables(machine: Machine) -> Path:
    path = machine.folder / "secrets.env"
    path.write_text("HF_TOKEN=key\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_ranks_that_save_are_waited_for(machine: Machine, kind: str, name: str) -> None:
    asked = {"save_every": 5, "sbatch": ("signal=B:USR1@300",)} if name == "USR1" else {"save_every": 5}
    scheduler = "slurm" if name == "USR1" else "local"
    text = with_own(machine.script(machine.cluster(scheduler=scheduler), scheduler=scheduler, **asked), OPTIONS[kind])
    machine.behave("until 0")
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n"} if name == "USR1" else {}
    process = machine.start(text, **job)
    machine.ready()
    run = machine.logs / "run-1"
    for _ in range(3):
        process.send_signal(signal.Signals[f"SIG{name}"])
        time.sleep(0.5)
    assert process.poll() is None
    (run / "go").touch()
    ended = machine.end(process)
    record = ended.exit
    assert (record["signal"], record["stage"], record["exit_code"]) == (
        name,
        "launch",
        128 + signal.Signals[f"SIG{name}"],
    )
    assert (run / "stop").read_text() == f"{name}\n"
    assert name != "USR1" or "the time limit was near" in record["reason"]


@pytest.mark.parametrize("line", ["false", "false | true", ': "$is_set_nowhere"', "[ \"$IFS\" != $'\\n\\t' ]"])
def test_they_hold_for_the_lines_of_the_template(machine: Machine, line: str) -> None:
    text = with_own(machine.script(), STRICT)
    text = with_own(text, line, "need_packages ")
    ended = machine.run(text)
    assert ended.code == 1 and (ended.exit["exit_code"], ended.exit["stage"]) == (1, "prelude") and ended.seen is None


@pytest.mark.parametrize("options", ["errexit", "errexit:nounset:pipefail", "noclobber:noglob", "posix:errexit"])
def test_options_that_are_exported_change_nothing(machine: Machine, options: str) -> None:
    text = machine.script(save_every=5)
    machine.behave("until 3")
    process = machine.start(text, SHELLOPTS=options)
    machine.ready()
    process.terminate()
    time.sleep(1)
    assert process.poll() is None
    (machine.logs / "run-1" / "go").touch()
    ended = machine.end(process)
    assert (ended.exit["signal"], ended.exit["stage"], ended.code) == ("TERM", "launch", 143), ended.stderr
