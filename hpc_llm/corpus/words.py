"""The words by which a corpus and its use are described. Planning a run without data needs nothing else of corpora."""

from __future__ import annotations

TRAIN, VALIDATION = SPLITS = ("train", "validation")
CAUSAL, SEQ2SEQ = LAYOUTS = ("causal", "seq2seq")
"""One sequence of which the end is predicted, or one that is read and one that is written."""
NONE, DOCUMENTS, STREAM = PACKINGS = ("none", "documents", "stream")
"""How samples fill sequences: see `corpus.rows`."""
REFUSE, TRUNCATE, DROP = TOO_LONG = ("refuse", "truncate", "drop")
"""What becomes of a sample that is longer than a sequence."""
