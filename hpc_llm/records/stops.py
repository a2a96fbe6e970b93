"""Why a job script stopped before its launch, as exit codes. Standard library only."""

from __future__ import annotations

from enum import Enum


class Stop(int, Enum):
    """Exit codes by which the job script says that it stopped before training began."""

    NO_MODULE_SYSTEM = 71
    MODULE_FAILED = 72
    NO_CONDA = 73
    ENV_NOT_ACTIVE = 74
    NO_TRAINING_STACK = 75
    NO_RUN_FOLDER = 76
    NO_LAUNCHER = 77
    CODE_CHANGED = 78
    NO_ENV_FILE = 79
    CANCELLED = 80
    NO_PROFILER = 81

    @property
    def meaning(self) -> str:
        """One clause for a table or a message."""
        return _STOP_MEANINGS[self]


_STOP_MEANINGS = {
    Stop.NO_MODULE_SYSTEM: "the module system is missing",
    Stop.MODULE_FAILED: "a module failed to load",
    Stop.NO_CONDA: "conda is missing or its shell hook failed",
    Stop.ENV_NOT_ACTIVE: "the Python environment did not activate",
    Stop.NO_TRAINING_STACK: "the Python environment lacks the training packages",
    Stop.NO_RUN_FOLDER: "the run folder is not visible on the compute node, or not this job's",
    Stop.NO_LAUNCHER: "the launcher is not on PATH",
    Stop.CODE_CHANGED: "the training program is not as it was submitted",
    Stop.NO_ENV_FILE: "the file with the job's own variables cannot be used",
    Stop.CANCELLED: "it was cancelled before it began",
    Stop.NO_PROFILER: "the profiler is not on PATH",
}
