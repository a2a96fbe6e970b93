"""What a program needs around it: slots, processes, open files, packages that fit together."""

from __future__ import annotations

import re

from hpc_llm.causes import companions, line_ends, openmp, openmpi, requests
from hpc_llm.causes.cause import STARTED, Cause, sign
from hpc_llm.causes.schedulers import BEYOND_NODE, NODE_REFUSED

_FEWER_THREADS = (
    "fewer threads and workers for each rank: export OMP_NUM_THREADS=4 and OPENBLAS_NUM_THREADS=4, fewer data loader workers\n"
    "see what the job may have: `ulimit -u` in the script; the site can raise it"
)

_REFUSED = re.compile(rb"srun: error: Task launch for \S{1,40} failed on node ([\w.-]{1,200}):")
_NEAR = 1 << 13
_NOT_STARTED = (
    "the lines before it say why the step did not start; Slurm's daemons must answer on all nodes, with one munge key and one clock: tell the site\n"
    "where a container is imported first, import it before srun: the others wait for it no longer than Slurm's MessageTimeout"
)


def _one_node_refused(text: bytes, position: int) -> bool:
    """Whether srun names one node alone, near `position`, that did not start its tasks."""
    near = text[max(0, position - _NEAR) : position + _NEAR]
    return len(set(_REFUSED.findall(near))) == 1


