"""Tests that act as somebody else need root; CI has it, so there nothing may be left out in silence."""

from __future__ import annotations

import os

import pytest


def needs_root(why: str) -> None:
    """Leave the test out where this is not root; fail in CI. `why` follows "only root can"."""
    if os.geteuid() == 0:
        return
    if os.environ.get("CI"):
        pytest.fail(f"only root can {why}, and CI is to run this")
    pytest.skip(f"only root can {why}")
