"""Files of weights in the format safetensors: the table at their beginning, and whether it can be true. Standard library only."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpc_llm.errors import ModelRequestError
from hpc_llm.records.files import open_regular
from hpc_llm.text.json_text import figures

_LARGEST_TABLE = 100_000_000
"""Bytes; what reads safetensors takes no more."""
_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64"), 64),
}
"""Of a number of each type; newer ones are left to what reads them."""
_WHOLE = frozenset(("BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64"))
_FETCH = "`hpc-llm fetch NAME --to DIR` brings a whole one"


def is_float(kind: str) -> bool:
    """Whether a type, in safetensors' words, is one in which a model computes."""
    return kind not in _WHOLE


def table_of(path: Path) -> dict[str, Any]:
    """What a safetensors file says of each tensor, by name; nothing for other files.

    Raises:
        ModelRequestError: it says what cannot be of a file of that size.
        OSError: it cannot be read.
    """
    if path.suffix != ".safetensors":
        return {}
    file = open_regular(path)
    if file is None:
        raise ModelRequestError(f"the weights {path} are no regular file.")
    with file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(_LARGEST_TABLE, size - 8):
            raise _damaged(path, f"the table at their beginning would take {length} bytes, and the file has {size}")
        try:
            table = figures(file.read(length))
        except ValueError as error:
            raise _damaged(path, f"the table at their beginning is no JSON: {error}") from None
    if not isinstance(table, dict):
        raise _damaged(path, "the table at their beginning is no JSON object")
    table.pop("__metadata__", None)
    _check_places(path, table, size - 8 - length)
    return table


def check_types(path: Path, table: Mapping[str, Any], quantized: bool) -> None:
    """Raise ModelRequestError where weights are whole numbers, and the model does not say that it is quantized."""
    named = (
        None
        if quantized
        else next((n for n in table if n.endswith(".weight") and not is_float(table[n]["dtype"])), None)
    )
    if named is not None:
        raise ModelRequestError(
            f"the weights {path} hold {named} as whole numbers ({table[named]['dtype']}), and a model computes with fractions: take one whose "
            "weights are F32, F16 or BF16; of a quantized one config.json says how (quantization_config)."
        )


def _check_places(path: Path, table: Mapping[str, Any], size: int) -> None:
    """Each tensor lies behind the one before, and the last ends with the file."""
    places = []
    for name, entry in table.items():
        place = _place(entry)
        if place is None:
            raise _damaged(path, f"the table at their beginning gives no type, shape and place of {_short(name)}")
        begin, end, bits = place
        if bits is not None and bits != 8 * (end - begin):
            raise _damaged(
                path, f"{_short(name)} takes {end - begin} bytes, and its type and shape {math.ceil(bits / 8)}"
            )
        places.append((begin, end, name))
    at = 0
    for begin, end, name in sorted(places):
        if begin != at:
            raise _damaged(path, f"{_short(name)} begins at byte {begin} of the data, where byte {at} is next")
        at = end
    if at != size:
        raise _damaged(path, f"the table at their beginning is of {at} bytes of data, and the file has {size}")


def _place(entry: Any) -> tuple[int, int, int | None] | None:
    """Begin and end among the data, and the bits that type and shape make; None where the entry says none."""
    if not isinstance(entry, dict) or not isinstance(kind := entry.get("dtype"), str):
        return None
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return None
    return offsets[0], offsets[1], math.prod(shape) * _BITS[kind] if kind in _BITS else None


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value
    )


def _short(name: str) -> str:
    return name if len(name) <= 100 else f"{name[:100]}…"


def _damaged(path: Path, why: str) -> ModelRequestError:
    return ModelRequestError(f"the weights {path} are damaged: {why}. {_FETCH}.")