LAUNCH_FAILED = Cause(
    id="launch_failed",
    title="the launcher did not start the ranks",
    meaning="mpirun or Slurm refused what it was asked for, or what it needs on the nodes did not answer or was not there, before the program began.",
    remedy="correct the launch line that the evidence names",
    retry=False,
    precedence=72,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable", "segfault")),
    explains_later=frozenset(("host_oom",)),
    signs=(
        sign(
            "not enough slots available",
            r"There are not enough slots available in the system",
            remedy="start as many ranks as the job has tasks: sbatch --ntasks-per-node=…, and mpirun -np of the same number",
        ),
        sign(
            "unable to find the specified executable",
            r"(?:prterun|mpirun|mpiexec|orterun) was unable to find the specified executable",
            remedy="correct the program's name, which the line `Executable:` shows; the environment must be active on each node",
        ),
        sign(
            "unable to launch the specified application",
            r"(?:prterun|mpirun|mpiexec|orterun) was unable to launch the specified application",
            remedy="see that the program named there is on each node and may be executed: `srun which python`",
        ),
        sign(
            "set by two different environment variables",
            r"srun: (?:fatal|error): (?P<setting>[\w-]+) set by two different environment variables",
            remedy="unset what the outer job set, before srun: `unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK`, or ask for it in one way only",
        ),
        *requests.OF_THE_LAUNCH,
        *openmpi.OF_THE_LAUNCH,
        sign(
            ("srun: error: Task launch ", "srun: error: Application launch ", "srun: error: Unable to satisfy"),
            rf"^[^\n]{{0,12}}srun: error: (?:Task launch for \S{{1,40}} failed on node \S{{1,80}}: |Application launch failed: )?{BEYOND_NODE}",
            confidence=0.9,
            remedy=(
                "the step asks for other CPUs, tasks or devices than the job has: compare the numbers of tasks and CPUs\n"
                "srun --cpu-bind=none lets the kernel place the processes"
            ),
        ),
        sign(
            (
                "OPAL ERROR: ",
                "SLURM's PMI support",
                "PMI_Init",
                "PMI2_Init",
                "Invalid MPI type",
                "mpi plugin",
                "PMI2 init failed",
                "PMI init failed",
                "pmix_init failed",
                "PMIx_Init failed",
            ),
            r"\bPMI[2x]? init failed: -?\d|^[^\n]{0,20}It looks like pmix_init failed for some reason|\bPMIx_Init failed\b|OPAL ERROR: \w[^\n]{0,40} in file \S{0,40}pmix\S{0,30}|OMPI was not built with SLURM's PMI support|PMI2?_Init(?:ialized)? (?:failed|returned)"
            r"|^[^\n]{0,12}srun: error: (?:Invalid MPI type|cannot find mpi plugin)",
            confidence=0.8,
            remedy=(
                "the launcher and the MPI library do not belong together: `srun --mpi=list` shows what Slurm offers; "
                "start the program with the mpirun of its own MPI"
            ),
        ),
        sign(
            "srun: error: ",
            r"^[^\n]{0,12}srun: error: (?:Unable to create step for job \S+: (?:More processors|Requested |Invalid|Memory required|Step limit)"
            r"|[^\n]{0,60}Invalid \w+ specification)",
            confidence=0.85,
            remedy=(
                "the step asks for more than the job has: compare srun's nodes, tasks, CPUs, memory and GPUs with those of the job\n"
                "what the outer job set counts as well: `env | grep ^SLURM_` before srun"
            ),
        ),
        sign(
            "timeout waiting for task launch",
            r"^[^\n]{0,12}srun: error: timeout waiting for task launch, started \d+ of \d+ tasks",
            confidence=0.85,
            remedy=(
                "Slurm's daemon on a node did not start the tasks in time: a node or a file system that hangs, or a prolog that takes long\n"
                "submit it again; where it happens on the same node, without that one: --sbatch exclude={other_node}"
            ),
            retry=True,
        ),
        # Several nodes that refuse were not lost, and one may do so for a reason that all have.
        sign(
            " failed on node ",
            rf"^[^\n]{{0,12}}srun: error: Task launch for \S{{1,40}} failed on node (?P<node>[\w.-]+): {NODE_REFUSED}",
            where=_one_node_refused,
            confidence=0.85,
            remedy=f"{_NOT_STARTED}\nwhere it is that node alone that fails, leave it out: --sbatch exclude={{node}}",
        ),
        sign(
            ("launch failed: ", " failed on node "),
            rf"^[^\n]{{0,12}}srun: error: (?:(?:Application|Task) launch failed|Task launch for \S{{1,40}} failed on node [\w.-]{{1,200}}): {NODE_REFUSED}",
            confidence=0.8,
            remedy=_NOT_STARTED,
        ),
        sign(
            "container_p_join",
            r"slurmstepd: error: container_p_join: open failed",
            confidence=0.8,
            remedy="the folder that Slurm makes for each job on its node (job_container/tmpfs) was not there: tell the site, with the line of the evidence",
        ),
        sign(
            "/slurm_script",
            r"slurmstepd: error: execve\(\): \S{1,200}/slurm_script: No such file",
            confidence=0.8,
            remedy=(
                "the script's interpreter is not there on that node, or the script itself: see its first line (`head -1 SCRIPT`), as #!/bin/bash, "
                "without the line ends of Windows\n"
                "if that line is right, the node's daemon has lost the script: tell the site"
            ),
        ),
        # The nodes' daemons wait for each other while the ranks begin, and srun ends them when they do not come.
        sign(
            ("error: mpi/pmix", "error:  mpi/pmix"),
            r"slurmstepd\S{0,80}: error: {1,4}mpi/pmix\S{0,10}: pmixp_\w{1,60}: [^\n]{0,120}(?:collective timeout|[Cc]annot send|[Cc]onnect\w* failed|Unable to connect)",
            confidence=0.8,
            remedy=(
                "the nodes did not reach each other while the ranks began: look for a node that did not start its ranks\n"
                "a program that needs no MPI starts without PMIx: srun --mpi=none\n"
                "otherwise submit it again, without the node that did not answer: --sbatch exclude={other_node}"
            ),
            retry=True,
        ),
    ),
)


