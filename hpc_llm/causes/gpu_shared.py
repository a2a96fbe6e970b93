"""Two ranks that took one GPU."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, sign

GPU_SHARED = Cause(
    id="gpu_shared",
    title="two ranks took one GPU",
    meaning=(
        "Ranks of one node chose the same GPU, which NCCL and RCCL refuse: the program does not take that of its local rank, or "
        "the node shows it fewer GPUs than it has ranks."
    ),
    remedy=(
        "each rank takes the GPU of its local rank before it touches any: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); "
        "look in the program for device='cuda:0', .cuda(0), set_device(0) and a local rank that is 0 everywhere\n"
        "srun alone sets no LOCAL_RANK: take SLURM_LOCALID, or start the ranks with torchrun\n"
        "see what each rank is shown: `srun bash -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES; nvidia-smi -L'` (rocm-smi on AMD); where all ranks of "
        "a node see one and the same GPU, ask for as many as it has ranks, or start fewer ranks"
    ),
    retry=False,
    precedence=80,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable")),
    signs=(
        sign(
            ("Duplicate GPU detected", "Duplicate Device detected"),
            r"Duplicate (?:GPU|Device) detected *: rank (?P<rank>\d+) and rank (?P<other_rank>\d+) both on (?P<device>[^\n]{1,60})",
        ),
    ),
)

CAUSES = (GPU_SHARED,)
