"""Whose a run is, and which of several folders that say to be the same run counts.

Anybody may copy a run that they can read, and say in the copy what they like: what this user made goes before what others did.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable

from hpc_llm.errors import counted, notice
from hpc_llm.records.run import RunPaths
from hpc_llm.records.shared import user_name
from hpc_llm.runs.records import Records
from hpc_llm.schedulers.identity import Identity
from hpc_llm.schedulers.runs import original_of


def other_owner(run: RunPaths) -> str | None:
    """`user NAME`, who can have written what a run says of itself; None where that is this user or root."""
    return owner_of((run.root, run.experiment, run.result, run.job))


def owner_of(paths: Iterable[os.PathLike[str]]) -> str | None:
    """The first other user than this one and root to whom one of these belongs; what is not there is nobody's."""
    for path in paths:
        try:
            user = os.stat(path).st_uid
        except OSError:
            continue
        if user not in (os.geteuid(), 0):
            return user_name(user)
    return None


def job_of(records: Records) -> Hashable | None:
    """What a run and all copies of its folder have in common, and no other run; None where nothing tells.

    A queue of this machine is one submission of several runs, which only their first names tell apart. Who gives a copy
    another one has a run of their own, beside which the owner's stays what it is.
    """
    identity = records.identity
    if identity is None or identity.uuid is None:
        return None
    return identity.uuid, identity.array_task, str(identity.run_id or records.experiment.get("run_id"))


def doubt(run: RunPaths, identity: Identity | None) -> int:
    """Of folders of one job that counts of which this is the least: one's own before others', the run itself before a copy."""
    return 2 * (other_owner(run) is not None) + (identity is not None and _is_copy(run, identity))


def _is_copy(run: RunPaths, identity: Identity) -> bool:
    return original_of(run, identity) is not None


def say_whose(owners: Iterable[str | None], what: str) -> None:
    """Tell that some of these runs are others', and what that means for `what` is made of them."""
    others = [one for one in owners if one is not None]
    if others:
        names = ", ".join(sorted(set(others)))
        notice(f"{counted(len(others), 'run')} of {names}: {what}")
