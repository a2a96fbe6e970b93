"""Repeats as a mean with its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpc_llm.records import metrics

CONFIDENCE_PERCENT = 95

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T95 = (
    12.7062047, 4.30265273, 3.18244631, 2.77644511, 2.57058184, 2.44691185, 2.36462425, 2.30600414, 2.26215716,
    2.22813885, 2.20098516, 2.17881283, 2.16036866, 2.14478669, 2.13144955, 2.11990530, 2.10981558, 2.10092204,
    2.09302405, 2.08596345, 2.07961384, 2.07387307, 2.06865761, 2.06389856, 2.05953855, 2.05552944, 2.05183052,
    2.04840714, 2.04522964, 2.04227246,
)  # fmt: skip
_Z95 = 1.959963985


@dataclass(frozen=True)
class Estimate:
    """Mean of `n` values; `half_width` reaches from it to either end of the 95 % interval, None of one value."""

    mean: float | None
    half_width: float | None
    n: int
    ends: tuple[float, float] | None = None
    """Both values where there are two: of so few an interval of Student's t is many times as wide as they are apart, and tells nobody anything."""


def student_t95(degrees_of_freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t; beyond the table by its expansion around the normal quantile.

    >>> round(student_t95(2), 4)
    4.3027
    """
    if degrees_of_freedom <= len(_T95):
        return _T95[degrees_of_freedom - 1]
    z, n = _Z95, degrees_of_freedom
    first = (z**3 + z) / (4 * n)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    return z + first + second + third


def estimate(values: Sequence[float | None]) -> Estimate:
    """Mean and interval of the values that are there.

    >>> estimate([100.0, 104.0, 108.0]).mean
    104.0
    """
    known = [v for v in values if v is not None and math.isfinite(v)]
    center = metrics.mean(known)
    if center is None or len(known) < 2:
        return Estimate(center, None, len(known))
    ends = (min(known), max(known)) if len(known) == 2 else None
    variance = math.fsum((v - center) ** 2 for v in known) / (len(known) - 1)
    return Estimate(center, student_t95(len(known) - 1) * math.sqrt(variance / len(known)), len(known), ends)
