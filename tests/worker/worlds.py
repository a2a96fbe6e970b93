"""Worlds of ranks that begin at once: each rank is a copy of one process that has imported what all of them need.

What launchers do is proved where real ones start the ranks: test_launchers.py, test_keeping.py and tests/slurm.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
NEEDED = (
    "two_ranks", "sessions", "bitsandbytes", "peft", "torch.distributed.fsdp",
    "transformers.models.llama.modeling_llama", "transformers.models.t5.modeling_t5",
)  # fmt: skip
"""Imported once, before any rank begins."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class Worlds:
    """Starts the process that is copied when the first world is asked for."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._folder = folder
        self._environ = environ
        self._copied: subprocess.Popen[str] | None = None

    def run(self, program: str, folder: Path, ranks: int) -> list[int]:
        """Call `main(folder)` of a module of this folder in each of so many ranks; their exit codes, minus the signal's
        number where one killed it. What a rank prints is in `folder/said-RANK.txt`."""
        try:
            return self._answer({"program": program, "folder": str(folder), "ranks": ranks})
        except BaseException:
            self.close()  # whatever it says later would be taken for the answer to the next one
            raise

    def must_run(self, program: str, folder: Path, ranks: int) -> None:
        codes = self.run(program, folder, ranks)
        said = {rank: (folder / f"said-{rank}.txt").read_text()[-3000:] for rank in range(ranks)}
        assert codes == [0] * ranks, f"{codes}: {said}"

    def close(self) -> None:
        if self._copied is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._copied.pid, signal.SIGKILL)
            self._copied.communicate()
            self._copied = None

    def _answer(self, wanted: dict[str, Any]) -> list[int]:
        copied = self._copied = self._copied or self._start()
        assert copied.stdin and copied.stdout
        print(json.dumps(wanted), file=copied.stdin, flush=True)
        line = copied.stdout.readline()
        assert line, (self._folder / "copied.txt").read_text()[-3000:]
        return [int(code) for code in json.loads(line)]

    def _start(self) -> subprocess.Popen[str]:
        with (self._folder / "copied.txt").open("w") as said:
            return subprocess.Popen(
                [sys.executable, str(Path(__file__))],
                env={**os.environ, **self._environ, **ONE_THREAD}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
                text=True, start_new_session=True,
            )  # fmt: skip


def serve() -> None:
    """A world for each line of stdin, and the exit codes of its ranks as a line of stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some packages print as they are imported
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    for name in NEEDED:
        importlib.import_module(name)
    importlib.import_module("hpc_llm.worker.engines.deepspeed").imported()
    importlib.import_module("deepspeed.utils.nvtx").enable_nvtx = False  # type: ignore[attr-defined]  # ranges that nobody looks at
    assert len(os.listdir("/proc/self/task")) == 1, "threads would be missing in the copies"
    assert "mlflow" not in sys.modules, "DeepSpeed's autotuner has brought it"
    gc.collect()
    gc.freeze()  # DeepSpeed collects often, and would look through all modules each time
    for line in sys.stdin:
        print(json.dumps(_world(answers, **json.loads(line))), file=answers, flush=True)


def _world(answers: IO[str], program: str, folder: str, ranks: int) -> list[int]:
    """A rank that fails takes the others with it, as a launcher does."""
    pids = [os.fork() or _rank(answers, program, Path(folder), rank, ranks) for rank in range(ranks)]
    codes: dict[int, int] = {}
    while len(codes) < ranks:
        pid, status = os.wait()
        codes[pid] = os.waitstatus_to_exitcode(status)
        if codes[pid] != 0:
            for other in set(pids) - codes.keys():
                os.kill(other, signal.SIGKILL)
    return [codes[pid] for pid in pids]


def _rank(answers: IO[str], program: str, folder: Path, rank: int, ranks: int) -> int:
    """What the copy does; it never returns."""
    try:
        os.close(answers.fileno())
        with (folder / f"said-{rank}.txt").open("wb") as said, Path(os.devnull).open("rb") as nothing:
            for file, number in ((nothing, 0), (said, 1), (said, 2)):
                os.dup2(file.fileno(), number)
        place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
        os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
        importlib.import_module(program).main(folder)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    serve()
