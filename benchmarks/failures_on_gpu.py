"""Failures produced on real GPUs, and the cause that `hpc-llm diagnose` names for each.

    python benchmarks/failures_on_gpu.py [--only NAME …] [--keep DIR]

Needs torch, transformers, deepspeed, what the login side of hpc-llm needs, and a GPU; cases with two ranks need two GPUs
and are left out, with a word, where there is one. Prints one Markdown table and, as the last line, one JSON object with
the device and the versions. `--keep` keeps the output of every program. Exits 1 when a cause was not named rightly.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hpc_llm.diagnosis import Diagnosis, diagnose_files, diagnose_run  # noqa: E402
from hpc_llm.parsing import parse_paths  # noqa: E402
from hpc_llm.records.run import RunPaths  # noqa: E402

COMMAND = [sys.executable, "-c", "import sys; from hpc_llm.cli import main; sys.exit(main())"]
LIMIT_S = 240


@dataclass(frozen=True)
class Program:
    """A plain program, which torchrun starts if it has several ranks."""

    name: str
    cause: str
    text: str
    ranks: int = 1
    environ: tuple[tuple[str, str], ...] = ()
    phase: str | None = None
    """The part of its work in which memory runs out, where it is no step."""


@dataclass(frozen=True)
class Training:
    """A run of hpc-llm on this machine."""

    name: str
    cause: str
    flags: str
    gpus: int = 1
    meddle: Callable[[Path], None] | None = None
    """What is done to the run while it trains."""


def rank_process(run: Path, rank: int) -> int:
    """The process of a rank."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ, words = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"\0RANK={rank}\0".encode() in b"\0" + environ and run.name.encode() in words:
                return int(entry.name)
    raise SystemExit(f"rank {rank} of {run.name} is not there")


def to_rank_1(number: signal.Signals) -> Callable[[Path], None]:
    """Sends a signal to rank 1 once it trains."""

    def meddle(run: Path) -> None:
        steps, deadline = run / "steps.jsonl", time.monotonic() + LIMIT_S
        while not steps.exists() or steps.read_text().count("\n") < 3:
            if time.monotonic() > deadline or (run / "exit.json").exists():
                return
            time.sleep(0.2)
        os.kill(rank_process(run, 1), number)

    return meddle


GROUP = "import os, time, datetime, torch, torch.distributed as dist\nrank = int(os.environ['RANK'])\ntorch.cuda.set_device(rank)\n"

FULL = "held = torch.empty(torch.cuda.mem_get_info()[0] - 2**27, dtype=torch.uint8, device='cuda')\n"
"""Leaves 128 MiB of the GPU."""

CASES: tuple[Program | Training, ...] = (
    Program("allocation", "device_oom", "import torch\nx = [torch.empty(2**30, device='cuda') for _ in range(99)]"),
    Program(
        "cuBLAS workspace",
        "device_oom",
        "import torch\nfree, _ = torch.cuda.mem_get_info()\nx = torch.empty(free - 2**22, dtype=torch.uint8, device='cuda')\n"
        "a = x[:2**20].view(torch.float32).view(512, 512)\nprint((a @ a).sum())",
    ),
    Program(
        "weights onto a full GPU",
        "device_oom",
        "import torch\nfrom transformers import LlamaConfig, LlamaForCausalLM\n"
        "model = LlamaForCausalLM(LlamaConfig(hidden_size=2048, intermediate_size=4096, num_hidden_layers=2))\n"
        + FULL
        + "model.to('cuda')\n",
        phase="loading",
    ),
    Program(
        "optimizer's states",
        "device_oom",
        "import torch\nlayer = torch.nn.Linear(2**13, 2**13, device='cuda')\noptimizer = torch.optim.AdamW(layer.parameters())\n"
        "layer(torch.ones(4, 2**13, device='cuda')).sum().backward()\n" + FULL + "optimizer.step()\n",
        phase="states",
    ),
    Program(
        "weights gathered to be saved",
        "device_oom",
        GROUP
        + "from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType\n"
        "dist.init_process_group('nccl', timeout=datetime.timedelta(seconds=20))\n"
        "model = FSDP(torch.nn.Linear(2**14, 2**14, device='cuda'))\n"
        "model(torch.ones(4, 2**14, device='cuda')).sum().backward()\ntorch.cuda.empty_cache()\n"
        + FULL
        + "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True)):\n"
        "    model.state_dict()\n",
        ranks=2,
        phase="saving",
    ),
    Program(
        "page-locked memory", "host_oom", "import torch\nx = torch.empty(2**44, dtype=torch.uint8, pin_memory=True)"
    ),
    Program(
        "hidden GPUs", "gpu_missing", "import torch\ntorch.zeros(1).cuda()", environ=(("CUDA_VISIBLE_DEVICES", ""),)
    ),
    Program("wrong ordinal", "gpu_missing", "import torch\ntorch.zeros(1, device='cuda:63')"),
    Program(
        "device-side assert",
        "index_out_of_range",
        "import torch\ne = torch.nn.Embedding(8, 8).cuda()\nprint(e(torch.full((4,), 9, device='cuda')).sum())",
    ),
    Program(
        "segmentation fault", "segfault", "import ctypes\nctypes.string_at(1)", environ=(("PYTHONFAULTHANDLER", "1"),)
    ),
    Program(
        "rank that leaves a collective",
        "collective_timeout",
        GROUP
        + "dist.init_process_group('nccl', timeout=datetime.timedelta(seconds=12))\nx = torch.ones(4, device='cuda')\n"
        "dist.all_reduce(x)\nif rank == 1:\n    time.sleep(90)\ndist.all_reduce(x)\ntorch.cuda.synchronize()\n",
        ranks=2,
    ),
    Program(
        "first rank that fails",
        "python_exception",
        GROUP
        + "dist.init_process_group('nccl', timeout=datetime.timedelta(seconds=20))\nx = torch.ones(4, device='cuda')\n"
        "dist.all_reduce(x)\nif rank == 1:\n    raise ValueError('a shard is empty')\ndist.all_reduce(x)\ntorch.cuda.synchronize()\n",
        ranks=2,
    ),
    Training(
        "logits too large",
        "device_oom",
        "--method z2 --model llama3.2-1b --micro-batch-size 512 --sequence-length 4096",
    ),
    Training(
        "fp16 that overflows",
        "loss_scale_collapse",
        "--method z2 --model tiny --set precision=fp16 --set optimizer.lr=1e4 --steps 60",
    ),
    Training(
        "rank killed",
        "unknown",  # where the kernel counts what it kills for memory, that is refuted, and nothing says who it was
        "--method z2 --model llama3.2-1b --steps 5000",
        gpus=2,
        meddle=to_rank_1(signal.SIGKILL),
    ),
)


