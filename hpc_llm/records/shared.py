"""Who else can rename what lies in a folder: its owner, that of a folder above it, and who may write one without the sticky bit."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def who_can_rename(folder: Path) -> str | None:
    """One clause on the first folder, from `folder` upwards, by which others can put something in the place of what lies in
    it; None where only this user and root can. What does not exist yet is as safe as what will hold it.

    >>> who_can_rename(Path("/"))
    """
    real = folder.resolve()
    return next((clause for place in (real, *real.parents) for clause in [_why(place)] if clause), None)


def _why(place: Path) -> str | None:
    try:
        found = place.stat()
    except OSError:
        return None
    if found.st_uid not in (os.geteuid(), 0):
        return f"{place} belongs to {user_name(found.st_uid)}"
    if found.st_mode & stat.S_ISVTX:
        return None
    group = found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid)
    return f"others may write {place}, which has no sticky bit" if group or found.st_mode & stat.S_IWOTH else None


def _is_private(group: int) -> bool:
    """Whether it is root's, or the group of this user alone that many systems make with an account."""
    try:
        me, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == 0 or (me.pw_gid == group and found.gr_name == me.pw_name and not set(found.gr_mem) - {me.pw_name})


def user_name(user: int) -> str:
    """`user NAME`, or `user UID` where this machine knows no name."""
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
