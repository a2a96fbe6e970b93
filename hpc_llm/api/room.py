"""Whether the disk has room for what runs are to keep, before anything is written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_llm.errors import PlanError, notice
from hpc_llm.text.sizes import readable

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch


def check_room(batches: Sequence[Batch], logs: Path) -> None:
    """Raise PlanError where one run keeps more than the disk of `logs` has; tell where all of them together do.

    A quota may leave less than the disk has: nobody but the site can say.
    """
    from hpc_llm.planning.parts import Training
    from hpc_llm.planning.room import room_of

    plans = [planned.plan for batch in batches for planned in batch.planned]
    plans = [plan for plan in plans if isinstance(plan.workload, Training)]
    rooms = [(room, plan) for plan in plans if (room := room_of(plan)) is not None]
    free = _free_bytes(logs)
    if not rooms or free is None:
        return
    largest, plan = max(rooms, key=lambda one: one[0].most)
    all_together = sum(room.most for room, _ in rooms)
    if largest.most > free:
        fewest = room_of(replace(plan, workload=replace(plan.training, keep=1)))
        helps = plan.training.keep > 1 and fewest is not None and fewest.most <= free
        ways = [
            f"Make room{' (`hpc-llm clean`)' if logs.is_dir() else ''}",
            "use another --logs",
            *(["keep fewer (--set keep=1)"] if helps else []),
        ]
        raise PlanError(
            f"--save-every: a run keeps up to {readable(largest.most)} ({readable(largest.checkpoint)} a checkpoint), and "
            f"{logs} has {readable(free)} left. {', '.join(ways[:-1])}, or {ways[-1]}."
        )
    if all_together > free:
        notice(
            f"the {len(rooms)} runs keep up to {readable(all_together)} together, and {logs} has {readable(free)} left"
        )


def _free_bytes(logs: Path) -> int | None:
    place = next((one for one in (logs.absolute(), *logs.absolute().parents) if one.is_dir()), None)
    try:
        found = os.statvfs(place or "/")
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
