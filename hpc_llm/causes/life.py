"""Signs of life in a log: training steps, and training that came to its end."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from hpc_llm.causes.lines import lines_with

# Each begins with fixed text, which is found several times as fast as a choice between them.
_STEPS = (
    re.compile(
        rb"oss(?<=[lL]oss)(?<!val_loss)(?<!test_loss)"
        + b"".join(
            rb"(?<!\b%b[ _][lL]oss)" % word
            for word in (b"[vV]al", b"[eE]val", b"[tT]est", b"[vV]alid", b"[vV]alidation", b"[eE]valuation")
        )
        + rb"(?:[ _/(]{1,2}(?:train(?:ing)?|avg|mean)\)?)?['\"]?(?:[ \t]*[:=|][ \t]*|[ \t]+)['\"]?[-+]?\d"
    ),
    re.compile(rb"it/s[\],]"),
    re.compile(rb"s/it[\],]"),
    re.compile(rb"RunningAvgSamplesPerSec=\d"),
    re.compile(rb"fwd: (?<!\wfwd: )[\d.]+ \|"),
    re.compile(rb"elapsed time per iteration"),
    re.compile(rb"step:\d{1,9} - (?=[a-z_]{1,40}[/:-])"),
)
"""The parts of a line by which it shows as a training step."""
_OF_TRAINING = tuple(one for one in _STEPS if one.pattern not in (rb"it/s[\],]", rb"s/it[\],]"))
"""Those that no progress bar has."""
_ASIDE = re.compile(rb"(?i)(?<![a-z])(?:test|e?val|valid|validation|evaluation)[ _]loss['\"]?[ \t:=|]{1,4}[\d.]")
"""The loss of an evaluation."""
_PREPARES = re.compile(
    rb"[^\n|%]{0,60}\b(?:[Ll]oading|[Dd]ownload\w*|Fetching|Map|Filter|Generating|[Tt]okeni[sz]\w*|Running tokenizer|Resolving|Saving|Convert\w*"
    rb"|[Pp]re-?process\w*|Packing|Grouping|Extract\w*|Capturing|Quantiz\w*|Materializ\w*|Creating|Merging|Casting|Flattening|Sharding|Compiling)\b[^\n|%]{0,80}\d{1,3}%(?: Completed )?\|"
)
"""The beginning of a progress bar of something else: shards, files, rows."""
_LONGEST = 1 << 10
"""Bytes of a line that are searched for its number."""
_LOSS = ord("o")
"""With it the first of the steps' parts begins, which is no bar's."""

END = re.compile(
    rb"\{'train_runtime': |\{\"train_runtime\": |(?:train|predict|test)_runtime +=|^Training (?:done|completed|complete|finished)\b"
    rb"|\[after training is done\]|exiting program (?:after (?!receiving )|at iteration)|Trainer\.fit` stopped: `max_(?:steps|epochs)="
    rb"|\"key\": \"run_stop\"[^\n]{0,200}\"status\": \"success\"|Reporting training SUCCESS|Training job completed"
    rb"|\bdone training in [\d.]+ seconds|\b[Ff]inished [Tt]raining\b|submitit[^\n]{0,60} - Job completed successfully"
    rb"|^Successfully completed\.$(?=\n{1,2}Resource usage summary:)|(?:^|[\s;])Exit_status ?= ?0(?![\d.])"  # LSF's and PBS's report
    rb"|^[^\n]{0,60}\bSuccessful requests: +0*[1-9]|^Throughput: (?=[\d.]*[1-9])[\d.]+ requests/s"  # vLLM's benchmarks
    rb"|^[^\n]{0,80}[Tt]raining (?:done|completed|complete|finished|is done)\b(?! in 0 )",
    re.MULTILINE,
)
_OTHERS = rb"tokeni[sz]er|tokeni[sz]ation|bpe|sentencepiece|vocab|k-?means"
"""What is trained beside models."""
_OF_ANOTHER = re.compile(rb"(?i)\b\w{0,20}(?:" + _OTHERS + rb")\w{0,10}\b[^.,;!?\n]{0,40}$")
"""What stands on a line before the end of such a training."""
_NOT_SAID = re.compile(
    rb"(?i)\b(?:the|an?|this|that|any|each|its|our|your|through|of|from|with|on|for|into|not|if|when|until|once|after) $"
)
"""What stands before `finished training` where that is no word on an end: of a finished training model, or of a time that is to come."""
_OF_A_PART = re.compile(
    rb"(?i)(?: of| for)? (?:the |one |this )?(?:warm-?up|epoch)\b|[^.,;!?\n]{0,30}?\b(?:"
    + _OTHERS
    + rb"|\d{1,9} merges)\b"
)
"""What stands behind it, there too, or where only a part of training came to its end."""
END_WORDS = (
    b"_runtime", b"raining done", b"raining complete", b"raining finished", b"raining is done", b"raining SUCCESS", b"raining job completed",
    b"inished training", b"inished Training", b"done training in ", b"stopped: `max_", b"exiting program", b"run_stop", b"Job completed successfully",
    b"Successfully completed.", b"Exit_status", b"Successful requests: ", b"Throughput: ",
)  # fmt: skip
"""Each line with such an end holds one of them."""
_BEHIND = 40
"""Bytes behind a line that its end may need to be one."""

_TRAINING = re.compile(rb"(?i)\b(?:training (?:done|completed?|finished|is done)|finished training)\b")

_MERE_WORDS = re.compile(
    rb"(?<!\[after )\b(?:[Tt]raining (?:done|completed?|finished|is done)|[Ff]inished [Tt]raining)\b"
)
"""An end that any script may print, whatever became of the program before it."""

_PLANNED_STOP = re.compile(rb"exiting program (?:after (?P<minutes>\d+(?:\.\d+)?) minutes|at iteration +(?P<step>\d+))")
"""By its own settings Megatron ends a run after a time, or at a step, that need not be its last."""

_NUMBERS = (
    re.compile(rb"(?i)(?<![a-z])(?:step|iter(?:ation)?)s?['\"]?[ \t:=#\[(]{0,12}(\d+)"),
    re.compile(rb"\|[ \t]{0,8}(\d+)/\d+ \["),
    re.compile(rb"['\"]epoch['\"]: ?['\"]?([\d.]+)"),
    re.compile(rb"(?i)(?<![a-z])epoch[ \t:=#\[(]{0,4}(\d+)"),
)
"""How a line says which step it is of."""
_FULL = re.compile(rb"100%|\b(\d+)/\1 \[")
"""A progress bar that has come to its end."""
_LAST_STEP = re.compile(
    rb"(?i)\b(?:step|iter(?:ation)?)s?[ :=#\[(]{0,12}(\d{1,18}) {0,8}/ {0,8}(\d{1,18})\b(?! : (?-i:[A-Z]{2}))|\"current_steps\": (\d{1,18}), \"total_steps\": (\d{1,18})\b"
)
"""Not of a build of docker, as `Step 6/6 : RUN make`."""
_SOFT_END = re.compile(rb"Process \d+ exits successfully|^ *100%[^\n]{0,200}? (\d+)/\1 \[[\d:]+<0?0:00", re.MULTILINE)


def steps(text: bytes, position: int = 0) -> Iterator[int]:
    """Positions of the training steps in `text` from `position` on, rising: one a line, where it shows first."""
    end_of_line = -1
    for start in heapq.merge(*(map(_start, one.finditer(text, position)) for one in _STEPS)):
        if start > end_of_line and not _is_of_preparation(text, start):
            yield start
            end_of_line = text.find(b"\n", start)
            if end_of_line < 0:
                return


def shows_training(text: bytes) -> bool:
    """Whether a line in `text` is a step of training for certain: a progress bar with a speed may be of anything."""
    return any(one.search(text) for one in _OF_TRAINING)


def _is_of_preparation(text: bytes, start: int) -> bool:
    """Whether the speed at `start` is that of a bar before training."""
    return text[start] != _LOSS and _PREPARES.match(text, text.rfind(b"\n", 0, start) + 1, start) is not None


def _start(match: re.Match[bytes]) -> int:
    return match.start()


def steps_after(text: bytes, position: int, enough: int) -> int:
    """Training steps in `text` from `position` on, counted up to `enough`."""
    return sum(1 for _ in islice(steps(text, position), enough))


def advances(text: bytes, starts: Sequence[int], enough: int) -> list[int]:
    """For each of the lines at `starts`, and for behind the last: how many steps it and those behind it are of by their own numbers,
    counted up to `enough`. Ranks print the same ones again, and what they print without one nobody can count."""
    seen: dict[int, set[bytes]] = {}
    most, found = 0, [0]
    for start in reversed(starts):
        number = _number(text, start) if most < enough else None
        if number is not None:
            seen.setdefault(number[0], set()).add(number[1])
            most = max(most, len(seen[number[0]]))
        found.append(most)
    return found[::-1]


def _number(text: bytes, start: int) -> tuple[int, bytes] | None:
    """In which way the line at `start` says which step it is of, and the number."""
    end = text.find(b"\n", start)
    line = text[text.rfind(b"\n", 0, start) + 1 : end if end >= 0 else len(text)][:_LONGEST]
    return next(((kind, m[1]) for kind, one in enumerate(_NUMBERS) if (m := one.search(line))), None)


def last_end(text: bytes) -> int | None:
    """Where in `text` training last said that it was over."""
    return last_ends(text)[0]


def last_ends(text: bytes) -> tuple[int | None, int | None]:
    """Where in `text` training last said that it was over, and where last in words that no script prints by chance."""
    position = firm = None
    for start, end in lines_with(text, END_WORDS):
        for match in END.finditer(text, start, end + _BEHIND):
            if match.start() <= end and not _is_of_another(text, match):
                position = match.start()
                firm = firm if _MERE_WORDS.search(match[0]) else position
    return position, firm


def _is_of_another(text: bytes, match: re.Match[bytes]) -> bool:
    """Whether it is the end of another training than the model's, as of its tokenizer, or of a part of it."""
    said = _TRAINING.search(text, match.start(), match.end())
    if said is None:
        return False
    line = text.rfind(b"\n", 0, match.start()) + 1
    before = text[max(line, said.start() - 80) : said.start()]
    if said[0][:1] in b"fF" and _NOT_SAID.search(before):
        return True
    return _OF_ANOTHER.search(before) is not None or _OF_A_PART.match(text, said.end(), said.end() + 80) is not None


