"""Whether a file of a user's own variables is one that a job will read: said before anything is queued."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat

from hpc_llm.errors import RequestError, notice
from hpc_llm.text.env_file import EnvFileError
from hpc_llm.text.env_file import read as read_env_file


def check_env_file(path: str, *, preview: bool = False) -> None:
    """Raise a RequestError where the file is missing, others may open it, or a line of it is wrong. One whose folder is not here
    may be on the nodes, and with `preview` none needs to be here: a notice says that the job will look for it."""
    try:
        found = os.stat(path)
    except OSError as error:
        if not preview and os.path.isdir(os.path.dirname(path) or "."):
            why = (
                "there is no such file"
                if isinstance(error, FileNotFoundError)
                else (error.strerror or "it cannot be read").lower()
            )
            raise RequestError(
                f"--env-file {path} is not read: {why}. Write NAME=VALUE lines into it and chmod 600 it, or leave the option out."
            ) from None
        notice(
            f"--env-file {path} cannot be seen here: the job stops (79) where it does not find it, of mode 600 and your own"
        )
        return
    if not stat.S_ISREG(found.st_mode):
        raise RequestError(f"--env-file {path} is no regular file. Name one that holds NAME=VALUE lines.")
    if found.st_uid != os.geteuid():
        raise RequestError(f"--env-file {path} belongs to somebody else: the job reads only a file of your own.")
    if found.st_mode & 0o077:
        raise RequestError(f"others may open --env-file {path}. Run chmod 600 {shlex.quote(path)}")
    with contextlib.suppress(OSError):
        try:
            read_env_file(path)
        except EnvFileError as error:
            raise RequestError(f"--env-file {path} is not read: {error}.") from None
