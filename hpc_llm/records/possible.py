"""What the figures and texts of a record can be: anybody may have written it. What cannot be counts as missing, for whoever reads it.

The bounds are far beyond what any machine does, so that nothing that was measured is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST_NAME = 100
"""Letters of the name of a cluster, a method or a GPU that are shown."""
LONGEST_TEXT = 4096
"""Of a path or a sentence."""
_LONG = {"message": 1 << 16, "traceback": 1 << 18}
"""Of what a program said of its end, in which the cause is looked for."""

_COUNT = 1 << 53
"""A count beyond is one of nothing, and no table could hold it."""
_BYTES = 1 << 48
"""No machine has as much memory."""
_LONGEST_S = 100 * 366 * 86400.0
_LEAST = 5e-324
"""The smallest number above 0."""
_LARGEST = 1e38

_COUNTS = (
    dict.fromkeys(
        """num_parameters nodes world_size micro_batch_size gradient_accumulation_steps global_batch_size sequence_length
    tensor_parallel total_queries train_samples""".split(),
        (1, _COUNT),
    )
    | dict.fromkeys(
        "gpus_per_node warmup_steps measured_steps step trained_tokens best_step prompt_tokens generated_tokens".split(),
        (0, _COUNT),
    )
    | dict.fromkeys(
        """peak_allocated_bytes peak_reserved_bytes peak_device_bytes peak_host_bytes allocated_bytes
    predicted_peak_allocated_bytes""".split(),
        (0, _BYTES),
    )
)
_MEASURES = {
    "step_time_s": (_LEAST, _LONGEST_S),
    "predicted_step_time_s": (_LEAST, _LONGEST_S),
    "step_time_s_mean": (_LEAST, _LONGEST_S),
    "step_time_s_p50": (_LEAST, _LONGEST_S),
    "step_time_s_p90": (_LEAST, _LONGEST_S),
    "elapsed_s": (0.0, _LONGEST_S),
    "epoch_time_s": (_LEAST, _LONGEST_S),
    "total_time_s": (_LEAST, _LONGEST_S),
    "epochs": (_LEAST, 1e9),
    "tokens_per_second": (_LEAST, 1e11),
    "tokens_per_second_per_gpu": (_LEAST, 1e9),
    "model_tflops_per_gpu": (_LEAST, 1e5),
    "mfu": (_LEAST, 1.0),
    "prompt_tokens_per_second": (_LEAST, 1e11),
    "generated_tokens_per_second": (_LEAST, 1e11),
    "queries_per_second": (_LEAST, 1e11),
    "time_to_first_token_s_p50": (_LEAST, _LONGEST_S),
    "time_per_output_token_s_mean": (_LEAST, _LONGEST_S),
    "latency_s_mean": (_LEAST, _LONGEST_S),
    "latency_s_p50": (_LEAST, _LONGEST_S),
    "latency_s_p90": (_LEAST, _LONGEST_S),
    "latency_s_p99": (_LEAST, _LONGEST_S),
    "loss": (-_LARGEST, _LARGEST),
    "loss_first": (-_LARGEST, _LARGEST),
    "loss_last": (-_LARGEST, _LARGEST),
    "eval_loss": (-_LARGEST, _LARGEST),
    "perplexity": (1.0, float.fromhex("0x1.fffffffffffffp+1023")),
    "learning_rate": (0.0, _LARGEST),
    "grad_norm": (0.0, float.fromhex("0x1.fffffffffffffp+1023")),
}
_NAMES = frozenset("cluster gpu method task precision".split())


def is_possible(name: str, value: Any) -> bool:
    """Whether `value` can be the figure of that name; of no other name is anything known, nor possible.

    >>> is_possible("mfu", 0.4), is_possible("mfu", 5.0), is_possible("tokens_per_second", -1), is_possible("nodes", 1.5)
    (True, False, False, False)
    """
    if isinstance(value, bool):
        return False
    if name in _COUNTS:
        low, high = _COUNTS[name]
        return isinstance(value, int) and low <= value < high
    bounds = _MEASURES.get(name)
    return bounds is not None and isinstance(value, (int, float)) and bounds[0] <= value <= bounds[1]


def is_count(name: str) -> bool:
    """Whether the figure of that name is a whole number."""
    return name in _COUNTS


def range_of(name: str) -> str:
    """What the figure of that name, which is known, can be, in words.

    >>> range_of("mfu"), range_of("perplexity"), range_of("best_step")
    ('above 0, at most 1', 'at least 1, at most 1.79769e+308', 'at least 0, at most 9.0072e+15')
    """
    low, high = _COUNTS.get(name) or _MEASURES[name]
    return f"{'above 0' if low == _LEAST else f'at least {low:g}'}, at most {high:g}"


def figure_of(record: Mapping[str, Any], name: str) -> float | None:
    """The figure of that name, None where there is none that can be."""
    value: float | None = record.get(name)
    return value if is_possible(name, value) else None


def is_known(name: str) -> bool:
    """Whether it is the name of a figure that a record may hold."""
    return name in _COUNTS or name in _MEASURES


def impossible(record: Mapping[str, Any]) -> list[str]:
    """The names of the figures that cannot be."""
    return [
        name for name, value in record.items() if value is not None and is_known(name) and not is_possible(name, value)
    ]


def possible(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with None for figures that cannot be.

    >>> possible({"mfu": 5.0, "nodes": 2, "outcome": "COMPLETED"})
    {'mfu': None, 'nodes': 2, 'outcome': 'COMPLETED'}
    """
    return {**record, **dict.fromkeys(impossible(record))}


def bounded(name: str, text: str) -> str:
    """A text of that name as it may be shown: what nobody would read to its end is cut.

    >>> len(bounded("method", "z" * 1000))
    100
    """
    most = LONGEST_NAME if name in _NAMES else _LONG.get(name, LONGEST_TEXT)
    return text if len(text) <= most else f"{text[: most - 1]}…"
