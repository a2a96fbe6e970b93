"""The example scripts of accelerate, PEFT and transformers that train without the Trainer: one line an epoch.

PEFT's scripts count memory in units of 1024**2 bytes: torch's allocations, and the resident memory of the process.
"""

from __future__ import annotations

import re

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, rule

_TENSOR = r"(?:tensor\()?{}(?:,[^)\n]*)?\)?"

FORMAT = LineFormat(
    name="accelerate",
    hints=(b"epoch=", b"epoch "),
    confirm=re.compile(
        rb"\bepoch=\d+: (?:train_\w+|eval_\w+)=|\bepoch \d+: (?:perplexity: |train_loss|\{'(?:accuracy|f1|perplexity))"
    ),
    precedence=65,
    rules=(
        rule(Kind.START, r"\*\*\*\*\* (?P<trains>Running training) \*\*\*\*\*", literal="***** Running training *****"),
        rule(
            Kind.STEP,
            r"\bepoch=<order>: train_(?:epoch_perplexity|ppl|epoch_ppl)="
            + _TENSOR.format(r"[-+.\deEnaif]+")
            + r" train_(?:epoch_)?loss="
            + _TENSOR.format("<loss>")
            + r"(?: eval_ppl="
            + _TENSOR.format("<perplexity>")
            + r" eval_epoch_loss="
            + _TENSOR.format("<eval_loss>")
            + r")?",
            literal="epoch=",
        ),
        rule(
            Kind.RUN,
            r"\bepoch \d+: perplexity: <perplexity> eval_loss: (?:tensor\()?<eval_loss>",
            literal=": perplexity: ",
        ),
        rule(
            Kind.RUN,
            r"\bepoch=\d+: eval_ppl="
            + _TENSOR.format("<perplexity>")
            + r" eval_(?:epoch_)?loss="
            + _TENSOR.format("<eval_loss>"),
            literal=": eval_ppl=",
        ),
        rule(
            Kind.RUN,
            r"^GPU Total Peak Memory consumed during the train \(max\): <peak_allocated_mib>$",
            literal="GPU Total Peak Memory consumed during the train",
        ),
        rule(
            Kind.RUN,
            r"^CPU Total Peak Memory consumed during the train \(max\): <peak_host_mib>$",
            literal="CPU Total Peak Memory consumed during the train",
        ),
        rule(Kind.RUN, r"\b(?P<trains>epoch) \d+: \{'(?:accuracy|f1|perplexity)", literal=": {'"),
    ),
)
