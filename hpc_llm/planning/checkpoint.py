"""What a folder with a model in it holds: config and weights as Hugging Face writes them. Standard library only.

Only the names, sizes and first bytes of the weights are looked at, so a login node can do it.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpc_llm.corpus.reading import check_tokenizer_names
from hpc_llm.errors import ModelRequestError, RequestError
from hpc_llm.immutable import dataclass
from hpc_llm.planning.encoder_decoder import MODEL_TYPES, has_both
from hpc_llm.planning.loadable import check_kind
from hpc_llm.planning.model_sizes import check_sizes, check_text
from hpc_llm.records.checkpoints import kept_in
from hpc_llm.records.fetched import refuse_unfinished
from hpc_llm.records.files import open_regular, read_regular
from hpc_llm.records.models import stays_within
from hpc_llm.records.removed import removed_from
from hpc_llm.records.run import RunPaths, is_run
from hpc_llm.records.weight_files import check_types, table_of
from hpc_llm.text.json_text import DamagedRecordError, figures

_WHOLE = ("model.safetensors", "pytorch_model.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
_POINTER = b"version https://git-lfs"
_BEGIN_WITH = "to begin with it, merge it into its model and give that folder as --model (docs/training.md, From an adapter, has the command)"
_DOWNLOAD = "`hpc-llm fetch NAME --to DIR` brings a whole one"


@dataclass(frozen=True)
class Checkpoint:
    """A folder that a model can be made from."""

    folder: Path
    config: Mapping[str, Any]
    """Its config.json."""
    weights: tuple[Path, ...]
    """Its files of weights; none where only the shape of the model is there."""

    def size(self, *keys: str) -> int | None:
        """The first of these sizes that the config gives; families call the same thing by several names."""
        for key in keys:
            value = self.config.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None

    @property
    def hidden_size(self) -> int | None:
        return self.size("hidden_size", "n_embd", "d_model")

    @property
    def max_position_embeddings(self) -> int | None:
        """Longest sequence, tokens; None of a T5 too, whose positions are relative: its n_positions is what it was trained with."""
        if self.config.get("model_type") in MODEL_TYPES:
            return None
        return self.size("max_position_embeddings", "n_positions", "max_seq_len")


def read_checkpoint(folder: Path) -> Checkpoint:
    """Look into `folder`. Raises RequestError where it is no model, or where its weights are not whole."""
    config = read_config(folder)
    if has_both(config) and config.get("model_type") not in MODEL_TYPES:
        raise RequestError(
            f"the model in {folder} is an encoder and decoder of the family {config.get('model_type')}: of these only "
            f"{', '.join(MODEL_TYPES)} is trained (T5, Flan-T5), besides all causal language models."
        )
    check_kind(folder, config)
    _refuse_adapter(folder)
    _refuse_other_names(folder, config)
    check_tokenizer_names(folder)
    weights = _weights(folder)
    for path in weights:
        _check_file(path, "quantization_config" in config)
    if not weights:
        _explain_others(folder)
    return Checkpoint(folder, config, weights)


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder says how text becomes tokens."""
    return any((folder / name).is_file() for name in _TOKENIZERS)


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a folder."""
    refuse_unfinished(folder)
    path = folder / "config.json"
    try:
        text = read_regular(path).decode("utf-8")
        config = figures(text)
    except OSError:
        raise RequestError(_no_config(folder)) from None
    except DamagedRecordError as error:
        raise RequestError(f"{path} cannot be read: {error}.") from None
    except ValueError as error:
        raise RequestError(f"{path} is not JSON: {error}.") from None
    if not isinstance(config, dict):
        raise RequestError(f"{path} must hold one JSON object.")
    check_text(text, str(path))
    check_sizes(config, str(path))
    return config


def _no_config(folder: Path) -> str:
    if (folder / "adapter_config.json").is_file():
        return (
            f"the folder {folder} holds an adapter of PEFT and not the model that it is for: to go on with the run that trained it, "
            f"--resume {_run_of(folder)}; {_BEGIN_WITH}; to begin without it, give its model as --model."
        )
    snapshots = sorted(folder.glob("snapshots/*/config.json"))
    if snapshots:
        return f"the folder {folder} is an entry of the Hub's cache, the model is in {snapshots[-1].parent}: give that folder."
    if (way := _model_beside(folder)) is not None:
        return f"the folder {folder} {way}"
    return (
        f"the folder {folder} holds no config.json, so it is no checkpoint: give a folder written by save_pretrained, "
        "or the name of a preset (`hpc-llm models` lists them)."
    )


def _model_beside(folder: Path) -> str | None:
    """What a folder without a model is that is the run which kept one, a part of it, or what holds one or several; None of others."""
    real = Path(os.path.realpath(folder))
    root = next((one for one in (real, *list(real.parents)[:2]) if is_run(one)), None)
    if root is not None:
        run, what = RunPaths(root), "is that of a run" if root == real else f"lies in that of a run, {root}"
        if (run.model / "config.json").is_file():
            return f"{what}; its model is in {run.model}: give that folder."
        if (run.model / "adapter_config.json").is_file():
            return f"{what} that kept an adapter of PEFT, {run.model}: to go on with the run, --resume {run.run_id}; {_BEGIN_WITH}."
        if removed := removed_from(run.model):
            return f"{what}{'' if root == real else ','} whose model is gone: {removed}. {_made_again(run)}"
        return f"{what} that kept no model: a run keeps one with --save-every N. Give another folder, or the name of a preset."
    there = sorted(path.parent for path in (*folder.glob("*/config.json"), *folder.glob("*/model/config.json")))
    if not there:
        return None
    named = ", ".join(map(str, there[:3])) + (" and others" if len(there) > 3 else "")
    is_one = len(there) == 1
    return f"holds no model itself; {'one is' if is_one else 'models are'} in {named}: give {'that folder' if is_one else 'one of these'}."


def _made_again(run: RunPaths) -> str:
    """How the model of a run comes back that was removed."""
    if not kept_in(run.root):
        return "Give another folder, or the name of a preset."
    resume = f"`hpc-llm submit --resume {shlex.quote(str(run.root))}`"
    return f"{resume} goes on from the checkpoint that it has and keeps a model again; else give another folder."


def _run_of(folder: Path) -> str:
    """The run that kept an adapter in `folder`, or the word that stands for it."""
    run = RunPaths(folder.absolute().parent)
    return run.run_id if run.model.name == folder.name and run.experiment.is_file() else "RUN"


def _weights(folder: Path) -> tuple[Path, ...]:
    """The files that transformers would load, safetensors first."""
    for whole, index in zip(_WHOLE, _INDEXES, strict=True):
        if (folder / whole).exists():
            return (folder / whole,)
        if (folder / index).exists():
            return _shards(folder / index)
    return ()


def _shards(index: Path) -> tuple[Path, ...]:
    """The files that an index of weights names."""
    try:
        said = figures(read_regular(index).decode("utf-8"))
        names = sorted(set(said["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise RequestError(f"{index} does not say which files hold the weights: {_DOWNLOAD}.") from None
    if not isinstance(said.get("metadata"), dict):
        raise ModelRequestError(
            f'{index} has no "metadata", without which transformers loads no weights in parts: write "metadata": {{}} into it.'
        )
    for name in names:
        if not stays_within(name):
            raise ModelRequestError(
                f"{index} names weights that are not in its folder, {name!r}: what lies elsewhere is no part of the model. {_DOWNLOAD}."
            )
    return tuple(index.parent / name for name in names)


def _refuse_other_names(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise ModelRequestError where the config names other weights than those that are looked at: transformers would load them."""
    name = config.get("transformers_weights")
    if name is not None and name not in (_WHOLE[0], _INDEXES[0]):
        raise ModelRequestError(
            f"{folder / 'config.json'} names its weights by transformers_weights, {name!r}: only {_WHOLE[0]}, or {_INDEXES[0]} with its "
            "parts, is loaded, from the same folder. Give the file that name and take the key out of the config."
        )


