"""In which order rows are trained on: each epoch anew, from the seed, without a list of them in memory.

Position p of the endless stream is row `shuffled(p % rows)` of epoch `p // rows`, whoever asks: so the groups of ranks share it by
taking turns, and any number of groups can go on behind any position.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from hashlib import blake2b

_ROUNDS = 4


def endless_rows(rows: int, seed: int, group: int, groups: int, used: int = 0) -> Iterator[int]:
    """The rows of group `group` of `groups`, for ever, behind the first `used` of all groups together."""
    for position in itertools.count(used + group, groups):
        epoch, place = divmod(position, rows)
        yield shuffled(place, rows, f"{seed}/{epoch}".encode())


def shuffled(place: int, count: int, key: bytes) -> int:
    """Which of `count` things is at `place` in the order of `key`: a permutation, by a Feistel network.

    >>> sorted(shuffled(place, 5, b"key") for place in range(5))
    [0, 1, 2, 3, 4]
    """
    bits = max((count - 1).bit_length() + 1, 2) // 2
    while (place := _mixed(place, bits, key)) >= count:
        pass  # outside of what is shuffled: on to where that leads, which ends inside at last
    return place


def _mixed(number: int, bits: int, key: bytes) -> int:
    mask = (1 << bits) - 1
    left, right = number >> bits, number & mask
    for turn in range(_ROUNDS):
        word = b"%d/%d/%s" % (turn, right, key)
        left, right = right, left ^ (int.from_bytes(blake2b(word, digest_size=8).digest(), "big") & mask)
    return left << bits | right
