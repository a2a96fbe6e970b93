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
    try:
        from hpc_llm.cli import main
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "hpc_llm":
            raise
        sys.exit(
            f"hpc-llm: {sys.executable} lacks {error.name}, which hpc-llm needs: use the Python into which it was installed, or install "
            f"it there with `{sys.executable} -m pip install FOLDER`, the checkout's."
        )
    main()
