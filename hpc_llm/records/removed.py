"""What was taken away of a run when room was made, and when. Standard library only."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths, is_run


def note_removal(run: RunPaths, path: Path) -> None:
    """Write down that what lies at `path`, in the run's folder, is taken away now. On a full disk nothing is noted."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with suppress(OSError):
        run.write(run.removed, {"schema": 1, "removed": {**_removed(run), str(path.relative_to(run.root)): now}})


def removed_from(place: Path) -> str | None:
    """How a place in the folder of a run went, where `hpc-llm clean` took it or what held it away; None where it did not."""
    real = Path(os.path.realpath(place))
    for root in (one for one in real.parents if is_run(one)):
        removed = _removed(RunPaths(root))
        parts = real.relative_to(root).parts
        at = next((when for n in range(len(parts), 0, -1) if (when := removed.get("/".join(parts[:n])))), None)
        if at is not None:
            moment = datetime.fromisoformat(at).astimezone(timezone.utc)
            return f"`hpc-llm clean` removed it on {moment:%Y-%m-%d} at {moment:%H:%M} UTC"
    return None


def _removed(run: RunPaths) -> dict[str, str]:
    """Path within the run's folder -> when it was taken away."""
    try:
        found = (read_json(run.removed) or {}).get("removed")
    except OSError:
        return {}
    return {key: at for key, at in found.items() if _is_time(at)} if isinstance(found, dict) else {}


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value) is not None
    except ValueError:
        return False
