"""A notebook whose run came to its end, and whose last output is an error: cells behind the training, or tried before it, failed."""

from __future__ import annotations

import re
from dataclasses import replace

from hpc_llm.causes.log import LogFindings
from hpc_llm.causes.program import NONE
from hpc_llm.diagnosis.diagnosis import Diagnosis, Evidence

_NOTEBOOK = re.compile(r"\.ipynb(?:\.(?:gz|xz|zst|bz2))?$")
_SHOWN = 6
_SEE = "nothing of the training: see what the cells were to do whose errors are in the evidence"


def with_failed_cells(made: Diagnosis, log: LogFindings) -> Diagnosis:
    """With the errors of its cells, where the notebook ends with one and its run is said to have come to its end."""
    if made.cause is not NONE or made.summary or log.last_line is None or not _NOTEBOOK.search(log.file):
        return made
    errors = [one for one in log.found if one.is_raised and one.ends_process]
    if not errors or (errors[-1].line, errors[-1].text) != log.last_line:
        return made
    before = len(errors) - 1
    others = f" {before} earlier output{'s end' if before > 1 else ' ends'} with an error, too." if before else ""
    shown = [Evidence(one.file, one.line, one.text) for one in (errors[-1], *errors[:-1])]
    return replace(
        made,
        summary=f"The last output of the notebook is an error, of a cell behind the training: {log.last_line[1]}.{others}",
        remedy=_SEE,
        evidence=tuple(shown[:_SHOWN]),
    )
