"""Method: how memory is saved. A DeepSpeed config and the switches beside it, one `configs/<name>.yaml` each.

A method can also be composed in the letters of the paper, `z3+o+r+f`: Z1 Z2 Z3 the ZeRO stage, O offload,
R recompute (R0.25: of a quarter of the layers), F FlashAttention, Q quantized base, L LoRA, QL QLoRA, FP8 products in fp8.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hpc_llm.errors import PlanError, ProfileError, RequestError, did_you_mean, unknown_name
from hpc_llm.planning import engines
from hpc_llm.planning.deepspeed_config import COMPUTED, check_keys
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.optimizers import OptimizerName
from hpc_llm.planning.parts import ModelSetup
from hpc_llm.planning.recompute import Share, in_words, letter_of, read_share, share_of_letter
from hpc_llm.planning.schedule import Schedule
from hpc_llm.site.cluster import parse_profile
from hpc_llm.site.profiles import list_files, read_profile, refuse_path


class _Strict(BaseModel):
    # defer_build: only the outermost model is ever validated, so only its validator is built.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class QuantizationBlock(_Strict):
    """bitsandbytes storage of the frozen linear layers."""

    kind: Literal["nf4", "fp4", "int8"]
    double_quant: bool = False
    """Quantize the quantization constants too (4-bit kinds)."""


class LoraBlock(_Strict):
    kind: Literal["lora"] = "lora"
    r: int = Field(default=8, gt=0)
    """Rank of the update."""
    alpha: int = Field(default=16, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: Literal["all-linear"] | list[str] = "all-linear"


class OptimizerBlock(_Strict):
    type: OptimizerName | Annotated[list[OptimizerName], Field(min_length=1)]
    """AdamW and Adam are built by DeepSpeed; the 8-bit ones are bitsandbytes'. Of several the first one that suits."""
    lr: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Peak learning rate; left out, it is chosen for the model's width."""
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(default=[0.9, 0.999], min_length=2, max_length=2)
    eps: float = Field(default=1e-8, ge=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)


def auto_in(block: Any) -> str | None:
    """What is wrong with the block's first value that is `auto`, a word that the Hugging Face Trainer would replace."""
    found = next((key for key, value in block.items() if value == "auto"), None) if isinstance(block, Mapping) else None
    return found and f"'{found}' is 'auto', and nothing fills in 'auto' here: leave it out, or give a value"


class Method(_Strict):
    schema_version: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9+_-]*$")
    description: str
    """One line."""
    letters: str
    """The method in the letters of the paper."""
    source: str = ""
    """Where the values come from."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """`auto`: bf16 where the GPU has it, else fp16."""
    recompute: bool | float | Literal["auto"] = False
    """Of which layers activations are recomputed: `true` all, a number between 0 and 1 a share of them, `auto` as few as fit."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    fp8: bool = False
    """Whether the linear layers of the decoder multiply in fp8."""
    quantization: QuantizationBlock | None = None
    peft: LoraBlock | None = None
    optimizer: OptimizerBlock
    lr_ramp_steps: int | None = Field(default=None, ge=0)
    """First steps over which the learning rate rises to its peak; left out, a tenth of the steps."""
    lr_schedule: Schedule | None = None
    """How the learning rate goes on behind the ramp; left out, as the task has it."""
    engine: str | list[str] = "deepspeed"
    """What carries out the training steps. Of several the first one that suits: all but the last are left out where they cannot do
    what is wanted, and where nobody has measured that they do it better."""
    deepspeed: dict[str, Any]
    """DeepSpeed config without the batch sizes, which are computed, and without the optimizer, which stands above."""

    @field_validator("engine")
    @classmethod
    def _known_engine(cls, names: str | list[str]) -> str | list[str]:
        if not names:
            raise ValueError("the list names no engine")
        try:
            for name in [names] if isinstance(names, str) else names:
                engines.find(name)
        except RequestError as error:
            raise ValueError(str(error)) from None
        return names

    @field_validator("recompute", mode="before")
    @classmethod
    def _known_share(cls, share: Any) -> Share | str:
        return read_share(share)

    @field_validator("optimizer", "peft", "quantization", mode="before")
    @classmethod
    def _not_auto(cls, block: Any) -> Any:
        if said := auto_in(block):
            raise ValueError(said)
        return block

    @field_validator("deepspeed")
    @classmethod
    def _known_keys(cls, config: dict[str, Any]) -> dict[str, Any]:
        try:
            check_keys(config, "deepspeed")
        except RequestError as error:
            raise ValueError(str(error)) from None
        for key in (*COMPUTED, "optimizer"):
            if key in config:
                raise ValueError(f"'{key}' is computed from the rest, leave it out")
        return config

    @model_validator(mode="after")
    def _one_precision(self) -> "Method":
        """A block that was copied from a config of DeepSpeed's says one as well, and the field above is what counts."""
        said = "bf16" if self.precision == "auto" else self.precision
        for kind in ("fp16", "bf16"):
            if (self.deepspeed.get(kind) or {}).get("enabled") is True and kind != said:
                raise ValueError(
                    f"deepspeed.{kind}.enabled is true, and the precision is {said}: write precision: {kind}, or leave it out"
                )
        return self

    @property
    def zero_stage(self) -> int:
        return int(self.deepspeed.get("zero_optimization", {}).get("stage", 0))

    @model_validator(mode="after")
    def _letters_tell_the_truth(self) -> "Method":
        said = letters_with(self, self.recompute)
        if self.letters != said:
            raise ValueError(f"letters is '{self.letters}', but what the file says is '{said}'")
        return self


