"""What a program needs around it: slots, processes, open files, packages that fit together."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, sign

_FEWER_THREADS = (
    "fewer threads and workers for each rank: export OMP_NUM_THREADS=4 and OPENBLAS_NUM_THREADS=4, fewer data loader workers\n"
    "see what the job may have: `ulimit -u` in the script; the site can raise it"
)

LAUNCH_FAILED = Cause(
    id="launch_failed",
    title="the launcher did not start the ranks",
    meaning="mpirun or srun refused what it was asked for, before the program began.",
    remedy="correct the launch line that the evidence names",
    retry=False,
    precedence=72,
    explains=frozenset(("python_exception",)),
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
    ),
)


NODE_LIMITS = Cause(
    id="node_limits",
    title="a limit of processes or of open files was reached",
    meaning="The node lets the job have no more threads, processes or open files.",
    remedy=_FEWER_THREADS,
    retry=False,
    precedence=64,
    explains=frozenset(("python_exception",)),
    signs=(
        sign("can't start new thread", r"RuntimeError: can't start new thread", confidence=0.9),
        sign(
            "pthread_create failed",
            r"pthread_create failed[^\n]{0,80}Resource temporarily unavailable",
            confidence=0.85,
        ),
        sign(
            "BlockingIOError: [Errno 11]",
            r"BlockingIOError: \[Errno 11\] Resource temporarily unavailable",
            confidence=0.8,
        ),
        sign(
            "retry: Resource temporarily unavailable", r"fork: retry: Resource temporarily unavailable", confidence=0.8
        ),
        sign(
            "items of ancdata",
            r"RuntimeError: received \d+ items of ancdata",
            remedy=(
                "allow more open files in the job: ulimit -n 65536\n"
                "or let workers share by file: torch.multiprocessing.set_sharing_strategy('file_system')"
            ),
        ),
    ),
)


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
            remedy="a newer transformers, which knows that model type: pip install --upgrade transformers in the job's environment",
        ),
        sign(
            ("compiled using NumPy 1.x cannot be run", "_ARRAY_API not found", "numpy.dtype size changed"),
            r"compiled using NumPy 1\.x cannot be run|AttributeError: _ARRAY_API not found|ValueError: numpy\.dtype size changed",
            survived_after=1,
            confidence=0.9,
            remedy="pip install 'numpy<2' in the job's environment, or newer releases of the packages that were built with NumPy 1",
        ),
    ),
)

CAUSES = (LAUNCH_FAILED, NODE_LIMITS, PACKAGES_APART)
