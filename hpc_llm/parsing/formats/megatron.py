"""Megatron-LM and its kin (Megatron-DeepSpeed, GPT-NeoX, Primus): one line of `key: value |` pairs an iteration.

The spelling changed over the years and from fork to fork: `elapsed time per iteration (ms): 12.3 |`,
`elapsed_time_per_iteration_ms=12.3 |`, `learning rate 1E-4 |`. So the keys are read, not the line. A line may be wrapped by
a log viewer; then the pairs go on in the next lines. Every sample is a full sequence, so tokens per second follow from the
time, the batch and the length. Memory is printed in MiB as MB. Megatron-Bridge prints the teraflops in a line above.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone

from hpc_llm.parsing import commas
from hpc_llm.parsing.completing import UNEQUAL
from hpc_llm.parsing.formats.deepspeed import ASSUMED
from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, column_of, leave_empty, number, rule

_PAIR = re.compile(
    rb"(\b[A-Za-z]\w{0,30}(?:[\]/ .\-]+\w{1,30}){0,7}|\[\w{2,3}\]-\w{1,10})(?: ?\(([^()\n|]{1,40})\))?(?:[:=] *| )([-+]?(?:\d[\d.,]*(?:[eE][-+]?\d+)?|nan|inf))"
    rb"(?:/(\d[\d.]*))?(?: \(avg [\d.]+\))?(?:TFLOPS)? *(?=\||$)"
)

_TORN = re.compile(rb"\n[.,]?\d[\d.,eE+-]{0,20} *\|")
"""Behind a line that was broken in a number: what was a part of it."""
_STAMP = re.compile(rb"\[(20\d\d-[01]\d-[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d)(?:\.(\d{1,9}))?\]")
_MOMENT = 0.05
"""Seconds between the end of a step and its line."""

_COUNTED = "counted_tflops_per_gpu"
"""What the forks of Megatron-LM count: the work of the hardware, with the forward pass that is done again for the backward one.
Megatron-LM's own `throughput per GPU (TFLOP/s/GPU)`, which came later, counts the model's alone."""
_ALSO_SAID = "also_said"
"""With a name and a number behind it: so many ranks are told of beside the lines that Megatron-LM itself prints of them."""
_RECOMPUTES = ("checkpoint_activations", "recompute_granularity", "recompute_method")
"""The arguments by which activations are made again; a release that has the last one has the one before it, too."""
_KEPT = r"(?:\{[^\n]{0,40}\"log\": ?\"|20\d\d-[\d:.TZ+-]{15,32} std(?:out|err) [FP] )?"
"""Before a line as Docker's log driver keeps it, or Kubernetes."""
_IN_JSON = r"(?:(?:\\r)?\\n\"[^\n]{0,200})?"
"""Behind a line that is kept as a string of JSON."""
_IS_OFF = re.compile(r"(?:False|None)[ \t]*(?:\.{3,}(?:updated|default))?")

_NAMES = {
    "elapsed time per iteration": "step_time_ms",
    "elapsed time per iteration ms": "step_time_ms",
    "learning rate": "learning_rate",
    "global batch size": "global_batch_size",
    "consumed samples": "consumed_samples",
    "lm loss": "loss",
    "loss": "loss",
    "total loss": "loss",
    "grad norm": "grad_norm",
    "number of skipped iterations": "skipped_in_line",
    "number of nan iterations": "nan_in_line",
    "actual seqlen": "sequence_length",
    "samples per second": "samples_per_second",
    "samples/sec": "samples_per_second",
    "tokens per gpu per second": "tokens_per_second_per_gpu",
    "tokens per gpu per second tgs": "tokens_per_second_per_gpu",
    "tokens per gpu": "tokens_per_second_per_gpu",
    "tokens/s/gpu inst/harmonic mean": "tokens_per_second_per_gpu",
    "tokens/sec/gpu": "tokens_per_second_per_gpu",
    "tflops": _COUNTED,
    "[lm] tflops": _COUNTED,
    "lm tflops": _COUNTED,
    "approx flops per gpu": _COUNTED,
    "compute per gpu": "model_tflops_per_gpu",
    "flop throughput": _COUNTED,
    "throughput per gpu": "model_tflops_per_gpu",
}
"""Keys in lower case with blanks -> column and unit."""


