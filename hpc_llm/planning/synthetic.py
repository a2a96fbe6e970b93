"""Made-up training data that can be learned, and how well. Standard library only.

A Markov chain over few tokens of the vocabulary: each token is followed by one of four, with probabilities 1/2, 1/4, 1/8
and 1/8. So the least mean loss on it is known, 1.75 ln 2 = 1.2130 nats, whatever the vocabulary and the seed. A model
without a clue begins near ln(vocabulary), one that knows which tokens occur is at ln 64 = 4.1589, and only one that looks
at the token before gets below that. Tokens are drawn afresh for ever, so that nothing can be learned by heart.
"""

from __future__ import annotations

import math
import random

from hpc_llm.immutable import dataclass

STATES = 64
"""Tokens that occur, at most: few, so that some thousand tokens show what follows each."""

EIGHTHS = (0, 0, 0, 0, 1, 1, 2, 3)
"""Which of the four followers each eighth of the draws takes."""

LOSS_FLOOR_NATS = 1.75 * math.log(2)
"""Entropy of the next token: 1/2 ln 2 + 1/4 ln 4 + 2/8 ln 8."""

DESCRIPTION = f"synthetic tokens, a Markov chain whose mean loss cannot fall below {LOSS_FLOOR_NATS:.4f} nats"


@dataclass(frozen=True)
class Chain:
    """State s is written as token `names[s]` and is followed by s + `jumps[k]` modulo the number of states."""

    names: tuple[int, ...]
    jumps: tuple[int, ...]


def make_chain(seed: int, vocab_size: int) -> Chain:
    """The chain of a seed, the same on every rank and device."""
    chooser = random.Random(f"chain/{seed}/{vocab_size}")
    names = chooser.sample(range(vocab_size), min(STATES, vocab_size))
    return Chain(tuple(names), tuple(chooser.sample(range(len(names)), 4)))
