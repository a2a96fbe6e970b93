"""Which files of a model or data set a run needs: one set of weights, what makes tokens of text, and the licence."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hpc_llm.errors import FetchError, RequestError
from hpc_llm.fetching.listing import Entry, Listing
from hpc_llm.fetching.names import DATASET
from hpc_llm.text.json_text import figures

_SMALL = re.compile(
    r"(?:config|generation_config|adapter_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template"
    r"|preprocessor_config|processor_config)\.json|(?:vocab|merges)\.txt|tekken\.json|[\w.-]{1,60}\.(?:model|spm|tiktoken)(?:\.v\d{1,3})?|chat_template\.jinja"
    r"|additional_chat_templates/[\w.-]+\.jinja"
)
_PAPERS = re.compile(r"(?:README|LICEN[CS]E|NOTICE|USE_POLICY|COPYING)(?:[._-][\w.-]*)?", re.IGNORECASE)
_WEIGHTS = ("model.safetensors", "adapter_model.safetensors", "pytorch_model.bin", "adapter_model.bin")
"""Files of weights that are loaded by their name, the best first; each can have an index of shards instead."""
_FOREIGN = re.compile(
    r"\.(?:safetensors|bin|gguf|ggml|pth|pt|h5|msgpack|onnx|ckpt|nemo|npz|tflite|mlmodel|xml)(?:\.index\.json)?$"
)
_MANY = 8


def choose(listing: Listing, folder: str, only: Sequence[str], read: Callable[[Entry], bytes]) -> list[Entry]:
    """The files to fetch; `folder` is the one of a data set that is meant, `only` are patterns of paths that somebody asked for instead. `read` gives a small file's content.

    Raises:
        RequestError: nothing of what is there is what a run needs.
        FetchError: it cannot lie in one folder.
    """
    listing = replace(listing, entries=tuple({entry.path: entry for entry in listing.entries}.values()))
    if only:
        chosen = _matching(listing, only)
    else:
        chosen = _of_dataset(listing, folder) if listing.kind == DATASET else _of_model(listing, read)
    _refuse_both(listing, chosen)
    return chosen


def _refuse_both(listing: Listing, chosen: Sequence[Entry]) -> None:
    """Raise FetchError where a file of the list would have to be a folder, too: no file system holds both."""
    paths = sorted(f"{entry.path}/" for entry in chosen)
    for one, following in itertools.pairwise(paths):
        if following.startswith(one):
            raise FetchError(
                f"{listing.name} is listed with {one[:-1]} as a file and as a folder, that of {following[:-1]}: both cannot be here. "
                "Nothing was fetched; --only PATTERN fetches one of them."
            )


def _matching(listing: Listing, only: Sequence[str]) -> list[Entry]:
    entries = listing.entries
    for pattern in only:
        if not fnmatch.filter([entry.path for entry in entries], pattern):
            raise RequestError(f"--only {pattern}: {listing.name} has no such file. There: {_some(entries)}.")
    return [entry for entry in entries if any(fnmatch.fnmatchcase(entry.path, pattern) for pattern in only)]


def _of_dataset(listing: Listing, folder: str) -> list[Entry]:
    entries = listing.entries
    start = f"{folder}/" if folder else ""
    data = [entry for entry in entries if entry.path.startswith(start) and _is_data(entry.path)]
    if not any(not _PAPERS.fullmatch(entry.path) for entry in data):
        folders = sorted({entry.path.split("/")[0] for entry in entries if "/" in entry.path and _is_data(entry.path)})
        there = f"its folders: {', '.join(folders[:_MANY])}" if folders else f"there: {_some(entries)}"
        raise RequestError(f"the data set {listing.name} has no data{f' in {folder}' if start else ''}; {there}.")
    return [entry for entry in entries if entry in data or (start and _PAPERS.fullmatch(entry.path))]


def _is_data(path: str) -> bool:
    """Hidden files are git's; programs that load a data set are run by nobody any more."""
    return not any(part.startswith(".") for part in path.split("/")) and not path.endswith(".py")


def _of_model(listing: Listing, read: Callable[[Entry], bytes]) -> list[Entry]:
    entries = listing.entries
    by_path = {entry.path: entry for entry in entries}
    weights = _weights(listing, by_path, read)
    if not weights:
        others = [entry for entry in entries if _FOREIGN.search(entry.path)]
        there = f"It holds {_some(others or entries)}. --only PATTERN fetches such files all the same."
        raise RequestError(
            f"{listing.name} holds no weights that can be trained (model.safetensors or pytorch_model.bin, whole or in shards). {there}"
        )
    small = [entry for entry in entries if _SMALL.fullmatch(entry.path) or _PAPERS.fullmatch(entry.path)]
    return sorted({*small, *weights}, key=lambda entry: entry.path)


def _weights(listing: Listing, by_path: dict[str, Entry], read: Callable[[Entry], bytes]) -> list[Entry]:
    """The one set of weights that transformers would load."""
    for name in _WEIGHTS:
        if name in by_path:
            return [by_path[name]]
        index = by_path.get(f"{name}.index.json")
        if index is not None:
            return [index, *_shards(listing, by_path, _names_in(listing, index, read(index)))]
    return []


def _names_in(listing: Listing, index: Entry, content: bytes) -> list[str]:
    try:
        names = set(figures(content.decode("utf-8"))["weight_map"].values())
        return sorted(name for name in names if isinstance(name, str))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RequestError(f"{index.path} of {listing.name} does not say which files hold the weights.") from None


def _shards(listing: Listing, by_path: dict[str, Entry], names: Iterable[str]) -> list[Entry]:
    missing = [name for name in names if name not in by_path]
    if missing:
        raise RequestError(
            f"{listing.name} is not whole where it lies: its index names {', '.join(missing[:_MANY])}, which it does not hold."
        )
    return [by_path[name] for name in names]


def _some(entries: Sequence[Entry]) -> str:
    paths = [entry.path for entry in entries]
    more = f" and {len(paths) - _MANY} more" if len(paths) > _MANY else ""
    return ", ".join(paths[:_MANY]) + more if paths else "nothing"
