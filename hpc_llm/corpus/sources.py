"""What `--data SOURCE` may be: files, folders, known sets; and which files of them are read for which split.

A source is a path or the name of a known set. In front of a path `train=` or `validation=` says what it is for, and the name
of a known set that its rows are that set's: `gsm8k=/data/gsm8k`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from hpc_llm.corpus.format import FACTS
from hpc_llm.corpus.holes import refuse_holes
from hpc_llm.corpus.reading import check_file, refuse_binary
from hpc_llm.corpus.sets import KNOWN_SETS
from hpc_llm.corpus.words import SPLITS, TRAIN, VALIDATION
from hpc_llm.errors import DataRequestError, RequestError, notice, unknown_name
from hpc_llm.records.fetched import read_record, refuse_unfinished
from hpc_llm.records.run import RunPaths, is_run
from hpc_llm.text.pasted import refuse_address

_FOLDERS_UP = 4
"""Of an experiment file, in which what it names may lie."""
TEXT, JSONL, CSV, PARQUET, PDF, HUB = ("text", "jsonl", "csv", "parquet", "pdf", "hub")
_KINDS = {
    ".jsonl": JSONL, ".ndjson": JSONL, ".csv": CSV, ".parquet": PARQUET, ".pdf": PDF, ".txt": TEXT, ".text": TEXT, ".md": TEXT,
}  # fmt: skip
_NOT_READ = {
    ".json": "write one JSON object a line into a .jsonl file", ".arrow": "write it as parquet", ".gz": "unpack it first",
    ".zst": "unpack it first", ".zip": "unpack it first", ".bz2": "unpack it first", ".xz": "unpack it first", ".tar": "unpack it first",
    ".docx": "write it as PDF or text", ".tsv": "write it as CSV", ".xls": "write it as CSV", ".xlsx": "write it as CSV",
    ".ods": "write it as CSV",
}  # fmt: skip
_SPLIT_WORD = re.compile(r"(?:^|[^a-z])(train|training|validation|valid|val|dev|test)(?:[^a-z]|$)")
_SPLIT_NAMES = {"training": "train", "valid": "validation", "val": "validation", "dev": "validation"}


@dataclass(frozen=True)
class Source:
    """One `--data`, taken apart."""

    place: str
    """A path, or the name of a known set that the Hub has."""
    split: str | None = None
    """What it is said to be for."""
    known_set: str | None = None
    """The known set whose rows it holds."""

    @property
    def is_of_the_hub(self) -> bool:
        return self.place == self.known_set and not os.path.exists(self.place)

    def __str__(self) -> str:
        said = self.split or (self.known_set if self.known_set != self.place else None)
        return f"{said}={self.place}" if said else self.place


class SourceOfFile(str):
    """A source as an experiment file says it; it means what it would mean on the command line, wherever the file lies."""

    file: Path
    """The experiment file."""

    def __new__(cls, text: str, file: Path) -> SourceOfFile:
        source = super().__new__(cls, text)
        source.file = file
        return source

    def __getnewargs__(self) -> tuple[str, Path]:  # type: ignore[override]
        return str(self), self.file


@dataclass(frozen=True)
class SourceFile:
    """One file that is read, or one split of a set of the Hub."""

    path: str
    kind: str
    split: str
    """`train` or `validation`."""
    known_set: str | None = None


def read_source(text: str) -> Source:
    """Take a `--data` apart. A path that exists is that path, whatever it looks like."""
    said, _, place = text.partition("=")
    if place and not os.path.exists(text):
        if said in SPLITS:
            inner = read_source(place)
            return Source(inner.place, said, inner.known_set)
        if said in KNOWN_SETS:
            return Source(place, None, said)
    if text in KNOWN_SETS and not os.path.exists(text):
        return Source(text, None, text)
    return Source(text, None, _set_fetched_to(Path(text)))


def _set_fetched_to(folder: Path) -> str | None:
    """The known set that was fetched into a folder; None where the folder says nothing of the kind."""
    record = read_record(folder) or {}
    what = record.get("wanted"), record.get("part")
    return next((name for name, one in KNOWN_SETS.items() if (one.hub, one.config or "") == what), None)


def full_source(text: str) -> str:
    """The same with its full path: a job runs in another folder. Raises RequestError where nothing is there."""
    source = read_source(text)
    if source.is_of_the_hub:
        return text
    refuse_address("--data", source.place)
    place = os.path.abspath(os.path.expanduser(source.place))
    if text in KNOWN_SETS and source.known_set != text and os.path.exists(place):
        notice(
            f"--data {text} is what lies here, {place}, and not the known set of that name; write ./{text} where you mean it, "
            f"and for the set {text}=DIR of where it was fetched to"
        )
    if not os.path.exists(place):
        beside, known = _several(text, source.place) or _beside_file(text, source.place), _meant(source.place)
        raise DataRequestError(
            f"--data {place}: there is no such file.{beside}{' ' if known else ''}{known[:1].upper() + known[1:]}"
        )
    if not os.path.isdir(place):
        check_file(Path(place))
    if os.path.isfile(place) and not os.path.getsize(place):
        raise DataRequestError(f"--data {place}: it is empty. Give text, or leave --data out for synthetic tokens.")
    full = str(Source(place, source.split, source.known_set))
    return SourceOfFile(full, text.file) if isinstance(text, SourceOfFile) else full


def in_words_of(sources: Iterable[str], message: str) -> str:
    """A sentence about `--data` as one about the file that said it, where one did: nobody gave the option then."""
    for text in sources:
        if isinstance(text, SourceOfFile) and message.startswith("--data ") and read_source(text).place in message:
            return f"data in {text.file}: {message.removeprefix('--data ')}"
    return message


def _beside_file(text: str, place: str) -> str:
    """From where a path in an experiment file counts, and where the file that is meant may be: beside that, or beside a folder of it."""
    if not isinstance(text, SourceOfFile) or os.path.isabs(os.path.expanduser(place)):
        return ""
    counts = " A path in an experiment file counts from the working directory, not from the file"
    for folder in list(Path(os.path.abspath(text.file)).parents)[:_FOLDERS_UP]:
        if (there := folder / place).exists():
            return f"{counts}: {there} is there; write that path, or call from {folder}."
    return f"{counts}."


def _several(text: str, place: str) -> str:
    """How several sources are said that somebody wrote as one word."""
    several = place.split(",")
    if len(several) == 1 or not all(one and os.path.exists(os.path.expanduser(one)) for one in several):
        return ""
    if isinstance(text, SourceOfFile):
        return f" Several are a list: [{', '.join(several)}]."
    return f" Each is said on its own: {' '.join(f'--data {quote(one)}' for one in several)}."


def _meant(place: str) -> str:
    """What a place that is not there may be meant for: what stands before a path, or the name of a known set."""
    before, equals, _ = place.partition("=")
    if equals and before.replace("-", "").replace("_", "").isalnum():
        return unknown_name("split or known data set", before, (*SPLITS, *KNOWN_SETS), where="front of =")
    return unknown_name("known data set", place, KNOWN_SETS) if _looks_like_a_name(place) else ""


def _looks_like_a_name(text: str) -> bool:
    return not text.startswith(("/", ".", "~")) and not Path(text).suffix


def is_corpus(place: str | Path) -> bool:
    """Whether the folder is a corpus that was prepared already."""
    return (Path(place) / FACTS).is_file()


def source_files(sources: Sequence[str]) -> list[SourceFile]:
    """All files of the sources, in the order in which they are read.

    Raises:
        RequestError: nothing in one of them can be read, or a file has a hole, is no text or is named twice.
    """
    files = [file for text in sources for file in _files_of(read_source(text))]
    _refuse_twice(files)
    for file in files:
        if file.kind != HUB:
            refuse_holes(file.path, is_text=file.kind in (TEXT, JSONL, CSV))
        if file.kind in (TEXT, JSONL, CSV):
            refuse_binary(file.path, is_plain=file.kind == TEXT)
    return files


def _refuse_twice(files: Sequence[SourceFile]) -> None:
    """Raise RequestError for a file that is named twice, be it by a folder that holds it: nobody would see that its rows count double."""
    seen = set()
    for file in files:
        place = (file.path if file.kind == HUB else os.path.abspath(file.path), file.split)
        if place in seen:
            raise DataRequestError(
                f"--data names {file.path} twice, and each of its rows would be learned twice an epoch. Name it once; --epochs N says how often."
            )
        seen.add(place)


def refuse_without_training(sources: Sequence[str], splits: Iterable[str]) -> None:
    """Raise RequestError where a task trains, and nothing of the sources is for that; answering prompts needs none of it."""
    if TRAIN not in splits:
        raise RequestError(
            f"--data {', '.join(sources)}: all of it is for validation, and nothing is left to train on. Add --data FILE with what is "
            "to be trained on; --task infer answers the prompts of what is for validation alone."
        )


def _files_of(source: Source) -> Iterator[SourceFile]:
    if source.is_of_the_hub:
        one = KNOWN_SETS[source.place]
        yield SourceFile(source.place, HUB, source.split or TRAIN, source.known_set)
        if source.split is None and one.validation is not None:
            yield SourceFile(source.place, HUB, VALIDATION, source.known_set)
        return
    place = Path(source.place)
    if not place.is_dir():
        check_file(place)
        yield SourceFile(str(place), _kind(place), source.split or TRAIN, source.known_set)
        return
    refuse_unfinished(place)
    if is_of_a_run(place):
        raise DataRequestError(
            f"--data {place}: it is the folder of a run, and what it holds is no data. Name the files that are to be learned."
        )
    yield from _files_in(place, source)


def is_of_a_run(folder: Path) -> bool:
    """Whether a folder is a run of ours: its texts and tables are logs and records."""
    run = RunPaths(folder)
    return is_run(folder) and any(one.is_file() for one in (run.job, run.submission, run.script))


def runs_within(sources: Sequence[str]) -> list[Path]:
    """The folders of runs that lie somewhere in a source that is a folder, of which nothing is read."""
    places = [Path(source.place) for source in map(read_source, sources) if not source.is_of_the_hub]
    return [Path(at) for place in places for at, _, _ in os.walk(place) if Path(at) != place and is_of_a_run(Path(at))]


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in _NOT_READ:
        raise DataRequestError(
            f"--data {path}: {suffix} files are not read. Give text, JSONL, CSV, parquet or PDF: {_NOT_READ[suffix]}."
        )
    return _KINDS.get(suffix, TEXT)


def _files_in(folder: Path, source: Source) -> Iterator[SourceFile]:
    """The files of a folder, each for the split that its name says."""
    known = KNOWN_SETS.get(source.known_set or "")
    files = sorted(path for path in _walk(folder) if path.suffix.lower() in _KINDS)
    if known is not None and known.config is not None:
        files = [path for path in files if known.config in path.relative_to(folder).parts] or files
    rows = [path for path in files if _kind(path) in (JSONL, CSV, PARQUET)]
    taken = rows or [path for path in files if _kind(path) == PDF] or files  # beside a set lie licences and read-mes
    for path in taken:
        check_file(path, folder)
    found = [one for path in taken for one in _for_split(path, folder, source)]
    if not found and (runs := runs_within([source.place])):
        raise DataRequestError(
            f"--data {source.place}: the folder holds nothing to train on but folders of runs, and what they hold is no data "
            f"({runs[0]}{' and others' if len(runs) > 1 else ''}). Name the files that are to be learned."
        )
    if not found:
        prepared = [path.parent for path in sorted(folder.glob(f"*/{FACTS}"))]
        if prepared:
            raise DataRequestError(
                f"--data {source.place}: the folder holds no data itself; prepared data are in {', '.join(map(str, prepared[:3]))}"
                f"{' and others' if len(prepared) > 3 else ''}: give one of these."
            )
        raise DataRequestError(
            f"--data {source.place}: the folder holds nothing to train on. Text, JSONL, CSV, parquet and PDF files are read."
        )
    yield from found


def _for_split(path: Path, folder: Path, source: Source) -> Iterator[SourceFile]:
    names = {TRAIN: TRAIN, VALIDATION: VALIDATION}
    if (known := KNOWN_SETS.get(source.known_set or "")) is not None:
        names = {known.train: TRAIN} | ({known.validation: VALIDATION} if known.validation else {})
    said = split_of_name(path.relative_to(folder).as_posix())
    split = source.split or (names.get(said) if said else TRAIN)
    if split is not None:  # test rows are nobody's to train on
        yield SourceFile(str(path), _kind(path), split, source.known_set)


def split_of_name(name: str) -> str | None:
    """The split that the name of a file says; the last of several words.

    >>> split_of_name("data/train-00000-of-00001.parquet"), split_of_name("dialogsum.dev.jsonl"), split_of_name("latest.csv")
    ('train', 'validation', None)
    """
    words = _SPLIT_WORD.findall(name.lower())
    return _SPLIT_NAMES.get(words[-1], words[-1]) if words else None


def _walk(folder: Path) -> Iterable[Path]:
    """The files below a folder, without hidden ones and those of runs."""
    for place, folders, names in os.walk(folder):
        below = sorted(name for name in folders if not name.startswith("."))
        folders[:] = [name for name in below if not is_of_a_run(Path(place, name))]
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


PDF_VALIDATION = 0.1
"""Part of the PDF files that is for validation where nobody says which."""


def fraction_of(files: Sequence[SourceFile], asked: float | None) -> float:
    """Which part of what is read is for validation. Raises RequestError where the request says it twice."""
    is_said = any(file.split == VALIDATION for file in files)
    if asked and is_said:
        raise RequestError(
            f"validation_fraction is {asked:g}, and a source is for validation already: leave one of the two out."
        )
    if asked is None:
        return 0.0 if is_said or any(file.kind != PDF for file in files) else PDF_VALIDATION
    return asked


def may_hold_out(files: Sequence[SourceFile], asked: float | None) -> bool:
    """Whether something of what is read may be for validation; of a set that comes from a hub nobody knows yet which splits it has."""
    return bool(fraction_of(files, asked)) or any(file.split == VALIDATION or file.kind == HUB for file in files)
