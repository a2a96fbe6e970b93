"""Whether the program of a log trains or only answers, by its own words: against one failure other things help then."""

from __future__ import annotations

import re
from collections.abc import Iterable

TRAINS, SERVES = "trains", "serves"

_TRAINS = re.compile(
    rb"\*\*\*\*\* Running training|\bzero_optimization\b|DeepSpeedEngine\b|/deepspeed/runtime/|(?i:megatron[-_/]|torchtitan|axolotl|llamafactory)"
    rb"|\.backward\(|optimizers?\.step\(|trainer\.(?:train|fit)\(|\b(?:inner_training_loop|training_step|train_step|train_epoch)\b"
    rb"|(?<![a-z])(?:pre-?)?train\w{0,20}\.py\b|(?<![a-z])fine-?tun\w{0,20}\.py\b|\b(?:sft|dpo|grpo|ppo)\w{0,20}\.py\b|\baccelerate/optimizer\.py|/(?:trl|verl|openrlhf)/"
    rb"|\bper_device_train_batch_size\b|\bgradient_accumulation_steps\b"
)
_SERVES = re.compile(
    rb"\bserver_args=ServerArgs\(|\bsglang[./](?:launch_server|srt|bench)|\bsgl\.Engine\(|vLLM API server\b|[/.]vllm[/.]|\bvllm serve\b|Initializing an? (?:V\d )?LLM engine"
    rb"|\btext_generation_(?:launcher|router|server)\b|\btext-generation-server\b|[/ ]lmdeploy[/ ]|\btritonserver\b|\btensorrt_llm\b|\bllama_model_load|\bggml_\w{2,20}_|\bllama-server\b"
    rb"|Uvicorn running on |/lm_eval/|/lighteval/|/transformers/generation/|\(EngineCore\w{0,20} pid="
)
_LONGEST = 1 << 22


def of(texts: Iterable[bytes], has_steps: bool) -> str | None:
    """What the program does; None where the words do not say, or say both, as of one that trains on what a server answers."""
    trains, serves = has_steps, False
    for text in texts:
        trains = trains or _TRAINS.search(text, 0, _LONGEST) is not None
        serves = serves or _SERVES.search(text, 0, _LONGEST) is not None
    if trains == serves:
        return None
    return TRAINS if trains else SERVES
