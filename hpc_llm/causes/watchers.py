"""Tools and loops that only watch while a program trains: their end is not its own."""

from __future__ import annotations

import re

_WATCHES = re.compile(
    rb"[^\n]{1,200}? (?:Killed|Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)(?: +\(core dumped\))? +(?:[({] ?)?"
    rb"(?:while|until|for|sleep|watch|tail|ping|inotifywait|(?:\S{1,80}/)?(?:nvidia-smi|rocm-smi|amd-smi|dcgmi|nvtop|h?top|vmstat|iostat|dstat|sar"
    rb"|free|tensorboard))\b"
)


_HEADING = b"Traceback (most recent call last)"
_FIRST_FRAME = re.compile(
    rb"[^\n]{0,200}\n[^\n]{0,200}?File \"[^\"\n]{0,400}/(?:bin|Scripts)/(?:wandb|mlflow|tensorboard|aim|comet|neptune|clearml-\w{1,20}|gpustat|nvitop|codecarbon"
    rb"|hf|huggingface-cli|gdown|aws|gsutil)(?:\.exe)?\""
)
_LOOKED_BACK = 1 << 13


def is_no_helper(text: bytes, position: int) -> bool:
    """Whether the traceback in which `position` stands is not that of a tool that a script calls beside the program, as `wandb login`.

    >>> log = b'Traceback (most recent call last):\\n  File "/u/.local/bin/wandb", line 5, in <module>\\nModuleNotFoundError: x'
    >>> is_no_helper(log, len(log) - 3), is_no_helper(log.replace(b"bin/wandb", b"train.py"), len(log) - 3)
    (False, True)
    """
    heading = text.rfind(_HEADING, max(0, position - _LOOKED_BACK), position)
    return heading < 0 or _FIRST_FRAME.match(text, heading) is None


def is_of_a_program(text: bytes, position: int) -> bool:
    """Whether a shell does not say it of a loop or a tool that only watched: the script itself ends those, as with kill -9.

    >>> is_of_a_program(b"bash: line 1: 12 Segmentation fault (core dumped) nvidia-smi dmon", 0)
    False
    >>> is_of_a_program(b"run.sh: line 3: 12 Segmentation fault      (core dumped) python a.py", 0)
    True
    """
    return _WATCHES.match(text, text.rfind(b"\n", 0, position) + 1) is None