def parse_method(data: dict[str, Any], where: Path | str) -> Method:
    """A Method from the mapping of a file; a ProfileError names file, key and what is allowed."""
    return parse_profile(Method, data, where)


def method_names() -> list[str]:
    return list(list_files("configs"))


def load_method(name: str) -> Method:
    """The method of that name, or composed from letters, e.g. `z3+o+r`."""
    if name in list_files("configs"):
        data, path = read_profile("configs", name)
        return parse_method(data, path)
    refuse_path("configs", name)
    return compose(name)


LETTERS = {
    "o": "offload of the optimizer (and, with z3, of the parameters) to the host",
    "r": "activation recomputation",
    "f": "FlashAttention-2",
    "fp8": "the linear layers of the decoder multiplied in fp8 (NVIDIA GPUs from compute capability 8.9 on; pays from 3000 tokens a micro batch on)",
    "q": "quantized base, NF4 with double quantization",
    "l": "LoRA",
    "lora": "LoRA",
    "ql": "LoRA on a quantized base",
    "qlora": "LoRA on a quantized base",
}


def compose(name: str) -> Method:
    """A method put together from a base file and letters."""
    files = list_files("configs")
    parts = name.lower().split("+")
    if "" in parts and any(parts):
        without = "+".join(filter(None, parts))
        raise PlanError(
            f"method '{name}': a + has nothing on one side. Leave it out ({without}), or add a letter, as in z3+o."
        )
    tokens = [t if t in files else _usual_letter(t, name) for t in parts if t]
    name = "+".join(tokens) or name
    letters = [t for t in tokens if t in LETTERS or (t not in files and share_of_letter(t))]
    bases = [t for t in tokens if t in files and t not in letters]
    wrong = [t for t in tokens if t not in files and t not in letters]
    if wrong or not tokens:
        unknown = wrong[0] if wrong else name
        hint = f"With + they take letters, as in z3+o+r: {', '.join(LETTERS)}, r0.25, rauto. `hpc-llm methods -h` says what each is."
        is_letter = len(tokens) > 1 and len(unknown) > 1 and not _meant(unknown)
        near = did_you_mean(unknown, LETTERS) if is_letter else ""  # behind a + a letter is meant before a file
        if near and not did_you_mean(unknown, files):
            raise ProfileError(f"there is no letter '{unknown}' of a method{near} {hint}")
        raise ProfileError(unknown_name("method", unknown, files, next_step=hint, meant=_meant(unknown)))
    adapters = list(dict.fromkeys(t for t in letters if t in ("l", "lora", "ql", "qlora")))
    if len(adapters) > 1:
        raise PlanError(
            f"method '{name}': {' and '.join(adapters)} each say LoRA (with q its base is quantized). Keep one of them."
        )
    for several in (bases, list(dict.fromkeys(t for t in letters if share_of_letter(t)))):
        if len(several) > 1:
            raise PlanError(f"method '{name}': {' and '.join(several)} exclude each other. Keep one of them.")
    base = bases[0] if bases else "ddp"
    if not bases and "q" in letters and "q" in files:
        base, letters = "q", [t for t in letters if t != "q"]
    if "o" in letters and f"{base}o" in files:
        base, letters = f"{base}o", [t for t in letters if t != "o"]
    data, path = read_profile("configs", base)
    parse_method(data, path)  # says what is wrong with the file before anything is added to it
    for letter in letters:
        _add_letter(data, letter, name)
    data["letters"] = spelled(
        data["deepspeed"],
        quantization=data.get("quantization"),
        peft=data.get("peft"),
        recompute=data.get("recompute", False),
        attention=data.get("attention", ""),
        fp8=data.get("fp8", False),
    )
    return parse_method(data, path).model_copy(
        update={"name": name, "description": _described(data["description"], letters)}
    )


