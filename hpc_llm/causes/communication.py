"""Ranks that do not reach each other."""

from __future__ import annotations

from hpc_llm.causes.barriers import NOT_ALL_AT_BARRIER, NOT_ALL_CAME
from hpc_llm.causes.cause import STARTED, Cause, Role, sign
from hpc_llm.causes.fabric import LOST, NO_ANSWER
from hpc_llm.causes.loggers import is_no_warning
from hpc_llm.causes.ports import PORT_IN_USE
from hpc_llm.causes.schedulers import UNAVAILABLE

_EXCEPTION = r"^[^\n]{0,120}?\b"

COLLECTIVE_TIMEOUT = Cause(
    id="collective_timeout",
    title="a collective timed out",
    meaning=(
        "Some ranks waited for another one in a collective operation until the time-out. The rank that fell silent "
        "first is the one to look at; the others only say that they waited."
    ),
    remedy=(
        "look at the output of the silent rank: it may have died, hung in its data, or be on a slow node\n"
        "if every run stops at the same step, the ranks disagree on the collective: compare their data and control flow\n"
        "if it is the first step, check the network interface: --set env.NCCL_SOCKET_IFNAME=… (see the cluster's profile)\n"
        "otherwise submit it again, without the silent node: --sbatch exclude={other_node}\n"
        "{silent_ranks} left no word, and on which node the first of the silent was is not known here: find that out before a node is left out"
    ),
    retry=True,
    precedence=55,
    explains=frozenset(("segfault", "python_exception")),
    signs=(
        sign(
            "Watchdog caught",
            r"(?:\[(?:(?P<group>PG ID \d+ [^\]\n]{1,60}) )?Rank (?P<rank_in_group>\d+)\]\s)?Watchdog caught\s+collective\s+operation\s+timeout\b(?::\s+"
            r"WorkNCCL\((?:SeqNum=(?P<seq>\d+),\s)?OpType=(?P<collective>\w+)(?:,\sSeqNum=(?P<seq_2>\d+))?(?:[^)]{0,80}?Timeout\(ms\)=(?P<timeout_ms>\d+))?)?",
        ),
        sign("lagging/dead/mismatched ranks", confidence=0.9),
        sign(
            ("but didn't join collective", "but didn't join"),
            r"\[(?P<silent_rank>\d+)\] finished collective #(?P<seq>\d+), but didn't join collective",
        ),
        sign(
            "Timed out waiting",
            r"Timed out waiting (?P<timeout_ms>\d+)ms for (?:recv|send) operation to complete",
        ),
        sign(
            "monitoredBarrier", r"Rank (?P<silent_rank>\d+) failed to pass monitoredBarrier in (?P<timeout_ms>\d+) ms"
        ),
        sign(
            "monitoredBarrier",
            r"but rank (?P<silent_rank>\d+) failed to|Ranks (?P<silent_rank_2>[\d, ]+) failed to pass monitoredBarrier",
        ),
        sign(
            ("waiting for clients", "Timed out after", "wait timeout after"),
            r"Timed out after \d+ seconds waiting for clients\. (?P<joined>\d+)/(?P<expected>\d+) clients joined"
            r"|wait timeout after \d+ms, keys: \S+|DistStoreError: Timed out after \d+ seconds",
            remedy=NOT_ALL_CAME,
        ),
        NOT_ALL_AT_BARRIER,
        sign(
            "RendezvousTimeoutError",
            _EXCEPTION + r"RendezvousTimeoutError(?::|$)",
            confidence=0.85,
            remedy=NOT_ALL_CAME,
        ),
        sign(
            "Socket Timeout",
            r"(?:Runtime|DistStore|DistNetwork)Error: Socket Timeout",
            confidence=0.85,
            remedy=NOT_ALL_CAME,
        ),
        sign("RendezvousClosedError", _EXCEPTION + r"RendezvousClosedError(?::|$)", role=Role.CASCADE),
        sign(
            "DEADLINE_EXCEEDED: ",
            r"XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out",
            confidence=0.85,
            remedy=NOT_ALL_CAME,
        ),
        sign("Wait timeout", r"RuntimeError: Wait timeout\b", confidence=0.85),
        sign(
            "detected by watchdog at work: ",
            r"\[PG [^\]\n]{1,80}Rank (?P<rank_in_group>\d+)\] Exception \(either an error or timeout\) detected by watchdog at work: (?P<seq>\d+)",
            role=Role.CASCADE,
        ),
        # What a rank says that another one, or its own watchdog, told it to write down what it knows and to end. It does so after
        # an exception, too, so that what is known of one counts more.
        sign(
            ("Received a dump signal", "Received a timeout signal", "Received a global timeout"),
            r"(?:Rank (?P<rank_in_group>\d+)\] )?Received a (?:dump signal due to a collective timeout|dump signal|timeout signal|global timeout) from"
            r" {1,4}(?:this local rank|another rank|rank (?P<reported_by>\d+))",
            precedence=54,
            confidence=0.85,
        ),
        sign(
            "after attempting to dump debug info, due to ",
            r"(?:Rank (?P<rank_in_group>\d+)\] )?Terminating the process after attempting to dump debug info, due to ",
            precedence=54,
            confidence=0.85,
        ),
        sign(
            "watchdog detected a collective timeout",
            r"(?:Rank (?P<rank_in_group>\d+)\] )?ProcessGroup\w{1,8}'s watchdog detected a collective timeout\b",
            precedence=54,
            confidence=0.85,
        ),
        sign(
            (
                "failure detected by watchdog at work ",
                "Timeout at NCCL work: ",
                "NCCL operations have failed or timed out",
            ),
            r"Rank (?P<rank_in_group>\d+)\] +failure detected by watchdog at work sequence id: (?P<seq>\d+)"
            r"|Rank (?P<rank_in_group_2>\d+)\] Timeout at NCCL work: (?P<seq_2>\d+)|Some NCCL operations have failed or timed out\.",
            role=Role.CASCADE,
        ),
        sign("watchdog got stuck", r"ProcessGroupNCCL's watchdog got stuck for \d+ seconds", confidence=0.85),
        sign("eartbeat monitor", r"Heartbeat monitor timed out!", confidence=0.85),
    ),
)

