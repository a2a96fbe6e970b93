"""What a run starts from and how fast it learns, where the request leaves it open: weights, learning rate, its ramp."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import PlanError, RequestError, unknown_name
from hpc_llm.planning.encoder_decoder import MODEL_TYPES as ENCODER_DECODERS
from hpc_llm.planning.loadable import check_stored
from hpc_llm.planning.model import ALIASES, PRESETS, Architecture, architecture, layer_counts, num_parameters
from hpc_llm.planning.optimizers import PURE_BF16
from hpc_llm.planning.parts import BatchShape, ModelSetup
from hpc_llm.planning.recompute import Share, spread
from hpc_llm.records.fetched import fetch_command, is_hub_name
from hpc_llm.text.pasted import refuse_address

if TYPE_CHECKING:
    from hpc_llm.planning.checkpoint import Checkpoint

CHECKPOINT_RATE = 2e-5
"""Learning rate for a model whose shape cannot be seen from here."""

FROZEN_FACTOR = 10
"""How much faster the few weights may learn that are not frozen: adapters, or what a quantized base leaves."""

HIGHEST_RATE = 1e-3

LONGEST_RAMP = 2000

_PLACES = 1024
"""Whose logits are there at a time where the loss is computed with the head."""

_HUB_NAME = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
"""OWNER/NAME, which a folder may be called as well."""

_TOKENIZER = "Put the tokenizer.json there that it was trained with (one trained on synthetic tokens has none, and takes no data)"


def choose_weights(model: str, asked: str | None) -> tuple[str, str, Checkpoint | None]:
    """Whether `model` starts at random or from its checkpoint, why, and the checkpoint where there is one to be seen.

    `asked` is `random`, `checkpoint` or None. Raises RequestError for what is neither a preset nor a usable folder:
    nothing trains from random weights that was meant to be loaded.
    """
    if model in PRESETS:
        if asked == "checkpoint":
            published = model in ALIASES.values()
            way = f"`{fetch_command(model)}` brings them, then --model DIR" if published else "Give a folder as --model"
            raise RequestError(
                f"weights=checkpoint: {model} is a preset, which has the shape of a model and no weights. {way}."
            )
        return "random", "computed: a preset has no weights", None
    if not Path(model).is_dir():
        return (*_unseen(model, asked), None)
    if not Path(model).is_absolute():
        raise RequestError(f"model '{model}': the job runs in another folder. Give the full path.")
    from hpc_llm.planning.checkpoint import read_checkpoint

    found = read_checkpoint(Path(model))
    if not found.weights and asked != "random":
        raise RequestError(
            f"the folder {model} holds a config.json and no weights. To train its shape from random weights, "
            f"add --set weights=random; `{fetch_command('NAME')}` brings a model whole."
        )
    if asked is not None:
        return asked, "--set", found
    return "checkpoint", "computed: the folder holds weights", found


def _unseen(model: str, asked: str | None) -> tuple[str, str]:
    """Weights of a folder that is not here, where the request vouches for it."""
    refuse_address("--model", model)
    if Path(model).exists():
        folder = Path(model).parent
        way = (
            f"its folder, {folder}"
            if (folder / "config.json").is_file()
            else "the folder that holds it and its config.json"
        )
        raise RequestError(f"model '{model}' is a file: give {way}.")
    if "/" in model:
        _refuse_removed(Path(os.path.abspath(os.path.expanduser(model))))
    if model.startswith("/"):
        if asked is None:
            raise RequestError(
                f"there is no folder {model} here. If only the machine has it on which the run starts, say what it holds: "
                "--set weights=checkpoint, or --set weights=random for its shape alone."
            )
        return asked, "--set, the folder is not here to be looked at"
    if not _HUB_NAME.fullmatch(model) and ("/" in model or model.startswith((".", "~"))):
        where = os.path.abspath(os.path.expanduser(model))
        raise RequestError(
            f"there is no folder {where} here. Give the full path of a folder that only the cluster has."
        )
    if "/" in model:
        shape = f" --model {ALIASES[model]} is its shape with random weights." if model in ALIASES else ""
        way = f"If it is a model of the Hub: `{fetch_command(model)}`, then --model DIR. " if is_hub_name(model) else ""
        raise RequestError(
            f"there is no such folder as '{model}' here. {way}Give the full path of a folder that only the cluster has.{shape}"
        )
    architecture(model)  # says which presets there are
    raise AssertionError(model)


def _refuse_removed(folder: Path) -> None:
    """Raise RequestError where a folder is not there as it was removed from its run."""
    from hpc_llm.records.removed import removed_from

    if removed_from(folder):
        from hpc_llm.planning.checkpoint import read_config

        read_config(folder)


def check_readable(model: str) -> None:
    """Raise RequestError where the tokens of `model` are not to be had here: no preset, and no folder that brings its tokenizer.

    A folder with a config alone has no weights that know other tokens than bytes.
    """
    if model in PRESETS:
        return
    if not Path(model).is_dir():
        if model.startswith("/") and not Path(model).exists():
            _refuse_removed(Path(model))
            raise RequestError(f"there is no folder {model} here: the data are prepared with the tokenizer in it.")
        _unseen(model, None)
    from hpc_llm.planning.checkpoint import has_tokenizer, read_checkpoint

    found = read_checkpoint(Path(model))
    if found.weights and not has_tokenizer(found.folder):
        raise PlanError(
            f"the folder {model} holds no tokenizer, so nothing turns text into the tokens that its model knows. {_TOKENIZER}."
        )


def check_length(
    model: str,
    found: Checkpoint | None,
    sequence_length: int,
    said: str = "sequence_length",
    way: str = "--sequence-length",
    is_trained: bool = False,
) -> None:
    """Raise PlanError where a sequence is longer than the model takes; `said` is what asks for it, and `way` the option.

    One that is trained on holds a token that is foretold from one before it.
    """
    if is_trained and sequence_length < 2 and family_of(model, found) not in ENCODER_DECODERS:
        raise PlanError(
            f"{said} {sequence_length}: each token is foretold from those before it, and there are none. Ask for 2 at least with {way}."
        )
    longest = longest_of(model, found)
    if longest is not None and sequence_length > longest:
        raise PlanError(
            f"{said} {sequence_length}: model {model} takes {longest} tokens at most. Ask for less with {way}."
        )


def check_stored_as_planned(model: ModelSetup, found: Checkpoint | None) -> None:
    """Raise PlanError for weights that are stored quantized in another way than the plan says."""
    if found and model.weights == "checkpoint":
        how = model.quantization
        check_stored(model.name, found.config, (how.kind, how.double_quant) if how else None)


def longest_of(model: str, found: Checkpoint | None) -> int | None:
    """Tokens of the longest sequence that the model takes; None where its config cannot be seen from here, or says nothing."""
    known = PRESETS.get(model) or found
    return known.max_position_embeddings if known else None


def family_of(model: str, found: Checkpoint | None) -> str:
    """What Hugging Face calls the model's family; empty where its config cannot be seen from here."""
    return PRESETS[model].model_type if model in PRESETS else str(found.config.get("model_type")) if found else ""


