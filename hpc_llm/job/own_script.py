"""Whether the script of somebody's own templates is one that can be sent: it names its shell, and asks for what the plan says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hpc_llm.errors import RequestError
from hpc_llm.site.sbatch_options import Source, in_full, read_options, takes_word, way_of
from hpc_llm.text.late_pattern import late_pattern

_MAGIC = "#SBATCH"
_BASH = late_pattern(r"^#!\s*\S*(?:/bash|/env(?: -S)? bash)(?:\s|$)")
_SAID = late_pattern(r": line (\d{1,9}): (.{1,200})")
_PATIENCE_S = 5.0
_SHOWN = 80
"""Characters of a line that are quoted."""
_TWO_JOBS = late_pattern(r"hetjob|packjob", re.IGNORECASE)
"""What parts a script into several jobs."""


def check_own_script(text: str, header: Sequence[str], templates: Sequence[Path], site: Source) -> None:
    """Raise RequestError for a script of `templates` that sbatch or a shell would refuse, or that asks for another job than the
    `header` of the plan; `site` says what its cluster refuses."""
    template = templates[0]
    if not text.startswith("#!"):
        raise RequestError(
            f"{template}: the script that it makes does not begin with `#!`, and neither sbatch nor this machine takes it for one. Its "
            "first line must be `#!/bin/bash`, and nothing may stand before that, not even a blank."
        )
    lines = list(_asking(text))
    left = next((line for line in header if line not in (found for _, found in lines)), None)
    if left is not None:
        raise RequestError(
            f"{template}: the script that it makes lacks `{left}` before its first command, and hpc-llm would lose the job or count another "
            "one. Begin it as the bundled job.sh.j2 does: `{% for line in header %}`, `{{ line.line }}`, `{% endfor %}`, each on a line of "
            "its own."
        )
    if (wrong := _wrong_bash(text)) is not None:
        raise RequestError(
            f"{' or '.join(map(str, templates))}: the script that it makes is no valid bash: {wrong}. Correct the template, there or before "
            "that line."
        )
    planned = {name.removeprefix("--") for line in header for name, _ in _options(line)}
    for number, line in lines:
        if line in header or not line.startswith(_MAGIC):
            continue
        source = replace(
            site, place=f"{template}, in line {number} of the script that it makes: {_MAGIC}", is_header=True
        )
        options = list(_options(line))
        strays = [name for name, _ in options if not name.startswith("-")]
        if (two := _TWO_JOBS.search(line)) is not None:
            raise RequestError(f"{source.place} {two[0]}: sbatch would make two jobs of the script. Leave it out.")
        if strays:
            raise RequestError(f"{source.place} {strays[0]}: no option. Write each as --NAME=VALUE, or leave it out.")
        for name in read_options((f"{name}={value}" if value else name for name, value in options), source):
            if name in planned:
                way = way_of(name) or "what the request has for it"
                raise RequestError(f"{source.said(name)}: the plan says it too. Leave it out, and use {way}.")


def _wrong_bash(text: str) -> str | None:
    """What bash says of the syntax of a script that names it, which it reads and does not run; None where it says nothing, or is not here."""
    magic, bash = text.partition("\n")[0], shutil.which("bash")
    if not _BASH.search(magic) or bash is None:
        return None
    # What the script switches on as it runs changes what it may say.
    patterns = ["-O", "extglob"] if "extglob" in text else []
    command = [bash, "--norc", "--noprofile", *patterns, "-n"]
    given = text.encode("utf-8", "surrogateescape")
    try:
        done = subprocess.run(
            command, input=given, env={"LC_ALL": "C"}, capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _SAID.search(done.stderr.decode("utf-8", "replace")) if done.returncode else None
    if found is None:
        return None
    rows, number = text.split("\n"), int(found[1])
    shown = rows[number - 1].strip()[:_SHOWN] if number <= len(rows) else ""
    return f"line {number}: {found[2]}{f': `{shown}`' if shown else ''}"


def _asking(text: str) -> Iterator[tuple[int, str]]:
    """The lines before the first command, which are all that a scheduler reads."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.startswith("#"):
            return
        yield number, line


def _options(line: str) -> Iterator[tuple[str, str]]:
    """Name and value of each option of a line, those with one letter by their names; what is no option has no dashes before it."""
    try:
        words = shlex.split(line.removeprefix(_MAGIC), comments=True)
    except ValueError:
        words = line.removeprefix(_MAGIC).split()
    while words:
        word = words.pop(0)
        name, is_joined, value = word.partition("=")
        if word.startswith("-") and not word.startswith("--") and (meant := in_full(word[1:2])):
            name, is_joined, value = f"--{meant}", word[2:], word[2:].removeprefix("=")
        is_option = word.startswith("-")
        if (
            is_option
            and not is_joined
            and takes_word(name.removeprefix("--"))
            and words
            and not words[0].startswith("-")
        ):
            value = words.pop(0)
        yield (name, value) if is_option else (word, "")
