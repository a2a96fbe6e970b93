"""Which runs and files are to be read: those that are named, and in folders what may be a log by its name and is no table of ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hpc_llm.errors import RequestError, notice, pass_over
from hpc_llm.parsing.output_dirs import repeated
from hpc_llm.parsing.own_tables import HEAD, is_own_table
from hpc_llm.parsing.registry import folder_formats
from hpc_llm.records.files import LEADS_OUT, leads_out_of_run, reason_of, why_not_followed
from hpc_llm.text.pasted import refuse_address

STDIN = "-"
NOT_LOGS = frozenset(
    """.py .pyc .pyi .sh .sbatch .slurm .pbs .yaml .yml .toml .cfg .ini .lock .j2 .jinja .lua .c .cc .cu .cuh .hip .cpp .h .hpp .f90 .jl
    .rs .go .java .ts .sql .diff .patch .so .o .a .whl .html .css .js .xml .csv .tsv .xls .xlsx .ods .doc .docx .ppt .pptx .parquet .arrow
    .npy .npz .h5 .hdf5 .pt .pth .bin .model .gguf .onnx .safetensors .ckpt .pkl .db .sqlite .nsys-rep .ncu-rep .zip .tar .tgz .7z .png
    .jpg .jpeg .gif .bmp .webp .tif .tiff .svg .eps .ps .pdf .mp4 .md .markdown .rst .adoc .org .tex .bib
    .tokens .ends .starts""".split()
)
"""Endings that are passed over when a folder is searched, those of prepared data among them; a file that is named itself is read
whatever it is called."""
NOT_LOGS_BY_NAME = frozenset(
    """readme license licence copying notice authors changelog contributing makefile dockerfile requirements cmakelists
    vocab merges""".split()
)
"""The same for what has such a name, and the ending `.txt` or none."""

_TABLE = (
    "it is a table of runs that hpc-llm wrote, and no log: give the runs or logs themselves, or where it is CSV, "
    "`report --baseline` compares with it"
)
_LEADS_OUT = "it is a link that leads out of the folder that is searched, and is not followed"
_OF_ROWS = (".json", ".jsonl", ".txt")
"""Endings of such tables that logs may have, too."""


def inputs(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """The runs and files under `paths`, folders searched by name, each once; raises RequestError for what is not there."""
    seen: set[str] = set()
    named: set[str] = set()
    tables: list[Path] = []
    given = list(map(Path, paths))
    for path in given:
        if str(path) == STDIN:
            yield path
        elif path.is_file() or path.is_dir():
            _refuse_a_way_out(path)
            real = path.resolve()
            if str(real) in seen:
                notice(f"{path} is given more than once, it counts once")
            elif path.is_dir():
                yield from _Search(real, seen, named).under(path, real)
            elif _is_own_table(path):
                tables.append(path)
            else:
                seen.add(str(real))
                named.add(str(real))
                yield path
        elif path.is_fifo():
            yield path
        elif path.exists():
            raise RequestError(
                f"{path} is a device or a socket, which may never end; give files, folders, pipes, or - for stdin."
            )
        else:
            refuse_address("", str(path))
            raise RequestError(f"there is no file or folder {path}; give log files, folders, runs, or - for stdin.")
    if tables and len(tables) == len(given):
        raise RequestError(f"{tables[0]}: {_TABLE}.")
    for path in tables:
        pass_over(path, _TABLE)


def _refuse_a_way_out(path: Path) -> None:
    """Raise RequestError where a name in a run's folder leads out of it: whoever wrote there would have us show what only we may read."""
    if leads_out_of_run(path):
        raise RequestError(f"{path}: {LEADS_OUT}. Where it is meant, name what it leads to: {path.resolve()}")


