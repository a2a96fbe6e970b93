"""Hugging Face Trainer: dictionaries, progress bars and the summaries of the example scripts.

A log dictionary prints the epoch and mostly no step, so the order of the lines is that of their epochs. transformers 5 quotes the
values. The speed that the Trainer prints is over the whole of `train_runtime`, with warm-up, evaluations and checkpoints: where
one of these shows in the log, the time of a step is taken from the lines between them. Both may stand in the log lines
of training, too, as of then. `train_tokens_per_second` counts the tokens of one device in the summary, and in the lines those of
all; the tokens that were seen tell which, and where they are not printed, the lines' are not taken.

LLaMA-Factory writes a line of its own above the Trainer's, with the tokens per second of all devices since the start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpc_llm.parsing import commas, trainer_steps
from hpc_llm.parsing.clock import ENOUGH, seconds
from hpc_llm.parsing.losses import TOLD_EPOCH
from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import (
    BEGINS,
    EVALUATES,
    FIRST_BAR,
    PAUSES,
    Kind,
    Value,
    column_of,
    leave_empty,
    number,
    rule,
)
from hpc_llm.parsing.trainer_rates import DATA_PARALLEL, ONE_PROCESS, SHARES, rates
from hpc_llm.parsing.trainer_steps import Bar

_PAIR = re.compile(rb"'([^'\n]{1,60})': (?:'([^'\n]*)'|([^,}'\n]+(?:,\d[^,}'\n]*)*))")
"""Behind the comma between two pairs stands a blank, or a quote: with a digit behind it, it is one within a number."""

_NAMES = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "epoch": "order",
    "step": "step",
    "global_step/max_steps": "step",
    "eval_loss": "eval_loss",
    "eval_ppl": "perplexity",
    "eval_pplx": "perplexity",
    "eval_perplexity": "perplexity",
    "perplexity": "perplexity",
    "train_runtime": "elapsed_s",
    "train_steps_per_second": "steps_per_second",
    "train_tokens_per_second": "trainer_rate",
    "num_input_tokens_seen": "tokens_seen",
    "throughput": "mean_tokens_per_second",
    "tokens_per_second_per_gpu": "tokens_per_second_per_gpu",
    "tokens/train_per_sec_per_gpu": "tokens_per_second_per_gpu",
    "memory/max_mem_allocated(gib)": "peak_allocated_gib",
    "memory/max_allocated (GiB)": "peak_allocated_gib",
    "max_memory_allocated (GB)": "peak_allocated_gib",
    "memory/device_mem_reserved(gib)": "peak_reserved_gib",
    "memory/device_reserved (GiB)": "peak_reserved_gib",
}
"""Keys of the Trainer and of programs that build on it -> column and unit."""

_COLUMNS = {
    key.encode(): (column, convert or number)
    for key, (column, convert) in zip(_NAMES, map(column_of, _NAMES.values()), strict=True)
}
_STEP_OF_ALL = b"global_step/max_steps"


def _columns(match: re.Match[bytes]) -> Mapping[str, Value]:
    """The known keys of a dictionary."""
    found: dict[str, Value] = {}
    for key, quoted, plain in _PAIR.findall(match[0]):
        column = _COLUMNS.get(key)
        if column is None:
            continue
        name, convert = column
        text = (quoted or plain).strip().removeprefix(b"tensor(").removesuffix(b")")
        if key == _STEP_OF_ALL:
            text = text.split(b"/")[0]
        found |= commas.read(name, convert(text), text)
    return found


def _evaluation(match: re.Match[bytes]) -> Mapping[str, Value]:
    return {**_columns(match), EVALUATES: 1}


# LLaMA-Factory's line and the Trainer's below it are of one step.
_TWICE = r"(?:[^{}\n]*'throughput': [\d.]+\}\s*\{'loss': )?"
_SO_FAR = {"elapsed_s": "so_far_s", "trainer_rate": "line_rate", "tokens_seen": "tokens_so_far"}
"""What the Trainer counts since the start -> its name in a line of training: it is no figure of the whole, nor of a step."""

# tqdm clears its bar, the line is written, and the bar is drawn again below with the step that was logged.
_REDRAWN = r"(?:\s+\d+%(?:\|[^|\n]*\|)? *([1-9]\d*)/([1-9]\d*) \[([\d:]+)<)?"
_OF_A_BAR_S = 1.0
"""How much the clock of a bar may be off."""


def _step(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """A log line of training, with the step's number where the bar below shows it; few programs print it themselves."""
    if not trainer_steps.is_of_a_step(match[0]):
        return None
    found = dict(_columns(match))
    if "step" in found and (epoch := found.pop("order", None)) is not None:
        found |= {TOLD_EPOCH: epoch} if b"'step': " in match[0] else {}
    found = {_SO_FAR.get(name, name): value for name, value in found.items()}
    bar = seconds(match[3].decode()) if match[3] is not None else None
    if match[1] is not None and found.get("step", int(match[1])) != int(match[1]):
        bar = None
    elif match[1] is not None and "step" not in found:
        found["step"], found["bar_total"] = int(match[1]), int(match[2])
        found |= {"clock_epoch": found["order"]} if "order" in found else {}
    if "step" in found and ("so_far_s" in found or bar is not None):
        time = found.get("so_far_s", bar)
        found["clock_step"], found["clock_s"] = found["step"], float(str(time))
        found["clock_rounding_s"] = 0.0 if "so_far_s" in found else _OF_A_BAR_S
        if "so_far_s" in found and "tokens_so_far" in found:
            found["clock_tokens"] = found["tokens_so_far"]
    return found