def vocab_size_of(model: str, found: Checkpoint | None) -> int | None:
    """Tokens that the model knows; None where its config cannot be seen from here."""
    if model in PRESETS:
        return PRESETS[model].vocab_size
    return found.size("vocab_size") if found else None


def check_tokenizer(found: Checkpoint | None, weights: str, data: Sequence[str]) -> None:
    """Raise PlanError where text would be fed to a trained model in tokens that it has never seen."""
    if found is None or weights != "checkpoint" or not data:
        return
    from hpc_llm.planning.checkpoint import has_tokenizer

    if not has_tokenizer(found.folder):
        raise PlanError(
            f"--data {data[0]}: the folder {found.folder} holds no tokenizer, so nothing turns text into the tokens that its model "
            f"knows. {_TOKENIZER}, or leave --data out."
        )


def learning_rate(model: str, found: Checkpoint | None, frozen: str | None) -> tuple[float, str]:
    """The peak learning rate of AdamW for a short run, and why.

    A step of AdamW moves every weight by about the rate, whatever the gradient, and a neuron adds up as many of them
    as the model is wide. So the rate goes down with the width, 0.1 over the hidden size: 2e-5 at the width of a 7B,
    2e-4 where `frozen` says why most of its weights stand still.
    """
    factor, what = (FROZEN_FACTOR, f"{frozen} on ") if frozen else (1, "")
    known = PRESETS.get(model) or found
    width = known.hidden_size if known else None
    if width is None:
        return factor * CHECKPOINT_RATE, f"default for {what}a model whose width cannot be seen from here"
    rate = float(f"{0.1 * factor / width:.0e}")
    how = ", rounded to one digit" if not math.isclose(rate, 0.1 * factor / width) else ""
    if rate > HIGHEST_RATE:
        how = f", at most {HIGHEST_RATE:g}"
    return min(rate, HIGHEST_RATE), f"default for {what}{model}: {0.1 * factor:g} / hidden size {width}{how}"


