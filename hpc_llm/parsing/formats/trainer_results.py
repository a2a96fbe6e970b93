"""What `save_metrics` of the Hugging Face Trainer leaves: `train_results.json`, `eval_results.json`, `all_results.json`.

They are written once training, or an evaluation, is over. Nothing in them says whether the time of training holds evaluations
or checkpoints, nor which tokens were counted: so they give no time of a step and no rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from hpc_llm.parsing.formats.trainer_state import as_number
from hpc_llm.parsing.lost import spoil
from hpc_llm.parsing.registry import DocumentFormat
from hpc_llm.parsing.rows import EVAL, TRAIN, Row, Step
from hpc_llm.records.run import Outcome
from hpc_llm.text.json_text import figures


def read(text: bytes) -> Iterator[tuple[Row, list[Step]]]:
    """The one run; raises ValueError where the file is none of these."""
    found = figures(text)
    if not isinstance(found, dict) or any(isinstance(value, (dict, list)) for value in found.values()):
        raise ValueError("no table of results")
    trained, evaluated = as_number(found.get("train_runtime")), as_number(found.get("eval_runtime"))
    if trained is None and evaluated is None:
        raise ValueError("no time of training or of an evaluation")
    row = Row(format="hf-trainer", kind=EVAL if trained is None else TRAIN, outcome=Outcome.COMPLETED.value)
    row.elapsed_s, row.eval_loss = trained, as_number(found.get("eval_loss"))
    row.perplexity = as_number(found.get("perplexity")) or as_number(found.get("eval_perplexity"))
    mean = as_number(found.get("train_loss"))
    if trained is not None and mean is not None and not math.isfinite(mean):
        spoil(row, "the mean of the losses of training is not a finite number")
    yield row, []


FORMAT = DocumentFormat(name="trainer-results", hints=((b'"train_runtime"',), (b'"eval_runtime"',)), read=read)