NODE_LIMITS = Cause(
    id="node_limits",
    title="a limit of processes was reached",
    meaning="The node lets the job have no more threads or processes.",
    remedy=_FEWER_THREADS,
    retry=False,
    precedence=64,
    explains=frozenset(("python_exception",)),
    # What gets no thread crashes, or is interrupted by its own library, and leaves the other ranks waiting.
    explains_later=frozenset(
        ("segfault", "bus_error", "collective_timeout", "unreachable", "cancelled", "package_missing", "packages_apart")
    ),
    signs=(
        sign(
            "can't start new thread",
            r"\b(?:RuntimeError|error): can't start new thread(?! at interpreter shutdown)",
            confidence=0.9,
        ),
        sign(
            ("pthread_create failed", "pthread_create() failed"),
            r"pthread_create(?:\(\))? failed[^\n]{0,80}(?:Resource temporarily unavailable|EAGAIN)",
            confidence=0.85,
        ),
        # OpenBLAS says with it which limit it is, and some builds of it say no more.
        sign("RLIMIT_NPROC", r"OpenBLAS blas_thread_init: RLIMIT_NPROC \d+ current", confidence=0.8),
        sign("Thread creation failed: ", r"^[^\n]{0,40}libgomp: Thread creation failed: ", confidence=0.9),
        # The OpenMP of LLVM and Intel.
        sign(
            ("OMP: Error #", "OMP: System error #11"),
            r"OMP: Error #3[45]: System unable to allocate necessary resources for|OMP: System error #11\b",
            confidence=0.9,
        ),
        # C++, Boost and Rust have no thread to run on.
        sign(
            "Resource temporarily unavailable",
            r"^[^\n]{0,40}what\(\): +(?:\w[^\n]{0,60}: )?Resource temporarily unavailable"
            r"|^[^\n\"']{0,120}?\b(?:Runtime|System)Error: (?:thread: )?Resource temporarily unavailable$"
            r"|(?:[Ff]ailed to spawn|ThreadPoolBuildError|spawn[^\n]{0,40}thread)[^\n]{0,80}code: 11, kind: WouldBlock",
            confidence=0.85,
        ),
        sign(
            "BlockingIOError: [Errno 11]",
            r"BlockingIOError: \[Errno 11\] Resource temporarily unavailable",
            confidence=0.8,
        ),
        sign(
            ("fork: ", "fork(): ", "annot fork", "fork rejected by pids controller"),
            r"\bfork\b(?:\(\))?(?:: retry)?: (?:Resource temporarily unavailable|No child processes)"
            r"|^[^\n\"']{0,80}\b[Cc]annot fork(?:: Resource temporarily unavailable|$)|cgroup: fork rejected by pids controller",
            confidence=0.8,
        ),
    ),
)

OPEN_FILES = Cause(
    id="open_files",
    title="too many open files",
    meaning="The job holds as many files and sockets open as its limit allows: data loader workers that share tensors hold many.",
    remedy=(
        "see the limit in the job: `ulimit -n`, and what it may be raised to: `ulimit -Hn`\n"
        "allow more before the program starts: `ulimit -n 65536`, or the most that `ulimit -Hn` says\n"
        "or fewer data loader workers, or workers that share by file: torch.multiprocessing.set_sharing_strategy('file_system')"
    ),
    retry=False,
    precedence=65,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable", "cancelled", "node_limits")),
    signs=(
        sign("Too many open files", r"\[Errno 2[34]\] Too many open files", confidence=0.95),
        # C++, Rust, NCCL, a shell: what failed stands before it.
        sign(
            "oo many open files",
            r"^[^\n\"']{0,200}: [Tt]oo many open files(?: in system)?(?:\.| \[| \(os error 2[34]\)|$)",
            confidence=0.85,
        ),
        sign("EMFILE", r"\bEMFILE: |\(EMFILE\)|\bEMFILE$", confidence=0.8),
        sign("items of ancdata", r"RuntimeError: received \d+ items of ancdata"),
    ),
)


_WENT_ON = re.compile(rb"UserWarning: Failed to initialize NumPy: ")
_BEHIND = 1 << 15


def _torch_does_not_go_on(text: bytes, position: int) -> bool:
    """Whether torch does not say behind what NumPy complains of that it goes on without NumPy."""
    return _WENT_ON.search(text, position, position + _BEHIND) is None


