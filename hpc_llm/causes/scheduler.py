"""What the scheduler did to the job: time limit, preemption, cancellation, a lost node."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, Role, sign
from hpc_llm.run import Outcome

_AT = r"(?: AT \S{8,30})?"
# Slurm's own messages stand at the beginning of a line, behind a rank's prefix, or behind an unfinished progress bar.
_SLURM = r"(?:^[^\n\"']{0,60}|slurmstepd: error: | error: (?=\*\*\* ))"

WALLTIME = Cause(
    id="walltime",
    title="time limit reached",
    meaning="The job was still running when its time limit was over, and the scheduler ended it.",
    remedy=(
        "ask for more: --time HH:MM:SS, up to the partition's limit (`hpc-llm clusters NAME`)\n"
        "or fewer --steps: a comparison needs tens of measured steps, not thousands\n"
        "if it made no progress at all, look for a hang before asking for more time"
    ),
    retry=False,
    precedence=58,
    outcome=Outcome.TIMEOUT,
    explains=frozenset(("cancelled",)),
    signs=(
        sign("DUE TO TIME LIMIT", rf"{_SLURM}\*\*\* [^\n]{{1,200}}?CANCELLED{_AT} DUE TO TIME LIMIT", confidence=0.99),
        sign("walltime", r"PBS: job killed: walltime \d+ exceeded limit \d+", confidence=0.99),
        sign("TERM_RUNLIMIT", r"TERM_RUNLIMIT: job killed", confidence=0.99),
        sign("timed-out and not checkpointable", confidence=0.9),
    ),
)

PREEMPTED = Cause(
    id="preempted",
    title="preempted",
    meaning="A job of higher priority took the nodes. Nothing is wrong with the run.",
    remedy="submit it again, or on a partition that is not preempted: --partition NAME",
    retry=True,
    precedence=59,
    outcome=Outcome.PREEMPTED,
    explains=frozenset(("cancelled",)),
    signs=(
        sign(
            "DUE TO PREEMPTION",
            rf"{_SLURM}(?:\*\*\* [^\n]{{1,200}}?)?CANCELLED{_AT} DUE TO PREEMPTION",
            confidence=0.99,
        ),
        sign("TERM_PREEMPT", r"TERM_PREEMPT: job killed", confidence=0.97),
    ),
)

CANCELLED = Cause(
    id="cancelled",
    title="cancelled",
    meaning="Somebody ended the job: a user, an administrator, or another program.",
    remedy="nothing to repair: submit it again if it was not meant",
    retry=True,
    precedence=50,
    outcome=Outcome.CANCELLED,
    signs=(
        sign(
            " CANCELLED",
            rf"{_SLURM}\*\*\* JOB \S{{1,40}}(?: ON \S{{1,200}})? CANCELLED(?!{_AT} DUE TO)",
        ),
        # Slurm does so for a preemption, for a failed node and when somebody asks for it: alone it says none of these.
        sign(
            "DUE TO JOB REQUEUE",
            rf"{_SLURM}(?:\*\*\* [^\n]{{1,200}}?)?CANCELLED{_AT} DUE TO JOB REQUEUE",
            confidence=0.7,
            remedy="Slurm queued the job again, and nothing has to be submitted: sacct -j JOB --duplicates says why each try ended",
        ),
        sign("Detected KeyboardInterrupt, attempting graceful shutdown", precedence=46, confidence=0.8),
        sign(
            "exiting program after receiving ",
            r"exiting program after receiving SIG(?:TERM|INT|HUP)",
            precedence=17,
            confidence=0.5,
        ),
        sign("KeyboardInterrupt", r"^[^\n\"']{0,60}?\bKeyboardInterrupt$", precedence=46, confidence=0.8),
        sign(
            ("forcing job termination", "Force Terminated job"),
            r"^[^\n]{0,12}srun: (?:error: )?(?:forcing job termination|Force Terminated job)",
            role=Role.CONFIRMATION,
        ),
        # srun writes this when a task failed, too, and torchrun passes on whatever signal came.
        sign(
            " CANCELLED",
            rf"{_SLURM}\*\*\* STEP \S{{1,40}}(?: ON \S{{1,200}})? CANCELLED(?!{_AT} DUE TO)",
            precedence=20,
            confidence=0.6,
        ),
        sign(
            ("got signal: ", "death signal"),
            r"SignalException: Process \d+ got signal: (?:1|2|15)\b|Received (?:1|2|15|Signals\.SIG(?:TERM|HUP|INT)) death signal",
            precedence=18,
            confidence=0.5,
        ),
        sign(
            ("SIGTERM",),
            r"Main process received SIGTERM, exiting|^[^\n]{0,60}\bSIGTERM: stopped by SIGTERM",
            precedence=17,
            confidence=0.5,
        ),
        sign(": Terminated", r"^[^\n]{0,12}srun: error: \S{1,80}: tasks? [\d,-]+: Terminated", role=Role.CONFIRMATION),
    ),
)

NODE_FAIL = Cause(
    id="node_fail",
    title="a node failed",
    meaning="The scheduler lost a node of the job. The hardware or its network is at fault, not the run.",
    remedy="submit it again without that node: --sbatch exclude={node}",
    retry=True,
    precedence=93,
    outcome=Outcome.NODE_FAIL,
    explains=frozenset(("collective_timeout", "cancelled", "host_oom", "python_exception", "segfault")),
    signs=(
        sign(
            "DUE TO NODE FAILURE",
            rf"{_SLURM}(?:\*\*\* )?(?:JOB|STEP) \S{{1,40}}(?: ON (?P<node>[\w.-]{{1,200}}))?[^\n]{{0,40}} CANCELLED{_AT} DUE TO NODE FAILURE",
            confidence=0.99,
        ),
        sign("DUE TO NODE FAILURE", rf"^\*\*\* [^\n]{{1,200}}?CANCELLED{_AT} DUE TO NODE FAILURE", confidence=0.97),
        sign(
            "ode failure on",
            r"^[^\n]{0,12}(?:srun|salloc|sbatch): error: Node failure on (?P<node>[\w.,\[\]-]+)",
            confidence=0.98,
        ),
        sign(
            ("rolog failure on node", "rolog hung on node", "PrologSlurmctld failed", "ob prolog failed"),
            r"(?: failed on node (?P<node_2>[\w.-]+)|Application launch failed): Job prolog failed|(?:srun|salloc): (?:error: )?[Pp]rolog (?:failure|hung) on node (?P<node>[\w.-]+)|PrologSlurmctld failed, job killed",
            confidence=0.9,
        ),
    ),
)

CAUSES = (WALLTIME, PREEMPTED, CANCELLED, NODE_FAIL)