def _columns(pairs: bytes) -> dict[str, Value]:
    """The known pairs of a line."""
    found: dict[str, Value] = {}
    for key, unit, text, _ in _PAIR.findall(pairs):
        name = re.sub(r"[_\- ]+", " ", key.decode("utf-8", "replace")).strip().lower()
        # One name, two meanings: only the unit tells tokens from floating-point operations.
        wanted = "tokens_per_second_per_gpu" if unit.lower().startswith(b"token") else _NAMES.get(name)
        if wanted == "step_time_ms" and unit.strip().lower() in (b"s", b"sec", b"secs", b"second", b"seconds"):
            wanted = "step_time_s"
        if wanted is None:
            continue
        column, convert = column_of(wanted)
        found = {**commas.read(column, (convert or number)(text), text), **found}
    counted = found.pop(_COUNTED, None)
    if counted is not None and "model_tflops_per_gpu" not in found:
        found |= {
            "model_tflops_per_gpu": counted,
            "tflops_by": "GPT-NeoX" if b"approx flops per GPU" in pairs else "a fork",
        }
    return found


def _iteration(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    pairs = match["pairs"]
    if _TORN.match(match.string, match.end("pairs")) and not pairs.rstrip().endswith(b"|"):
        pairs = pairs[: pairs.rfind(b"|") + 1]
    found = _columns((match["before"] or b"") + b"|" + pairs)
    step, tflops = int(match["number"]), number(match["tflops"] or b"")
    if not step:
        return None
    if tflops is not None:
        found.setdefault("model_tflops_per_gpu", tflops)
    nans, norm = found.get("nan_in_line", 0), found.get("grad_norm", 0.0)
    # A mean over iterations whose losses are no numbers is not printed at all.
    if "loss" not in found and (nans or (math.isnan(float(norm)) and not found.get("skipped_in_line"))):
        found["loss"] = math.nan
    return {**found, **_stamp(match), "step": step, "total_steps": int(match["all"])}


def _stamp(match: re.Match[bytes]) -> Mapping[str, Value]:
    """When the line was printed, which current releases write before it."""
    begin = match.string.rfind(b"\n", 0, match.start() + 1) + 1
    found = _STAMP.search(match.string, max(begin, match.end("before")), match.start("number"))
    if found is None:
        return {}
    when = datetime.fromisoformat(found[1].decode()).replace(tzinfo=timezone.utc)
    parts = float(b"0." + (found[2] or b"0"))
    return {"stamp_s": when.timestamp() + parts, "stamp_rounding_s": _MOMENT if found[2] else 1.0}


def _wrapped(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    return _columns(match[0]) or None


def _argument(name: str, value: str) -> str:
    """A line of the table of arguments that is printed at the start; GPT-NeoX says behind the value where it is from, and
    Docker's log driver, which keeps each line as a JSON object, from where and when it was printed."""
    return rf"^{_KEPT}[^\n]{{0,40}}? {name} \.* {value}(?:\.{{3,}}(?:updated|default))?{_IN_JSON}$"


def _mind_contradictions(values: dict[str, Value]) -> None:
    """Take no number of ranks beside which another is told of, as where one process simulates many."""
    for column, name in (("world_size", "world_size"), ("tensor_parallel", "tp")):
        said = {int(key.split()[-1]) for key in values if key.startswith(f"{_ALSO_SAID} {name} ")}
        known = values.get(column)
        if isinstance(known, int) and said - {known}:
            del values[column]
            every = " and ".join(map(str, sorted({known, *said})))
            leave_empty(values, f"ambiguous {column}: {every} are printed, and nothing says which one it ran with")


def _finish(values: dict[str, Value]) -> None:
    _mind_contradictions(values)
    if values.pop(ASSUMED, None):  # Megatron's ranks may share layers, which its arguments tell: here they are missing
        del values["world_size"]
        leave_empty(
            values, "world size: DeepSpeed's is that of data parallelism, and Megatron's arguments are not in the log"
        )
    elif "world_size" not in values:
        values.setdefault("divided", "megatron")  # as long as its arguments do not say how many ranks there are
    for precision in ("bf16", "fp16"):
        if values.get(precision) == "True":
            values.setdefault("precision", precision)
    if "precision" in values:
        values["precision"] = str(values["precision"]).replace("bfloat", "bf").replace("float", "fp")
    if values.get(UNEQUAL):
        leave_empty(values, f"tokens/s: {values[UNEQUAL]}")
    if "tflops_by" in values and not _counts_the_model(values):
        why = "TFLOP/s: the log does not say that they are the model's alone, without activations that are made again"
        leave_empty(values, why, "model_tflops_per_gpu")


def _counts_the_model(values: Mapping[str, Value]) -> bool:
    """Whether the arguments say that nothing is computed twice. GPT-NeoX's older releases estimate attention too high.

    What stands behind a name is taken whole, with what another process wrote into the line: that is no `None`.
    """
    by_checkpoint, by_granularity, by_method = (values.get(name) for name in _RECOMPUTES)
    if values["tflops_by"] == "GPT-NeoX" or by_checkpoint is None or (by_granularity is None and by_method is not None):
        return False
    said = (by_checkpoint, by_granularity, by_method)
    return all(_IS_OFF.fullmatch(str(value)) for value in said if value is not None)


FORMAT = LineFormat(
    name="megatron",
    hints=(
        b"iteration ",
        b"iteration=",
        b"validation loss at ",
        b"validation results at ",
        b"using world size: ",
        b"tokens per GPU (tokens/s/GPU)",
        b"tokens/s/GPU inst/harmonic mean",
    ),
    confirm=re.compile(
        rb"\biteration[ =]+\d+/ *\d+ \||validation (?:loss|results) at [^\n|]{1,80}\| |using world size: \d+[, ][^\n]{0,200}?parallel size"
        rb"|^[^\n|]{0,20}(?:tokens|throughput|compute) per GPU \([\w/]+\): \d|tokens/s/GPU inst/harmonic mean: ",
        re.MULTILINE,
    ),
    precedence=50,
    bulk=rule(
        Kind.STEP,
        r"iteration +<step>/ *<total_steps> \|(?: consumed samples: +<consumed_samples> \|)? elapsed time per iteration \(ms\): <step_time_ms> \|"
        r"(?: throughput per GPU \(TFLOP/s/GPU\): <model_tflops_per_gpu> \|)? learning rate: [^|\n]+\|"
        r" global batch size: +<global_batch_size> \|(?: lm loss: <loss> \|)?"
        r"(?: (?:\w+_loss|loss scale|num zeros|params norm|number of skipped iterations): [^|\n]+\|"
        r"| grad norm: +[-+.\dE]+ \|| number of nan iterations: +0 \|)*[ \t]*$",
        literal=" | elapsed time per iteration (ms): ",
    ),
    packed=True,
    first_goes_on=True,
    one_loss=True,
    rules=(
        rule(Kind.START, r"-{8} arguments -{8}", literal="-- arguments --"),
        rule(
            Kind.STEP,
            r"(?:(?P<before>^ ?samples/sec: [\d.]+ \|)"
            r"|^Step Time : [\d.]+s GPU utilization: (?P<tflops>[\d.]+) ?(?:MODEL_)?TFLOP/s/GPU\n[^\n|]{0,80}?)?"
            r"(?:^|[ \]|]|(?<!\w)-)iteration[ =]+(?P<number>\d+)/ *(?P<all>\d+) \|(?P<pairs>[^\n]*)",
            _iteration,
            literal="iteration",
        ),
        rule(Kind.RUN, r"^Step Time : [\d.]+s GPU utilization: ", literal="GPU utilization: "),
        rule(
            Kind.MORE,
            r"^(?:[a-z ]{0,40}: *[-+.\dE]+ \| )?[^\n|=:]{0,24}?(?:learning rate|lm loss|loss scale|global batch size|grad norm|elapsed time per iteration"
            r"|throughput per GPU|compute per GPU|tokens per GPU|tokens/s/GPU)[^\n|:]{0,40}: [^\n]*",
            _wrapped,
            literal=": ",
        ),
        rule(
            Kind.RUN,
            r"memory \(MB\) \| allocated: [\d.]+ \| max allocated: <peak_allocated_mib>"
            r"(?: \| reserved: [\d.]+ \| max reserved: <peak_reserved_mib>)?",
            literal="memory (MB) | allocated: ",
        ),
        rule(
            Kind.RUN,
            r"validation (?:loss|results) at (?:(?!on test set|for test data)[^\n|]){1,80}\| lm[ _]loss value: <eval_loss> \| lm[ _]loss(?: PPL|_ppl value): <perplexity>",
            literal="loss value: ",
            pauses=True,
        ),
        rule(
            Kind.RUN,
            r"(?P<evaluates>validation) (?:loss|results) at [^\n|]{0,60}(?:on test set|for test data)",
            literal="validation ",
            pauses=True,
        ),
        # Older versions time what lies between two lines, saving included.
        rule(
            Kind.RUN,
            r"saving checkpoint at iteration +\d+|successfully saved checkpoint at iteration +\d+",
            literal=" checkpoint at iteration ",
            pauses=True,
        ),
        rule(Kind.SETUP, r"using world size: <world_size>", literal="using world size: "),
        rule(Kind.SETUP, _argument("world_size", "<world_size>"), literal=" world_size .."),
        rule(
            Kind.RUN,
            r"^[ \t]*(?:fake_)?(world_size|tp)(?:_size)?(?: ?[=:] ?| \.{2,} )(\d{1,9})[ \t]*$",
            lambda match: {f"{_ALSO_SAID} {match[1].decode()} {int(match[2])}": True},
            literal="_size",
        ),
        rule(Kind.SETUP, r"tensor-model-parallel size: <tensor_parallel>", literal="tensor-model-parallel size: "),
        # Megatron-Core before 0.13 writes no blank between this name and the word before it.
        rule(
            Kind.SETUP,
            r"hierarchical context-parallel sizes: Nonetensor-model-parallel size: <tensor_parallel>",
            literal="sizes: Nonetensor-model-parallel size: ",
        ),
        rule(
            Kind.SETUP,
            _argument("tensor_model_parallel_size", "<tensor_parallel>"),
            literal=" tensor_model_parallel_size ..",
        ),
        rule(Kind.SETUP, _argument("micro_batch_size", "<micro_batch_size>"), literal=" micro_batch_size .."),
        rule(
            Kind.RUN,
            r"(?:^|[ .])variable_seq_lengths \.{2,} True",
            lambda _: {UNEQUAL: "variable_seq_lengths is on, so samples are of different lengths"},
            literal="variable_seq_lengths ..",
        ),
        rule(
            Kind.RUN,
            r"(?:^|[ .])decoder_seq_length \.{2,} \d",
            lambda _: {UNEQUAL: "a sample has a length for the encoder and one for the decoder"},
            literal="decoder_seq_length ..",
        ),
        rule(Kind.SETUP, _argument("global_batch_size", "<global_batch_size>"), literal=" global_batch_size .."),
        rule(Kind.SETUP, _argument("seq_length", "<sequence_length>"), literal=" seq_length .."),
        rule(Kind.SETUP, _argument("global_num_gpus", "<world_size>"), literal=" global_num_gpus .."),
        rule(Kind.SETUP, _argument("train_batch_size", "<global_batch_size>"), literal=" train_batch_size .."),
        rule(
            Kind.SETUP,
            _argument("train_micro_batch_size_per_gpu", "<micro_batch_size>"),
            literal=" train_micro_batch_size_per_gpu ",
        ),
        rule(
            Kind.SETUP,
            _argument("gradient_accumulation_steps", "<gradient_accumulation_steps>"),
            literal=" gradient_accumulation_steps ..",
        ),
        rule(Kind.SETUP, _argument("precision", r"(?P<precision>(?:bf|b?float|fp)\d+)"), literal=" precision .."),
        rule(Kind.SETUP, _argument("fp16", r"(?P<fp16>\w+)"), literal=" fp16 .."),
        rule(Kind.SETUP, _argument("bf16", r"(?P<bf16>\w+)"), literal=" bf16 .."),
        *(
            rule(Kind.SETUP, rf"(?:^|[ .]){name} \.{{2,}} (?P<{name}>[^\n\\]{{1,200}})", literal=f"{name} ..")
            for name in _RECOMPUTES
        ),
        rule(Kind.RUN, r"^(?P<trains>training) \.\.\.$", literal="training ..."),
        rule(Kind.RUN, r"\[before the start of (?P<trains>training) step\]", literal="[before the start of training"),
        rule(Kind.END, r"\[after training is done\]", literal="[after training is done]"),
        rule(Kind.END, r"\[exiting program at iteration \d+\]", literal="[exiting program at iteration "),
    ),
    finish=_finish,
)
