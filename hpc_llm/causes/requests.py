"""Requests that Slurm, a plugin of the site or an MPI under Slurm refuses before anything begins."""

from __future__ import annotations

from hpc_llm.causes.cause import Sign, sign
from hpc_llm.causes.last_error import TAKEN

_NEAR = 1 << 12


_NOT_LAUNCHED = (
    "start it with one process a GPU: torchrun --standalone --nproc-per-node N train.py, or accelerate launch, or deepspeed; on several nodes one launcher each: "
    "srun --ntasks-per-node=1, and --rdzv-endpoint of torchrun\n"
    "where srun starts each rank, export MASTER_ADDR and MASTER_PORT before it, and give each task its place: "
    "srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS python train.py'"
)

_NO_PLACE = "The program asks its environment for its place among the ranks, and nothing has set it: it was started without a launcher."
_OF_THE_SITE = "A plugin with the site's own rules looked at the request and refused it: nothing was submitted."


def _is_refusal(text: bytes, position: int) -> bool:
    """Whether the request was not taken after all: a plugin may only remark on it."""
    return TAKEN.search(text, position, position + _NEAR) is None


OF_THE_LAUNCH = (
    sign(
        "expected, but not set",
        r"Error initializing torch\.distributed using env:// rendezvous: environment variable (?P<variable>\w{1,40}) expected, but not set",
        meaning=_NO_PLACE,
        remedy=_NOT_LAUNCHED,
    ),
    sign(
        "KeyError: '",
        r"^[^\n\"']{0,80}?\bKeyError: '(?P<variable>(?:LOCAL_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_(?:ADDR|PORT))'$",
        after="environ[",
        confidence=0.9,
        meaning=_NO_PLACE,
        remedy=_NOT_LAUNCHED,
    ),
    sign(
        "mutually exclusive",
        r"\bsrun: (?:fatal|error): SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive",
        remedy=(
            "two of these variables are set: one by the job's own request, the other by the shell or job from which it was submitted, or by a line of "
            "the script: keep the one that the job asks for and unset the others before srun, as with `unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU`\n"
            "see which: `env | grep SLURM_MEM` in the script, before srun"
        ),
    ),
    # A program that is no rank of a launcher is a job of one process, which Intel's MPI only remarks on.
    sign(
        "Fatal error in ",
        r"Fatal error in (?:internal_)?P?MPI_Init(?:_thread)?: [^\n]{0,200}",
        after="PMI server not found",
        confidence=0.9,
        remedy=(
            "Intel MPI was started by srun and does not know Slurm's PMI: export I_MPI_PMI_LIBRARY with the path of Slurm's libpmi2.so or libpmi.so "
            "(the site's documentation names it; `find /usr/lib64 /opt -name 'libpmi*.so'`), and srun --mpi=pmi2\n"
            "or start the ranks with Intel's own mpirun, without that variable"
        ),
    ),
)
"""What comes of a launch within a job."""

_ABOVE_ALL_REFUSALS = 77
"""Precedence: the words say which part of the request was refused."""
_MINE = "sacctmgr show assoc user=$USER format=account,partition,qos"


def _refused(words: str, remedy: str) -> Sign:
    """The sign of what Slurm's controller refuses of a request, whichever command made it."""
    return sign(
        ("Batch job submission failed: ", "Unable to allocate resources: ", "Job submit/allocate failed: "),
        rf"^(?:sbatch|srun|salloc): (?:error: )?(?:Batch job submission failed|Unable to allocate resources|Job submit/allocate failed): (?:{words})",
        confidence=0.9,
        precedence=_ABOVE_ALL_REFUSALS,
        remedy=remedy,
    )


REFUSED = (
    _refused(
        "Invalid account",
        f"that account (-A) is not one of yours, or not for that partition (-p); yours, each with its partitions and QOS: {_MINE}\n"
        "where the request names none, it is your default account, or SBATCH_ACCOUNT or SLURM_ACCOUNT of the environment",
    ),
    _refused(
        "Invalid qos",
        f"that QOS (-q) is not one of yours, or not for that account and partition; yours: {_MINE}\n"
        "where the request names none, it is the default of the account or partition, or SBATCH_QOS or SLURM_QOS of the environment",
    ),
    _refused(
        "Invalid partition", "there is no such partition (-p), or none for you: `sinfo -s` lists those that there are"
    ),
    _refused(
        "Requested time limit is invalid",
        "the job asks for more time (-t) than the partition allows: `sinfo -o '%P %l'` lists the limits; or for a time that is none",
    ),
    _refused(
        "Invalid generic resource",
        "nodes there have no GPUs of that name or number (sbatch --gres, sbatch --gpus): `sinfo -o '%P %G'` lists what they have",
    ),
    _refused("Invalid feature", "no node has that feature (-C): `sinfo -o '%P %f'` lists those that they have"),
    _refused(
        "Requested node configuration is not available",
        "no node, or too few, have all that is asked for together, and Slurm does not say what is too much: `sinfo -o '%P %D %c %m %G %f'` lists "
        "nodes, CPUs, memory, GPUs and features of each partition",
    ),
)
"""What Slurm's controller refuses in words that say what it is about."""

_LOCAL_RANK = (
    "torch.distributed.launch adds that option to those of the program, and the program does not know it: start it with torchrun, which adds none and says the "
    "rank's place in the environment, LOCAL_RANK\n"
    'or let it take the option in both spellings: parser.add_argument("--local-rank", "--local_rank", type=int, default=0)\n'
    "the launcher deepspeed adds it too: deepspeed --no_local_rank leaves it out"
)
LOCAL_RANK = sign(
    "error: unrecognized arguments",
    r"^[\w./-]{1,80}: error: unrecognized arguments?:[^\n]{0,160} --local[-_]rank[ =]\d[^\n]{0,80}",
    precedence=_ABOVE_ALL_REFUSALS,
    meaning="A launcher adds the option --local-rank to the program's own, and the program does not take it. It will fail again as it is.",
    remedy=_LOCAL_RANK,
)

OF_THE_JOB = (
    *REFUSED,
    LOCAL_RANK,
    sign(
        "mutually exclusive",
        r"^(?:sbatch|salloc|srun): (?:fatal|error): --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive",
        remedy=(
            "ask for memory in one way only: sbatch --mem, --mem-per-cpu or --mem-per-gpu; a default of the site or a variable counts as well: "
            "`env | grep -E 'S(BATCH|ALLOC|LURM)_MEM'`"
        ),
    ),
    sign(
        (": error: lua: ", ": error: cli_filter", ": error: job_submit"),
        r"^(?:sbatch|salloc|srun): error: (?:lua|cli_filter/lua|job_submit/lua|cli_filter|job_submit)(?: plugin)?: ?(?P<refusal>\S[^\n]{2,300})",
        where=_is_refusal,
        meaning=_OF_THE_SITE,
        confidence=0.9,
        remedy=(
            "the site's own rules refused the request, and no job came of it: change the option that the message names as it says\n"
            "where it names none, ask the site, or see its documentation for what each partition asks for"
        ),
    ),
    sign(
        "cli_filter plugin terminated with error",
        r"^(?:sbatch|salloc|srun): error: cli_filter plugin terminated with error",
        where=_is_refusal,
        meaning=_OF_THE_SITE,
        confidence=0.8,
        remedy=(
            "the site's own rules refused the request, and no job came of it: the line before says which option, where it has one\n"
            "where it has none, ask the site, or see its documentation for what each partition asks for"
        ),
    ),
)
"""What comes of a request for a job."""
