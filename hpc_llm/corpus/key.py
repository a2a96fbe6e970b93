"""By what a corpus is known: what was read, the tokenizer, and how it was read. Standard library only."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpc_llm.corpus.facts import CorpusFacts, not_whole
from hpc_llm.corpus.format import SCHEMA, SplitFiles
from hpc_llm.corpus.reading import Identity, check_no_pipes, check_tokenizer_names, identity
from hpc_llm.corpus.sets import KNOWN_SETS
from hpc_llm.corpus.sources import HUB, SourceFile, source_files
from hpc_llm.errors import DataRequestError, ModelRequestError
from hpc_llm.records.files import open_plain, read_own, reason_of, write_json

BYTES = "bytes"
"""The tokenizer of a model that has none: each byte is a token."""
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "vocab.txt", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
"""What decides how text becomes tokens."""
_NAMES_TOKENS = frozenset(
    ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
)
_DIGESTS = ".digests"
_READING = 3
"""Counts up where the same rows become other samples, so that they are prepared anew."""
_JUST_WRITTEN_S = 5.0
_CHUNK_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class CorpusRequest:
    """What is to be read, and how."""

    sources: tuple[str, ...]
    model: str
    """Preset, or folder of a checkpoint whose tokenizer is used."""
    layout: str
    """Whether it is one sequence that is predicted, or one that is read and one that is written: one of words.LAYOUTS."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Which fields of a row are what; empty where the rows say it by their names."""
    validation_fraction: float | None = None
    train_samples: int | None = None
    """Most samples of the split; None means all."""
    validation_samples: int | None = None

    def settings(self) -> dict[str, Any]:
        """What of it decides the tokens besides sources and tokenizer."""
        values = asdict(self)
        return {name: value for name, value in values.items() if name not in ("sources", "model")}


def corpus_key(request: CorpusRequest, caches: Path | None = None) -> str:
    """The name of the folder that holds the tokens of the request.

    Digests of large files are remembered in `caches` where that folder is there already.

    Raises:
        RequestError: a source cannot be read.
    """
    content = [
        [file.split, file.kind, file.known_set, file_digest(file, caches)] for file in source_files(request.sources)
    ]
    parts = [SCHEMA, _READING, content, tokenizer_digest(request.model), request.settings()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def check_contents(facts: CorpusFacts, caches: Path) -> CorpusFacts:
    """The same corpus, once its files hold what was written; they are read for that once, and again when they change.

    Raises:
        RequestError: they hold something else.
    """
    for split, known in facts.splits.items():
        files = SplitFiles(facts.folder, split)
        for path in (files.tokens, files.ends, files.starts):
            try:
                digest = remembered_digest(path, caches)
            except OSError as error:
                raise not_whole(facts.folder, f"{path.name}: {reason_of(error)}") from None
            if digest != known.sha256.get(path.name):
                raise not_whole(facts.folder, f"{path.name} does not hold what was written to it")
        facts.samples(split)
    return facts


def tokenizer_digest(model: str) -> str:
    """Of the files that decide how text becomes tokens; `bytes` where there are none. Raises RequestError where one is no file."""
    folder = Path(model)
    check_no_pipes(folder)
    check_tokenizer_names(folder)
    names = [name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    if not _NAMES_TOKENS & set(names):
        return BYTES
    try:
        text = json.dumps([[name, _digest(folder / name)] for name in names])
    except OSError as error:
        raise ModelRequestError(f"the tokenizer in {folder} cannot be read: {reason_of(error)}.") from None
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(file: SourceFile, caches: Path | None = None) -> str:
    """SHA-256 of what is read; of a set of the Hub its name, for its rows are not here."""
    if file.kind == HUB:
        one = KNOWN_SETS[file.path]
        return f"hub {one.hub} {one.config} {one.train} {one.validation}"
    try:
        return remembered_digest(Path(file.path), caches)
    except OSError as error:
        raise DataRequestError(f"--data {file.path}: it cannot be read: {reason_of(error)}.") from None


def source_identities(request: CorpusRequest) -> list[Identity]:
    """What the files of the sources are known by without their content. Raises RequestError where one cannot be read."""
    return [identity(file.path) for file in source_files(request.sources) if file.kind != HUB]


def remembered_digest(path: Path, caches: Path | None) -> str:
    """SHA-256 of a file's content, read only where this user has not noted it in `caches`. Raises OSError."""
    found = path.stat()
    now = {"path": str(path), "size": found.st_size, "inode": found.st_ino}
    now |= {
        "mtime_ns": found.st_mtime_ns,
        "ctime_ns": found.st_ctime_ns,
    }  # who sets back the first cannot set the second
    # A file that was written a moment ago may be written again within the same tick of the file system's clock.
    if caches is None or not caches.is_dir() or time.time() - found.st_mtime < _JUST_WRITTEN_S:
        return _digest(path)
    note = caches / f"{_DIGESTS}-{os.geteuid()}" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    known = _own_note(note)
    if {**known, "digest": None} == {**now, "digest": None} and isinstance(known["digest"], str):
        return known["digest"]
    digest = _digest(path)
    _keep(note, {**now, "digest": digest})
    return digest


def _own_note(note: Path) -> dict[str, Any]:
    """What this user noted; nothing where others can have written it."""
    try:
        value = json.loads(read_own(note))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _keep(note: Path, value: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # it is read again the next time
        write_json(note, value)


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with open_plain(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()
