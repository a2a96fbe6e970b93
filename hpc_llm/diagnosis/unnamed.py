"""What to say where no cause is known by name, and Slurm or MPI says in words of its own that something is an error."""

from __future__ import annotations

from collections.abc import Sequence

from hpc_llm.causes.found import Found
from hpc_llm.causes.last_error import is_refused
from hpc_llm.causes.log import LogFindings
from hpc_llm.causes.program import UNKNOWN
from hpc_llm.causes.ray_workers import WORKER_DIED
from hpc_llm.diagnosis.remedies import filled
from hpc_llm.text.secrecy import redacted

_REFUSED = (
    "no job came of that request: change it as the line says, or ask the site for the rule behind it\n"
    "what the site offers: sinfo -o '%P %l %G', sacctmgr show assoc user=$USER"
)
_SAID = "begin with that line, and with those right before it: they are the words of the one that gave up"


def told(logs: Sequence[LogFindings]) -> tuple[LogFindings, str, str] | None:
    """The log whose last error line it is, what that means and what to do; None where there is none."""
    log = next((one for one in reversed(logs) if one.error_line is not None), None)
    if log is None or log.error_line is None:
        return None
    line = log.error_line[1]
    meaning = f"The cause is not known by name; the last error line is: {redacted(line)}"
    return log, meaning, _REFUSED if is_refused(line) else f"{_SAID}\n{UNKNOWN.remedy}"


def of_a_worker(found: Sequence[Found]) -> tuple[str, str] | None:
    """What it means that a worker of Ray's died, and where to look; None where none did."""
    died = [one for one in found if one.sign is WORKER_DIED]
    if not died or WORKER_DIED.remedy is None or WORKER_DIED.meaning is None:
        return None
    told = next((one.details for one in died if one.details and "worker_pid" in one.details), {})
    return WORKER_DIED.meaning, filled(WORKER_DIED.remedy, told)
