"""What other programs call the options: typed here by habit, each is answered with what really says it. Pure."""

from __future__ import annotations

import re
from typing import Literal

from hpc_llm.errors import RequestError
from hpc_llm.site.slurm_time import parse_time

Spelling = Literal["--", "file", "axis", ""]
"""How an option is said: on a command line, in a file, as an axis of a study's matrix, or as a keyword of a function."""

OPTIONS: dict[str, tuple[str, str]] = {
    "gpus_per_node": ("2", "gpus gpu ngpu ngpus n_gpu n_gpus num_gpus gpu_count nproc nproc_per_node num_gpus_per_node devices num_devices gpus_per_task gpus_per_socket"),
    "nodes": ("2", "node num_nodes nnodes n_nodes node_count"),
    "tensor_parallel": ("2", "tp tp_size tensor_parallel_size tensor_model_parallel_size tensor_parallelism"),
    "micro_batch_size": ("2", "batch batch_size bs mbs micro_batch train_micro_batch_size_per_gpu per_device_train_batch_size per_device_batch_size batch_size_per_gpu micro_bs per_device_eval_batch_size"),
    "gradient_accumulation_steps": ("2", "grad_accum grad_acc grad_accum_steps gradient_accumulation gradient_accumulation_step accumulation_steps accumulate accumulate_grad_batches ga gas"),
    "sequence_length": ("128", "seq seq_len seqlen seq_length max_length max_len max_seq_len max_seq_length context_length ctx_len block_size model_max_length sequence_len cutoff_len n_ctx"),
    "steps": ("40", "step max_steps num_steps train_steps total_steps training_steps iters iterations max_iters train_iters num_iterations max_train_steps"),
    "epochs": ("1", "epoch num_epochs num_train_epochs train_epochs max_epochs n_epochs"),
    "data": ("SOURCE", "dataset datasets dataset_name train_data train_file data_path data_dir dataset_path training_data corpus train_dataset"),
    "model": ("tiny", "model_name model_name_or_path model_path pretrained_model_name_or_path base_model checkpoint_path model_id arch"),
    "method": ("z3", "strategy"),
    "cluster": ("delta", "clusters site host machine profile_name"),
    "time": ("00:10:00", "walltime wall_time time_limit timelimit duration max_time wallclock"),
    "partition": ("NAME", "queue part"),
    "account": ("NAME", "project charge allocation billing"),
    "name": ("TEXT", "job_name jobname run_name experiment_name exp_name title"),
    "seed": ("1", "random_seed rng_seed data_seed"),
    "save_every": ("10", "save_steps save_interval save_freq checkpoint_every checkpoint_interval ckpt_every save"),
    "resume": ("RUN", "resume_from resume_from_checkpoint restore load_checkpoint from_checkpoint checkpoint ckpt continue_from load"),
    "profile": ("torch", "profiler trace"),
    "env_file": ("FILE", "dotenv secrets token hf_token"),
    "max_parallel": ("2", "parallel max_jobs concurrency max_concurrent jobs"),
    "warmup_steps": ("3", "warm_up_steps burn_in skip_steps"),
}  # fmt: skip
"""Option -> a value for it, and the words."""

