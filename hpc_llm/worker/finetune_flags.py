"""The command line of `finetune_llm`: a run folder, or the flags of the LZU project's programs of fine-tuning.

Its scripts start `baseline_finetune.py --model_path DIR …`, which trains all weights, or `finetune.py --model_name DIR --use_lora …`
(`finetune_zero2.py`, `finetune_zero3.py` with `--deepspeed_config FILE`); the same lines work here. What is measured goes to a run folder
in the output folder, and as its `baseline_finetune_metrics.json` beside the run's own records.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hpc_llm.corpus.facts import CorpusFacts
from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.corpus.sets import KNOWN_SETS
from hpc_llm.corpus.sources import full_source, refuse_without_training
from hpc_llm.corpus.words import CAUSAL
from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.records.run import RunPaths
from hpc_llm.text.secrecy import refuse_secrets
from hpc_llm.worker import started_by_flags
from hpc_llm.worker.data_of_flags import in_words_of_flags, prepared, source_of
from hpc_llm.worker.finetune_plan import Base, Stepping, base_of, deepspeed_stepping, make_plan, plain_stepping
from hpc_llm.worker.ranks import Ranks
from hpc_llm.worker.request import RunRequest, add_run_folder, folder_or, refuse_used_folder
from hpc_llm.worker.result import Record
from hpc_llm.worker.started_by_flags import check_model, in_gib, parallel_of, told, write_experiment

RATE, FULL_RATE = 2e-4, 2e-5
"""Learning rate where nobody says one; the second with --model_path."""


def parse_arguments(argv: Sequence[str], program: str = "finetune_llm") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Fine-tune a language model and measure it.",
        epilog="Either --run-dir alone, with the plan in its experiment.json, or the flags of the LZU project's programs.",
        allow_abbrev=False,
    )
    add_run_folder(parser)
    parser.add_argument("--model_name", metavar="DIR", help="folder of the model, or a preset")
    parser.add_argument("--model_path", metavar="DIR", help="the same, all of whose weights are trained")
    parser.add_argument("--dataset_name", default="wikitext", help="wikitext, NAME=DIR, or a file of text or JSONL")
    parser.add_argument("--dataset_config", default="wikitext-2-raw-v1")
    parser.add_argument("--output_dir", type=Path, default=Path("output"))
    parser.add_argument("--num_epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=4, help="sequences per rank and forward pass")
    parser.add_argument("--learning_rate", type=float, help="default 2e-4, with --model_path 2e-5")
    parser.add_argument("--max_length", type=int, default=512, help="tokens to which each sample is cut or padded")
    parser.add_argument("--use_lora", action="store_true", help="adapters on the attention's layers")
    parser.add_argument("--use_qlora", action="store_true", help="the same on weights in NF4 with double quantization")
    parser.add_argument("--lora_r", type=int, default=8, help="rank of the adapters")
    parser.add_argument("--lora_alpha", type=int, default=16)
    parser.add_argument("--num_samples", type=int, default=4000, help="most samples that are trained on")
    parser.add_argument("--device", default="cuda", help="cpu, or else the GPU where there is one")
    parser.add_argument("--gradient_checkpointing", action="store_true", help="recompute activations")
    parser.add_argument("--deepspeed_config", type=Path, metavar="FILE", help="DeepSpeed config as JSON")
    parser.add_argument("--local_rank", type=int, default=-1, help="accepted: the environment says which rank this is")
    arguments = parser.parse_args(argv)
    if sum(one is not None for one in (arguments.run_dir, arguments.model_name, arguments.model_path)) != 1:
        parser.error("give one of --run-dir, --model_name and --model_path, and the flags beside it")
    return arguments


def _of_flags(arguments: argparse.Namespace, ranks: Ranks) -> RunRequest:
    import torch

    _check(arguments, ranks)
    paths = RunPaths(arguments.output_dir)
    if paths.root.exists() and not paths.root.is_dir():
        raise RequestError(f"--output_dir {paths.root} is a file: give a folder.")
    refuse_used_folder(paths, os.environ, "--output_dir")
    refuse_secrets(told(arguments), "the request")
    name = arguments.model_path if arguments.model_name is None else arguments.model_name
    sentences = check_model(name)
    base = base_of(name, arguments.max_length)
    on_gpu = arguments.device != "cpu" and torch.cuda.device_count() > 0
    stepping = _stepping(arguments, base, ranks, on_gpu)
    arguments.learning_rate, arguments.device = stepping.optimizer.lr, "cuda" if on_gpu else "cpu"
    source, facts = _data(arguments, ranks, base)
    parallel = parallel_of(ranks, ranks.local_world_size if on_gpu else 0)
    plan, more = make_plan(arguments, base, stepping, source, facts, parallel, ranks.launcher)
    if ranks.rank == 0:
        write_experiment(paths, plan, (*sentences, *more), arguments)
    return RunRequest(plan, paths, (*sentences, *more))


read_request = folder_or(_of_flags)


def _check(arguments: argparse.Namespace, ranks: Ranks) -> None:
    """Raise RequestError for what the flags cannot mean."""
    for name, least in (
        ("num_epochs", 1),
        ("batch_size", 1),
        ("num_samples", 1),
        ("max_length", 2),  # of one token nothing is predicted
        ("lora_r", 1),
        ("lora_alpha", 1),
    ):
        value = getattr(arguments, name)
        if value < least:
            raise RequestError(f"--{name} is {value}, it must be at least {least}.")
    rate = arguments.learning_rate
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise RequestError(f"--learning_rate is {rate}, it must be above 0.")
    if arguments.use_lora and arguments.use_qlora:
        raise RequestError(
            "--use_lora and --use_qlora exclude each other: --use_qlora alone puts adapters on quantized weights."
        )
    if arguments.model_path is not None and (arguments.use_lora or arguments.use_qlora):
        raise RequestError(
            "--model_path trains all weights: name the model with --model_name for --use_lora or --use_qlora."
        )
    if ranks.world_size != 1 and arguments.deepspeed_config is None:
        raise RequestError(
            f"{ranks.world_size} ranks: without --deepspeed_config these flags are of one process. Start it with python, or give a "
            "DeepSpeed config."
        )


def _stepping(arguments: argparse.Namespace, base: Base, ranks: Ranks, on_gpu: bool) -> Stepping:
    rate, usual = arguments.learning_rate, FULL_RATE if arguments.model_path is not None else RATE
    size = arguments.batch_size
    if arguments.deepspeed_config is None:
        adapts = arguments.use_lora or arguments.use_qlora
        return plain_stepping(adapts=adapts, rate=usual if rate is None else rate, micro_batch_size=size, on_gpu=on_gpu)
    return deepspeed_stepping(
        arguments.deepspeed_config,
        base,
        rate=rate,
        usual_rate=usual,
        micro_batch_size=size,
        world_size=ranks.world_size,
        on_gpu=on_gpu,
    )


def _data(arguments: argparse.Namespace, ranks: Ranks, base: Base) -> tuple[str, CorpusFacts]:
    """The source as records call it, and its tokens."""
    try:
        source = full_source(source_of(arguments.dataset_name, arguments.dataset_config))
        wanted = CorpusRequest(sources=(source,), model=base.name, layout=CAUSAL, train_samples=arguments.num_samples)
        facts = prepared(wanted, "finetune_llm", ranks, base.vocab_size)
        refuse_without_training([source], facts.splits)
        if source.partition("=")[0] not in KNOWN_SETS:
            arguments.dataset_config = None
    except HpcLlmError as error:
        raise in_words_of_flags(error) from None
    return source, facts


def write_metrics(record: Record) -> None:
    """Where these flags started the run, its result once more in the words of that project's file."""
    started_by_flags.write_metrics(record, record.paths.finetune_metrics, partial(_metrics, record))


def _metrics(record: Record, config: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The time is that of all steps, the warm-up's too; evaluation and saving are not in it."""
    steps = record.meter.steps if record.meter is not None else []
    total = math.fsum(step.time_s for step in steps) if steps and record.resumed is None else None
    return {
        "total_time_seconds": total,
        "time_per_epoch_seconds": None if total is None else total / config["num_epochs"],
        "num_samples": record.epoch_sequences,
        "num_epochs": config["num_epochs"],
        "batch_size": config["batch_size"],
        "learning_rate": config["learning_rate"],
        "gradient_checkpointing": record.plan.model.recompute,
        "peak_memory_gb": in_gib(found.get("peak_allocated_bytes")),
    }
