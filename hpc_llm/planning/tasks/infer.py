"""Inference: a language model answers queries, and prompts, first tokens and the tokens behind them are timed apart."""

from __future__ import annotations

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.parts import Inference
from hpc_llm.planning.tasks.task import READING_FIELDS, TaskKind


def packages(plan: Plan) -> tuple[str, ...]:
    """torch, transformers, and what the quantization is made of: no engine; vLLM's program brings its own."""
    if plan.engine.name == "vllm":
        return ()
    if plan.model.quantization is None:
        return ("torch", "transformers")
    # transformers loads quantized weights through accelerate
    loads = ("accelerate",) if plan.model.weights == "checkpoint" else ()
    return ("torch", "transformers", "bitsandbytes", *loads)


KIND = TaskKind(
    name="infer",
    worker="hpc_llm.worker.infer_llm",
    packages=packages,
    plan_fields=READING_FIELDS
    | frozenset(
        """method letters model weights data_parallel micro_batch_size steps warmup_steps seed precision attention
    quantization cuda_graph corpus peak_flops engine""".split()
    ),
    result_fields=frozenset(
        """num_parameters data_parallel micro_batch_size global_batch_size sequence_length weights precision engine warmup_steps
    measured_steps step_time_s_mean step_time_s_p50 step_time_s_p90 step_times_s tokens_per_second tokens_per_second_per_gpu
    total_queries total_time_s prompt_tokens generated_tokens prompt_tokens_per_second generated_tokens_per_second
    prompt_and_generated_tokens_per_second prefill_tokens_per_second decode_tokens_per_second queries_per_second
    time_to_first_token_s_mean time_to_first_token_s_p50 time_to_first_token_s_p90 time_to_first_token_s_p99
    time_per_output_token_s_mean time_per_output_token_s_p50 time_per_output_token_s_p90 time_per_output_token_s_p99
    latency_s_mean latency_s_p50 latency_s_p90 latency_s_p99 prefill_time_s decode_time_s decoding""".split()
    ),
    workload=Inference,
    generates=True,
)