def _check_file(path: Path, quantized: bool) -> None:
    """Raise RequestError where a file of weights is not there or not the weights themselves, as far as its beginning tells."""
    try:
        start = _beginning(path)
    except OSError as error:
        raise RequestError(f"the weights {path} cannot be read: {error.strerror}. {_DOWNLOAD}.") from None
    if not start:
        raise RequestError(f"the weights {path} are an empty file: {_DOWNLOAD}.")
    if start == _POINTER:
        raise RequestError(f"the weights {path} are a pointer of Git LFS: run `git lfs pull` in {path.parent}.")
    check_types(path, table_of(path), quantized)


def _beginning(path: Path) -> bytes:
    file = open_regular(path)
    if file is None:
        raise OSError(errno.EINVAL, "it is no regular file")
    with file:
        return file.read(len(_POINTER))


def _refuse_adapter(folder: Path) -> None:
    """Raise RequestError where an adapter lies beside a config: transformers would load that one's base, from wherever it says, and both."""
    if (folder / "adapter_config.json").exists():
        raise RequestError(
            f"the folder {folder} holds an adapter of PEFT beside the config of a model, so nobody can say what is to be trained: "
            f"{_BEGIN_WITH}; to begin without it, give a folder that holds no adapter_config.json."
        )


def _explain_others(folder: Path) -> None:
    """Raise RequestError where a folder without weights that can be loaded holds another kind of them."""
    if any(folder.glob("consolidated*.pth")):
        raise RequestError(
            f"the folder {folder} holds weights in the format of Meta, not of Hugging Face: {_DOWNLOAD}."
        )
