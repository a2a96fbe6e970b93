"""The numbers of a checkpoint: one file a rank, and a table that says which stretch of which parameter lies where.

    shard-N.bin    the numbers that rank N writes, one stretch behind the other
    shard-N.json   of each stretch: parameter, what of it, where it begins in the whole parameter, type, place in the file

Nothing is gathered for it: a rank writes what it holds and reads what it will hold, whoever wrote it. So any engine on any
number of ranks goes on from it, and no host ever has more than its share in memory. No file holds code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from hpc_llm.errors import ModelFileError
from hpc_llm.records.digests import DigestedFile
from hpc_llm.records.files import load_json_lines
from hpc_llm.worker.engines.layout import Layout
from hpc_llm.worker.engines.pieces import Piece, Place

WEIGHT = "weight"
"""The numbers of the parameter itself, in the precision in which they are stepped; the rest are moments."""
_TYPES = {
    str(dtype): dtype
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.int8)
}
_CHUNK = 1 << 24
"""Numbers that are brought to the host at once."""
_ALIGNED = 64


@dataclass(frozen=True)
class Stretch:
    """Where some numbers lie."""

    name: str
    what: str
    begin: int
    count: int
    type: str
    at: int
    """Byte of the file."""
    steps: int
    first: int = 0
    """Where what the rank had of the parameter begins in the whole; `begin` counts from there."""
    width: int = 0
    """Where these are not 0, so many numbers follow each other in the whole, and begin `pitch` behind each other."""
    pitch: int = 0

    @property
    def piece(self) -> Piece:
        """Where it lies in the whole."""
        return Piece(self.begin, self.count, Place(self.first, self.width, self.pitch))

    def row(self) -> dict[str, Any]:
        """A line of the table; of a parameter that ranks do not share, as it always was."""
        return {name: value for name, value in asdict(self).items() if value or name not in ("first", "width", "pitch")}


class ShardWriter:
    """Writes one rank's file and its table."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._numbers = DigestedFile(folder / f"shard-{rank}.bin")
        self._table = DigestedFile(folder / f"shard-{rank}.json")
        self._at = 0

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        with self._numbers, self._table:
            pass

    def write(self, name: str, piece: Piece, what: str, values: torch.Tensor, steps: int) -> None:
        """Write the numbers of a stretch."""
        self._at += self._numbers.write(b"\0" * (-self._at % _ALIGNED))
        place = (piece.place.begin, piece.place.width, piece.place.pitch)
        stretch = Stretch(name, what, piece.begin, piece.count, str(values.dtype), self._at, steps, *place)
        for chunk in values.split(_CHUNK):
            data = chunk.detach().to("cpu").contiguous().view(torch.uint8).numpy()
            self._at += self._numbers.write(memoryview(data))
        self._table.write((json.dumps(stretch.row()) + "\n").encode())


def write_shard(layout: Layout, folder: Path, rank: int, *, moments: bool) -> None:
    """Write this rank's share of what trains, and of its moments. Of what several ranks hold, each writes some."""
    copies = layout.copies
    with ShardWriter(folder, rank) as writer:
        for number, part in enumerate(layout.parts):
            piece = layout.piece(part)
            if number % copies.count != copies.own or not piece.place.is_written:
                continue
            steps = layout.steps(part.owner)
            writer.write(part.name, piece, WEIGHT, part.of(part.owner), steps)
            for what, values in layout.moments(part.owner) if moments else ():
                writer.write(part.name, piece, what, part.of(values), steps)


class Shards:
    """The numbers of a checkpoint, read where they lie."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stretches: dict[tuple[str, str], list[tuple[Path, Stretch]]] = {}
        self._mapped: dict[Path, torch.Tensor] = {}
        tables = sorted(folder.glob("shard-*.json"))
        if not tables:
            raise ModelFileError(f"the checkpoint {folder.parent} is not whole: it holds no shard-0.json.")
        for table in tables:
            for row in load_json_lines(table):
                stretch = Stretch(**row)
                self._stretches.setdefault((stretch.name, stretch.what), []).append(
                    (table.with_suffix(".bin"), stretch)
                )

    def has(self, name: str, what: str) -> bool:
        """Whether there is anything of it."""
        return (name, what) in self._stretches

    def steps(self, names: Iterable[str]) -> int:
        """How often these parameters were stepped, the most of any."""
        return max((one.steps for name in names for _, one in self._stretches.get((name, WEIGHT), ())), default=0)

    def fill(self, target: torch.Tensor, name: str, what: str, piece: Piece) -> None:
        """Write into a row of numbers what stands in that piece of the parameter."""
        filled = 0
        for path, one in self._stretches.get((name, what), ()):
            values = self._values(path, one)
            for begin, at, count in piece.overlaps(one.piece):
                target[begin : begin + count].copy_(values[at : at + count])
                filled += count
        if filled != target.numel():
            raise ModelFileError(
                f"the checkpoint {self._folder.parent} lacks numbers of {name} ({what}): {filled} of {target.numel()} are there."
            )

    def _values(self, path: Path, one: Stretch) -> torch.Tensor:
        if path not in self._mapped:
            size = path.stat().st_size
            self._mapped[path] = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
        dtype = _TYPES[one.type]
        found: torch.Tensor = self._mapped[path][one.at : one.at + one.count * dtype.itemsize].view(dtype)
        return found


def read_shards(layout: Layout, module: Any, folder: Path, *, moments: bool) -> None:
    """Put what was written into what trains here, the moments included, and into the model's own copies of it."""
    shards = Shards(folder)
    with torch.no_grad():
        for part in layout.parts:
            shards.fill(part.of(part.owner), part.name, WEIGHT, layout.piece(part))
            for what, values in layout.moments(part.owner) if moments else ():
                if shards.has(part.name, what):  # else it was never stepped
                    shards.fill(part.of(values), part.name, what, layout.piece(part))
        if moments:
            _count_steps(layout, shards)
        _refresh(layout, module, shards)


def _count_steps(layout: Layout, shards: Shards) -> None:
    names: dict[int, list[str]] = {}
    for part in layout.parts:
        names.setdefault(id(part.owner), []).append(part.name)
    for owner in layout.owners:
        layout.set_steps(owner, shards.steps(names[id(owner)]))


def _refresh(layout: Layout, module: Any, shards: Shards) -> None:
    """What the optimizer does not step itself follows from it: the model's parameters beside their fp32 copies."""
    stepped = {id(owner) for owner in layout.owners}
    places = {part.name: part for part in layout.parts}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad or id(parameter) in stepped or hasattr(parameter, "to_local"):
            continue  # what FSDP2 splits is stepped in its own memory
        split = getattr(parameter, "ds_tensor", None)
        if split is not None and name in places:
            part = places[name]
            shards.fill(split.detach().view(-1)[: part.count], name, WEIGHT, layout.piece(part))
        if split is None or parameter.numel() == parameter.ds_numel:
            shards.fill(parameter.detach().view(-1), name, WEIGHT, Piece(0, parameter.numel(), layout.place(name)))
