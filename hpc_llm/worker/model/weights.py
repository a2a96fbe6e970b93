"""Loading a checkpoint whole, or not at all: no part of a model that was meant to be loaded stays at random values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from hpc_llm.errors import ModelFileError, RequestError, WorkerError
from hpc_llm.planning.checkpoint import read_config
from hpc_llm.planning.encoder_decoder import MODEL_TYPES
from hpc_llm.records.weight_files import check_types, is_float, table_of
from hpc_llm.worker.model import t5
from hpc_llm.worker.model.files import check_kept, files_of
from hpc_llm.worker.tensor_file import check_tensors

_SHOWN = 3
_ROWS = 4096
"""Of two tables of embeddings that are compared at once."""


def transformers_release() -> tuple[int, int]:
    """Major and minor version of the transformers that is installed."""
    from transformers import __version__

    major, minor = __version__.split(".")[:2]
    return int(major), int(minor)


def in_dtype(dtype: Any) -> dict[str, Any]:
    """What tells transformers in which type to make a model; the option has another name since 4.56."""
    return {"dtype" if transformers_release() >= (4, 56) else "torch_dtype": dtype}


def attention_for(config: Any, wanted: str) -> str:
    """`wanted`, or what a T5 computes with in releases of transformers that have none with torch's own attention.

    Of other models the refusal stays: it says that --set attention=eager is to be asked for.
    """
    if wanted != "sdpa" or getattr(config, "model_type", "") not in MODEL_TYPES:
        return wanted
    from transformers import T5ForConditionalGeneration

    return wanted if T5ForConditionalGeneration._supports_sdpa else "eager"


def model_class(config: Any, names: Collection[str] = ()) -> Any:
    """What makes the model of a config object, with `from_config` and `from_pretrained`; `names` are those in a checkpoint's files."""
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    if t5.has_own_head(config) and (not names or t5.HEAD in names):
        return t5.class_with_own_head()
    return AutoModelForSeq2SeqLM if getattr(config, "is_encoder_decoder", False) else AutoModelForCausalLM


def load_checkpoint(folder: str, dtype: Any, *, alone: bool = False, **how: Any) -> Any:
    """transformers' language model with the weights in `folder`; `how` is passed on to its from_pretrained.

    The ranks share the look at its checksums, unless one loads it `alone`.

    An `attn_implementation` that this release lacks for the model is another one.

    Code that the folder brings is not run. Raises WorkerError where the files and the model do not match.
    """
    files = files_of(folder)
    check_kept(folder, files, *((0, 1) if alone else _share()))
    pickled = _checked_pickles(folder, files)
    config = load_config(folder)
    if "attn_implementation" in how:
        how["attn_implementation"] = attention_for(config, how["attn_implementation"])
    try:
        model, info = model_class(config, {name for path in files for name in _names(path)}).from_pretrained(
            folder,
            config=config,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=_lists_mismatches(),  # they are refused below
            **in_dtype(dtype),
            **how,
        )
    except (OSError, ValueError, RuntimeError) as error:
        if not _is_of_the_checkpoint(error):
            raise
        raise _of_files(error)(f"the checkpoint {folder} cannot be loaded: {_first_sentence(error)}") from error
    _check_whole(folder, model, info, files, pickled)
    return model


def _share() -> tuple[int, int]:
    """This rank, and how many there are."""
    import torch.distributed as dist

    there = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if there else (0, 1)


def _checked_pickles(folder: str, files: Iterable[Path]) -> dict[str, dict[str, str]]:
    """The type of each pickled weight by its name.

    Raises ModelFileError where they are not tensors by name alone, or whole numbers, before a library reads them and says so in
    words of its own, or makes fractions of them.
    """
    way_on = "Take one with model.safetensors, or have who made it write its weights anew with save_pretrained."
    found: dict[str, dict[str, str]] = {}
    for path in files:
        if path.suffix == ".safetensors":
            continue
        table = check_tensors(path, f"the model {folder}", way_on)
        try:
            check_types(path, table, "quantization_config" in read_config(Path(folder)))
        except RequestError as error:
            raise ModelFileError(str(error)) from None
        found |= table
    return found


def _lists_mismatches() -> bool:
    """Whether transformers can be had to list wrong shapes in place of failing at the first: before 5 it takes split parts for such."""
    from transformers.integrations import is_deepspeed_zero3_enabled

    return transformers_release() >= (5, 0) or not is_deepspeed_zero3_enabled()


def _is_of_the_checkpoint(error: Exception) -> bool:
    """Rather than of the machine: memory, disk."""
    if isinstance(error, RuntimeError):
        return "size mismatch" in str(error)
    return getattr(error, "errno", None) is None


def _of_files(error: Exception) -> type[WorkerError]:
    """What the error of a library means: a ValueError may be of a kind of model, or of attention, that it does not know."""
    return WorkerError if isinstance(error, ValueError) else ModelFileError


