"""Numbers that ran away."""

from __future__ import annotations

import re

from hpc_llm.causes.cause import Cause, sign
from hpc_llm.causes.frames import is_of_a_request, may_train
from hpc_llm.records.run import Outcome

_OF_NO_STEP = re.compile(
    rb"(?i)(?<![a-z])(?:eval(?:uation)?|val(?:id(?:ation)?)?|test|dev|best|lowest|min(?:imum)?)(?:[_/ .-]\w{1,12})?[_/ .-]l$"
)
_LOOKED_BACK = 40


def _is_of_training(text: bytes, position: int) -> bool:
    """Whether the loss whose name has its second letter at `position` is a step's, and none of an evaluation or of a table that tells the
    best of several trainings: these change no weights, and where a training went wrong its own losses say so."""
    return _OF_NO_STEP.search(text, max(0, position - _LOOKED_BACK), position) is None


def _comes_of_training(text: bytes, position: int) -> bool:
    """Whether a program that trains may have drawn it, and no server for one of its requests."""
    return may_train(text, position) and not is_of_a_request(text, position)


NAN_LOSS = Cause(
    id="nan_loss",
    title="the loss is not a number",
    meaning=(
        "A loss was NaN or infinite. Where it stays so the run has diverged and its numbers mean nothing; where it does not, "
        "the weights may have taken harm at that step, and what is measured there is in no mean to compare."
    ),
    remedy=(
        "a smaller learning rate: --set optimizer.lr=…, with gradient clipping: --set deepspeed.gradient_clipping=1.0\n"
        "bf16 instead of fp16 where the GPU has it: --set precision=bf16\n"
        "if it is so from the first step, look at the data and the checkpoint"
    ),
    retry=False,
    precedence=60,
    outcome=Outcome.INVALID,
    undone_by_end=False,
    explains=frozenset(("python_exception", "kernel_failed")),
    signs=(
        # Begins with fixed text: every line of a training log has a loss.
        sign(
            "oss",
            r"oss(?:[ _/(]{1,2}(?:train(?:ing)?|avg|mean)\)?)?[ \t:=|'\"]{1,8}(?:nan|NaN|NAN|-?inf|-?Infinity)\b",
            where=_is_of_training,
        ),
        sign("OSS", r"OSS[ \t:=|'\"]{1,8}(?i:nan|-?inf)\b", where=_is_of_training),
        # Megatron prints the mean over the others.
        sign("number of nan iterations: ", r"number of nan iterations: +[1-9]\d*\b"),
        # With fp16 a step is skipped when its gradients overflow: then they are no numbers and the loss is one, not zero.
        sign(
            ("grad_norm': nan", "grad_norm': 'nan"), r"'loss': '?(?:0\.0|nan)'?, 'grad_norm': '?nan\b", confidence=0.85
        ),
        sign(
            "grad norm: nan",
            r"\| grad norm: nan \|(?=[^\n]{0,200}number of skipped iterations: +0 )",
            confidence=0.85,
        ),
        sign(
            ("NaN in", "nan in", "oss is ", "oss was ", "oss became "),
            r"(?:found|detected) NaN in [^\n]{0,60}(?:loss|forward|gradient|grad)|[Ll]oss (?:is|was|became) (?:nan|NaN|inf(?:inite)?)\b",
            confidence=0.97,
        ),
        sign(
            ("returned nan values", "non-finite", "Non-finite", "not finite", "NaN loss"),
            r"Function '\w+Backward\d*' returned nan values|(?:Error|Exception): [^\n]{0,80}(?:[Nn]on-finite|not finite|NaN loss|is NaN)[^\n]{0,40}",
            confidence=0.9,
        ),
        sign(
            "probability tensor contains",
            r"probability tensor contains either `inf`, `nan` or element < 0",
            where=_comes_of_training,
            confidence=0.85,
        ),
    ),
)

LOSS_SCALE = Cause(
    id="loss_scale_collapse",
    title="the gradients overflowed",
    meaning="With fp16 the gradients overflowed at every loss scale down to the smallest: the run has diverged.",
    remedy=(
        "bf16 instead of fp16 where the GPU has it: --set precision=bf16\n"
        "a smaller learning rate: --set optimizer.lr=…, more warm-up, gradient clipping\n"
        "a checkpoint that was trained in bf16 may not fit into fp16's range at all"
    ),
    retry=False,
    precedence=75,
    undone_by_end=False,
    explains=frozenset(("nan_loss", "python_exception", "collective_timeout")),
    signs=(
        sign("Current loss scale already at minimum", confidence=0.99),
        sign(
            "Attempted loss scale: ",
            r"Attempted loss scale: (?P<loss_scale>1(?:\.0)?|0\.\d+), reducing to (?P=loss_scale)(?![\d.])",
            confidence=0.9,
        ),
        sign("Minimum loss scale reached", r"Minimum loss scale reached \(", confidence=0.99),
        sign(
            "oss scale",
            r"(?:Error|Exception): [^\n]{0,60}[Ll]oss scale[^\n]{0,40}(?:minimum|too small|underflow|zero)",
            confidence=0.9,
        ),
    ),
)

CAUSES = (NAN_LOSS, LOSS_SCALE)
