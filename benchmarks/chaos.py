"""Whether anything is lost or anybody harmed, whatever befalls a submission, Slurm, or the folder of a run.

    python benchmarks/chaos.py [--trials N] [--seed N] [--only SCENARIO] [--csv FILE]

Starts throw-away Slurms (see tests/slurm) and plays seeded trials on them: real commands, real jobs. Prints how many
trials of each scenario left a job that no run knows (orphaned), two jobs for one run (doubled), a run, its steps or its retry
gone (lost), an outcome that is not true or not everywhere the same (wrong), or hurt a stranger's job (harmed); and how
many could not be played to their end (broken). Exits 1 unless all of it is 0. Takes root, for disks are mounted and filled.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "slurm")]

from chaos_scenarios import SCENARIOS, Scenario, play  # noqa: E402
from chaos_site import ChaosSite  # noqa: E402
from chaos_trial import HARMS, Trial  # noqa: E402
from scratch_slurm import ScratchSlurm, missing_tools  # noqa: E402

COLUMNS = ("scenario", "tried", *HARMS, "broken", "seconds")
MESSAGE_TIMEOUT_S = 2
LONERS = 2
"""How many trials that need a cluster of their own are played at once."""


@dataclass
class Tally:
    """What became of the trials of one scenario."""

    seconds: float = 0.0
    tried: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*HARMS, "broken"), 0))

    def row(self, name: str) -> list[str | int | float]:
        return [name, self.tried, *self.counts.values(), round(self.seconds, 1)]


class Book:
    """The tallies of all scenarios, written by several threads."""

    def __init__(self, scenarios: Sequence[Scenario]) -> None:
        self.tallies = {scenario.name: Tally() for scenario in scenarios}
        self._lock = threading.Lock()

    def enter(self, name: str, seed: int, seconds: float, harms: Sequence[tuple[str, str]]) -> None:
        with self._lock:
            tally = self.tallies[name]
            tally.tried += 1
            tally.seconds += seconds
            for kind in {kind for kind, _ in harms}:
                tally.counts[kind] += 1
            for kind, what in harms[:5]:
                print(f"{name} --seed {seed}: {kind}: {what[:1000]}", file=sys.stderr, flush=True)

    def rows(self) -> list[list[str | int | float]]:
        total = Tally()
        for tally in self.tallies.values():
            total.tried += tally.tried
            total.seconds += tally.seconds
            for kind, count in tally.counts.items():
                total.counts[kind] += count
        return [*(tally.row(name) for name, tally in self.tallies.items()), total.row("all")]


@dataclass(frozen=True)
class Draw:
    scenario: Scenario
    seed: int


def main() -> int:
    options = parse_options()
    if lacking := missing_tools():
        print(lacking, file=sys.stderr)
        return 1
    scenarios = [each for each in SCENARIOS if options.only in (None, each.name)]
    book, began = Book(scenarios), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        play_all(draw(scenarios, options.trials, options.seed), Path(name), options.workers, book)
    rows = book.rows()
    print_table(rows)
    machine = {"python": sys.version.split()[0], "cores": os.cpu_count(), "seconds": round(time.monotonic() - began)}
    print(json.dumps({"seed": options.seed, **machine}))
    if options.csv is not None:
        write_csv(options.csv, rows)
    return 1 if any(rows[-1][2:-1]) else 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=300, metavar="N", help="how many in all (default: 300)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first trial of each scenario")
    parser.add_argument("--only", choices=[each.name for each in SCENARIOS], metavar="SCENARIO", help="this one alone")
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="trials at once on the shared cluster")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table there, too")
    return parser.parse_args()


def draw(scenarios: Sequence[Scenario], trials: int, first_seed: int) -> list[Draw]:
    """So many trials, each scenario by its share and at least once where the number allows, mixed."""
    whole = sum(each.share for each in scenarios)
    counts = {each: max(1, int(trials * each.share / whole)) for each in scenarios}
    by_rest = sorted(scenarios, key=lambda each: counts[each] - trials * each.share / whole)
    for each in by_rest[: max(0, trials - sum(counts.values()))]:
        counts[each] += 1
    places = [
        ((number + 0.5) / count, Draw(each, first_seed + number))
        for each, count in counts.items()
        for number in range(count)
    ]
    return [one for _, one in sorted(places, key=lambda place: place[0])][:trials]


def play_all(draws: Sequence[Draw], folder: Path, workers: int, book: Book) -> None:
    """Those that disturb others in turn on clusters of their own, the rest beside them on a shared one."""
    apart = [each for each in draws if each.scenario.disturbs]
    together = [each for each in draws if not each.scenario.disturbs]
    site, place = ChaosSite(folder / "site"), folder / "trials"
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(workers + LONERS))
        futures = []
        for loner in range(LONERS):
            if mine := apart[loner::LONERS]:
                own = stack.enter_context(cluster(folder, f"own{loner}"))
                other = stack.enter_context(cluster(folder, f"other{loner}", accounting=False))
                futures.append(pool.submit(play_in_turn, mine, own, other, site, place, book))
        if together:
            shared = stack.enter_context(cluster(folder, "shared"))
            futures += [pool.submit(play_in_turn, [each], shared, None, site, place, book) for each in together]
        for future in futures:
            future.result()


def cluster(folder: Path, name: str, *, accounting: bool = True) -> ScratchSlurm:
    return ScratchSlurm(folder / name, name=name, accounting=accounting, message_timeout_s=MESSAGE_TIMEOUT_S)


def play_in_turn(
    draws: Iterable[Draw],
    slurm: ScratchSlurm,
    other: ScratchSlurm | None,
    site: ChaosSite,
    folder: Path,
    book: Book,
) -> None:
    for each in draws:
        began, name = time.monotonic(), each.scenario.name
        trial = Trial(slurm, site, folder / f"{name}-{each.seed}", each.seed)
        broken = []
        try:
            play(each.scenario, trial, other)
        except Exception:  # one trial that cannot be played does not end the others
            broken.append(("broken", traceback.format_exc()))
        book.enter(name, each.seed, time.monotonic() - began, [*broken, *trial.harms])


def print_table(rows: Sequence[Sequence[object]]) -> None:
    print("  ".join([f"{COLUMNS[0]:<28}", *(f"{column:>8}" for column in COLUMNS[1:])]))
    for row in rows:
        print("  ".join([f"{row[0]:<28}", *(f"{value:>8}" for value in row[1:])]))


def write_csv(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    sys.exit(main())