SETTINGS: tuple[tuple[str, str, str], ...] = (
    ("optimizer.lr", "1e-4", "lr learning_rate learningrate peak_lr max_lr base_lr learn_rate"),
    ("optimizer.type", "AdamW", "optim optimiser optimizer optimizer_type optimizer_name"),
    ("optimizer.weight_decay", "0.01", "weight_decay wd decay"),
    ("optimizer.betas", "[0.9,0.95]", "betas beta adam_betas"),
    ("optimizer.eps", "1e-8", "eps epsilon adam_epsilon adam_eps"),
    ("lr_schedule", "cosine", "lr_scheduler lr_scheduler_type scheduler schedule lr_decay_style"),
    ("lr_ramp_steps", "10", "warmup_ratio lr_warmup lr_warmup_steps lr_warmup_iters"),
    ("precision", "bf16", "dtype torch_dtype mixed_precision amp bf16 bfloat16"),
    ("precision", "fp16", "fp16 half float16"),
    ("precision", "fp32", "fp32 float32"),
    ("attention", "sdpa", "attn attn_implementation attention_implementation sdpa"),
    ("attention", "flash_attention_2", "flash flash_attention flash_attn flash_attention_2 use_flash_attn"),
    ("engine", "plain", "backend framework trainer"),
    ("recompute", "true", "gradient_checkpointing activation_checkpointing checkpoint_activations grad_checkpointing recompute_activations"),
    ("eval_every", "10", "eval_steps eval_interval eval_freq evaluate_every validate_every"),
    ("deepspeed.gradient_clipping", "1.0", "grad_clip gradient_clipping max_grad_norm clip_grad clip_grad_norm clip gradient_clip_val"),
    ("peft.r", "8", "lora_r lora_rank lora_dim"),
    ("peft.alpha", "16", "lora_alpha"),
    ("peft.dropout", "0.05", "lora_dropout"),
    ("launcher", "torchrun", "launch launch_with runner"),
    ("tasks_per_node", "2", "ranks ranks_per_node processes nprocs num_processes procs_per_node"),
    ("new_tokens", "16", "max_new_tokens max_tokens"),
    ("queries", "64", "num_samples n_samples num_queries num_prompts"),
    ("split", "test", "dataset_split"),
    ("temperature", "0.7", "temp sampling_temperature"),
    ("packing", "documents", "pack sample_packing group_texts"),
    ("env.NAME", "VALUE", "env environment envvar env_var"),
)  # fmt: skip
"""Path of a setting, a value for it, and the words."""

TWO_MEANINGS: dict[str, tuple[tuple[str, str], ...]] = dict.fromkeys(
    ("warmup", "warmup_iters", "num_warmup_steps"),
    (("lr_ramp_steps", "over which the learning rate rises"), ("warmup_steps", "left out of the measurement")),
)
"""Word -> the options and settings that it may mean, each with what it says of the first steps."""

_GLOBAL = "the global batch is micro batch size x gradient accumulation steps x data-parallel ranks: give the first two"
_METHOD = "a method says it, as "
_LOGS = "the folder of the runs is named by --logs DIR on the command line"
_RANKS = "one rank is started for each GPU, by --gpus-per-node N; where nodes have no GPUs by --set tasks_per_node=N"
_OWN = "hpc-llm says it to sbatch itself. Leave it out"
_FILE = "an experiment file stands alone, without an option in front of it: EXPERIMENT.yaml"
SENTENCES: dict[str, str] = {
    "overcommit": "all ranks of a node would have the CPUs that the plan counts for one. Leave it out",
    **dict.fromkeys(("global_batch_size", "train_batch_size", "total_batch_size", "gbs", "effective_batch_size"), _GLOBAL),
    **dict.fromkeys(("lora", "peft", "use_lora", "adapter"), f"{_METHOD}lora or z3+lora"),
    "qlora": f"{_METHOD}qlora",
    **dict.fromkeys(("quantize", "quantization", "quant", "load_in_4bit", "use_4bit", "nf4"), f"{_METHOD}q or qlora"),
    **dict.fromkeys(("load_in_8bit", "int8"), f"{_METHOD}int8"),
    **dict.fromkeys(("zero", "zero_stage", "stage", "zero_optimization"), f"{_METHOD}z1, z2 or z3"),
    **dict.fromkeys(("offload", "cpu_offload", "offload_optimizer", "optimizer_offload"), f"{_METHOD}z2o or z3o"),
    **dict.fromkeys(("deepspeed", "deepspeed_config", "ds_config"), "a method holds it: configs/NAME.yaml, or deepspeed.KEY=VALUE with set"),
    **dict.fromkeys(("output_dir", "outdir", "out_dir", "log_dir", "logdir", "save_dir"), _LOGS),
    **dict.fromkeys(("config", "file", "experiment", "study", "yaml", "config_file"), _FILE),
    **dict.fromkeys(("verbose", "debug", "v"), "render --explain shows the whole plan, HPC_LLM_DEBUG=1 where an error comes from"),
    **dict.fromkeys(("pp", "pipeline_parallel", "pipeline_parallel_size"), "no task can do it yet; tensor parallel is there"),
    **dict.fromkeys(("ntasks", "ntasks_per_node", "ntasks_per_gpu"), _RANKS),
    **dict.fromkeys(("export", "export_file"), "variables of the job are said as env.NAME=VALUE with set, or in the file of --env-file"),
    "array": "the runs of several methods, or of a file's matrix, are an array by themselves. Leave it out",
    "wait": "submit --wait follows the runs to their end",
    "test_only": "submit --dry-run checks everything and submits nothing",
    "signal": "a run saves before its time limit with --sbatch signal=B:USR1@300 and --save-every N",
}  # fmt: skip
"""Word -> what to say where it is no single option."""
_SAME_ON_SBATCH = {"cpus_per_gpu": "cpus_per_task", "nodefile": "nodelist"}
"""What the plan has to know of sbatch, in words by which a request says it to sbatch."""
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?(?:[eE][+-]?[0-9]{1,3})?")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]{0,100}")
_OF_NO_JOB = ("help", "usage", "version")

