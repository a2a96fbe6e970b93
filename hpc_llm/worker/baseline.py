"""The command line of `infer_llm`: a run folder, or the flags of the LZU project's program of inference.

Its scripts start `baseline_inference.py --model_path DIR --dataset_name gsm8k --dataset_split test --num_samples 500 --batch_size 1
--output_dir DIR [--use_4bit --method_name NAME]`; the same line works here. What it measures goes to a run folder in the output folder,
and as its `baseline_inference_metrics.json` beside the run's own records.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpc_llm.corpus.facts import CorpusFacts
from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.corpus.sets import KNOWN_SETS
from hpc_llm.corpus.words import TRAIN, VALIDATION
from hpc_llm.errors import HpcLlmError, RequestError, unknown_name
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import is_checkpoint, layout_of_model
from hpc_llm.planning.parts import (
    BatchShape,
    EngineSetup,
    ExpectedGpu,
    Inference,
    ModelSetup,
    OptimizerSetup,
    Parallel,
    Quantization,
)
from hpc_llm.records.run import RunPaths, file_name_part
from hpc_llm.text.secrecy import refuse_secrets
from hpc_llm.worker import started_by_flags
from hpc_llm.worker.data_of_flags import in_words_of_flags, prepared, source_of
from hpc_llm.worker.ranks import Ranks
from hpc_llm.worker.request import RunRequest, add_run_folder, folder_or, refuse_used_folder
from hpc_llm.worker.result import Record
from hpc_llm.worker.started_by_flags import check_model, in_gib, running_job, told, write_experiment

WARMUP_STEPS = 2


def parse_arguments(argv: Sequence[str], program: str = "infer_llm") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Let a causal language model answer queries and measure it.",
        epilog="Either --run-dir alone, with the plan in its experiment.json, or the flags of the LZU project's program.",
        allow_abbrev=False,
    )
    add_run_folder(parser)
    parser.add_argument("--model_path", metavar="DIR", help="folder of the model, or a preset")
    parser.add_argument("--dataset_name", default="gsm8k", help="gsm8k, gsm8k=DIR, or a file of prompts")
    parser.add_argument("--dataset_config", default="main")
    parser.add_argument("--dataset_split", default="test")
    parser.add_argument("--num_samples", type=int, default=500, help="queries that are measured")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--max_new_tokens", type=int, default=512)
    parser.add_argument("--device", default="cuda", help="accepted: the GPU is used where there is one")
    parser.add_argument("--output_dir", type=Path, default=Path("baseline_results"))
    parser.add_argument("--use_4bit", action="store_true", help="weights in NF4 with double quantization")
    parser.add_argument("--method_name", help="folder within the output folder")
    arguments = parser.parse_args(argv)
    if (arguments.run_dir is None) == (arguments.model_path is None):
        parser.error("give --run-dir, or --model_path and the flags beside it")
    return arguments


def _of_flags(arguments: argparse.Namespace, ranks: Ranks) -> RunRequest:
    import torch

    if ranks.world_size != 1:
        raise RequestError(f"{ranks.world_size} ranks: these flags are of one process. Start it with python.")
    name = arguments.method_name and file_name_part(arguments.method_name)
    paths = RunPaths(arguments.output_dir / name if name else arguments.output_dir)
    refuse_used_folder(paths, os.environ, "--output_dir")
    refuse_secrets(told(arguments), "the request")
    sentences = tuple(check_model(arguments.model_path))
    facts, split = _data(arguments, ranks)
    gpus = min(torch.cuda.device_count(), 1)
    plan = _plan(arguments, facts, split, gpus)
    arguments.device = "cuda" if gpus else "cpu"
    write_experiment(paths, plan, sentences, arguments)
    return RunRequest(plan, paths, sentences)


read_request = folder_or(_of_flags)


def _data(arguments: argparse.Namespace, ranks: Ranks) -> tuple[CorpusFacts, str]:
    """The data as tokens, and which of their splits is meant; the flags then say what of them was heeded."""
    source = source_of(arguments.dataset_name, arguments.dataset_config)
    known = KNOWN_SETS.get(source.partition("=")[0])
    if known is None:
        arguments.dataset_config = None
    held_out = (known.validation if known is not None else None) or "validation"
    splits = {"train": TRAIN, held_out: VALIDATION} if known is not None else {"train": TRAIN, "test": TRAIN}
    if arguments.dataset_split not in splits:
        raise RequestError(unknown_name("dataset_split", arguments.dataset_split, splits))
    wanted = CorpusRequest(sources=(source,), model=arguments.model_path, layout=layout_of_model(arguments.model_path))
    split = splits[arguments.dataset_split]
    if known is None:
        arguments.dataset_split = split
    try:
        return prepared(wanted, "infer_llm", ranks), split
    except HpcLlmError as error:
        raise in_words_of_flags(error) from None


def _plan(arguments: argparse.Namespace, facts: CorpusFacts, split: str, gpus: int) -> Plan:
    starts = [start for start in facts.samples(split).starts if start]
    if not starts:
        raise RequestError(f"the data of {arguments.dataset_name} have no prompts that are told apart from answers.")
    queries, batch = min(arguments.num_samples, len(starts)), arguments.batch_size
    if queries < 1 or batch < 1 or arguments.max_new_tokens < 1:
        raise RequestError("num_samples, batch_size and max_new_tokens must be at least 1.")
    precision: Any = "fp16" if gpus else "fp32"
    weights = "checkpoint" if is_checkpoint(arguments.model_path) else "random"
    quantization = Quantization(kind="nf4", double_quant=True, compute_dtype=precision) if arguments.use_4bit else None
    return Plan(
        task="infer",
        cluster="unknown",
        method="q" if quantization else "ddp",
        letters="q" if quantization else "ddp",
        workload=Inference(
            steps=math.ceil(queries / batch) + WARMUP_STEPS,
            warmup_steps=WARMUP_STEPS,
            seed=42,
            lr_ramp_steps=0,
            data=[arguments.dataset_name],
            loss_floor_nats=None,
            corpus=str(facts.folder),
            queries=queries,
            split=split,
            new_tokens=arguments.max_new_tokens,
            stop_at_end=weights == "checkpoint",
        ),
        model=ModelSetup(
            name=arguments.model_path,
            weights=weights,
            precision=precision,
            attention="sdpa",
            recompute=False,
            quantization=quantization,
            peft=None,
        ),
        batch=BatchShape(
            micro_batch_size=batch,
            gradient_accumulation_steps=1,
            global_batch_size=batch,
            sequence_length=max(starts) + arguments.max_new_tokens,
        ),
        parallel=Parallel(nodes=1, gpus_per_node=gpus, tasks_per_node=1, world_size=1, data=1),
        optimizer=OptimizerSetup(type="AdamW"),
        engine=EngineSetup(name="plain", fallback=None, deepspeed={}, cuda_graph=bool(gpus)),
        job=running_job("infer_llm", "python"),
        gpu=ExpectedGpu(model=None, peak_flops=None),
    )


def write_metrics(record: Record) -> None:
    """Where these flags started the run, its result once more in the words of that project's file."""
    started_by_flags.write_metrics(record, record.paths.baseline_metrics, _metrics)


def _metrics(config: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    tokens = [found.get("prompt_tokens"), found.get("generated_tokens")]
    return {
        "total_queries": found.get("total_queries"),
        "total_time": found.get("total_time_s"),
        "avg_latency": found.get("latency_s_mean"),
        "total_tokens": sum(one for one in tokens if one) or None,
        "throughput_tokens_per_sec": found.get("prompt_and_generated_tokens_per_second"),
        "throughput_queries_per_sec": found.get("queries_per_second"),
        "peak_memory_gb": in_gib(found.get("peak_allocated_bytes")),
    }
