"""hpc-llm's worker in a fresh process that has imported its libraries beforehand, and waits for a file before it goes.

    [torchrun …] gate.py FOLDER MODULE,MODULE,… RUN_DIR

Writes FOLDER/ready-RANK, waits for FOLDER/go, and says on stderr how long the parts of the run took.
"""

import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

folder, modules, run_dir = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # as DeepSpeed sets it: no import opens the GPU
sys.path.pop(0)
began = time.monotonic()
for name in filter(None, modules.split(",")):
    import_module(name)
imported_s = time.monotonic() - began
rank = os.environ.get("RANK", "0")
(folder / f"ready-{rank}").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
began = time.monotonic()

from hpc_llm.worker.pretrain_llm import command  # noqa: E402
from hpc_llm.worker.tasks import training  # noqa: E402


def timed(name: str) -> None:
    inner = getattr(training, name)

    def outer(*arguments: Any) -> Any:
        at = time.monotonic()
        try:
            return inner(*arguments)
        finally:
            if rank == "0":
                at, now = at - began, time.monotonic() - began
                print(f"TIMELINE {name} {at:.1f}-{now:.1f}", file=sys.stderr, flush=True)

    setattr(training, name, outer)


for one in ("_prepare_device", "_build_engine", "_measure"):
    timed(one)
if rank == "0":
    print(f"TIMELINE imported {imported_s:.1f}", file=sys.stderr, flush=True)
sys.argv = ["pretrain_llm", "--run-dir", run_dir]
command()
