"""What became of the runs: their folders, then one question to the scheduler for all of them."""

from hpc_llm.runs.adrift import cut_off, homeless
from hpc_llm.runs.cancellation import Cancellation, cancel, cancel_job, cancel_jobs, cancel_orphan
from hpc_llm.runs.gone import jobs_of_gone_run, of_gone_run
from hpc_llm.runs.reconciliation import Deed, Reconciled, make_way, reconcile
from hpc_llm.runs.sending import send
from hpc_llm.runs.statuses import RunStatus, status
from hpc_llm.runs.waiting import wait

__all__ = [
    "Cancellation",
    "Deed",
    "Reconciled",
    "RunStatus",
    "cancel",
    "cancel_job",
    "cancel_jobs",
    "cancel_orphan",
    "cut_off",
    "homeless",
    "jobs_of_gone_run",
    "make_way",
    "of_gone_run",
    "reconcile",
    "send",
    "status",
    "wait",
]
