"""How long to leave alone what happens soon before looking again."""

from __future__ import annotations

import time


def pause(began: float, least_s: float = 0.1) -> None:
    """Sleep for twice as long as the look took that began then, by the monotonic clock, 2 s at the most.

    A look that starts programs takes the cores from what is waited for.
    """
    time.sleep(min(2.0, max(least_s, 2 * (time.monotonic() - began))))