def _bar(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """Where a progress bar stands, kept by its length: training's own bar is told apart at the end."""
    elapsed = seconds(match[3].decode())
    return None if elapsed is None else {f"bar {int(match[2])}": f"{int(match[1])} {elapsed}"}


_OF_THE_BAR = ("step", "bar_total", "clock_step", "clock_s", "clock_rounding_s", "clock_epoch")


_SAVES = (
    "Saving model checkpoint: ",
    "[Torch] Saving ",
    "Checkpoint destination directory ",
    "Deleting older checkpoint [",
    "Model weights saved in ",
    "Removed shared tensor",
    "will assume that the vocabulary was not modified",
)
"""What is said while a checkpoint is written, or of the model that is made ready before training."""


def _aside(match: re.Match[bytes]) -> Mapping[str, Value]:
    """A line of what may take place within training, or before it."""
    return {PAUSES: True}


_OTHER_CALL = "time_of_another_call"


def _place(values: Mapping[str, Value], known: Mapping[str, Value], has_steps: bool) -> Mapping[str, Value]:
    """The bar is drawn once more below the summary; one that begins anew there is the next run's. Below a line of training
    may stand the bar of an evaluation, which says nothing of it."""
    if PAUSES in values:
        return values if has_steps or any(name[:4] in ("bar ", "begu") for name in known) else {}
    if not has_steps and trainer_steps.is_of_another_call(values.get("elapsed_s"), known.get("elapsed_s")):
        values = {**values, _OTHER_CALL: values["elapsed_s"]}
    if "bar_total" in values and known.get("total_steps", values["bar_total"]) != values["bar_total"]:
        return {name: value for name, value in values.items() if name not in _OF_THE_BAR}
    if any(name[:5] in ("begun", "at_0 ") and _is_anew(int(name.split()[1]), known, has_steps) for name in values):
        return {**values, BEGINS: True}
    if "elapsed_s" not in known or not any(name[:4] in ("bar ", "begu") for name in values):
        return values
    is_next = "next_bar" in known or any(_done_of(known.get(name)) > _done_of(bar) for name, bar in values.items())
    return {"next_bar": True} if is_next else values


def _is_anew(total: int, known: Mapping[str, Value], has_steps: bool) -> bool:
    """Whether a bar of so many steps that begins is training's own, which had gone on before: another training, or attempt."""
    own = _training_bar(known)
    return (
        own is not None
        and own.total == total
        and own.done > 1
        and (has_steps or "elapsed_s" in known or BEGINS in known)
    )


def _done_of(bar: Value | None) -> int:
    return int(bar.split()[0]) if isinstance(bar, str) else 0


def _bar_begins(match: re.Match[bytes]) -> Mapping[str, Value]:
    """Where a bar began: one that shows its first step began at 0, and one without a pace where it stands, unless that is 0: it may
    be moved on to where an earlier call ended."""
    if match[4] is not None:
        return {f"at_0 {int(match[4])}": True, FIRST_BAR: True}
    if match[1] is not None:
        return {f"begun {int(match[1])}": 0, FIRST_BAR: True}
    return {f"begun {int(match[3])}": int(match[2]), FIRST_BAR: True}


def _summary(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """A line of the table that `log_metrics` prints."""
    name, text = match[1].decode(), match[2].decode().strip()
    value = seconds(text) if ":" in text else number(match[2])
    return {_NAMES[name]: value} if name in _NAMES and value is not None else None


def _finish(values: dict[str, Value]) -> None:
    """Steps and their mean time: from lines between which nothing else took place, else from the end of training, else from
    training's own bar.
    """
    bar = _training_bar(values)
    if _OTHER_CALL in values:
        what = "elapsed, step time and evaluation" if "eval_loss" in values else "elapsed and step time"
        why = f"{what}: several trainings end here, one of {values['elapsed_s']} s and one of {values[_OTHER_CALL]} s"
        leave_empty(values, why, "elapsed_s eval_loss perplexity")
        return
    if bar is not None:
        values.setdefault("total_steps", bar.total)
        values["bar_step"] = bar.done
        trainer_steps.mind_pauses(values, bar)
    steps, times = trainer_steps.of_the_run(values, bar), values.get("elapsed_s")
    values["is_resumed"], values["is_partial"] = steps.resumed, steps.resumed or steps.early
    rates(values)
    runtime = float(times) if isinstance(times, (int, float)) and times > 0 else None
    if "so_far_s" in values:
        values.setdefault("elapsed_s", values["so_far_s"])
    timed_otherwise = _is_timed_otherwise(values)
    if runtime is None and (bar is None or timed_otherwise):
        return
    if runtime is None and bar is not None and bar.time_s < ENOUGH * _OF_A_BAR_S:
        if not _take_timed(values):
            leave_empty(values, f"step time: the bar of training tells whole seconds, and {bar.time_s:g} are too few")
        return
    time, done = (runtime, steps.done) if runtime is not None or bar is None else (bar.time_s, steps.by_bar(bar))
    if done == 1 and time:
        leave_empty(values, "step time: it is that of the first step alone, which is a warm-up")
    elif done and time:
        if isinstance(done, int):
            # Where the lines were timed, those of the first are not among them.
            if values.setdefault("measured_steps", done) == done:
                values["warmup_steps"] = 0
        else:
            said = "number of steps: a rounded rate alone says it"
            leave_empty(values, said, "" if timed_otherwise else "measured_steps warmup_steps")
        if not timed_otherwise:
            values.setdefault("step_time_s_mean", time / done)
    elif not timed_otherwise and not _take_timed(values):
        leave_empty(values, "step time: the log does not say how many steps the printed time holds")


def _training_bar(values: Mapping[str, Value]) -> Bar | None:
    """Training's own bar: of as many steps as training has where that is known, else the one that ran longest. Where no time of training
    is printed, with that of its last step."""
    states = {int(name[4:]): str(value).split() for name, value in values.items() if name[:4] == "bar "}
    for total in states if "elapsed_s" not in values else ():
        done, time = str(values.get(f"reached {total}", "- -")).split()
        states[total][1] = time if done == states[total][0] else states[total][1]
    bars = [Bar(float(time), int(done), total) for total, (done, time) in states.items()]
    own = [bar for bar in bars if bar.total == values.get("total_steps")]
    return max(own or (bars if "total_steps" not in values else ()), default=None)


def _is_timed_otherwise(values: dict[str, Value]) -> bool:
    """Whether the time since the start over the steps is no step time, or something better is known."""
    if "mean_samples_per_second" in values and "global_batch_size" in values:
        return True  # DeepSpeed's own mean is of the steps alone
    if not values.get("was_paused"):
        return False
    is_timed = _take_timed(values)
    if not is_timed and ("elapsed_s" in values or any(name[:4] == "bar " for name in values)):
        leave_empty(values, "step time: the Trainer also evaluated or saved in the time that it prints")
    return True


def _take_timed(values: dict[str, Value]) -> bool:
    """Take what lies between lines that print the time, if enough does."""
    timed, steps = values.get("timed_step_time_s"), values.get("timed_steps")
    if not isinstance(timed, float) or not isinstance(steps, int):
        return False
    values.setdefault("step_time_s_mean", timed)
    values["measured_steps"] = steps
    return True


FORMAT = LineFormat(
    name="hf-trainer",
    hints=(
        b"{'loss': ",
        b"{'train_runtime': ",
        b"{'eval_loss': ",
        b"{'eval_runtime': ",
        b"***** train metrics *****",
        b"***** eval metrics *****",
        b"***** predict metrics *****",
        b" train_samples_per_second = ",
        b"[INFO|trainer.py:",
    ),
    precedence=40,
    averages=False,
    one_loss=True,
    rules=(
        rule(
            Kind.START,
            r"\*\*\*\*\* (?P<trains>Running training) \*\*\*\*\*(?:\n[^\n=]{0,120} Num examples = <num_examples>)?",
            literal="***** Running training *****",
        ),
        rule(Kind.RUN, r"\b[tcs]p_size['\"]?[ =:]{1,3}(?!1\b)[1-9]\d{0,4}\b", lambda _: {SHARES: 1}, literal="p_size"),
        rule(
            Kind.SETUP,
            r"Process rank: -?\d+, device: \S{1,20}, +n_gpu: (?![01]\b)(\d{1,3}), +distributed training: False",
            lambda match: {ONE_PROCESS: int(match[1])},
            literal="Process rank: ",
        ),
        *(
            rule(Kind.RUN, re.escape(words), lambda _: {DATA_PARALLEL: 1}, literal=words)
            for words in (
                "Training with DataParallel so batch size has been adjusted to: ",
                "Was asked to gather along dimension 0, but all input tensors were scalars",
            )
        ),
        rule(Kind.RUN, r" Num update steps per epoch = <steps_per_epoch>", literal=" Num update steps per epoch = "),
        rule(Kind.STEP, r"\{'loss': " + _TWICE + r"[^{}\n]*\}" + _REDRAWN, _step, literal="{'loss': "),
        rule(Kind.RUN, r"\{'eval_[^{}\n]*\}", _evaluation, literal="{'eval_", pauses=True),
        rule(
            Kind.RUN,
            r"\*\*\*\*\* Running (?:(?P<evaluates>[Ee]valuation)|(?P<predicts>Prediction)) \*\*\*\*\*|Saving model checkpoint to \S",
            literal="ing ",
            pauses=True,
        ),
        *(rule(Kind.RUN, re.escape(words), _aside, literal=words) for words in _SAVES),
        rule(
            Kind.RUN,
            r"^[^\n%|{}]{0,60}(?i:\b(?:writ|sav|evaluat|validat|predict)(?:ing|ion)\b)[^\n%|{}]{0,60}: +\d{1,3}%\|",
            _aside,
            literal="%|",
        ),
        rule(
            Kind.RUN,
            r"\*\*\*\*\* (?:(?P<predicts>predict)|(?P<evaluates>eval)) metrics \*\*\*\*\*",
            literal=" metrics *****",
        ),
        rule(Kind.END, r"\{'train_runtime': [^{}\n]*\}", _columns, literal="{'train_runtime': "),
        rule(Kind.END, r"\*\*\*\*\* train metrics \*\*\*\*\*", literal="***** train metrics *****"),
        rule(
            Kind.RUN,
            r"^ *\d+%(?:\|[^|\n]*\|)? *(\d+)/([1-9]\d*) \[([\d:]+)<[^\]\n]{0,40}(?:it/s|s/it|\?it)[^\]\n]{0,200}\]",
            _bar,
            literal="%",
            identity=r"/[1-9]\d* \[(?=\d)",
        ),
        rule(
            Kind.RUN,
            r"^ *\d+%(?:\|[^|\n]*\|)? *(?:1/([1-9]\d*) \[[\d:]+<(?!\?)|([1-9]\d*)/([1-9]\d*) \[00:00<\?|0/([1-9]\d*) \[00:00<\?)",
            _bar_begins,
            literal="%",
        ),
        rule(
            Kind.RUN,
            r"^(?:\[INFO\|[^\n]*>>)? +((?:train|eval)_\w+|perplexity) +=[ ]+([\d.:]+)$",
            _summary,
            literal=" = ",
        ),
        rule(Kind.RUN, r"Final perplexity: <perplexity>", literal="Final perplexity: "),
        rule(
            Kind.RUN,
            r"(?:Continuing training from|Resuming training from checkpoint with epoch \d+ and) global step <resumed_at>$",
            literal="ing training from ",
        ),
        rule(Kind.RUN, r"\bTrainOutput\(global_step=<ended_at_step>,", literal="TrainOutput(global_step="),
        rule(Kind.RUN, r"Total optimization steps = <total_steps>", literal="Total optimization steps = "),
        rule(
            Kind.RUN,
            r"Instantaneous batch size per device = <micro_batch_size>",
            literal="Instantaneous batch size per device = ",
        ),
        rule(Kind.RUN, r"Total train batch size [^\n=]*= <global_batch_size>", literal="Total train batch size "),
        rule(
            Kind.RUN,
            r"Gradient Accumulation steps = <gradient_accumulation_steps>",
            literal="Gradient Accumulation steps = ",
        ),
    ),
    bulk=rule(
        Kind.STEP,
        r"\{'loss': '?<loss>'?, 'grad_norm': '?<grad_norm>'?, 'learning_rate': '?<learning_rate>'?, 'epoch': '?<order>'?\}",
        literal="{'loss': ",
    ),
    place=_place,
    finish=_finish,
)