_NO_WAY = r"(?:No route to host|Network is unreachable|Host is unreachable|Host is down)"
_NO_LOGIN = (
    "from the first node log in to {node} without a password: ssh {node} hostname (a key of yours in ~/.ssh/authorized_keys, "
    "and its host key in ~/.ssh/known_hosts)\n"
    "many sites forbid ssh between nodes: start the ranks with srun instead"
)
_NO_ANSWER = (
    "nothing answered at the address in the evidence: look at the output of the first node, which may have ended before or not begun\n"
    "see that the other nodes reach it, and that its port is open: MASTER_ADDR and MASTER_PORT in the job, "
    "--set env.NCCL_SOCKET_IFNAME=… and env.GLOO_SOCKET_IFNAME=…\n"
    "otherwise submit it again, without the node that did not answer: --sbatch exclude={other_node}"
)

_NO_STORE = (
    "the first node's launcher keeps the store of the rendezvous, and it did not answer or went away: look at that node's output, "
    "which may have ended before or not begun\n"
    "see that the other nodes reach its address and port (--rdzv-endpoint of torchrun)\n"
    "otherwise submit it again"
)

_MESH = (
    "the ranks did not reach each other over the interface that Gloo took: name the one of the nodes' network, "
    "--set env.GLOO_SOCKET_IFNAME=… and env.NCCL_SOCKET_IFNAME=… (`srun ip -br addr` shows them)\n"
    "see that each node's own name is not 127.0.0.1 there: `srun getent hosts $(hostname)`, and that no firewall closes the ports between the nodes\n"
    "look at the output of the other ranks for one that ended before\n"
    "otherwise submit it again, without the node that did not answer: --sbatch exclude={other_node}"
)