def refuse_what_is_read(output: Path, read: Iterable[str | os.PathLike[str]]) -> None:
    """Raise a RequestError where `output` is a file that is read, or one of a run's own: it would be lost. Tables of ours may be replaced."""
    if not output.is_file() or _is_own_table(output):
        return
    real = output.resolve()
    for path in (Path(one).resolve() for one in read if str(one) != STDIN):
        if real == path or (real.is_relative_to(path) and not _is_no_log(real)):
            raise RequestError(
                f"{output} is what is to be read, and would be replaced by the table: give another file."
            )
    if _is_run(real.parent):
        raise RequestError(
            f"{output} is of the run in {output.parent}, and would be replaced by the table: give another file."
        )


def _is_own_table(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return is_own_table(file.read(HEAD))
    except OSError:  # whoever reads it says so
        return False


def _is_run(folder: Path) -> bool:
    return any(one.is_in(folder) for one in folder_formats())


def _is_no_log(path: Path) -> bool:
    """Whether the name says so."""
    ending = path.suffix.lower()
    return ending in NOT_LOGS or (ending in ("", ".txt") and path.stem.lower() in NOT_LOGS_BY_NAME)


@dataclass
class _Search:
    """Looks for runs and logs under one folder; what cannot be read costs one warning."""

    root: Path
    """Without links."""
    seen: set[str]
    """Folders and files, without links: several may lead to one."""
    named: set[str]
    """Files that were given themselves."""
    repeated: set[str] = field(default_factory=set)
    """Files of a training of which others in its output folder say all."""

    def under(self, folder: Path, real: Path) -> Iterator[Path]:
        """What `folder`, which is `real` without links, holds."""
        if str(real) in self.seen:
            return
        self.seen.add(str(real))
        if _is_run(folder):
            yield folder
            return
        try:
            with os.scandir(folder) as found:
                entries = sorted((e for e in found if not e.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            pass_over(folder, reason_of(error))
            return
        if again := repeated(folder, (entry.name for entry in entries)):
            self.repeated.update(map(str, again))
            more = f" and {len(again) - 1} more" if len(again) > 1 else ""
            pass_over(
                again[0],
                f"it{more} of that folder repeat{'' if more else 's'} what another of its files says of one training",
            )
        for entry in entries:
            try:
                yield from self._entry(entry, Path(entry.path), real)
            except FileNotFoundError:  # a link to nothing
                continue
            except (OSError, RuntimeError) as error:
                pass_over(entry.path, reason_of(error) if isinstance(error, OSError) else "it is a link to itself")

    def _entry(self, entry: os.DirEntry[str], path: Path, parent: Path) -> Iterator[Path]:
        real = path.resolve(strict=True) if entry.is_symlink() else parent / entry.name
        if entry.is_symlink() and (why := why_not_followed(path)) is not None:
            raise PermissionError(errno.EPERM, why)
        if entry.is_symlink() and real.parts[1:2] in (("proc",), ("sys",)):
            pass_over(path, "it leads to the kernel's own files, which are no logs")
            return
        if entry.is_symlink() and not (self._is_met_anyway(real) or real.is_relative_to(self.root) or _is_run(real)):
            raise PermissionError(errno.EPERM, f"{_LEADS_OUT}: where it is meant, name what it leads to")
        if entry.is_dir():
            if not entry.is_symlink() or not self._is_met_anyway(real):
                yield from self.under(path, real)
        elif (
            entry.is_file() and not _is_no_log(path) and str(real) not in self.named and str(path) not in self.repeated
        ):
            self.seen.add(str(real))
            if not _may_be_read(path):
                return
            if path.suffix.lower() in _OF_ROWS and _is_own_table(path):
                pass_over(path, _TABLE)
                return
            yield path

    def _is_met_anyway(self, target: Path) -> bool:
        """Whether a folder that a link leads to is met without the link, or holds all that is searched."""
        if self.root.is_relative_to(target):
            return True
        is_below = target.is_relative_to(self.root)
        return is_below and not any(part.startswith(".") for part in target.relative_to(self.root).parts)


def _may_be_read(path: Path) -> bool:
    if os.access(path, os.R_OK):
        return True
    pass_over(path, "permission denied")
    return False