_MEANT = {word: (name, value) for name, (value, words) in OPTIONS.items() for word in words.split()}
_SET = {path: (path, value) for path, value, _ in reversed(SETTINGS) if "." not in path}
_EXAMPLES = {path: [value for one, value, _ in SETTINGS if one == path] for path, *_ in SETTINGS}
_SET |= {word: (path, value) for path, value, words in SETTINGS for word in words.split()}

BROUGHT_BY = {"peft": ". Add +lora to it, as in z3+lora", "quantization": ". Take q or ql"}
"""Which methods have a part that others lack, as the end of a sentence."""


def meant_by(word: str, spelling: Spelling, value: str = "") -> str | None:
    """What says what `word` says elsewhere, spelled as it is said there; None of a word that nobody uses so.

    `value` is what was given for it, which decides of some options of sbatch; a number, a time and a name are said again.

    >>> meant_by("--batch-size", "--"), meant_by("lr", "file"), meant_by("gpus", ""), meant_by("colour", "--")
    ('--micro-batch-size N', 'set: {optimizer.lr: 1e-4}', 'gpus_per_node', None)
    >>> meant_by("--warmup", "--", "2")
    '--set lr_ramp_steps=2 (first steps over which the learning rate rises) or --warmup-steps 2 (first steps left out of the measurement)'
    >>> meant_by("--gres", "--", "gpu:2"), meant_by("--gres", "--", "lustre:1"), meant_by("requeue", "file")
    ('--gpus-per-node N', '--sbatch gres=VALUE', 'sbatch: {requeue: true}')
    """
    name = word.lstrip("-").replace("-", "_").lower()
    if name in TWO_MEANINGS:
        ways = (
            (meant_by(one, spelling, value) or _as_option(one, "3", spelling, value), why)
            for one, why in TWO_MEANINGS[name]
        )
        return " or ".join(f"{way} (first steps {why})" for way, why in ways)
    if name in _MEANT:
        return _as_option(*_MEANT[name], spelling, value)
    if name in _SET:
        path, example = _SET[name]
        known = spelling != "axis" and value in _EXAMPLES[path]
        return _as_setting(path, value if known or _is_alike(value, example, spelling) else example, spelling)
    if name in SENTENCES:
        return SENTENCES[name]
    return _of_sbatch(name, spelling, value)


def _is_alike(value: str, example: str, spelling: Spelling) -> bool:
    """Whether it is of the kind of the example, so that it may stand there: a number, a time; of an axis it is only one of its values."""
    if spelling == "axis":
        return False
    if ":" in example:
        return _is_time(value)
    is_number = _NUMBER.fullmatch(value) is not None
    return is_number and (value.isdecimal() if example.isdecimal() else _NUMBER.fullmatch(example) is not None)


def _is_time(value: str) -> bool:
    try:
        return parse_time(value) > 0
    except RequestError:
        return False


