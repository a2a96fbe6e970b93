"""What became of the runs: the run folders, then one sacct call for all of them, squeue where there is no sacct."""

from hpc_llm.runs.cancellation import Cancellation, cancel
from hpc_llm.runs.statuses import RunStatus, status
from hpc_llm.runs.waiting import wait

__all__ = ["Cancellation", "RunStatus", "cancel", "status", "wait"]
