"""torchtitan: one line a logged step; `memory` is the peak reserved since the line before, `tps` one device's tokens.

Lines between two log steps are not printed: a line stands for all steps since the line before. Older versions call the
throughput `wps`; the teraflops and the gradient norm are not in all of them. Validation prints a line of its own and begins to
count tokens, time and memory anew, so the step line after it holds none of it. Of a pipeline's stages the last alone has a loss:
the others print -1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, leave_empty, rule, whole
from hpc_llm.records import metrics
from hpc_llm.records.relations import PEAK


def _mesh(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """The product of the dimensions, `[4, 2]` or `dp_shard=4, tp=2`."""
    sizes = [whole(size) or 0 for size in re.findall(rb"(?:^|[ ,=])(\d+)", match[1])]
    return {"world_size": math.prod(sizes)} if 0 < math.prod(sizes) < 1 << 24 else None


def _finish(values: dict[str, Value]) -> None:
    """Without a device that counts its memory, zero is printed."""
    if values.get("peak_reserved_bytes") == 0:
        del values["peak_reserved_bytes"]
    is_old, gpu = values.pop(_OLD, None), str(values.get("gpu") or "")
    if values.pop(_OF_ANOTHER, None) or (is_old and not _OF_OLD.search(gpu)):
        leave_empty(values, "mfu: torchtitan does not know this GPU's peak, and takes an A100's", "mfu")
    peak = metrics.peak_flops(gpu, "bf16")
    if peak is not None:
        values[PEAK] = peak / 1e12


_OF_ANOTHER = "peak_of_another_gpu"
_OLD = "peaks_of_two_gpus"
"""Of the time in which torchtitan knew two kinds of GPU, and took an A100's peak for all others without a word."""
_OF_OLD = re.compile(r"A100|H100")


FORMAT = LineFormat(
    name="torchtitan",
    hints=(b"step: ", b"[titan]"),
    confirm=re.compile(rb"step: +\d+ +loss: +\S+ +(?:\w+: +\S+ +){0,9}memory: +[\d.]+GiB\([\d.]+%\) |\[titan\] "),
    precedence=30,
    one_loss=True,
    packed=True,
    rules=(
        rule(Kind.START, r"Starting job: ", literal="Starting job: "),
        rule(
            Kind.STEP,
            r"(?<!validate )step: +<step> +loss: +(?:-[\d.]+|<loss>) +(?:grad_norm: +<grad_norm> +)?(?:lr: +<learning_rate> +)?"
            r"memory: +<peak_reserved_gib>GiB\((?:<memory_share_pct>%|[^)\n]*)\)(?: +tps: +<tokens_per_second_per_gpu>)?(?: +wps: +<words_per_second_per_gpu>)?"
            r"(?: +tflops: +<model_tflops_per_gpu>)?(?: +mfu: +<mfu_pct>%)?",
            literal="step: ",
        ),
        rule(
            Kind.RUN,
            r"validate step: +\d+ +loss: +(?:-[\d.]+|<eval_loss>) +memory: +\S+ +tps: ",
            literal="validate step: ",
        ),
        # A line without rates does not say from where they are counted.
        rule(
            Kind.RUN,
            r"validate step: +\d+ +loss: +(?:-[\d.]+|<eval_loss>)$",
            literal="validate step: ",
            pauses=True,
        ),
        rule(Kind.RUN, r"Saving the checkpoint\b", literal="Saving the checkpoint", pauses=True),
        rule(
            Kind.RUN,
            r"(?P<trains>Training starts at step \d+,|Trainer is initialized) with local batch size <micro_batch_size>, global batch size <global_batch_size>"
            r"(?:, gradient accumulation steps <gradient_accumulation_steps>)?, sequence length <sequence_length>,"
            r" total steps <total_steps>",
            literal="with local batch size ",
        ),
        rule(
            Kind.RUN,
            r"Model (?P<model>\S.{0,60}?) size: <num_parameters> total parameters",
            literal=" total parameters",
        ),
        rule(Kind.RUN, r"(?:CUDA|HIP|XPU) capacity: (?P<gpu>.{2,60}?) with ", literal=" capacity: "),
        rule(
            Kind.RUN,
            r"(?P<trains>Training starts) at step \d+, with local batch size: <micro_batch_size>, global batch size: <global_batch_size>,"
            r" sequence length: <sequence_length>, total steps: <total_steps>",
            literal="with local batch size: ",
        ),
        rule(Kind.RUN, r"GPU capacity: (?P<gpu>.{2,60}?) \(\d+\) with ", literal="GPU capacity: "),
        rule(Kind.RUN, r"\) +wps: ", lambda _: {_OLD: 1}, literal=" wps: "),
        rule(
            Kind.RUN,
            r"Building \d+-D device mesh with [\[(][^\])\n]*[\])], \[([\d, ]+)\]",
            _mesh,
            literal="-D device mesh with ",
        ),
        rule(
            Kind.RUN,
            r"Building device mesh with parallelism: (pp=\d+, dp_replicate=\d+, dp_shard=\d+, cp=\d+, tp=\d+)\b",
            _mesh,
            literal="Building device mesh with parallelism: ",
        ),
        rule(
            Kind.RUN,
            r"Peak flops undefined for: [^\n]{1,80}, fallback to ",
            lambda _: {_OF_ANOTHER: 1},
            literal="Peak flops undefined for: ",
        ),
        rule(Kind.END, r"INFO - [^\n]{0,20}?Training completed\b", literal="Training completed"),
    ),
    finish=_finish,
)
