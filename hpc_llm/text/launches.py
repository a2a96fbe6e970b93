"""What launchers say once of each launch, before its processes begin."""

from __future__ import annotations

TORCHRUN = "Setting OMP_NUM_THREADS environment variable for each process to be "
LAUNCHES = (
    TORCHRUN.encode(),
    b"The following values were not passed to `accelerate launch`",
    b":main] WORLD INFO DICT: {",
)
"""torchrun's words, accelerate's and DeepSpeed's."""
