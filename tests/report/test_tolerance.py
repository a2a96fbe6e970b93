"""`report --tolerance` is a share: what would disarm the gate is refused, with what is meant."""

from __future__ import annotations

import pytest

from hpc_llm.api import report
from hpc_llm.cli.report import _share
from hpc_llm.errors import RequestError


@pytest.mark.parametrize(("typed", "share"), [("0.05", 0.05), ("5%", 0.05), ("5 %", 0.05), ("0", 0.0)])
def test_a_share_may_be_typed_in_percent(typed: str, share: float) -> None:
    assert _share(typed) == pytest.approx(share)


@pytest.mark.parametrize("typed", ["0,05", "five", "%"])
def test_the_example_is_a_share(typed: str) -> None:
    with pytest.raises(RequestError, match=r"as in --tolerance 0\.05, which is 5 %"):
        _share(typed)


@pytest.mark.parametrize(
    ("tolerance", "meant"),
    [(5, r"0\.05 for 5 %"), (1.5, r"0\.015 for 1\.5 %"), (200, "below 1"), (-0.1, "0.05"), (float("nan"), "no share")],
)
def test_what_no_rate_can_exceed_is_refused(tolerance: float, meant: str) -> None:
    with pytest.raises(RequestError, match=meant):
        report("nowhere", tolerance=tolerance)
