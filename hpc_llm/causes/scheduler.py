"""What the scheduler did to the job: time limit, preemption, cancellation, a lost node."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, Cause, Role, sign
from hpc_llm.causes.frames import is_not_at_exit
from hpc_llm.causes.own_ends import is_ended_from_elsewhere
from hpc_llm.causes.schedulers import (
    AT,
    FLUX_LITERALS,
    SLURM,
    by_signal,
    flux,
    lsf,
    openmpi_signal,
    pbs_status,
)
from hpc_llm.causes.summaries import is_of_a_summary, state
from hpc_llm.records.run import Outcome

WALLTIME = Cause(
    id="walltime",
    title="time limit reached",
    meaning="The job was still running when its time limit was over, and was ended.",
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
        sign("DUE TO TIME LIMIT", rf"{SLURM}\*\*\* [^\n]{{1,200}}?CANCELLED{AT} DUE TO TIME LIMIT", confidence=0.99),
        sign("PBS: job killed: ", r"=>> PBS: job killed: (?:walltime|cput) \d+ exceeded limit \d+", confidence=0.99),
        sign(
            ("exceeded its walltime limit", "exceeded wallclock limit", "exceeded hard wallclock time"),
            r"^Job exceeded its walltime limit|\bMOAB_INFO: +job exceeded wallclock limit|\bjob [\d.]+ exceeded hard wallclock time",
        ),
        sign(
            ("TIMEOUT", "DEADLINE"),
            state("TIMEOUT|DEADLINE"),
            where=is_of_a_summary,
            confidence=0.95,
            survived_after=STARTED,
        ),
        sign("Exit_status", pbs_status("-2[89]"), confidence=0.85),
        sign(("TERM_RUNLIMIT", "TERM_CPULIMIT", "TERM_DEADLINE"), lsf("RUNLIMIT|CPULIMIT|DEADLINE"), confidence=0.99),
        sign("timed-out and not checkpointable", confidence=0.9),
        sign(FLUX_LITERALS, flux("timeout"), confidence=0.99),
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
            rf"{SLURM}(?:\*\*\* [^\n]{{1,200}}?)?CANCELLED{AT} DUE TO PREEMPTION",
            confidence=0.99,
        ),
        sign("TERM_PREEMPT", lsf("PREEMPT"), confidence=0.97),
        sign(
            "PREEMPTED",
            state("PREEMPTED"),
            where=is_of_a_summary,
            confidence=0.95,
            survived_after=STARTED,
        ),
        sign(FLUX_LITERALS, flux("preempt"), confidence=0.97),
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
            rf"{SLURM}\*\*\* JOB \S{{1,40}}(?: ON \S{{1,200}})? CANCELLED(?!{AT} DUE TO)",
        ),
        sign(
            "TERM_",
            lsf("OWNER|ADMIN|FORCE_OWNER|FORCE_ADMIN|BUCKET_KILL|REQUEUE_OWNER|REQUEUE_ADMIN|LOAD|WINDOW"),
            confidence=0.97,
        ),
        sign(FLUX_LITERALS, flux("cancel"), confidence=0.97),
        sign(
            "CANCELLED",
            state("CANCELLED"),
            where=is_of_a_summary,
            confidence=0.95,
            survived_after=STARTED,
        ),
        sign("Job deleted at request of ", r"(?:^|;)Job deleted at request of \S", confidence=0.9),
        # Slurm does so for a preemption, for a failed node and when somebody asks for it: alone it says none of these.
        sign(
            "DUE TO JOB REQUEUE",
            rf"{SLURM}(?:\*\*\* [^\n]{{1,200}}?)?CANCELLED{AT} DUE TO JOB REQUEUE",
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
        sign(
            "KeyboardInterrupt",
            r"^[^\n\"']{0,120}?\bKeyboardInterrupt(?:: ?)?$",
            where=is_not_at_exit,
            precedence=46,
            confidence=0.8,
        ),
        # What a program says that catches it.
        sign(
            ("eyboard interruption", "eyboardInterrupt", "eyboard interrupt", "nterrupted by "),
            r"\b[Kk]eyboard ?[Ii]nterrupt(?:ion)?\b[ ,.:;!-]{1,3}(?:(?:was )?(?:received|caught|detected)\b|[Ee]xiting|[Ss]topping|[Aa]borting|[Tt]erminating)"
            r"|\b(?:[Tt]raining|[Pp]rogram|[Pp]rocess|[Rr]un|[Ee]xecution) (?:was )?interrupted by (?:the )?user\b",
            precedence=46,
            confidence=0.8,
        ),
        sign(
            ("forcing job termination", "Force Terminated job"),
            r"^[^\n]{0,12}srun: (?:error: )?(?:forcing job termination|Force Terminated job)",
            where=is_ended_from_elsewhere,
            role=Role.CONFIRMATION,
        ),
        # srun writes this when a task failed, too, and torchrun passes on whatever signal came.
        sign(
            " CANCELLED",
            rf"{SLURM}\*\*\* STEP \S{{1,40}}(?: ON \S{{1,200}})? CANCELLED(?!{AT} DUE TO)",
            where=is_ended_from_elsewhere,
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
            ("SIGTERM", "sigterm", "Main process received SIG", "KeyboardInterrupt: "),
            r"Main process received SIG(?:TERM|INT|HUP), exiting|^[^\n\"']{0,120}?\bKeyboardInterrupt: (?:\w{1,40} )?terminated$|^[^\n]{0,120}\bSIGTERM: stopped by SIGTERM|^(?:[\w.]{1,80}\.)?SIGTERMException$"
            r"|^(?:\[rank: \d+\] )?Received SIGTERM: 15$|^\*\*\* SIGTERM \(@0x[0-9a-f]+\) received by PID"
            r"|terminated with signal SIG(?:TERM|INT|HUP)\b",
            precedence=17,
            confidence=0.5,
        ),
        sign("Exit_status", pbs_status(by_signal(15, 2, 1)), precedence=17, confidence=0.5),
        sign(
            ("exit code 143", "exit code 130", "code 129", "by signal ", "signal 15 (", "SIGNAL: 15"),
            r"^Exited with exit code (?:129|130|143)\.$|^Exited by signal (?:1|2|15)\.$"
            r"|KILLED BY SIGNAL: 15 |" + openmpi_signal(15, "Terminated"),
            precedence=16,
            confidence=0.5,
        ),
        # Of a process that another one had started and waited for.
        sign(
            ("died with <Signals.SIG", "exit status 143", "exit status 130", "exit status 129"),
            r"\bdied with <Signals\.SIG(?:TERM: 15|INT: 2|HUP: 1)>|\breturned non-zero exit status (?:129|130|143)\b",
            precedence=16,
            confidence=0.5,
        ),
        # Of the process that a launcher names as the first: those that it ended itself have the same code.
        sign(
            ("rashed with exit code -15", "erminated with code -15", "(exitcode: -15)"),
            r"\bcrashed with exit code -15\b|\bterminated with code -15\b|failed \(exitcode: -15\)",
            precedence=16,
            confidence=0.5,
        ),
        sign("Terminated", r"^Terminated$", where=is_ended_from_elsewhere, precedence=16, confidence=0.5),
        sign(
            ": Terminated",
            r"^[^\n]{0,12}srun: error: \S{1,80}: tasks? [\d,-]+: Terminated",
            where=is_ended_from_elsewhere,
            role=Role.CONFIRMATION,
        ),
    ),
)

NODE_FAIL = Cause(
    id="node_fail",
    title="a node failed",
    meaning="The scheduler lost a node of the job. The hardware or its network is at fault, not the run.",
    remedy=(
        "submit it again without that node: --sbatch exclude={node}\n"
        "see which node it was, {unnamed}: `sacct -j JOB -o JobID,State,NodeList` lists the job's nodes, `sinfo -R` those that are down, and why; "
        "then submit it again, without one that a person knows to be bad: --sbatch exclude=NAME"
    ),
    retry=True,
    precedence=93,
    outcome=Outcome.NODE_FAIL,
    explains=frozenset(("collective_timeout", "cancelled", "host_oom", "python_exception", "segfault")),
    signs=(
        sign(
            "has lost communication with a remote daemon",
            r"\b(?:ORTE|PRTE|PRRTE) has lost communication with a remote daemon",
            confidence=0.85,
            remedy="submit it again; where it happens on the same node, without that one: --sbatch exclude=NODE",
        ),
        sign(
            "DUE TO NODE FAILURE",
            rf"{SLURM}(?:\*\*\* )?(?:JOB|STEP) \S{{1,40}}(?: ON (?P<living_node>[\w.-]{{1,200}}))?[^\n]{{0,40}} CANCELLED{AT} DUE TO NODE FAILURE",
            confidence=0.99,
        ),
        sign("DUE TO NODE FAILURE", rf"^\*\*\* [^\n]{{1,200}}?CANCELLED{AT} DUE TO NODE FAILURE", confidence=0.97),
        sign(
            "ode failure on",
            r"^[^\n]{0,12}(?:srun|salloc|sbatch): error: Node failure on (?P<node>[\w.,\[\]-]+)",
            confidence=0.98,
        ),
        sign(
            "DUE TO ",
            rf"{SLURM}(?:\*\*\* )?[^\n]{{1,200}}? CANCELLED{AT} DUE TO (?:TASK|JOB )?(?:PROLOG|LAUNCH) FAILURE",
            confidence=0.95,
        ),
        sign(
            "UNCORRECTABLE MEMORY ERROR",
            rf"{SLURM}\*\*\* [^\n]{{1,200}}? UNCORRECTABLE MEMORY ERROR AT ",
            confidence=0.98,
        ),
        sign(
            ("TaskProlog failed", "task_prolog"),
            r"slurmstepd: error: (?:TaskProlog failed|[^\n]{0,80}task_prolog[^\n]{0,80}fail)",
            confidence=0.8,
        ),
        sign("TERM_ZOMBIE", lsf("ZOMBIE"), confidence=0.9),
        sign(
            ("NODE_FAIL", "BOOT_FAIL"),
            state("NODE_FAIL|BOOT_FAIL"),
            where=is_of_a_summary,
            confidence=0.95,
            survived_after=STARTED,
        ),
        sign(FLUX_LITERALS, f"(?:{flux('node-failure')})(?:[^\\n]{{0,80}}? on (?P<node>[\\w.-]+))?", confidence=0.97),
        # Ray's word on a node of its own cluster.
        sign(
            ("because its node has died", "was unexpectedly lost"),
            r"The (?:actor|worker|task) (?:is dead|died|failed) because its node has died"
            r"|gcs_node_manager[^\n]{1,80}Node with id \w+ was unexpectedly lost",
            confidence=0.85,
        ),
        sign(
            "PBS: job killed: ",
            r"=>> PBS: job killed: node \d+ \((?P<node>[\w.-]+)\) requested job (?:terminate|die)",
            confidence=0.85,
        ),
        sign(
            "Can not reconnect to ",
            r"^ +Can not reconnect to (?:slot\S{1,40}@)?(?P<node>[\w.-]+)",
            confidence=0.7,
        ),
        sign(
            ("rolog failure on node", "rolog hung on node", "PrologSlurmctld failed", "ob prolog failed"),
            r"(?: failed on node (?P<node_2>[\w.-]+)|Application launch failed): Job prolog failed|(?:srun|salloc): (?:error: )?[Pp]rolog (?:failure|hung) on node (?P<node>[\w.-]+)|PrologSlurmctld failed, job killed",
            confidence=0.9,
        ),
    ),
)

SUBMIT_LIMIT = Cause(
    id="submit_limit",
    title="too many jobs are in the queue",
    meaning="The scheduler takes no more jobs of this user, account or QOS until some of those in the queue have ended.",
    remedy=(
        "submit it again when others have ended: nothing is wrong with it (`squeue -u $USER`, `qstat -u $USER` or `bjobs` lists them)\n"
        "cancel jobs that are not needed any more, or put several tries into one job\n"
        "the limit itself: sacctmgr show qos format=name,maxsubmitjobsperuser, and sacctmgr show assoc user=$USER"
    ),
    retry=True,
    precedence=77,
    explains=frozenset(("config_error", "python_exception", "launch_failed")),
    signs=(
        # Slurm names the limit in a line of its own; of its limits only those of the number of jobs pass with time.
        sign(
            ("Submit", "submit"),
            r"\b(?:QOS|Assoc)(?:Max|Grp)(?:Job)?Submit(?:Job)?s?(?:Per(?:User|Account|PU|PA))?(?:Limit)?\b",
            confidence=0.9,
        ),
        sign(
            ("qsub: ", "per-user limit", "PBS server"),
            r"\bqsub: (?:would exceed \S{1,60} ?(?:per-user|per-group|per-project|generic)?[^\n]{0,40} limit|Maximum number of jobs already in queue|Job(?:s)? exceeds? (?:queue|server) (?:and/or server )?(?:resource )?limits? on (?:number of )?jobs)[^\n]{0,120}",
            confidence=0.9,
        ),
        sign(
            ("ob not submitted", "pending job threshold"),
            r"(?:pending job threshold reached|[Pp]ending (?:job|slot) limit[^\n]{0,40})[^\n]{0,80}Job not submitted|User cannot submit more jobs[^\n]{0,60}",
            confidence=0.85,
        ),
        sign(
            "job rejected: ",
            r"job rejected: [Oo]nly \d+ jobs are allowed per user",
            confidence=0.95,
        ),
    ),
)

CAUSES = (WALLTIME, PREEMPTED, CANCELLED, NODE_FAIL, SUBMIT_LIMIT)
