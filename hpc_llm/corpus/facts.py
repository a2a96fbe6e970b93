"""What is known of a prepared corpus without its tokens: `CorpusFacts`, from its corpus.json."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hpc_llm.corpus.format import END, FACTS, SCHEMA, START, TOKEN, TRAIN, SplitFacts, SplitFiles
from hpc_llm.corpus.rows import STREAM, Samples, check_lengths, make_rows, stream_rows
from hpc_llm.errors import RequestError
from hpc_llm.records.files import load_json, open_regular, reason_of
from hpc_llm.text.json_text import DamagedRecordError

CAUSAL, SEQ2SEQ = LAYOUTS = ("causal", "seq2seq")
"""One sequence of which the end is predicted, or one that is read and one that is written."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CorpusFacts:
    """A prepared corpus, as planning and the ranks know it."""

    folder: Path
    key: str
    layout: str
    """One of LAYOUTS."""
    sources: tuple[str, ...]
    tokenizer: str
    """Digest of the tokenizer's files, or `bytes`."""
    vocabulary: int
    """The smallest vocabulary that holds all of its tokens."""
    is_text: bool
    """Whether all of it is to be learned, so that its samples may be put end to end."""
    splits: Mapping[str, SplitFacts]
    _counted: dict[tuple[str, str, int, str], int] = field(default_factory=dict, repr=False)

    @property
    def is_causal(self) -> bool:
        return self.layout == CAUSAL

    def split(self, name: str) -> SplitFacts:
        """Raises RequestError where the corpus has no such split."""
        if name not in self.splits:
            raise RequestError(
                f"the data in {self.folder} have no {name} split, only {', '.join(self.splits)}: prepare them with "
                f"--data {name}=FILE, or with --set validation_fraction=0.1."
            )
        return self.splits[name]

    def count_rows(self, split: str, packing: str, length: int, too_long: str) -> int:
        """Rows of `length` tokens that one epoch has.

        Raises:
            PlanError: a sample is too long, and `too_long` says that this is an error.
            RequestError: there is no such split.
        """
        facts = self.split(split)
        if packing == STREAM:
            return stream_rows(facts.tokens, length)
        check_lengths(facts, split, length, too_long, is_causal=self.is_causal)
        asked = (split, packing, length, too_long)
        if asked not in self._counted:
            rows = make_rows(self.samples(split), packing, length, too_long, is_causal=self.is_causal)
            self._counted[asked] = len(rows)
        return self._counted[asked]

    def samples(self, split: str) -> Samples:
        """Where the samples of a split lie."""
        files = SplitFiles(self.folder, split)
        return Samples(_numbers(files.ends, END), _numbers(files.starts, START))


def _numbers(path: Path, kind: str) -> array[int]:
    found = array(kind)
    file = open_regular(path)
    if file is None:
        raise RequestError(f"{path} is no file.")
    with file:
        found.frombytes(file.read())
    return found


def read_facts(folder: Path) -> CorpusFacts:
    """What is known of the corpus in `folder`. Raises RequestError where it is none, or not whole."""
    try:
        record = load_json(folder / FACTS)
    except DamagedRecordError as error:
        raise _not_whole(folder, f"{FACTS}: {error}") from None
    if record is None:
        raise RequestError(
            f"the folder {folder} holds no {FACTS}, so it is no prepared data: `--task prepare` makes them."
        )
    if record.get("schema") != SCHEMA or record.get("byte_order") != sys.byteorder:
        raise RequestError(
            f"the data in {folder} were prepared by another version or kind of machine. Prepare them anew."
        )
    try:
        found = _facts_of(record, folder)
    except (KeyError, TypeError, ValueError):
        raise _not_whole(folder, f"{FACTS} lacks what it must say") from None
    for split, facts in found.splits.items():
        _check_sizes(SplitFiles(folder, split), facts)
    return found


def _facts_of(record: Mapping[str, Any], folder: Path) -> CorpusFacts:
    if record["layout"] not in LAYOUTS or TRAIN not in record["splits"]:
        raise ValueError
    known = {one.name for one in fields(SplitFacts)}
    splits = {
        name: SplitFacts(**{key: value for key, value in values.items() if key in known})
        for name, values in record["splits"].items()
    }
    return CorpusFacts(
        folder=folder,
        key=str(record["key"]),
        layout=record["layout"],
        sources=tuple(map(str, record["sources"])),
        tokenizer=str(record["tokenizer"]),
        vocabulary=int(record["vocabulary"]),
        is_text=record["is_text"] is True,
        splits=splits,
    )


def _check_sizes(files: SplitFiles, facts: SplitFacts) -> None:
    for path, kind, count in (
        (files.tokens, TOKEN, facts.tokens),
        (files.ends, END, facts.samples),
        (files.starts, START, facts.samples),
    ):
        try:
            size = path.stat().st_size
        except OSError as error:
            raise _not_whole(files.folder, f"{path.name}: {reason_of(error)}") from None
        if size != count * array(kind).itemsize:
            raise _not_whole(files.folder, f"{path.name} has {size} bytes, not {count * array(kind).itemsize}")


def _not_whole(folder: Path, why: str) -> RequestError:
    return RequestError(
        f"the prepared data in {folder} are not whole ({why}). Remove the folder and prepare them anew."
    )
