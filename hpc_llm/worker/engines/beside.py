"""Exchanges among ranks beside the computation: on a stream of their own, or in their turn where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Beside:
    """What is begun here runs behind all that was asked for so far, and beside what is asked for later.

    Each use can be recorded in a CUDA graph, if `join` comes before its end.
    """

    def __init__(self, device: torch.device, is_on: bool) -> None:
        self._stream = torch.cuda.Stream(device) if is_on and device.type == "cuda" else None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, operations are asked for on the other stream."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield

    @contextmanager
    def running_behind(self, mark: torch.cuda.Event | None) -> Iterator[None]:
        """As `running`, but behind a point, if there is one, and what was begun here, and nothing else."""
        if self._stream is None:
            yield
            return
        if mark is not None:
            self._stream.wait_event(mark)
        with torch.cuda.stream(self._stream):
            yield

    def mark(self) -> torch.cuda.Event | None:
        """A point behind all that was begun, for `wait`; None where nothing runs beside."""
        return None if self._stream is None else self._stream.record_event()

    def here(self) -> torch.cuda.Event | None:
        """A point behind all that was asked for so far on the stream that is used now; None where nothing runs beside."""
        return None if self._stream is None else torch.cuda.current_stream().record_event()

    def wait(self, mark: torch.cuda.Event | None) -> None:
        """Go on behind a point."""
        if mark is not None:
            torch.cuda.current_stream().wait_event(mark)

    def join(self) -> None:
        """Go on behind all that was begun."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
