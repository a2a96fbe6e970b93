"""Answering queries on this rank, from the plan to the result: puts the parts together."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist

from hpc_llm.corpus.facts import read_facts
from hpc_llm.corpus.key import BYTES
from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.synthetic import DESCRIPTION
from hpc_llm.records.files import new_file
from hpc_llm.records.run import Outcome
from hpc_llm.worker import device as devices
from hpc_llm.worker.answers import AnsweredBatch, AnsweredQuery, Answers
from hpc_llm.worker.data.share import share_of
from hpc_llm.worker.engines.engine import join_torch
from hpc_llm.worker.generating.choosing import Choice, draws
from hpc_llm.worker.generating.decoder import Decoder
from hpc_llm.worker.generating.outputs import Output, write_outputs
from hpc_llm.worker.generating.queries import Query, QueryBatch, batches, queries_of, warmup_batches
from hpc_llm.worker.measure import telemetry
from hpc_llm.worker.measure.window import Window
from hpc_llm.worker.model.build import load_model
from hpc_llm.worker.model.prepare import count_parameters, parameter_types, stop_dropout
from hpc_llm.worker.preparing.encoding import BYTE_END
from hpc_llm.worker.ranks import apply, device_index
from hpc_llm.worker.result import Record, build_result


def train(record: Record) -> None:
    """Answer the queries of the plan of `record` and, on rank 0, write result.json. Errors are the caller's to report."""
    device = prepare_device(record)
    if record.ranks.world_size > 1:
        join_torch(device)
    model = _model(record, device)
    outputs = _answer(record, model, device)
    if record.ranks.rank == 0:
        if record.plan.inference.keep_outputs:
            write_outputs(record.paths.outputs, outputs, record.plan)
        result = build_result(record, Outcome.COMPLETED, None)
        record.write(record.paths.result, result)
        _print_summary(result)
    if dist.is_initialized():
        dist.destroy_process_group()


def prepare_device(record: Record) -> torch.device:
    """Choose the device and tell every library about it through the environment."""
    record.versions = devices.versions()
    gpus = devices.visible_gpus(record.plan.parallel.gpus_per_node)
    device = devices.choose_device(device_index(record.ranks, gpus) if gpus else 0, gpus)
    record.hardware = devices.hardware(device)
    apply(record.ranks, os.environ, gpus)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nodes often have no way out, and nothing is to be downloaded
    return device


def _model(record: Record, device: torch.device) -> Any:
    plan = record.plan
    record.engine = "plain"
    record.adaptations += devices.emulated_bf16(plan.model.precision, device)
    torch.manual_seed(plan.workload.seed)
    try:
        model = load_model(plan, {}, device)
    except ImportError as error:
        raise WorkerError(f"the plan's model needs a package that is missing here: {error}.") from error
    if (
        plan.model.quantization is None
    ):  # those that are quantized are made where they belong, and transformers moves none
        model.to(device)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    stop_dropout(model)
    record.num_parameters, record.trainable_parameters = count_parameters(model)[0], 0
    record.parameter_types = parameter_types(model)
    return model


def _answer(record: Record, model: Any, device: torch.device) -> list[Output]:
    """Answer the warm-up and then all queries of this rank; what was generated for the queries of all ranks, on rank 0."""
    plan, ranks = record.plan, record.ranks
    queries = queries_of(plan, model.config.vocab_size, share_of(plan, ranks))
    decoder = _decoder(plan, model)
    window = Window(device)
    answers = record.answers = Answers(window=window)
    if ranks.rank == 0:
        print(f"{record.program}: {_starting_point(plan)}", flush=True)
    size, warmup = plan.batch.micro_batch_size, plan.workload.warmup_steps
    gpus = telemetry.find_gpus(device, ranks)
    outputs: list[Output] = []
    with ExitStack() as stack:
        stack.enter_context(telemetry.recording(record, gpus))
        log = stack.enter_context(new_file(record.paths.steps)) if ranks.rank == 0 else None
        steps = _Steps(plan, decoder, answers, log)
        if plan.engine.cuda_graph:
            first = next(batches(queries, size))
            decoder.record(first.tokens, first.real)
        answers.decoding = "cuda graph" if decoder.is_recorded else "eager"
        for batch in warmup_batches(queries, size, warmup):
            steps.take(batch)
        _together(ranks.world_size)
        window.open()
        for batch in batches(queries, size):
            found = steps.take(batch)
            outputs += found if plan.inference.keep_outputs else []
            window.look()
        window.close()
    record.adaptations += decoder.sentences
    return _gather(record, answers, outputs, device, gpus)


def _decoder(plan: Plan, model: Any) -> Decoder:
    work = plan.inference
    return Decoder(
        model,
        batch=plan.batch.micro_batch_size,
        size=plan.batch.sequence_length,
        new_tokens=work.new_tokens,
        choice=Choice(work.temperature, work.top_p),
        ends=_ends(plan, model) if work.stop_at_end else (),
        attention=plan.model.attention,
    )