def _usual_letter(token: str, name: str) -> str:
    """The part of a method's name as it is usually written: r1 is r."""
    try:
        share = share_of_letter(token)
    except ValueError as error:
        raise PlanError(f"method '{name}': {token} is no share of the layers to recompute: {error}.") from None
    return token if share is None else letter_of(share)


def _meant(name: str) -> list[str]:
    """The bundled method that other programs call so.

    >>> _meant("ZeRO-3"), _meant("zero2_offload"), _meant("stage1"), _meant("FSDP"), _meant("x")
    (['z3'], ['z2o'], ['z1'], ['z3'], [])
    """
    zero = re.fullmatch(
        r"(?:deepspeed)?(?:zero|stage|zerostage|ds|z)([123])(o|cpu)?(?:off?load(?:ing|ed)?)?(o|cpu)?",
        re.sub(r"[-_ .]", "", name.lower()),
    )
    if zero:
        is_offloaded = re.search(r"off|cpu|o$", name.lower().removeprefix("zero")) is not None
        return [f"z{zero[1]}o" if is_offloaded and zero[1] != "1" else f"z{zero[1]}"]
    other = {
        "fsdp": "z3",
        "baseline": "ddp",
        "none": "ddp",
        "dp": "ddp",
        "zero": "z1",
        "quantized": "q",
        "nf4": "q",
        "4bit": "q",
        "bnb": "q",
    }
    return [other[name.lower()]] if name.lower() in other else []


def _add_letter(data: dict[str, Any], letter: str, name: str) -> None:
    zero = data["deepspeed"].get("zero_optimization") or {}
    if letter == "o":
        if not zero.get("stage"):
            raise PlanError(f"method '{name}': offload needs ZeRO. Put z1, z2 or z3 in front, as in z2+o.")
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if zero["stage"] == 3:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    elif share := share_of_letter(letter):
        data["recompute"] = share
    elif letter == "f":
        data["attention"] = "flash_attention_2"
    elif letter == "fp8":
        data["fp8"] = True
    if letter in ("q", "ql", "qlora"):
        data["quantization"] = {"kind": "nf4", "double_quant": True}
    if letter in ("l", "lora", "ql", "qlora"):
        data["peft"] = {"kind": "lora"}
        data["optimizer"] = {k: v for k, v in data["optimizer"].items() if k != "lr"}  # one for adapters is chosen
    if letter == "q":
        data["optimizer"] = {**data["optimizer"], "type": "AdamW8bit"}


def spelled(
    deepspeed: Mapping[str, Any],
    *,
    quantization: object,
    peft: object,
    recompute: Share | str,
    attention: str,
    fp8: bool,
) -> str:
    """The letters of what a method or a plan with these settings does, in the order of the paper."""
    zero = deepspeed.get("zero_optimization") or {}
    parts = [f"z{zero['stage']}"] if zero.get("stage") else []
    parts += ["o"] if any(engines.offload_place(deepspeed, what) for what in ("optimizer", "param")) else []
    if peft:
        parts.append("qlora" if quantization else "lora")
    elif quantization:
        parts.append("q")
    parts += [letter_of(recompute)] if recompute else []
    parts += ["f"] if attention == "flash_attention_2" else []
    parts += ["fp8"] if fp8 else []
    return "+".join(parts) or "ddp"


def letters_with(method: Method, recompute: Share | str) -> str:
    """The letters of the method where it recomputes that share of the layers."""
    return spelled(
        method.deepspeed,
        quantization=method.quantization,
        peft=method.peft,
        recompute=recompute,
        attention=method.attention,
        fp8=method.fp8,
    )


def letters_of(plan: Plan) -> str:
    """The letters of what a plan does, whatever its method is called."""
    return plan_letters(plan.model, plan.engine.deepspeed)


def plan_letters(model: ModelSetup, deepspeed: Mapping[str, Any]) -> str:
    """The letters of what training of that model with these settings of DeepSpeed does."""
    return spelled(
        deepspeed,
        quantization=model.quantization,
        peft=model.peft,
        recompute=model.recompute,
        attention=model.attention,
        fp8=model.fp8,
    )


def _described(base: str, letters: list[str]) -> str:
    added = ", ".join(
        LETTERS[t] if t in LETTERS else f"{LETTERS['r']} of {in_words(share_of_letter(t) or False)}" for t in letters
    )
    return f"{base}, with {added}" if added else base