_NOT_NOW = (
    "the scheduler did not answer or was busy, and nothing is wrong with the job: submit it again in some minutes\n"
    "see first whether it is in the queue nevertheless (`squeue -u $USER`, `qstat -u $USER` or `bjobs`): the answer alone may be lost\n"
    "if it stays so, tell the site; `scontrol ping` says whether Slurm's controller is up"
)

UNREACHABLE = Cause(
    id="unreachable",
    title="another process could not be reached",
    meaning=(
        "A process did not get through to another one: no answer, no route, a name that is not known, a connection or a "
        "login that was refused, or a fault of the network."
    ),
    remedy=(
        "see that the address in the evidence is reachable from the other nodes, and not a login or a management network: "
        "--set env.NCCL_SOCKET_IFNAME=… and env.GLOO_SOCKET_IFNAME=…\n"
        "where it was refused, nothing listened there any more: look at the output of that rank\n"
        "otherwise submit it again, without the node at that address: --sbatch exclude={other_node}"
    ),
    retry=True,
    precedence=57,
    explains=frozenset(("collective_timeout", "segfault", "python_exception")),
    signs=(
        # torch's store, the rendezvous of torchrun, NCCL's sockets and JAX's coordinator: nobody answered in all the time that they had.
        sign(
            (
                "client socket has timed out after",
                "client socket has failed to connect to any",
                "TCP client failed to connect/validate",
                "connect() timed out",
            ),
            r"client socket has timed out after \d+ ?m?s while trying to connect to \((?P<address>[^)\n]{1,80})\)"
            r"|Error: [^\n]{0,40}client socket has failed to connect to any network address of \((?P<address_2>[^)\n]{1,80})\)"
            r"|TCP client failed to connect/validate to host (?P<address_old>\S{1,80}) - timed out"
            r"|RuntimeError: connect\(\) timed out\. Original timeout was \d+ ms",
            survived_after=STARTED,
            confidence=0.85,
            remedy=_NO_ANSWER,
        ),
        # It names no address, and the store may have been there at first.
        sign(
            "RendezvousConnectionError",
            _EXCEPTION + r"RendezvousConnectionError(?::|$)",
            survived_after=STARTED,
            confidence=0.85,
            remedy=_NO_STORE,
        ),
        sign(
            ("socketStartConnect: Connect to ", "socketPollConnect"),
            r"socket(?=\w{4,5}Connect[^\n]{0,180}(?:timed out|exceeded))"
            r"(?:StartConnect: Connect to|PollConnect: connect to|PollConnect:? [^\n]{0,40}) ?(?P<address>\S{1,80})[^\n]{0,40}"
            r"(?:timed out|exceeded)",
            confidence=0.8,
            remedy=_NO_ANSWER,
        ),
        # Gloo takes the interface by which the node's own name is known: that of a loopback or of a management network, too.
        sign(
            ("Gloo connectFullMesh failed", "/transport/tcp/"),
            r"Gloo connectFullMesh failed\b[^\n]{0,200}"
            r"|gloo/transport/tcp/\w+\.(?:cc|h):\d+\] (?:Connect timeout|connect[ :][^\n]{0,80}(?:timed out|refused|route to host))[^\n]{0,80}",
            confidence=0.85,
            remedy=_MESH,
        ),
        sign(
            "DEADLINE_EXCEEDED: Connect() timed out",
            confidence=0.85,
            remedy=_NO_ANSWER,
        ),
        sign(
            ("No route to host", "is unreachable", "Host is down"),
            rf"^[^\n\"']{{0,200}}(?:[Cc]onnect|[Ss]ocket|ssh|bind)[^\n]{{0,160}}{_NO_WAY}",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            ("onnection refused", " refused"),
            r"(?:socket(?:StartConnect|PollConnect)\S* |transport/tcp/\w+\.cc:\d+\] )[^\n]{0,120}[Cc]onnection refused",
            confidence=0.8,
        ),
        sign(
            ("socketStartConnect: Connect to ", "socketPollConnect"),
            r"socket(?=\w{4,5}Connect[^\n]{0,180}(?:failed|returned))"
            r"(?:StartConnect: Connect to|PollConnect: connect to|PollConnect:? [^\n]{0,40}) ?(?P<address>\S{1,80})[^\n]{0,40}"
            r"(?:failed|returned)(?![^\n]{0,40}(?:timed out|exceeded))",
            confidence=0.8,
        ),
        sign(
            "heartbeat timeout",
            r"UNAVAILABLE: Task (?P<task>\S{1,80}) heartbeat timeout",
            confidence=0.85,
            remedy=(
                "{task} no longer answers: look at that process's own output and at its node first, which may have been taken back, "
                "run out of memory or crashed; the others only say that they miss it"
            ),
        ),
        # A list of Slurm's where the name of one node belongs: no node can know it.
        sign(
            (
                "cannot be retrieved (gai error",
                "Could not resolve hostname",
                "while trying to connect to (",
                " network address of (",
            ),
            r"(?:network address(?:es)? of|while trying to connect to) \((?P<list>[^\s()\"',\[]{1,80}(?:\[[\d,-]{1,80}\]?|,[^\s()\"']{1,80})[^\s()\"']{0,200}), \d{1,5}\)"
            r"|^ssh: Could not resolve hostname (?P<list_2>[\w.-]{1,80}(?:\[[\d,-]{1,80}\]?|,[\w.-])[^\s:]{0,200})",
            survived_after=STARTED,
            retry=False,
            remedy=(
                "{list} is a list of nodes as Slurm writes it, and no name of one: "
                'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
            ),
        ),
        sign(
            ("cannot be retrieved (gai error: -3", "Temporary failure in name resolution"),
            r"network addresses of \([^)\n]{1,120}\) cannot be retrieved \(gai error: -3\b|^ssh: Could not resolve hostname (?P<node>[\w.-]+): Temporary failure"
            r"|\b(?:init_process_group|TCPStore|MASTER_ADDR)[^\n]{0,80}Temporary failure in name resolution",
            survived_after=STARTED,
            remedy="the node got no answer to the question for a name: submit it again, and tell the site if it stays so",
        ),
        sign(
            ("cannot be retrieved (gai error", "Could not resolve hostname", "Name or service not known"),
            r"network addresses of \([^)\n]{1,120}\) cannot be retrieved \(gai error|^ssh: Could not resolve hostname (?P<node>[\w.-]+)"
            r"|\b(?:init_process_group|TCPStore|MASTER_ADDR)[^\n]{0,80}Name or service not known",
            survived_after=STARTED,
            confidence=0.9,
            retry=False,
            remedy=(
                "the name of the first node is not known on another one: see MASTER_ADDR in the job, and how the site's nodes are called\n"
                "the first node's own address serves as well: `hostname -I` there"
            ),
        ),
        sign(
            "Permission denied (",
            r"^(?!git@)(?:[\w.-]{1,80}: ){0,2}(?:[\w.-]{1,40}@)?(?P<node>[\w.-]{1,80}): Permission denied \((?:[\w-]{1,30},?){1,6}\)|^Permission denied \((?:[\w-]{1,30},?){1,6}\)",
            survived_after=STARTED,
            confidence=0.85,
            retry=False,
            remedy=_NO_LOGIN,
        ),
        sign(
            "Host key verification failed",
            r"^(?:(?P<node>[\w.-]{1,80}): )?Host key verification failed",
            survived_after=STARTED,
            confidence=0.85,
            retry=False,
            remedy=_NO_LOGIN,
        ),
        # The scheduler itself, which takes the same request a little later.
        sign(
            ("sbatch: error: ", "srun: error: ", "salloc: error: ", "srun: Job", "salloc: Job"),
            r"^(?:sbatch|srun|salloc): (?:error: )?(?:Batch job submission failed|Unable to allocate resources|Job submit/allocate failed"
            rf"|Unable to create step for job \S{{1,30}}): {UNAVAILABLE}",
            confidence=0.9,
            survived_after=STARTED,
            remedy=_NOT_NOW,
        ),
        sign(
            ("qsub: ", "LSF is down", "batch daemon not responding"),
            r"^qsub: (?:cannot connect to server|Connection refused|End of File|[^\n]{0,60}communication failure)[^\n]{0,120}"
            r"|^LSF is down\. Please wait|^batch daemon not responding",
            confidence=0.85,
            survived_after=STARTED,
            remedy=_NOT_NOW,
        ),
        sign(
            "was not reachable via ssh",
            r"RuntimeError: Using hostfile at \S{1,200} but host=(?P<node>[\w.-]+) was not reachable via ssh",
            retry=False,
            remedy=_NO_LOGIN,
        ),
        sign(
            "NET/IB ",
            r"NET/IB ?: Got completion (?:from peer (?P<address>\S{1,80}) )?with (?:error|status)[ =]12\b",
            confidence=0.7,
            remedy=NO_ANSWER,
        ),
        sign(
            "NET/OFI ",
            r"NCCL WARN NET/OFI [^\n]{0,160}(?:completed with error|\bRC: -?(?!28\b)\d)",
            confidence=0.7,
            remedy=NO_ANSWER,
        ),
        # The words of UCX, of Open MPI without it, and of MVAPICH for what NCCL calls error 12.
        sign(
            ("retry count", "RETRY EXCEEDED ERROR", "ot completion with error 12"),
            r"\bTransport retry count exceeded on \S|\bInfiniBand retry count between two MPI processes has been exceeded|\bwith status RETRY EXCEEDED ERROR"
            r"|\b[Gg]ot completion with error 12, vendor code\b",
            where=is_no_warning,
            confidence=0.85,
            remedy=NO_ANSWER,
        ),
        *LOST,
    ),
)