def _as_option(option: str, example: str, spelling: Spelling, value: str) -> str:
    """How an option is given that number, or the value of an example."""
    typed = option.replace("_", "-")
    given = value if _is_alike(value, example, spelling) or _is_name(option, value, spelling) else _placeholder(example)
    return {
        "--": f"--{typed} {given}",
        "file": f"{typed}: {given}",
        "axis": f"{typed}: [{given}]",
        "": option,
    }[spelling]


def _is_name(option: str, value: str, spelling: Spelling) -> bool:
    """Whether an option that is a name is given one, as it may stand in a file without quotes."""
    return spelling != "axis" and option in ("model", "method", "cluster") and _NAME.fullmatch(value) is not None


def _placeholder(example: str) -> str:
    """What stands for a value that is not known; no number or time is made up, which somebody might copy."""
    return "N" if example.isdecimal() else "HH:MM:SS" if ":" in example else example


def _as_setting(path: str, example: str, spelling: Spelling) -> str:
    """How a field of the plan is set to the value of an example."""
    return {
        "--": f"--set {path}={example}",
        "file": f"set: {{{path}: {example}}}",
        "axis": f"set.{path}: [{example}]",
        "": f"set=['{path}={example}']",
    }[spelling]


def _of_sbatch(name: str, spelling: Spelling, value: str) -> str | None:
    """How an option of sbatch is said; None of what is none."""
    from hpc_llm.site.sbatch_options import is_harmless, is_tracked, owner, way_of

    own = owner(name.replace("_", "-"), value or "gpu")
    if own is not None and own[0] == "--gpus-per-node":
        return meant_by("gpus", spelling)
    option = "cpus-per-task" if own is not None and name.startswith("tres_") else _SAME_ON_SBATCH.get(name, name)
    option = option.replace("_", "-")
    if is_tracked(option) and option not in _OF_NO_JOB:
        return _OWN
    if (way := way_of(option, value if option == name.replace("_", "-") else "")) is None:
        return None
    if spelling == "--" or (spelling and not is_harmless(option, value)):
        return way  # what leads elsewhere is no word for a file
    pair = way.removeprefix("--sbatch ")
    said = f"{{{pair.replace('=', ': ') if '=' in pair else f'{pair}: true'}}}"
    return {"file": f"sbatch: {said}", "axis": f"sbatch: [{said}]", "": f"sbatch=['{pair}']"}[spelling]


def letter_of_sbatch(letter: str) -> str | None:
    """What says here what sbatch is told by a letter; None where it has none such, or an option of ours has its name.

    >>> letter_of_sbatch("-G"), letter_of_sbatch("-c"), letter_of_sbatch("-p"), letter_of_sbatch("-X")
    ('--gpus-per-node N', '--sbatch cpus-per-task=VALUE', '--partition NAME', None)
    """
    from hpc_llm.site.sbatch_options import in_full

    name = in_full(letter[1:2])
    if name is None or name in _OF_NO_JOB:
        return None
    if name in OPTIONS:
        return f"--{name} {_placeholder(OPTIONS[name][0])}"
    way = meant_by(name, "--")
    return way if way is not None and way.startswith("--") else None


def answered(
    kind: str, name: str, spelling: Spelling, where: str = "", value: str = "", is_field: bool = False
) -> str | None:
    """Sentence for an unknown name that means something elsewhere, or a field of the plan, where it `is_field`; None for another.

    >>> answered("option", "--lr", "--", "render")
    "there is no option '--lr' in render: it is said as --set optimizer.lr=1e-4."
    """
    word = name.lstrip("-").replace("-", "_")
    way = meant_by(name, spelling, value)
    if way is None and is_field:
        way = _as_setting(word, value or "VALUE", spelling)
    if way is None:
        return None
    place = f" in {where}" if where else ""
    is_sentence = way == _OWN or name.lstrip("-").replace("-", "_").lower() in SENTENCES
    return f"there is no {kind} '{name}'{place}: {way if is_sentence else f'it is said as {way}'}."
