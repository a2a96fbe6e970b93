"""Lightning's progress bar: `Epoch 3:  45%|...| 45/100 [00:10<00:12, 4.41it/s, v_num=3, train_loss=0.123]`.

The bar counts from 1 in every epoch; steps are numbered through. Its speed is smoothed and its time rounded, so step times
are not taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpc_llm.parse.registry import LineFormat
from hpc_llm.parse.rules import Kind, Value, number, rule

_PAIR = re.compile(rb"\b([A-Za-z][\w/]{0,60})=([-+]?(?:[\d.]*\d(?:[eE][-+]?\d+)?|nan|inf))(?=[,\]\s]|$)")
_LOSSES = ("train_loss_step", "train_loss", "train/loss", "loss_step", "loss")
_EVAL_LOSSES = ("val_loss", "val/loss", "valid_loss", "val_loss_epoch")


def _columns(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    pairs = {key.decode().strip(): number(text) for key, text in _PAIR.findall(match["pairs"])}
    losses = [pairs[name] for name in _LOSSES if pairs.get(name) is not None]
    done, total = int(match["number"]), int(match["all"])
    if not losses or losses[0] is None or not done or total > 1 << 40:
        return None
    found: dict[str, Value] = {"step": int(match["epoch"]) * total + done, "loss": losses[0]}
    for name in _EVAL_LOSSES:
        value = pairs.get(name)
        if value is not None:
            found["eval_loss"] = value
    return found


FORMAT = LineFormat(
    name="lightning",
    hints=(b"v_num=", b"`Trainer.fit` stopped: "),
    confirm=re.compile(
        rb"Epoch \d+: [^\n]{0,300}?\d+/\d+ \[[^\]\n]{0,400}loss[^\]\n=]{0,60}=|`Trainer\.fit` stopped: "
    ),
    precedence=46,
    rules=(
        rule(
            Kind.STEP,
            r"Epoch (?P<epoch>\d{1,9}): [^\n\[]{0,300}?(?P<number>\d{1,15})/(?P<all>\d{1,15}) \[(?P<pairs>[^\]\n]{0,400}loss[^\]\n]{0,600})\]",
            _columns,
            literal="Epoch ",
        ),
        rule(Kind.END, r"`Trainer\.fit` stopped: ", literal="`Trainer.fit` stopped: "),
    ),
)