LOCKED_MEMORY = Cause(
    id="locked_memory",
    title="the limit of locked memory was reached",
    meaning="The fast network sends from memory that is locked in place, and the job may lock less than it needs.",
    remedy=(
        "see the limit in the job: `srun bash -c 'ulimit -l'`; it should be unlimited\n"
        "ulimit -l unlimited before the program starts; where that is not permitted, the site must allow it to jobs "
        "(LimitMEMLOCK of slurmd, /etc/security/limits.conf)\n"
        "with Slurm see that the login node's limit does not go with the job: sbatch --propagate=NONE\n"
        "until then NCCL without InfiniBand, far slower: --set env.NCCL_IB_DISABLE=1"
    ),
    retry=False,
    precedence=67,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable", "segfault")),
    signs=(
        # The verbs of InfiniBand, by whoever calls them.
        sign(
            "annot allocate memory",
            r"\bibv_(?:reg_\w*mr\w*|create_(?:qp|cq|srq)\w*)\b[^\n]{0,160}[Cc]annot allocate memory",
            confidence=0.9,
        ),
        sign(
            ("trying to allocate some locked memory", "Cannot register vbuf region"),
            r"failed to initialize while trying to allocate some locked memory|trying to allocate some locked memory|Cannot register vbuf region",
            confidence=0.9,
        ),
        sign(
            "max locked memory (ulimit -l)",
            r"(?:[Pp]lease set|[Cc]heck) max locked memory \(ulimit -l\)[^\n]{0,80}",
            confidence=0.85,
        ),
        sign(
            ("fi_mr_reg", "nable to register memory"),
            r"(?:\bfi_mr_reg\w*\b|\bNET/OFI [^\n]{0,40}\b[Uu]nable to register memory\b)[^\n]{0,120}(?:[Cc]annot allocate memory|RC: -?12\b)",
            confidence=0.85,
        ),
    ),
)

CAUSES = (COLLECTIVE_TIMEOUT, UNREACHABLE, PORT_IN_USE, LOCKED_MEMORY)
