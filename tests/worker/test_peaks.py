"""Peaks of device memory beside CUDA graphs: what a graph works in counts once, while it is recorded and behind that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from hpc_llm.worker import device as devices

GPU = torch.device("cuda", 0)


@dataclass
class Allocator:
    """torch's counters, as its allocator keeps them."""

    now: int = 0
    peak: int = 0
    reserved: int = 0

    def have(self, size: int) -> None:
        self.now = size
        self.peak = max(self.peak, size)
        self.reserved = max(self.reserved, size)

    def reset(self, _: Any) -> None:
        self.peak = self.now


@pytest.fixture
def torch_has(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    found = Allocator()
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: found.peak)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: found.reserved)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", found.reset)
    monkeypatch.setattr(devices, "_beside", devices._Beside())
    return found


def record(allocator: Allocator, states: int, works_in: int) -> None:
    """A graph is recorded: torch counts its memory until that is over."""
    allocator.have(states + works_in)
    allocator.now = states
    devices.count_hidden(GPU, works_in)


def test_what_a_graph_works_in_counts_once_where_it_is_recorded_in_the_window(torch_has: Allocator) -> None:
    devices.reset_peak_memory(GPU)
    record(torch_has, states=10, works_in=30)
    assert devices.peak_allocated_bytes(GPU) == 40
    torch_has.have(12)  # what the optimizer steps with, beside what the graph keeps
    assert devices.peak_allocated_bytes(GPU) == 42
    assert devices.peak_reserved_bytes(GPU) == 40


def test_a_graph_of_before_the_window_counts_and_what_was_before_it_does_not(torch_has: Allocator) -> None:
    torch_has.have(99)
    record(torch_has, states=10, works_in=30)
    devices.reset_peak_memory(GPU)
    torch_has.have(15)
    assert devices.peak_allocated_bytes(GPU) == 45


def test_a_second_graph_is_recorded_beside_the_first(torch_has: Allocator) -> None:
    record(torch_has, states=10, works_in=30)
    devices.reset_peak_memory(GPU)
    torch_has.have(10 + 8)
    torch_has.now = 10
    devices.count_hidden(GPU, 30 + 8)
    assert devices.peak_allocated_bytes(GPU) == 10 + 30 + 8
