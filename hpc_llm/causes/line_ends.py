"""Scripts with the line ends of Windows: the carriage return becomes a part of the last word of each line, and breaks what gets it."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, sign

_REMEDY = "the script has the line ends of Windows: sed -i 's/\\r$//' SCRIPT"
_NAMED_REMEDY = (
    "a name or a value in the evidence ends in a carriage return: the script, or the list from which it was read, has the line ends of Windows: "
    "sed -i 's/\\r$//' FILE"
)
_MEANING = (
    "Each line of the script ends in a carriage return, as Windows writes them, which the shell takes for a part of the line's last word: of a "
    "command, a module, a file, a value."
)
_NAMED_MEANING = "A carriage return, with which Windows ends lines, was taken for a part of a name or a value, which nothing then knows."
_BROKEN_BY_IT = frozenset(
    (
        "module_missing",
        "conda_not_initialised",
        "command_missing",
        "package_missing",
        "config_error",
        "data_missing",
        "model_missing",
        "launch_failed",
        "script_error",
    )
)
"""What misses a file, a module or a program of that name, and what the evidence itself shows to be of it."""
_ABOVE_ALL_NAMES = 86
"""Precedence above those: the evidence itself shows what is wrong with the name."""

SIGNS = (
    sign(
        ("\\r': command not found", "\\r': No such file", "\\r'", "DOS line breaks", "^M: bad interpreter"),
        r"\$'[^'\n]{0,80}\\r': (?:command not found|No such file)|^sbatch: error: Batch script contains DOS line breaks"
        r"|: syntax error near unexpected token [`']\$?'[^'\n]{0,40}\\r'|\^M: bad interpreter: No such file",
        survived_after=STARTED,
        at_any_time=True,
        confidence=0.9,
        precedence=44,
        remedy=_REMEDY,
        meaning=_MEANING,
        explains_later=_BROKEN_BY_IT,
    ),
    sign(
        ("\\r': No such file", "\\r’: No such file"),
        r"^[^\n\"']{0,80}\benv: (?:'|‘)[^'\n]{1,200}?\\r(?:'|’): No such file or directory",
        survived_after=STARTED,
        confidence=0.95,
        precedence=_ABOVE_ALL_NAMES,
        remedy=_REMEDY,
        meaning=_MEANING,
    ),
    # Python shows the character that it was given.
    sign(
        ("\\r': [Errno ", "\\r'"),
        r"^[^\n\"']{1,200}: can't open file '[^'\n]{1,300}\\r': \[Errno \d+\]"
        r"|^[^\n\"']{0,160}: error: argument [^\n']{1,200}'[^'\n]{0,200}\\r'"
        r"|^[^\n\"']{0,120}?\b(?:FileNotFound|NotADirectory|OS|ModuleNotFound)Error: [^\n']{1,120}'[^'\n]{1,300}\\r'",
        survived_after=STARTED,
        confidence=0.95,
        precedence=_ABOVE_ALL_NAMES,
        remedy=_NAMED_REMEDY,
        meaning=_NAMED_MEANING,
    ),
)