def check_states(optimizer: str, precision: str) -> None:
    """Raise PlanError where the optimizer keeps what trains in another precision than the plan's."""
    if optimizer in PURE_BF16 and precision != "bf16":
        raise PlanError(
            f"the optimizer {optimizer} keeps weights and moments in bf16, and the precision is {precision}. Choose a method "
            "with AdamW, or one whose optimizer keeps 8 bits (--set optimizer.type=AdamW8bit); bf16 itself needs a GPU that has it."
        )


LAYERS = {
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3"),
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens", "lm_head"),
    ),
    "t5": ("q", "k", "v", "o", "wi", "wi_0", "wi_1", "wo", "shared", "lm_head"),
    "gpt2": ("c_attn", "c_proj", "c_fc", "wte", "lm_head"),
    "gpt_neox": ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "embed_in", "embed_out"),
}
"""Family -> layers that adapters can be put on. Another family's are looked for when the run starts."""


def check_targets(model: str, found: Checkpoint | None, targets: Any) -> None:
    """Raise PlanError where adapters are to be put on layers that the model has not."""
    family = family_of(model, found)
    known = LAYERS.get(family)
    if known is None or isinstance(targets, str):
        return
    if not targets:
        raise PlanError(f"peft.target_modules is empty. Layers of {model}: {', '.join(known)}, or all-linear.")
    for target in targets:
        if str(target).rpartition(".")[2] not in known:
            raise PlanError(unknown_name("layer", str(target), known, where=f"peft.target_modules for {model}"))


def parameters_of(model: str, found: Checkpoint | None) -> int | None:
    """How many parameters the model has; None where they cannot be counted."""
    try:
        return num_parameters(architecture(model)) if model in PRESETS or found else None
    except (RequestError, ArithmeticError):  # nonsense in a config is refused where it is used
        return None


def layer_counts_of(model: str, found: Checkpoint | None) -> tuple[int, ...] | None:
    """How many layers lie in each row of them; None where they cannot be counted."""
    try:
        return layer_counts(architecture(model)) if model in PRESETS or found else None
    except (RequestError, ArithmeticError):
        return None


