"""Tools and loops that only watch while a program trains: their end is not its own."""

from __future__ import annotations

import re

_WATCHES = re.compile(
    rb"[^\n]{1,200}? (?:Killed|Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)(?: +\(core dumped\))? +(?:[({] ?)?"
    rb"(?:while|until|for|sleep|watch|tail|ping|inotifywait|(?:\S{1,80}/)?(?:nvidia-smi|rocm-smi|amd-smi|dcgmi|nvtop|h?top|vmstat|iostat|dstat|sar"
    rb"|free|tensorboard)|(?:(?:nohup|bash|sh|python3?|setsid) ){0,3}(?:\S{0,80}/)?[\w.-]{0,40}(?:monitor|watch|dmon|gpu_?log)[\w.-]{0,40})\b"
)


def is_of_a_program(text: bytes, position: int) -> bool:
    """Whether a shell does not say it of a loop or a tool that only watched: the script itself ends those, as with kill -9.

    >>> is_of_a_program(b"bash: line 1: 12 Segmentation fault (core dumped) nvidia-smi dmon", 0)
    False
    >>> is_of_a_program(b"run.sh: line 3: 12 Segmentation fault      (core dumped) python a.py", 0)
    True
    """
    return _WATCHES.match(text, text.rfind(b"\n", 0, position) + 1) is None
