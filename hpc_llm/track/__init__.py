"""What became of the runs: the run folders, then one sacct call for all of them, squeue where there is no sacct."""

from hpc_llm.track.cancellation import Cancellation, cancel
from hpc_llm.track.statuses import RunStatus, status
from hpc_llm.track.waiting import wait

__all__ = ["Cancellation", "RunStatus", "cancel", "status", "wait"]
