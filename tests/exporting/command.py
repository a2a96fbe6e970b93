"""The command as a user types it, and a secret that his shell holds."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "hpc-llm"
SECRET = "hf_QwErTy1234567890AsDfGh"
