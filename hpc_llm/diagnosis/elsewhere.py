"""What to do about a log that is no run of ours: the same advice in the words of its own launcher and program.

Our flags would mean nothing there. Advice that cannot be said without them is left out.
"""

from __future__ import annotations

import re

from hpc_llm.causes.workload import SERVES, TRAINS

_MORE_MEMORY = "ask for more: sbatch --mem=…, or --mem=0 for all of the node"
_MORE_TIME = "ask for more time, up to the partition's limit (sinfo -o '%P %l')"
_A_HANG = "if it made no progress at all, look for a hang before asking for more time"

_BY_CAUSE = {
    "device_oom": (
        "halve the micro batch and double the gradient accumulation: the global batch stays the same\n"
        "recompute activations (gradient checkpointing), where it is not on yet\n"
        "partition more: ZeRO-3 or FSDP, then offload to the host\n"
        "shorter sequences, or more GPUs"
    ),
    "host_oom": (
        f"{_MORE_MEMORY}\n"
        "fewer ranks per node: each loads the model and pins buffers of its own\n"
        "keep parameters and optimizer states on the GPU where they fit: less offload"
    ),
    "walltime": (f"{_MORE_TIME}, or for fewer steps\nsave checkpoints and go on from the last one\n{_A_HANG}"),
    "preempted": "submit it again, from its last checkpoint; or on a partition that is not preempted",
    "port_in_use": "choose another port for each job, for example from its id; on one node: torchrun --standalone",
    "model_missing": (
        "download it on a login node first: hf download NAME --local-dir DIR, and give the program DIR\n"
        "for a gated model accept its licence on its page and log in: hf auth login"
    ),
    "config_error": "correct the setting named in the evidence before submitting again",
    "module_missing": "see what there is on a login node: `module avail NAME`, `module spider NAME`; then correct the script",
    "conda_not_initialised": (
        'source conda\'s hook before conda activate: source "$(conda info --base)/etc/profile.d/conda.sh", or that file by its path\n'
        "see that the environment exists on the compute node: `conda env list`"
    ),
    "gpu_missing": (
        "ask for as many GPUs as there are ranks on a node\n"
        "see that nothing hides them: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES in the job"
    ),
    "driver_mismatch": (
        "see which of them do not fit: nvidia-smi or rocm-smi says the driver's CUDA or ROCm, `python -m torch.utils.collect_env` what torch was built with\n"
        "then install a torch, and what was built against it, for the driver's release; a toolkit's module changes no driver"
    ),
    "nan_loss": (
        "a smaller learning rate, and gradient clipping\n"
        "bf16 instead of fp16 where the GPU has it\n"
        "if it is so from the first step, look at the data and the checkpoint"
    ),
    "loss_scale_collapse": (
        "bf16 instead of fp16 where the GPU has it\n"
        "a smaller learning rate, more warm-up, gradient clipping\n"
        "a checkpoint that was trained in bf16 may not fit into fp16's range at all"
    ),
    "disk_full": (
        "see which: `df -h DIR`, and the site's quota command (quota, lfs quota -u $USER DIR)\n"
        "put outputs and caches where there is room: HF_HOME, TMPDIR, TORCH_EXTENSIONS_DIR"
    ),
}
"""Instead of a cause's own remedy, where that speaks of a run of ours."""

_INFERRING = {
    "device_oom": (
        "fewer sequences at a time: max_num_seqs and max_num_batched_tokens of vLLM, --max-running-requests of SGLang, --max-batch-total-tokens "
        "of TGI, --batch_size of lm-eval, smaller batches of prompts for generate\n"
        "shorter sequences: max_model_len of vLLM, --context-length of SGLang, --max-total-tokens of TGI, max_length or max_new_tokens elsewhere\n"
        "share the weights among more GPUs: tensor_parallel_size of vLLM, --tp-size of SGLang, --num-shard of TGI, device_map='auto' elsewhere\n"
        "bf16 or fp16 weights, or a quantised model"
    ),
    "host_oom": (
        f"{_MORE_MEMORY}\n"
        "fewer processes per node that load the model at once, and less swap space or offload to the host"
    ),
    "walltime": (f"{_MORE_TIME}, or for fewer prompts or tasks\n{_A_HANG}"),
    "preempted": "submit it again, or on a partition that is not preempted",
}
"""The same for a program that only infers: it has no steps, optimizer or checkpoints of its own."""

