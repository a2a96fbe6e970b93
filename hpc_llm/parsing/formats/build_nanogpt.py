"""build-nanogpt, nanochat and autoresearch: `step 12 | loss: 6.5 | lr 6.0e-05 | norm: 1.2 | dt: 340.10ms | tok/sec: 1541000.00`.

A line is of the one step that is printed, its tokens are those of all ranks. build-nanogpt's clock begins before an evaluation that
stands before the step. The lines of the other two have a share in brackets behind the step: their loss is a running mean, and what they call `mfu` is of
an H100's peak, until a release of nanochat says by `bf16_mfu` that it looked the GPU up (0 where it does not know it).
"""

from __future__ import annotations

import math
import re

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, leave_empty, rule
from hpc_llm.records import metrics


def _finish(values: dict[str, Value]) -> None:
    decayed, others = values.pop("decayed", None), values.pop("not_decayed", None)
    if isinstance(decayed, float) and isinstance(others, float):
        values.setdefault("num_parameters", int(decayed + others))
    if values.pop("running_mean", None):
        leave_empty(values, "loss: nanochat prints a running mean, none of a step")
    _take_mfu(values)


def _take_mfu(values: dict[str, Value]) -> None:
    """A share is taken where the peak that it is of is that of the GPU; forks write down one of their own."""
    own, of_h100 = values.pop("own_share", None), values.pop("share_of_h100", None)
    gpu, said = str(values.get("gpu") or ""), values.pop("peak_of_share", None)
    share, peak = (own, said) if own is not None else (of_h100, metrics.peak_flops("H100", "bf16"))
    if not isinstance(share, float) or share <= 0:
        return
    known = metrics.peak_flops(gpu, "bf16")
    if known is not None and isinstance(peak, float) and math.isclose(known, peak, rel_tol=0.02):
        values["mfu"] = share
    else:
        leave_empty(values, "mfu: the log does not say that it is of the peak of the GPU that it ran on")


_RATES = r"dt: {1,3}(?:<step_time_ms>[ ]?ms|[\d.]+)(?: {0,3}\| {1,3}tok/sec: {1,3}<tokens_per_second>)?"

FORMAT = LineFormat(
    name="build-nanogpt",
    hints=(b" dt: ",),
    confirm=re.compile(
        rb"\bstep:? {0,9}\d+(?:/\d+)?(?: {1,3}\([\d.]+%\))? {0,9}\| {1,3}(?:train )?loss: {1,3}\S+ {0,3}\| [^\n]{0,90}\bdt: {1,3}[\d.]+"
    ),
    precedence=61,
    single=True,
    one_loss=True,
    rules=(
        rule(
            Kind.STEP,
            r"\bstep:? {0,9}<step>(?:/<total_steps>)? {0,9}\| {1,3}(?:train )?loss: {1,3}<loss> {0,3}\| "
            r"(?: {0,3}lr:? {1,3}<learning_rate> {0,3}\|)?(?: {0,3}norm: {1,3}<grad_norm> {0,3}\|)? {1,3}" + _RATES,
            literal=" dt: ",
        ),
        rule(
            Kind.STEP,
            r"\bstep {1,3}<step>(?:/<total_steps>)? {1,3}\([\d.]+%\) {1,3}\| {1,3}loss: {1,3}(?:<loss>(?<=nan)|(?P<running_mean>[\d.]+)) {0,3}\|"
            r"(?: {1,3}grad norm: {1,3}<grad_norm> {0,3}\|)?(?: {1,3}lrm?: {1,3}[-+.\de]+ {0,3}\|)? {1,3}"
            + _RATES
            + r"(?: {0,3}\| {1,3}(?:bf16_mfu: {1,3}<own_share_pct>|mfu: {1,3}<share_of_h100_pct>)%?)?",
            literal=" dt: ",
        ),
        rule(Kind.RUN, r"^[Vv]alidation loss:? {1,3}<eval_loss>$", literal="alidation loss", pauses=True),
        rule(Kind.RUN, r"^HellaSwag accuracy: ", literal="HellaSwag accuracy: ", pauses=True),
        rule(Kind.RUN, r"^Step \d+ \| Validation bpb: ", literal="Validation bpb: ", pauses=True),
        rule(Kind.SETUP, r"total desired batch size: {1,3}<tokens_per_step>", literal="total desired batch size: "),
        rule(
            Kind.SETUP,
            r"=> (?:calculated )?gradient accumulation steps?: {1,3}<gradient_accumulation_steps>",
            literal="gradient accumulation step",
        ),
        rule(Kind.SETUP, r"^Total batch size <tokens_per_step> => ", literal="Total batch size "),
        rule(
            Kind.SETUP,
            r"^Tokens / micro-batch / rank: <micro_batch_size> x <sequence_length> = ",
            literal="Tokens / micro-batch / rank: ",
        ),
        rule(Kind.SETUP, r"^Number of parameters: <num_parameters> *$", literal="Number of parameters: "),
        rule(Kind.SETUP, r"\bnum decayed parameter tensors: \d+, with <decayed> parameters", literal="num decayed "),
        rule(
            Kind.SETUP,
            r"\bnum non-decayed parameter tensors: \d+, with <not_decayed> parameters",
            literal="num non-decayed ",
        ),
        rule(
            Kind.SETUP,
            r"^GPU: (?P<gpu>\S[^|\n]{1,60}?) \| Peak FLOPS(?: \(BF16\): <peak_of_share>)?",
            literal=" | Peak FLOPS",
        ),
        rule(Kind.RUN, r"^Peak memory usage: <peak_allocated_mib>MiB", literal="Peak memory usage: "),
        rule(Kind.END, r"^Total training time: [\d.]+m", literal="Total training time: "),
        rule(Kind.RUN, r"^peak_vram_mb: {1,9}<peak_allocated_mib> *$", literal="peak_vram_mb: "),
        rule(Kind.END, r"^total_seconds: {1,9}<elapsed_s> *$", literal="total_seconds: "),
    ),
    finish=_finish,
)
