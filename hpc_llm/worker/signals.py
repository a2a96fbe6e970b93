"""What this rank does on a signal: SIGTERM ends it with a record, SIGUSR1 shows where it stands. Standard library only.

Where the training keeps checkpoints both save at the end of a step, all ranks at the same one, and SIGTERM ends it there.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import traceback

from hpc_llm.worker import failure
from hpc_llm.worker.result import Record

EXIT_AFTER_SIGTERM = 128 + signal.SIGTERM

_LOOK_EVERY_S = 1.0
_LEAST_PATIENCE_S = 30.0
_HOLD_S = 2.0
"""So long a step may take to be written down; the log may be a pipe that nobody reads."""
_HEARD = {signal.SIGTERM, signal.SIGUSR1}


def survive() -> None:
    """Let SIGUSR1 show the stacks, and neither it nor SIGUSR2 end anything, from now on and in every thread."""
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def listen(record: Record) -> None:
    """Let a thread wait for the signals, so that they are heard while the main thread hangs in a collective.

    Must be called before other threads start: they inherit that the signals are not theirs. So do the programs that this
    one starts: a compiler of DeepSpeed's operators outlives the SIGUSR1 that Slurm sends to all of a step.
    """

    def wait() -> None:
        while True:
            number = _next_signal(record)
            if number == signal.SIGUSR1:
                say_where(record)
            saves = record.stop is not None and record.stop(number)
            if number == signal.SIGTERM:
                # At once: who sends it may not wait, and what is being saved may not become whole.
                _report(record, saves)
                if saves:
                    _let_it_save(record)
                    if not failure.has_other_cause(record):
                        _report(record, saves)
                os._exit(EXIT_AFTER_SIGTERM)

    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    threading.Thread(target=wait, name="signals", daemon=True).start()


def _report(record: Record, saves: bool) -> None:
    """Tell of the steps that are written down, and let none be behind that, unless the training goes on to save."""
    measured = record.meter or record.answers
    is_held = measured is not None and measured.held.acquire(timeout=_HOLD_S)
    failure.report_sigterm(record, "it was still to save" if saves else "")
    if saves and measured is not None and is_held:
        measured.held.release()


def _next_signal(record: Record) -> int:
    """The next one that comes, or SIGTERM where the job script says in the run's folder that the end is near."""
    while True:
        heard = signal.sigtimedwait(_HEARD, _LOOK_EVERY_S)
        if heard is not None:
            return heard.si_signo
        if record.ranks.rank == 0 and record.stop is not None and record.paths.stop.exists():
            return signal.SIGTERM


def _let_it_save(record: Record) -> None:
    """Wait as long as the training may still come to the end of a step, where it saves and ends the process."""
    done, since = record.steps_done, time.monotonic()
    while not failure.has_other_cause(record) and time.monotonic() - since < _patience(record):
        number = signal.sigtimedwait(_HEARD, _LOOK_EVERY_S)
        if number is not None and number.si_signo == signal.SIGUSR1:
            say_where(record)
        if record.is_saving or record.steps_done > done:
            done, since = record.steps_done, time.monotonic()


def _patience(record: Record) -> float:
    """Seconds in which a training that goes on ends a step: beyond that its ranks wait for one that is gone."""
    steps = record.meter.steps if record.meter else []
    return _LEAST_PATIENCE_S + 3 * max((step.time_s for step in steps), default=0.0)


def say_where(record: Record) -> None:
    """Print this rank's stacks to stderr at one go: the ranks share a log, and all of them are asked at once."""
    ranks, step = record.ranks, record.steps_done
    head = f"{record.program}: rank {ranks.rank} of {ranks.world_size} on {socket.gethostname()}, {step} steps done, stands at:\n"
    os.write(sys.stderr.fileno(), (head + _stacks()).encode(errors="replace"))


def _stacks() -> str:
    """The stacks of all threads but the one that asks, innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = []
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            stacks.append(f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    return "".join(stacks)
