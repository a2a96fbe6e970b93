"""Prose in lines of a terminal's width: broken between words, and never within a command that is to be pasted. Standard library only."""

from __future__ import annotations

import textwrap

from hpc_llm.text.late_pattern import late_pattern

_HELD = "\ue000"
"""Stands for a space at which no line is broken; no text has this character."""
_COMMAND = late_pattern(
    r"`[^`\n]{1,1000}`|"
    r"""(?<![\w/.-])(?:[A-Z][A-Z_]{1,40}=(?:"[^"]{0,80}"|'[^']{0,80}'|[^\s"']{1,80}) ){0,4}"""
    r"(?:(?:[\w.~$'-]{0,80}/){0,30}(?:python[\d.]{0,6}'? -|pip3? (?:install|list|cache|show)|(?:conda|mamba) (?:install|activate|create|env)|"
    r"hpc-llm [a-z]{2,12} |hf (?:auth|download))|module (?:load|avail|spider|purge)|source [~/$\"']|export [A-Z]|"
    r"(?:sacct|sacctmgr|scontrol|squeue|sinfo|scancel|ulimit|chmod|rm|ls|tail|df) (?:-|show|release|update)|(?:sbatch|srun) -)"
    r"[^;`\n]{0,1000}?(?=$| \(|; |, (?:and|or|then|else) |: |`| (?:after|before|for|if|in|into|where|with) )|"
    r"--[a-z][\w-]{0,40}[= ][^\s,;()]{1,200}(?: --[a-z][\w-]{0,40}[= ][^\s,;()]{1,200}){0,20}"
)
"""What is in backquotes; a line of a shell, to the end of its clause; options with their values beside each other."""


def broken(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most so many characters, but for a command that is longer: a terminal goes on with it on its next row.

    >>> broken("install it: python -m pip install torch transformers", 30)
    ['install it:', 'python -m pip install torch transformers']
    """
    held = _COMMAND.sub(lambda found: found[0].replace(" ", _HELD), text)
    lines = textwrap.wrap(held, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_HELD, " ") for line in lines] or [""]
