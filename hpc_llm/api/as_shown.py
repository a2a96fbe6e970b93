"""Refuses templates that render another script for the submission than they rendered for the preview.

Templates of a user see the run's id, which is drawn only when the run is submitted, so they can make a script depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_llm.errors import RequestError

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch


def refuse_other_than_shown(made: Sequence[Batch], shown: Sequence[Batch], templates: Path) -> None:
    """Raise RequestError where a script is another than the one that is shown, but for the ids of its runs and of their array."""
    for batch, other in zip(made, shown, strict=True):
        names = dict(zip(batch.run_ids, other.run_ids, strict=True))
        if batch.array is not None and other.array is not None:
            names[batch.array.folder.name] = other.array.folder.name
        for script, preview in zip(batch.distinct_scripts, other.distinct_scripts, strict=True):
            if _renamed(script.text, names) != preview.text:
                raise RequestError(
                    f"the templates of {templates} make another script of a run by its id, so that what `hpc-llm render` shows is not what "
                    "would be sent. Take out of them what asks for the run id or its folder, or show and submit it with the same --run-id."
                )


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with the name of each run as the preview has it.

    >>> _renamed("cd a-1 a", {"a": "RUN-ID", "a-1": "RUN-ID-2"})
    'cd RUN-ID-2 RUN-ID'
    """
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(pattern, lambda match: names[match[0]], text)