def planned_stop(text: bytes, position: int) -> str | None:
    """How the program says, at `position`, that it stopped by its settings; None where it says that training is over.

    >>> planned_stop(b"[exiting program after 235.1 minutes] datetime: 2026-01-01", 1)
    'after 235.1 minutes'
    """
    found = _PLANNED_STOP.match(text, position)
    if found is None:
        return None
    minutes, step = found["minutes"], found["step"]
    return f"after {minutes.decode()} minutes" if minutes else f"at iteration {step.decode()}"


def begins_anew(text: bytes, position: int = 0) -> bool:
    """Whether there are steps in `text` from `position` on, other than the full progress bar that is drawn last."""
    return any(not _FULL.search(text, text.rfind(b"\n", 0, start) + 1, start) for start in steps(text, position))


def is_aside(line: bytes) -> bool:
    """Whether a line gives the loss of an evaluation and of no step."""
    return _ASIDE.search(line) is not None and not any(steps(line))


def is_over(line: bytes) -> bool:
    """Whether a line is a progress bar that has come to its end."""
    return _FULL.search(line) is not None


def reached_last_step(text: bytes) -> int | None:
    """Where the last step that `text` prints as `N/M` is the last of all, as in `Step 100/100`."""
    last = None
    for match in _LAST_STEP.finditer(text):
        last = match
    if last is None:
        return None
    number, of = (int(group) for group in last.groups() if group is not None)
    return last.start() if number == of > 0 else None


def soft_end(text: bytes) -> int | None:
    """Where something came to a good end that need not be all of the run: a process, a progress bar."""
    last = None
    for match in _SOFT_END.finditer(text):
        last = match
    return last.start() if last is not None else None
