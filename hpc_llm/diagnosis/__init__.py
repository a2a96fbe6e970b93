"""Why a run failed, the evidence, and what to do.

for diagnosis in diagnose_jobs(jobs_under([Path("logs")])):
    print(diagnosis.cause.id, diagnosis.remedy)
"""

from __future__ import annotations

from hpc_llm.causes.catalogue import CAUSES, all_causes
from hpc_llm.diagnosis.diagnosis import Diagnosis, Evidence
from hpc_llm.diagnosis.inputs import diagnose_files, diagnose_stream, jobs_under
from hpc_llm.diagnosis.own_runs import diagnose_jobs, diagnose_run, explain_look

__all__ = [
    "CAUSES",
    "Diagnosis",
    "Evidence",
    "all_causes",
    "diagnose_files",
    "diagnose_jobs",
    "diagnose_run",
    "diagnose_stream",
    "explain_look",
    "jobs_under",
]