def load_config(folder: str) -> Any:
    """transformers' config object of a folder whose weights are not wanted."""
    from transformers import AutoConfig

    try:
        read_config(Path(folder))
    except RequestError as error:
        raise ModelFileError(str(error)) from None
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except ImportError:
        raise
    except Exception as error:  # what is checked there, and by which exception it is told, changes with the release
        why = error.__cause__ if isinstance(error.__cause__, ValueError) else error
        raise _of_files(error)(f"the config.json in {folder} cannot be used: {_first_sentence(why)}") from error


def _check_whole(
    folder: str, model: Any, info: Mapping[str, Any], files: Iterable[Path], pickled: Mapping[str, Any]
) -> None:
    """Raise ModelFileError where a weight is missing, left over or of another shape. Tied weights stand there once."""
    tied = getattr(model, "_tied_weights_keys", None) or ()
    ties = tuple(tied) if getattr(model.config, "tie_word_embeddings", False) else ()
    missing = [name for name in info["missing_keys"] if not name.endswith(ties)] if ties else info["missing_keys"]
    left_over = set(info["unexpected_keys"]) or _left_over(model, files)
    wrong = {
        "lacks": list(missing),
        "also holds": list(left_over),
        "has other shapes for": [str(each[0]) for each in info["mismatched_keys"]],
        "has whole numbers in place of fractions for": _whole_numbers(model, files, pickled),
        "has values of their own for what its config.json ties to other weights:": _untied(model, files),
        "did not load": list(info.get("error_msgs") or ()),
    }
    problems = [f"{what} {_listed(names)}" for what, names in wrong.items() if names]
    if problems:
        raise ModelFileError(
            f"the weights in {folder} are not those of its config.json: the folder {'; it '.join(problems)}. "
            "Nothing is trained from weights that are random in part."
        )


def _whole_numbers(model: Any, files: Iterable[Path], pickled: Mapping[str, Any]) -> list[str]:
    """What the model computes with as fractions, and the files hold as whole numbers: transformers turns one into the other."""
    tables = [*map(_table, files), pickled]
    kinds = {name: each["dtype"] for table in tables for name, each in table.items()}
    return [n for n, one in model.named_parameters() if one.is_floating_point() and not is_float(kinds.get(n, "F32"))]


def _untied(model: Any, files: Iterable[Path]) -> list[str]:
    """What the config ties to another weight, and the files hold with other values: one of both would be lost in silence."""
    if not getattr(model.config, "tie_word_embeddings", False):
        return []
    place = {name: path for path in files for name in _names(path)}
    tied = getattr(model, "_tied_weights_keys", None) or ()
    parameters = {id(one): name for name, one in model.named_parameters()}
    embedding = parameters.get(id(getattr(model.get_input_embeddings(), "weight", None)), "")
    pairs = dict(tied) if isinstance(tied, Mapping) else dict.fromkeys(tied, embedding)
    held = [(one, other) for one, other in pairs.items() if one in place and other in place and one != other]
    return [one for one, other in held if not _are_equal(place[one], one, place[other], other)]


def _are_equal(path: Path, name: str, other_path: Path, other_name: str) -> bool:
    """Whether two weights of safetensors files are the same, a part at a time."""
    import torch
    from safetensors import safe_open

    with safe_open(path, "pt") as file, safe_open(other_path, "pt") as other_file:
        one, other = file.get_slice(name), other_file.get_slice(other_name)
        if one.get_shape() != other.get_shape():
            return False
        rows = range(0, one.get_shape()[0], _ROWS)
        return all(torch.equal(one[at : at + _ROWS], other[at : at + _ROWS]) for at in rows)


def _left_over(model: Any, files: Iterable[Path]) -> set[str]:
    """Names in the files that the model does not have, which transformers does not report under ZeRO-3.

    Empty where the files use other names than the model throughout, as older ones do: then nothing can be said.
    """
    held = {name for path in files for name in _names(path)}
    wanted = {name for name, _ in model.named_parameters()}
    if not held or not wanted <= held:
        return set()
    known = wanted | set(model.state_dict()) | set(getattr(model, "_tied_weights_keys", None) or ())
    ignored = [re.compile(pattern) for pattern in getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()]
    return {
        name
        for name in held - known
        if not name.endswith("rotary_emb.inv_freq") and not any(pattern.search(name) for pattern in ignored)
    }


def stored_in(folder: str) -> str | None:
    """The one type in which all weights in `folder` are written, as safetensors calls it (`BF16`); None where nobody can tell."""
    tables = [_table(path) for path in files_of(folder)]
    kinds = {each.get("dtype") if isinstance(each, dict) else None for table in tables for each in table.values()}
    return str(kinds.pop()) if len(kinds) == 1 and all(tables) else None


def _names(path: Path) -> list[str]:
    return list(_table(path))


def _table(path: Path) -> dict[str, Any]:
    """What a safetensors file says of each weight, by name; nothing for other files."""
    try:
        return table_of(path)
    except RequestError as error:
        raise ModelFileError(str(error)) from None


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _first_sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()]
    telling = [line for line in lines if line.startswith("size mismatch")] or lines or [type(error).__name__]
    return telling[0].rstrip(".") + "."
