"""`python -m hpc_llm` is `hpc-llm`."""

from __future__ import annotations

import os
import sys


def _forget_the_working_directory() -> None:
    """Take out of the search path what `-m` put in front: a yaml.py of the folder one happens to be in is not ours."""
    if not getattr(sys.flags, "safe_path", False) and sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]


if __name__ == "__main__":
    _forget_the_working_directory()
    from hpc_llm.cli import main

    main()