PACKAGES_APART = Cause(
    id="packages_apart",
    title="packages do not fit together",
    meaning="A package is too old for what it was given, or was built for another release of one that it uses.",
    remedy="install releases that fit together into the environment of the job",
    retry=False,
    precedence=70,
    explains=frozenset(("python_exception",)),
    signs=(
        sign(
            "Transformers does not recognize this architecture",
            r"has model type `(?P<model_type>[^`\n]{1,60})` but Transformers does not recognize this architecture",
            remedy=(
                "where transformers brings that model type, a newer one knows it: pip install --upgrade transformers in the job's environment\n"
                "where it is the checkpoint's or your own, its code has to be there: register it (AutoConfig.register) before the model is loaded, "
                "or load code that you have read with trust_remote_code=True"
            ),
        ),
        *openmp.SIGNS,
        *companions.SIGNS,
        sign(
            ("compiled using NumPy 1.x cannot be run", "_ARRAY_API not found", "numpy.dtype size changed"),
            r"compiled using NumPy 1\.x cannot be run|AttributeError: _ARRAY_API not found"
            r"|ValueError: numpy\.dtype size changed[^\n]{0,80}Expected 96 from C header, got 88",
            survived_after=1,
            where=_torch_does_not_go_on,
            confidence=0.9,
            remedy="pip install 'numpy<2' in the job's environment, or newer releases of the packages that were built with NumPy 1",
        ),
        # 88 bytes is NumPy 2's, 96 that of every NumPy 1.
        sign(
            "numpy.dtype size changed",
            r"ValueError: numpy\.dtype size changed[^\n]{0,80}Expected 88 from C header, got 96",
            survived_after=1,
            confidence=0.9,
            remedy=(
                "a package was built with NumPy 2, and NumPy 1 is there: pip install 'numpy>=2' in the job's environment\n"
                "or releases of the packages that were built with NumPy 1"
            ),
        ),
        # Arrays and functions only grew from one release to the next: what is expected is more than there is.
        sign(
            "size changed, may indicate binary incompatibility",
            r"ValueError: numpy\.(?:ndarray|ufunc|\w+\.\w+)[\w.]* size changed, may indicate binary incompatibility[^\n]{0,100}",
            survived_after=1,
            confidence=0.9,
            remedy=(
                "a package was built with a newer NumPy than the one that is there: pip install --upgrade numpy in the job's environment, "
                "below 2 where it is NumPy 1 (pip install --upgrade 'numpy<2')\n"
                "or install that package again, built for the NumPy that is there: pip install --force-reinstall --no-cache-dir PACKAGE"
            ),
        ),
        sign(
            "size changed, may indicate binary incompatibility",
            r"ValueError: (?!numpy\.)(?P<library>\w+)\.[\w.]+ size changed, may indicate binary incompatibility[^\n]{0,100}",
            survived_after=1,
            confidence=0.9,
            remedy=(
                "the package that was imported was built with another release of the one that the evidence names: "
                "install both again, in releases that belong together"
            ),
        ),
    ),
)

_UP_TO_THERE = "a shell reads a script while it runs it: what stands before that line was done, and nothing behind it"

SCRIPT_ERROR = Cause(
    id="script_error",
    title="the job's script is wrong",
    meaning="The shell does not understand a line of the script, or a variable in it has no value, and ended there.",
    remedy=f"correct the script at the line that the evidence names\n{_UP_TO_THERE}",
    retry=False,
    # Where anything else failed, too, the script had gone on.
    precedence=44,
    signs=(
        sign(
            ("syntax error", "yntax error: ", "unexpected EOF while looking for matching"),
            r"^[^\n\"']{1,200}: (?:eval: )?line \d+: (?:syntax error(?:: unexpected| near unexpected| in conditional)[^\n]{1,80}"
            r"|unexpected EOF while looking for matching [^\n]{1,12})|^[^\n\"']{1,200}: \d+: Syntax error: [^\n]{1,80}",
            survived_after=STARTED,
            at_any_time=True,
            confidence=0.85,
            remedy=(
                "correct the script at the line that the evidence names: a quote, a bracket, `fi` or `done` is missing there or before it; "
                f"`bash -n SCRIPT` finds it. Of a script that hpc-llm made of your own templates it is the template\n{_UP_TO_THERE}"
            ),
        ),
        *line_ends.SIGNS,
        sign(
            (": unbound variable", ": bad substitution"),
            r"^[^\n\"']{1,200}: line \d+: [^\n]{1,120}: (?:unbound variable|bad substitution)$",
            survived_after=STARTED,
            at_any_time=True,
            confidence=0.8,
            remedy=(
                "give that variable a value before the line that the evidence names, or write ${NAME:-} where it may be empty\n"
                f"{_UP_TO_THERE}"
            ),
        ),
    ),
)

CAUSES = (LAUNCH_FAILED, SCRIPT_ERROR, NODE_LIMITS, OPEN_FILES, PACKAGES_APART)