def produce(case: Program | Training, folder: Path) -> Diagnosis:
    """Let it fail, and ask why."""
    return _program(case, folder) if isinstance(case, Program) else _training(case, folder)


def _program(case: Program, folder: Path) -> Diagnosis:
    file, log = folder / "program.py", folder / "program.out"
    file.write_text(case.text)
    words = [sys.executable, str(file)]
    if case.ranks > 1:
        words[1:1] = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={case.ranks}"]
    with log.open("wb") as output:
        subprocess.run(
            words, stdout=output, stderr=subprocess.STDOUT, env=environment(case.environ), check=False, timeout=LIMIT_S
        )
    return diagnose_files([log])


def _training(case: Training, folder: Path) -> Diagnosis:
    flags = f"submit --cluster local --gpus-per-node {case.gpus} --logs {folder} --json --force {case.flags}"
    if "--steps" not in flags:
        flags += " --steps 10"
    done = subprocess.run([*COMMAND, *flags.split()], capture_output=True, text=True, env=environment(()), check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    run = Path(json.loads(done.stdout)["runs"][0]["run_dir"])
    if case.meddle is not None:
        case.meddle(run)
    deadline = time.monotonic() + LIMIT_S
    while not (run / "exit.json").exists():
        if time.monotonic() > deadline:
            subprocess.run([*COMMAND, "cancel", run.name, "--logs", str(folder)], env=environment(()), check=False)
            break
        time.sleep(0.5)
    return diagnose_run(RunPaths(run))


def environment(more: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **dict(more)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    import torch

    gpus, rows = torch.cuda.device_count(), []
    print("| failure | named | sure | listed as | what |\n|---|---|---:|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for number, case in enumerate(CASES):
            if arguments.only and case.name not in arguments.only:
                continue
            if gpus < (case.ranks if isinstance(case, Program) else case.gpus):
                print(f"| {case.name} | not run: needs two GPUs | | | |")
                continue
            folder = (arguments.keep or Path(scratch)) / f"case-{number:02}"
            folder.mkdir(parents=True)
            found = produce(case, folder)
            outcome = [row.outcome for row in parse_paths([folder])][-1]
            phase, meant = found.to_dict()["details"].get("phase"), getattr(case, "phase", None)
            right = "" if found.cause.id == case.cause else f" (is {case.cause})"
            right += "" if phase == meant else f" (in {phase}, is {meant})"
            words = (found.summary or found.evidence[0].text if found.evidence else found.summary).replace("|", "/")[
                :150
            ]
            print(
                f"| {case.name} | {found.cause.id}{right} | {found.confidence:.2f} | {outcome} | {words} |", flush=True
            )
            rows.append(
                {"failure": case.name, "cause": case.cause, "outcome": outcome, "right": not right, **found.to_dict()}
            )
    about = {
        "device": torch.cuda.get_device_name(0),
        "gpus": gpus,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps({**about, "failures": rows}))
    return int(not all(row["right"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
