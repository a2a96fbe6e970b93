"""What a log shows that its program did: trained, evaluated, or answered. A configuration that is printed shows none of these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hpc_llm.parsing.matches import line_at
from hpc_llm.parsing.rows import EVAL, INFER, TRAIN
from hpc_llm.parsing.rules import BEFORE_TRAINING, BELOW, EVALUATES, PREDICTS, TRAINS, Value

OF_A_TRAINING = ("micro_batch_size", "gradient_accumulation_steps", "global_batch_size")
"""Settings of a training, which other work does not follow though they are printed."""

_LOSS = re.compile(
    rb"oss(?:(?<=[Ll]oss)(?<!\w[Ll]oss)|(?<=train_loss))['\"]?[ \t]{0,8}[:=|]?[ \t]{0,8}['\"]?[-+]?\d"
)  # begins with fixed text, which is found several times as fast
_STEP = re.compile(
    rb"(?i)(?<![a-z])(?:(?:step|iter(?:ation)?)s?['\"]?[ \t:=#\[(]{1,12}0*[1-9]|grad(?:ient)?[_ -]?norm['\"]?[ \t:=]{1,4}[\d.])|\d/\d{1,9} \[\d"
)
_TRAIN = re.compile(rb"(?i)(?<![a-z])train")
_OTHER = re.compile(rb"(?i)(?<![a-z])(?:e?val|test|infer|predict|bench)")
_LOOKED_AT = 1000
"""Losses in a piece of text whose lines are looked at."""

_FRAME = rb" in (?:(?<=\d, in )|(?<=\.py in ))(?:\w{1,40}\.){0,3}(?:%b)(?=[ (\n])"
_TRAINING = re.compile(
    _FRAME
    % rb"_?inner_training_loop|train(?:ing)?(?:_step|_loop|_epoch|_one_epoch|_batch)?|pretrain|(?:forward_)?backward(?:_step|_func)?"
)
_EVALUATING = re.compile(_FRAME % rb"evaluate|evaluation_loop|prediction_(?:loop|step)")
"""Functions in which a traceback shows a program."""


@dataclass
class Shown:
    """Looks at one piece of a run's text after another."""

    steps: bool = False
    """Lines of training steps, of whichever wording."""
    trains: bool = False
    """A traceback of what trained."""
    evaluates: bool = False

    def look(self, text: bytes) -> None:
        """Go on with `text`."""
        self.trains = self.trains or _TRAINING.search(text) is not None
        self.evaluates = self.evaluates or _EVALUATING.search(text) is not None
        self.steps = self.steps or _has_step(text)

    def merge(self, later: Shown) -> None:
        """Go on with what a later piece of the log saw."""
        self.steps, self.trains = self.steps or later.steps, self.trains or later.trains
        self.evaluates = self.evaluates or later.evaluates


def _has_step(text: bytes) -> bool:
    for _, found in zip(range(_LOOKED_AT), _LOSS.finditer(text), strict=False):
        line = line_at(text, found.start())
        if _STEP.search(line) and (_TRAIN.search(line) or not _OTHER.search(line)):
            return True
    return False


def kind_of(known: Mapping[str, Value], columns: Mapping[str, object], has_trained: bool, shown: Shown) -> str | None:
    """What a program that can train did; None where its log does not say, or says that it evaluated and looks as if it trained."""
    if has_trained or columns.get("elapsed_s") is not None or TRAINS in known or BELOW in known or shown.trains:
        return TRAIN
    evaluated = any(columns.get(name) is not None for name in ("eval_loss", "perplexity"))
    evaluated = evaluated or EVALUATES in known or shown.evaluates
    if shown.steps and not evaluated and PREDICTS not in known:
        return TRAIN
    if shown.steps or (BEFORE_TRAINING in known and EVALUATES not in known):
        return None
    return EVAL if evaluated else INFER if PREDICTS in known else None
