"""Where the numbers that ranks hold lie in the whole parameter: held against the numbers themselves."""

from __future__ import annotations

import random

import pytest
import torch

from hpc_llm.worker.engines.pieces import Piece, Place

ROWS, COLUMNS = 6, 12
WHOLE = torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS)


def held(kind: str, ranks: int, rank: int) -> tuple[torch.Tensor, Place]:
    """What a rank has of the whole, and its place."""
    if kind == "rows":
        return WHOLE.chunk(ranks, 0)[rank].flatten(), Place(rank * ROWS // ranks * COLUMNS)
    width = COLUMNS // ranks
    return WHOLE.chunk(ranks, 1)[rank].flatten(), Place(rank * width, width, COLUMNS)


def any_piece(draw: random.Random) -> tuple[torch.Tensor, Piece]:
    """A stretch of what any rank of 1, 2, 3 or 6 has."""
    ranks = draw.choice((1, 2, 3, 6))
    own, place = held(draw.choice(("rows", "columns")), ranks, draw.randrange(ranks))
    begin = draw.randrange(len(own))
    count = draw.randrange(len(own) - begin + 1)
    return own[begin : begin + count], Piece(begin, count, place)


@pytest.mark.parametrize("seed", range(300))
def test_what_two_ranks_have_both_is_found_however_either_holds_it(seed: int) -> None:
    draw = random.Random(seed)
    (ours, piece), (theirs, other) = any_piece(draw), any_piece(draw)
    found = []
    for begin, at, count in piece.overlaps(other):
        assert count > 0 and torch.equal(ours[begin : begin + count], theirs[at : at + count])
        found += ours[begin : begin + count].tolist()
    assert sorted(found) == sorted(set(ours.tolist()) & set(theirs.tolist()))
