"""What to say of memory that ran out in a part of the work that is no step: what it means, and what helps there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpc_llm.causes.phases import EVALUATION, LOADING, SAVING, STATES

_MEANINGS = {
    LOADING: "The GPU's memory ran out while weights were brought onto it: these, and what the process has there already, do not fit. "
    "No batch is there yet, so a smaller one changes nothing.",
    STATES: "The GPU's memory ran out when the optimizer asked for its states, two numbers for each parameter with Adam: they do not fit beside "
    "parameters and gradients. What a batch needs had been given back by then, so a smaller one hardly helps.",
    SAVING: "The GPU's memory ran out while a checkpoint or the model was saved: what is gathered of other ranks for that has to fit beside what training keeps. "
    "Smaller batches and shorter sequences leave that as it is.",
}
_REMEDIES = {
    EVALUATION: (
        "it ran out in an evaluation: a smaller batch there (per_device_eval_batch_size of the Trainer), and only what is needed of its results on "
        "the GPU: eval_accumulation_steps moves them to the host, preprocess_logits_for_metrics makes them smaller, prediction_loss_only keeps none",
        "shorter sequences in the evaluation's data, or more GPUs",
    ),
    LOADING: (
        "share the weights among GPUs while they are loaded: where it trains, ZeRO-3 that from_pretrained knows of before it begins "
        "(HfDeepSpeedConfig, or TrainingArguments made first), or FSDP with weights that are loaded on the host "
        "(fsdp_cpu_ram_efficient_loading of Accelerate), and no .cuda() or .to() of the whole model",
        "where it only infers: device_map='auto' without .cuda(); tensor_parallel_size of vLLM, --tp-size of SGLang, --num-shard of TGI",
        "fewer bytes: torch_dtype=torch.bfloat16 where they are loaded in fp32; a quantised model (BitsAndBytesConfig(load_in_4bit=True)), to train "
        "with LoRA on it",
        "more or larger GPUs, or a smaller model",
    ),
    STATES: (
        "partition more: ZeRO-3 or FSDP, then offload optimizer states to the host",
        "smaller states: an optimizer of 8 bits (optim='adamw_bnb_8bit' of the Trainer, bitsandbytes.optim.AdamW8bit), or Adafactor",
        "train fewer parameters: LoRA has states for its adapters alone",
        "more GPUs, among which states are partitioned",
    ),
    SAVING: (
        "save what each rank has and join it on the host later: with ZeRO-3 stage3_gather_16bit_weights_on_model_save: false, then "
        "`python zero_to_fp32.py . OUT` in the checkpoint's folder; with FSDP SHARDED_STATE_DICT, then `accelerate merge-weights DIR OUT`",
        "where FSDP is to save it whole, let it gather on the host: FullStateDictConfig(offload_to_cpu=True, rank0_only=True), or "
        "StateDictOptions(full_state_dict=True, cpu_offload=True)",
        "torch.cuda.empty_cache() right before it saves gives back what the steps had reserved",
    ),
}
_REMEDIES_ON_HOST = {
    EVALUATION: (
        "it ran out in an evaluation, whose results the Trainer keeps on the host until its end, once a rank: with more memory it fails some batches later; "
        "preprocess_logits_for_metrics makes them smaller (their argmax in place of a number for each word), prediction_loss_only keeps none",
        "fewer examples or shorter sequences in the evaluation's data, or batch_eval_metrics, which counts each batch by itself",
    ),
}


def meaning_in(facts: Mapping[str, Any]) -> str | None:
    """What it means that memory ran out in the part of the work that is known; None where it means what it does in a step."""
    return _MEANINGS.get(str(facts.get("phase")))


def remedy_in(facts: Mapping[str, Any]) -> list[str]:
    """What helps there, in a program that is none of ours; nothing where it is not known."""
    return list(_REMEDIES.get(str(facts.get("phase")), ()))


def remedy_on_host_in(facts: Mapping[str, Any]) -> list[str]:
    """The same of the host's memory."""
    return list(_REMEDIES_ON_HOST.get(str(facts.get("phase")), ()))


def is_of_no_batch(facts: Mapping[str, Any]) -> bool:
    """Whether no batch, and nothing that it keeps, was in the way."""
    return str(facts.get("phase")) in _MEANINGS
