"""Following runs on a terminal: one line that is rewritten; elsewhere one line a change."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hpc_llm.cli.terminal import steered
from hpc_llm.text.shown import one_line

if TYPE_CHECKING:
    from hpc_llm.records.run import RunPaths
    from hpc_llm.runs import RunStatus


def follow(runs: Sequence[RunPaths]) -> list[RunStatus]:
    """Wait for the runs, telling on stderr how far they are; returns their final statuses."""
    from hpc_llm.api.handle import submitted, wait

    with following(quiet=False) as show:
        return wait(submitted(runs), on_update=show)


@contextmanager
def following(*, quiet: bool) -> Iterator[Callable[[list[RunStatus]], None] | None]:
    """What shows how far runs are that are waited for within; nothing where it is to be quiet."""
    if quiet:
        yield None
        return
    shown: list[_Rewriting | _Appending] = []

    def update(statuses: list[RunStatus]) -> None:
        if not shown:  # most requests wait for nothing here, and then nothing is written over
            shown.append(_Rewriting() if sys.stderr.isatty() else _Appending())
        shown[0].update(statuses)

    try:
        yield update
    finally:
        for one in shown:
            one.close()


class Waits:
    """Says on stderr what pending runs wait for: once, and again when it changes."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def tell(self, statuses: Sequence[RunStatus]) -> None:
        """Say of each reason that is new for a run which runs it keeps waiting."""
        waiting: dict[str, list[str]] = {}
        for status in statuses:
            reason = status.reason if status.state == "PENDING" and not status.is_over else None
            word = (reason or "").partition(";")[0]  # behind it stands when it may start, which changes all the time
            if reason and (status.run_id, word) not in self._told:
                self._told.add((status.run_id, word))
                waiting.setdefault(reason, []).append(status.run_id)
        for reason, runs in waiting.items():
            who = f"{runs[0]} waits" if len(runs) == 1 else f"{len(runs)} runs wait"
            sys.stderr.write(f"hpc-llm: {who}: {reason}\n")
        sys.stderr.flush()


def progress_line(statuses: Sequence[RunStatus]) -> str:
    """`1/4 done · local z3 RUNNING step 12/30, 5103 tokens/s`."""
    over = sum(s.is_over for s in statuses)
    parts = [f"{over}/{len(statuses)} done"]
    for status in statuses:
        if not status.is_over and status.state != "PENDING":
            parts.append(_one(status))
    pending = sum(not s.is_over and s.state == "PENDING" for s in statuses)
    if pending:
        parts.append(f"{pending} pending")
    return " · ".join(parts)


def _one(status: RunStatus) -> str:
    text = " ".join(filter(None, (status.cluster, status.method, status.state)))
    if status.step is not None:
        text += f" step {status.step}{'' if status.steps is None else f'/{status.steps}'}"
    if status.tokens_per_second:
        text += f", {status.tokens_per_second:.0f} tokens/s"
    return text


class _Rewriting:
    """One line that is written over."""

    def __init__(self) -> None:
        self.waits = Waits()

    def update(self, statuses: list[RunStatus]) -> None:
        steered(sys.stderr).write("\r\x1b[K")
        self.waits.tell(statuses)
        width = max(shutil.get_terminal_size().columns - 1, 20)
        line = one_line(progress_line(statuses))[:width]
        steered(sys.stderr).write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    def close(self) -> None:
        steered(sys.stderr).write("\r\x1b[K")
        sys.stderr.flush()


class _Appending:
    """A line whenever a run changes its state; steps are left out so that a log stays short."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.waits = Waits()

    def update(self, statuses: list[RunStatus]) -> None:
        self.waits.tell(statuses)
        for status in statuses:
            word = status.outcome.value if status.outcome else status.state
            if self.seen.get(status.run_id, "PENDING") != word:  # that it waits at first goes without saying
                self.seen[status.run_id] = word
                sys.stderr.write(f"hpc-llm: {status.run_id} {word}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Nothing is left open."""