_EITHER = {
    "device_oom": (
        "less at a time: smaller batches (where it trains, half the micro batch and twice the gradient accumulation), or shorter sequences\n"
        "where it trains: recompute activations, then ZeRO-3 or FSDP, then offload to the host\n"
        "where it only infers: a quantised model, and of a server a lower limit of sequences at a time and a shorter context\n"
        "more GPUs, among which the weights are shared"
    ),
    "host_oom": (f"{_MORE_MEMORY}\nfewer processes per node: each loads the model and has buffers of its own"),
    "walltime": (
        f"{_MORE_TIME}, or for less work\nwhere it trains, save checkpoints and go on from the last one\n{_A_HANG}"
    ),
    "preempted": "submit it again, where it trains from its last checkpoint; or on a partition that is not preempted",
}
"""The same where it is not known which of both the program is."""

_TRANSLATED = (
    (re.compile(r"--sbatch ([a-z-]+)=(\S+?)(?=[,;:)]|\s|$)"), r"sbatch --\1=\2"),
    (re.compile(r"--sbatch ([a-z-]+)"), r"sbatch --\1"),
    (re.compile(r"--set env\.([A-Z][A-Z0-9_]*=)"), r"export \1"),
    (re.compile(r"and env\.([A-Z][A-Z0-9_]*=)"), r"and export \1"),
    (
        re.compile(r"--set attention=sdpa\b"),
        'attn_implementation="sdpa" in from_pretrained or the settings of the program',
    ),
    (re.compile(r"--set precision=(\w+(?:, \w+)* or \w+)"), r"\1"),
    (re.compile(r"--set deepspeed\.([a-z0-9_.]+)=([\w.]+)"), r"\1: \2 in its DeepSpeed config"),
)
"""Flags of ours that have a word of their own elsewhere."""
_OURS = re.compile(
    r"(?<![\w/-])--(?:set|method|model|steps|time|partition|account|logs|nodes|gpus-per-node|cluster|data|"
    r"micro-batch-size|gradient-accumulation-steps|sequence-length|warmup-steps|env-file|save-every|resume|epochs|smoke)\b|hpc-llm|\bprofile\b(?!\.d)|prelude\."
)
_ASIDE = re.compile(r" ?\([^()]{0,300}(?:hpc-llm|\bprofile\b(?!\.d))[^()]{0,300}\)")


def in_other_words(cause: str, remedy: str, is_of_cause: bool) -> str:
    """The remedy without anything that only a run of ours has; of the cause itself where nothing is left."""
    if is_of_cause and cause in _BY_CAUSE:
        return _BY_CAUSE[cause]
    lines = [_translated(line) for line in remedy.splitlines()]
    left = [line for line in lines if not _OURS.search(line)]
    return "\n".join(left) or _BY_CAUSE.get(
        cause, "look at the evidence: what to change is in the program or its script"
    )


def where_it_infers(cause: str) -> str | None:
    """What helps against that cause in a program that only infers; None where it is what helps others."""
    return _INFERRING.get(cause)


def fit_for(cause: str, remedy: str, workload: str | None) -> str:
    """The remedy with what helps a program that serves, or one of which nothing is known, in place of what helps training."""
    other = _INFERRING if workload == SERVES else _EITHER
    general = set(in_general(cause))
    lines = remedy.splitlines()
    if workload == TRAINS or cause not in other or general.isdisjoint(lines):
        return remedy
    return "\n".join([*(line for line in lines if line not in general), other[cause]])


def in_general(cause: str) -> list[str]:
    """What helps against that cause whatever the program, a line each."""
    return _BY_CAUSE.get(cause, "").splitlines()


def _translated(line: str) -> str:
    line = _ASIDE.sub("", line)
    for pattern, instead in _TRANSLATED:
        line = pattern.sub(instead, line)
    return line
