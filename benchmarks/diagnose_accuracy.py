"""How often `hpc-llm diagnose` names the right cause: precision and recall per cause over a labelled corpus.

    python benchmarks/diagnose_accuracy.py [--part tuning|held_out] [--wrong]

The corpus is tests/diagnose/corpus/<part>/<cause>.txt; `=== name` begins a sample. `held_out` was written before the
patterns and is never tuned on.
"""

from __future__ import annotations

import argparse
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpc_llm.diagnosis import diagnose_stream

CORPUS = Path(__file__).parent.parent / "tests" / "diagnose" / "corpus"
PARTS = ("tuning", "held_out")
_BEGIN = re.compile(r"^=== (?P<name>.+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Sample:
    part: str
    cause: str
    name: str
    text: str


@dataclass(frozen=True)
class Answer:
    sample: Sample
    cause: str
    """The one that was named."""


def samples(parts: Sequence[str] = PARTS) -> Iterator[Sample]:
    """All labelled texts."""
    for part in parts:
        for file in sorted((CORPUS / part).glob("*.txt")):
            pieces = _BEGIN.split(file.read_text(encoding="utf-8"))[1:]
            for name, text in zip(pieces[::2], pieces[1::2], strict=True):
                yield Sample(part, file.stem, name, text)


def answers(parts: Sequence[str] = PARTS) -> list[Answer]:
    """What diagnose says to each sample."""
    return [Answer(s, diagnose_stream(io.BytesIO(s.text.encode())).cause.id) for s in samples(parts)]


@dataclass(frozen=True)
class Score:
    right: int
    named: int
    """How often it was named."""
    labelled: int
    """How often it should have been."""

    @property
    def precision(self) -> float:
        return self.right / self.named if self.named else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.labelled if self.labelled else 1.0


def scores(given: Sequence[Answer]) -> dict[str, Score]:
    """The score of each cause that is labelled or named."""
    named, labelled = Counter(a.cause for a in given), Counter(a.sample.cause for a in given)
    right = Counter(a.cause for a in given if a.cause == a.sample.cause)
    return {cause: Score(right[cause], named[cause], labelled[cause]) for cause in sorted({*named, *labelled})}


def overall(given: Sequence[Answer]) -> Score:
    """Over all failures: a run that completed and is given a cause costs precision, a failure without one recall."""
    quiet = ("none", "unknown")
    right = sum(a.cause == a.sample.cause for a in given if a.cause not in quiet)
    named = sum(a.cause not in quiet for a in given)
    labelled = sum(a.sample.cause not in quiet for a in given)
    return Score(right, named, labelled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, help="only this part of the corpus")
    parser.add_argument("--wrong", action="store_true", help="list the samples that are named wrongly")
    options = parser.parse_args()
    for part in [options.part] if options.part else PARTS:
        _print(part, answers((part,)), options.wrong)


def _print(part: str, given: Sequence[Answer], wrong: bool) -> None:
    print(f"{part}: {len(given)} samples")
    print(f"{'cause':<22}{'samples':>8}{'precision':>11}{'recall':>8}")
    for cause, score in scores(given).items():
        print(f"{cause:<22}{score.labelled:>8}{score.precision:>11.3f}{score.recall:>8.3f}")
    score = overall(given)
    print(f"{'all failures':<22}{score.labelled:>8}{score.precision:>11.3f}{score.recall:>8.3f}\n")
    for answer in given:
        if wrong and answer.cause != answer.sample.cause:
            print(f"  {answer.sample.cause} taken for {answer.cause}: {answer.sample.name}")


if __name__ == "__main__":
    main()
