"""Lightning's progress bar: `Epoch 3:  45%|...| 45/100 [00:10<00:12, 4.41it/s, v_num=3, train_loss=0.123]`.

The bar counts batches from 1 in every epoch, and before Lightning 2 those of validations among them: it tells a place, and of
a step only where the message of a checkpoint (`Epoch 3, global step 400: …`) says that each of its batches is one. Its speed
is smoothed and its time rounded, so step times are not taken. After a validation, which draws bars of its own, and below the
message of the end the last bar is drawn again: a number that comes twice is no sign of another run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from hpc_llm.parsing import commas
from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, number, rule

_PAIR = re.compile(rb"(?<![\w-])([A-Za-z][\w/]{0,60})=([-+]?(?:[\d.,]*\d(?:[eE][-+]?\d+)?|nan|inf))(?=[,\]\s]|$)")
_EPOCH, _DONE, _LENGTH = "bar_epoch", "bar_done", "bar_length"
_SAVED_EPOCH, _SAVED_STEP = "saved_epoch", "saved_step"
_LOSSES = ("train_loss_step", "train_loss", "train/loss", "loss_step", "loss")


BAR = (
    r"(?P<again>(?:`Trainer\.fit` stopped: |Validati(?:on|ng)\b)[^\n]*\s+)?(?<!\w)(?<!\w-)Epoch (?P<epoch>\d{1,9}): [^\n\[]{0,300}?"
    r"(?P<number>\d{1,15})(?:/(?P<all>\d{1,15}|\?)|it) \["
)
"""A bar, of known length or not, up to the pairs in its brackets; it is no new step where `again` is found."""

AGAIN = r"(?:\s+Epoch (?P=epoch): [^\n\[]{0,300}?\b(?P=number)(?:/(?:\d+|\?)|it) \[[^\]\n]{0,1000}\])*"
"""The same bar, drawn again right below."""

EVALUATED = r"Epoch \d+: [^\n\[]{0,300}\[[^\]\n]{0,800}?(?<![\w-])val(?:id)?[_/]loss(?:_epoch)?=<eval_loss>(?=[,\]\s])"
"""A bar that shows the loss of the last validation."""

MEMBER = "Initializing distributed: GLOBAL_RANK: "
MEMBERS = MEMBER + r"\d+, MEMBER: \d+/<world_size>\b"
"""What each rank says that joins the others."""


def _loss(text: bytes) -> Mapping[str, Value] | None:
    """A loss as it is printed: with a point, as no bar parts thousands."""
    return commas.read("loss", None if b"," in text else number(text), text) or None


def _columns(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    pairs = {key.decode().strip(): text for key, text in _PAIR.findall(match["pairs"])}
    losses = [loss for name in _LOSSES if name in pairs and (loss := _loss(pairs[name])) is not None]
    epoch, done = int(match["epoch"]), int(match["number"])
    total = int(match["all"]) if match["all"] not in (None, b"?") else 0
    if match["again"] or not losses or total > 1 << 40:
        return None
    if not done and not (epoch and total and math.isfinite(float(losses[0].get("loss", math.nan)))):
        return None
    place = {"order": epoch + done / total, _EPOCH: epoch, _DONE: done, _LENGTH: total} if total else {}
    return {**losses[0], **place}


def _saved(match: re.Match[bytes]) -> Mapping[str, Value]:
    return {_SAVED_EPOCH: int(match["epoch"]), _SAVED_STEP: int(match["step"])}


def _place(values: Mapping[str, Value], known: Mapping[str, Value], has_steps: bool) -> Mapping[str, Value] | None:
    """A bar with its step, where the last checkpoint, at the end of an epoch, was of as many steps as the bar had counted batches by then.

    With validations in the bar, or several batches a step, there are fewer. A bar at 0 shows the loss of the step before it, which
    is another bar's already unless none was seen.
    """
    epoch, done, length = (int(values.get(name, 0)) for name in (_EPOCH, _DONE, _LENGTH))
    found = {name: value for name, value in values.items() if name not in (_EPOCH, _DONE, _LENGTH)}
    if not length:
        return found
    if not done and has_steps:
        return None
    if known.get(_SAVED_STEP) == (int(known.get(_SAVED_EPOCH, 0)) + 1) * length:
        found["step"] = epoch * length + done
    return found


FORMAT = LineFormat(
    name="lightning",
    hints=(b"v_num=", b"`Trainer.fit` stopped: "),
    confirm=re.compile(
        rb"Epoch \d+: [^\n]{0,300}?(?<!\d)\d{1,15}(?:/(?:\d{1,15}|\?)|it) \[[^\]\n]{0,400}loss[^\]\n=]{0,60}=|`Trainer\.fit` stopped: "
    ),
    precedence=46,
    place=_place,
    rules=(
        rule(
            Kind.STEP,
            BAR + r"(?P<pairs>[^\]\n]{0,400}loss[^\]\n]{0,600})\]" + AGAIN,
            _columns,
            literal="Epoch ",
        ),
        rule(Kind.RUN, EVALUATED, literal="Epoch "),
        rule(Kind.RUN, r"Epoch (?P<epoch>\d{1,9}), global step (?P<step>\d{1,15})\b", _saved, literal=", global step "),
        rule(Kind.RUN, MEMBERS, literal=MEMBER),
        rule(Kind.END, r"`Trainer\.fit` stopped: ", literal="`Trainer.fit` stopped: "),
    ),
)
