"""What a log says of the settings of its run, so that no advice is given that is taken already or cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable

_MICRO_BATCH = re.compile(
    rb"(?:(?i:batch size per device) = |\btrain_micro_batch_size_per_gpu['\"]?[ .=:]{1,60}|\bper_device_train_batch_size['\"]?[ =:]{1,4}"
    rb"|(?<![\w-])(?:--)?micro[_-]batch[_-]size['\"]?[ .=:]{1,60}|\blocal batch size )(\d{1,6})\b"
)
_RECOMPUTES = re.compile(
    rb"incompatible with gradient checkpointing|\bgradient[_-]checkpointing['\"]?[ .=:]{1,60}['\"]?[Tt]rue\b|--gradient[_-]checkpointing(?= --|$)"
    rb"|\brecompute_granularity['\"]?[ .=:]{1,60}['\"]?full\b|\brecompute-granularity full\b",
    re.MULTILINE,
)
_PARTITIONED = re.compile(
    rb"\bzero_optimization_stage[ .]{1,60}3\b|\bstage['\"]?[=:] ?3\b|(?i:\bfull_shard\b)|\bzero_stage['\"]?[ .=:]{1,60}3\b"
)
_OFFLOADED = tuple(
    re.compile(
        rb"\boffload_"
        + part
        + rb"['\"]?[=:][^}\n]{0,80}(?:\n[ \t]{0,40})?['\"]?device['\"]?[=:][^,)\n]{0,40}\b(?:cpu|nvme)\b"
    )
    for part in (rb"param", rb"optimizer")
)
_EXPORTED = re.compile(r"^export (?P<name>[A-Z][A-Z0-9_]{2,60})=(?P<value>[^\s()]{1,200})")
_ALLOCATOR = re.compile(r"PYTORCH_(?:CUDA_|HIP_|NPU_)?ALLOC_CONF")


def _has_least_batch(text: bytes) -> bool:
    """Whether each word on the micro batch says that it is one sample."""
    return {int(size) for size in _MICRO_BATCH.findall(text)} == {1}


def _is_offloaded(text: bytes) -> bool:
    return _is_partitioned(text) and all(one.search(text) for one in _OFFLOADED)


def _is_partitioned(text: bytes) -> bool:
    return _PARTITIONED.search(text) is not None


_TAKEN: tuple[tuple[str, Callable[[bytes], object], str], ...] = (
    ("halve the micro batch", _has_least_batch, ""),
    ("recompute activations", _RECOMPUTES.search, ""),
    ("partition more: ", _is_offloaded, ""),
    ("partition more: ", _is_partitioned, "offload to the host: optimizer states, then parameters"),
)
"""How a line of advice begins, what says that it is taken, and what is left of it then."""


def without_what_is_taken(remedy: str, text: bytes) -> str:
    """The remedy without the lines that `text`, a log of one run, shows to be followed already or to be impossible.

    >>> without_what_is_taken("halve the micro batch and …\\nshorter sequences", b"Instantaneous batch size per device = 1")
    'shorter sequences'
    """
    lines = [_left(line, text) for line in remedy.splitlines()]
    return "\n".join(filter(None, lines)) or remedy


def _left(line: str, text: bytes) -> str:
    if _is_set(line, text):
        return ""
    return next((left for begin, is_taken, left in _TAKEN if line.startswith(begin) and is_taken(text)), line)


def _is_set(line: str, text: bytes) -> bool:
    """Whether a line that sets a variable asks for what the log shows as set.

    >>> _is_set("export NCCL_DEBUG=INFO  (why)", b"+ export NCCL_DEBUG=INFO"), _is_set("export NCCL_DEBUG=INFO", b"NCCL_DEBUG=WARN")
    (True, False)
    """
    advised = _EXPORTED.match(line)
    if advised is None:
        return False
    name, value = advised["name"], advised["value"]
    if _ALLOCATOR.fullmatch(name) is None:
        pattern = rf"^(?:\+ )?(?:export )?{name}=['\"]?{re.escape(value)}['\"]?(?:$|[\s;])"
    else:  # one variable that has had several names, with options of which a person chose how large pieces may be
        option, _, chosen = value.partition(":")
        chosen = r"\d" if chosen.isdigit() else re.escape(chosen)
        pattern = rf"(?<!try setting )\b{_ALLOCATOR.pattern}['\"]?[=:] ?['\"]?[\w:,.]{{0,80}}{option}:{chosen}"
    return re.search(pattern.encode(), text, re.MULTILINE) is not None