def _ends(plan: Plan, model: Any) -> tuple[int, ...]:
    """The tokens that end an answer. Raises WorkerError where the model has none."""
    if plan.inference.corpus is not None and read_facts(Path(plan.inference.corpus)).tokenizer == BYTES:
        return (BYTE_END,)
    configs = (getattr(model, "generation_config", None), model.config)
    found = next((ids for one in configs if (ids := getattr(one, "eos_token_id", None)) is not None), None)
    if found is None:
        raise WorkerError(
            f"the configuration of {plan.model.name} names no token that ends an answer (eos_token_id): use --set stop_at_end=false, "
            "with which each answer has new_tokens tokens."
        )
    return tuple(found) if isinstance(found, (list, tuple)) else (int(found),)


class _Steps:
    """Answers one batch after the other, and notes each."""

    def __init__(self, plan: Plan, decoder: Decoder, answers: Answers, log: IO[str] | None) -> None:
        self._plan, self._decoder, self._answers, self._log = plan, decoder, answers, log

    def take(self, batch: QueryBatch) -> list[Output]:
        """Answer the batch; what came of those of its queries that count."""
        work = self._plan.inference
        drawn = torch.zeros(len(batch.tokens), work.new_tokens)
        if work.temperature > 0:
            for row, query in enumerate(batch.queries):
                drawn[row] = draws(work.seed, query.number, work.new_tokens)
        found = self._decoder.answer(batch.tokens, batch.real, drawn)
        number = self._answers.steps_done + 1
        queries = tuple(
            AnsweredQuery(one.number, len(one.tokens), count, found.times[0], found.times[count - 1])
            for one, count in zip(batch.queries, found.counts, strict=False)
        )
        step = AnsweredBatch(number, number <= work.warmup_steps, found.times[-1], found.times[0], queries)
        with self._answers.held:
            self._answers.batches.append(step)
            self._write(step)
        return [_output(*each) for each in zip(batch.queries, found.tokens.tolist(), found.counts, strict=False)]

    def _write(self, step: AnsweredBatch) -> None:
        if self._log is None:
            return
        row = {
            "step": step.number,
            "step_time_s": step.time_s,
            "time_to_first_token_s": step.first_token_s,
            "prompt_tokens": step.prompt_tokens,
            "generated_tokens": step.generated_tokens,
            "queries": len(step.queries),
            "peak_allocated_bytes": devices.peak_allocated_bytes(self._decoder.device),
            "warmup": step.warmup,
            "time": time.time(),
        }
        self._log.write(json.dumps(row, allow_nan=False) + "\n")
        self._log.flush()
        print(
            f"[Batch {step.number}/{self._plan.workload.steps}] {len(step.queries)} queries in {step.time_s:.4f} s | first token after "
            f"{step.first_token_s:.4f} s | {step.prompt_tokens} prompt tokens, {step.generated_tokens} generated",
            flush=True,
        )


def _output(query: Query, generated: list[int], count: int) -> Output:
    return Output(query.number, query.tokens.tolist(), generated[:count])


def _together(world_size: int) -> None:
    """Begin to measure at one time on all ranks."""
    if world_size > 1:
        dist.barrier()


def _gather(
    record: Record, answers: Answers, outputs: list[Output], device: torch.device, gpus: telemetry.Gpus
) -> list[Output]:
    """Put together what all ranks found. Collective."""
    world_size, window = record.ranks.world_size, answers.window
    mine: Any = (answers.measured, window.elapsed_s, outputs)
    everyones: list[Any] = [mine] * world_size
    if world_size > 1:
        dist.all_gather_object(everyones, mine)
    answers.everyones = [batch for measured, _, _ in everyones for batch in measured]
    answers.longest_s = max(seconds for _, seconds, _ in everyones)
    record.peaks = window.peaks(world_size)
    record.gpu_means = telemetry.means(record, gpus, device)
    return list(_all_of(everyones))


def _all_of(everyones: list[Any]) -> Iterator[Output]:
    for _, _, outputs in everyones:
        yield from outputs


def _starting_point(plan: Plan) -> str:
    """Which weights answer which queries, in words."""
    of = "random weights in the shape of" if plan.model.weights == "random" else "weights of"
    what = (
        f"the {plan.inference.split} split of {', '.join(plan.inference.data)}" if plan.inference.data else DESCRIPTION
    )
    return f"{of} {plan.model.name} answer {plan.inference.queries} queries, {what}"


def _print_summary(result: dict[str, Any]) -> None:
    def shown(name: str) -> str:
        value = result[name]
        return "n/a" if value is None else f"{value:.4f}"

    print(
        f"Answered {result['total_queries']} queries in {shown('total_time_s')} s after {result['warmup_steps']} batches of warm-up."
    )
    print(
        f"Latency (s): mean {shown('latency_s_mean')}, p50 {shown('latency_s_p50')}, p90 {shown('latency_s_p90')}, p99 {shown('latency_s_p99')}"
    )
    print(
        f"Time to first token (s): p50 {shown('time_to_first_token_s_p50')}; per token behind it: mean {shown('time_per_output_token_s_mean')}"
    )
    print(
        f"Tokens/s: {shown('prompt_tokens_per_second')} of prompts and {shown('generated_tokens_per_second')} generated, together "
        f"{shown('prompt_and_generated_tokens_per_second')}",
        flush=True,
    )
