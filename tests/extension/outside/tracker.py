"""A tracker of another package: a ledger with a line a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from hpc_llm.exporting.finished import FinishedRun
from hpc_llm.exporting.tracker import UNCHANGED, WRITTEN, Send, Sent, Target, Tracker


@contextmanager
def connect(target: Target) -> Iterator[Send]:
    target.folder.mkdir(exist_ok=True)
    ledger = target.folder / "ledger.jsonl"

    def send(run: FinishedRun) -> Sent:
        known = ledger.read_text() if ledger.exists() else ""
        losses = [point.figures["loss"] for point in run.history()]
        line = {
            "digest": run.digest,
            "model": run.config["model"]["name"],
            "outcome": run.outcome.value,
            "losses": losses,
        }
        if run.digest not in known:
            ledger.write_text(known + json.dumps(line) + "\n")
        return Sent(
            run_id=run.run_id, key=run.key, place=str(ledger), state=UNCHANGED if run.digest in known else WRITTEN
        )

    yield send


TRACKER = Tracker(
    name="ledger",
    title="Ledger",
    modules=("json",),
    install="ledger",
    connect=connect,
    next_step=lambda runs, target: "Nothing is left to do.",
)
