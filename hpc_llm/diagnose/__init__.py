"""Why a run failed, the evidence, and what to do.

diagnosis = diagnose_run(RunPaths(Path("logs/20261121-..."))) or diagnose_files([Path("slurm-123.out")])
print(diagnosis.cause.id, diagnosis.remedy)
"""

from __future__ import annotations

from hpc_llm.causes.catalogue import CAUSES
from hpc_llm.diagnose.diagnosis import Diagnosis, Evidence
from hpc_llm.diagnose.inputs import diagnose_files, diagnose_stream, jobs_under
from hpc_llm.diagnose.runs import diagnose_run

__all__ = ["CAUSES", "Diagnosis", "Evidence", "diagnose_files", "diagnose_run", "diagnose_stream", "jobs_under"]