def kept_bytes(
    model: str, found: Checkpoint | None, batch: BatchShape, *, width: int, recompute: Share, fp8: bool = False
) -> float | None:
    """About the most that forward and backward of a micro batch need, in numbers of `width` bytes, where the model is whole; None
    where it cannot be said.

    Norm, MLP and loss are computed in few passes, and gradients of two pairs of layers are whole. `estimating` counts it term by term.
    """
    parameters, tokens = parameters_of(model, found), batch.micro_batch_size * batch.sequence_length
    if parameters is None:
        return None
    shape = architecture(model)
    if not isinstance(shape, Architecture):
        return None
    layers, head = shape.num_hidden_layers, shape.vocab_size * shape.hidden_size
    # Two norms and what they make, queries, keys, values and what attention finds; both factors of the MLP and their product.
    # In fp8 what norms make and the MLP's product is rounded for the products, and made anew for the backward pass.
    hidden, inner = (6, 2) if fp8 else (8, 3)
    a_layer = tokens * width * (hidden * shape.hidden_size + inner * shape.intermediate_size)
    entering = tokens * width * shape.hidden_size
    anew = len(spread(recompute, layers))
    kept = anew * entering + (layers - anew or 1) * a_layer
    loss = 12 * head if tokens <= _PLACES else max(10 * head, 6 * head + 16 * _PLACES * shape.vocab_size)
    unit = max(2 * (parameters - head) / layers, head)
    return float(kept + 6 * entering + loss + 2 * width * unit)


def check_family(model: str, found: Checkpoint | None, attention: str, precision: str) -> str | None:
    """What the user should know of the model's family in this precision. Raises PlanError for what the family cannot do."""
    family = family_of(model, found)
    if family not in ENCODER_DECODERS:
        return None
    if attention == "flash_attention_2":
        raise PlanError(
            f"FlashAttention-2 has no place for the positions of {model}, which are added to each score. Use sdpa: leave f out, or "
            "--set attention=sdpa."
        )
    if precision == "fp16":
        return (
            f"{model} comes from training in bf16: in fp16 its numbers can overflow, and --set precision=fp32 is safe"
        )
    return None


def frozen_by(*, lora: bool, quantized: bool) -> str | None:
    """What leaves most weights as they are; None where all are trained."""
    return "LoRA" if lora else "a quantized base" if quantized else None


def ramp_steps(steps: int) -> int:
    """Steps over which the learning rate rises: a tenth of all, at least 5 where there are so many."""
    return min(max(steps // 10, 5), LONGEST_RAMP, steps // 2)


def choose_schedule(asked: str | None, of_task: str, own: bool) -> tuple[str, str | None]:
    """How the learning rate goes on behind its ramp, and why where nobody `asked` for something; `own` as in `choose_ramp`."""
    if asked is None:
        if own:
            return "constant", "computed: DeepSpeed's scheduler sets the learning rate"
        return of_task, "default of the task"
    if own and asked != "constant":
        raise PlanError(
            f"lr_schedule is {asked} and deepspeed.scheduler sets the learning rate too. Keep one: --set lr_schedule=constant."
        )
    return asked, None


def choose_evaluation(asked: Any, by_default: bool, steps: int) -> tuple[int | None, str | None]:
    """Steps between evaluations, and why where nobody `asked` for a number. Raises RequestError for what is none."""
    if asked is None:
        return (0, "default: at the end") if by_default else (None, "default: nothing is evaluated")
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= steps:
        raise RequestError(
            f"eval_every is {asked!r}, it must be between 1 and the {steps} steps, or 0 for one evaluation at the end."
        )
    return asked, None


def choose_ramp(asked: Any, steps: int, own: bool) -> tuple[int, str | None]:
    """The steps over which the learning rate rises, and why where nobody `asked` for a number of them.

    `own` is whether a scheduler of DeepSpeed sets the rate, which has a ramp of its own. Raises RequestError for what
    is no number of steps, and PlanError where both would set it.
    """
    if asked is None:
        if own:
            return 0, "computed: DeepSpeed's scheduler sets the learning rate"
        return ramp_steps(steps), f"default: a tenth of the steps, at least 5, at most half of them and {LONGEST_RAMP}"
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= steps:
        raise RequestError(f"lr_ramp_steps is {asked!r}, it must be between 0 and the {steps} steps.")
    if asked and own:
        raise PlanError(
            f"lr_ramp_steps is {asked} and deepspeed.scheduler sets the learning rate too. Keep one: --set lr_ramp_steps=0."
        )
    return asked, None
