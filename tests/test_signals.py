"""Signals that reach the job script: none of them loses the record of the end, and USR1 and USR2 end nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from standin import Machine

ENDING = ("HUP", "INT", "QUIT", "ABRT", "PIPE", "ALRM", "TERM", "XCPU", "XFSZ", "VTALRM", "PROF", "IO", "PWR")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "a machine")


def script(machine: Machine) -> str:
    """One rank, so that the program itself is what the script waits for."""
    return machine.script(gpus_per_node=1, set=("launcher=torchrun",))


def waits_in_the_prelude(machine: Machine) -> Path:
    """Until the file is there that this returns; a program of the prelude that a signal ends, ends it with 9."""
    go = machine.folder / "go"
    with (machine.folder / "init" / "modules.sh").open("a") as file:
        file.write(f'touch "$run_dir/in-prelude"; until [ -e "{go}" ]; do sleep 0.05 || exit 9; done\n')
    return go


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "XCPU"])
def test_a_signal_reaches_the_program_and_the_record(machine: Machine, name: str) -> None:
    text = script(machine)
    machine.behave("wait 5")
    process = machine.start(text)
    machine.ready()
    number = signal.Signals[f"SIG{name}"]
    process.send_signal(number)
    ended = machine.end(process)
    assert ended.seen is not None and ended.seen["signal"] == signal.SIGTERM
    record = ended.exit
    assert (record["signal"], record["stage"], record["exit_code"], ended.code) == (
        name,
        "launch",
        128 + number,
        128 + number,
    )


@pytest.mark.parametrize("name", ENDING)
def test_a_signal_in_the_prelude_ends_it(machine: Machine, name: str) -> None:
    waits_in_the_prelude(machine)
    process = machine.start(machine.script())
    machine.ready("in-prelude")
    number = signal.Signals[f"SIG{name}"]
    process.send_signal(number)
    ended = machine.end(process)
    record = ended.exit
    assert (ended.code, record["exit_code"], record["signal"]) == (128 + number, 128 + number, name)
    assert (record["stage"], ended.seen) == ("prelude", None)


@pytest.mark.parametrize("sent", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_that_nothing_acts_on_ends_nothing(machine: Machine, sent: signal.Signals) -> None:
    """Neither the script, nor a program of the prelude, nor the launcher, nor the training program."""
    go = waits_in_the_prelude(machine)
    text = machine.script()
    machine.behave("until 3")
    process = machine.start(text)
    machine.ready("in-prelude")
    for _ in range(20):
        os.killpg(process.pid, sent)
        time.sleep(0.005)
    go.touch()
    machine.ready()
    for _ in range(20):
        os.killpg(process.pid, sent)
        time.sleep(0.005)
    (machine.logs / "run-1" / "go").touch()
    ended = machine.end(process)
    assert (ended.code, ended.exit["exit_code"], ended.exit["signal"], ended.exit["stage"]) == (3, 3, None, "done")


@pytest.mark.parametrize("sent", [(signal.SIGTERM,), (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)])
def test_signals_without_end_leave_the_record_of_the_first(machine: Machine, sent: tuple[signal.Signals, ...]) -> None:
    text = script(machine)
    machine.behave("wait 5")
    process = machine.start(text)
    machine.ready()
    process.send_signal(sent[0])
    time.sleep(1)  # of several that wait at once, the kernel brings the one with the lowest number first
    while process.poll() is None:
        for each in sent:
            process.send_signal(each)
        time.sleep(0.001)
    ended = machine.end(process)
    assert (ended.exit["signal"], ended.exit["exit_code"], ended.code) == ("TERM", 143, 143), ended.stderr


def test_a_program_that_ends_well_when_told_to_stop_is_still_one_that_was_stopped(machine: Machine) -> None:
    text = script(machine)
    machine.behave("wait 0")
    process = machine.start(text)
    machine.ready()
    process.send_signal(signal.SIGTERM)
    record = machine.end(process).exit
    assert (record["exit_code"], record["signal"], record["stage"]) == (143, "TERM", "launch")
