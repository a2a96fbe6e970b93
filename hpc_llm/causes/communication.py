"""Ranks that do not reach each other."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, Role, sign

_EXCEPTION = r"^[^\n]{0,120}?\b"

_NOT_ALL_CAME = (
    "the ranks did not all meet: see that every node started as many as the others wait for, and their own output\n"
    "see that the address is reachable from the other nodes: --set env.NCCL_SOCKET_IFNAME=… and env.GLOO_SOCKET_IFNAME=…\n"
    "otherwise submit it again, without the node that did not come: --sbatch exclude={node}"
)

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
        "otherwise submit it again, without the silent node: --sbatch exclude={node}"
    ),
    retry=True,
    precedence=55,
    explains=frozenset(("segfault", "python_exception")),
    signs=(
        sign(
            "Watchdog caught collective operation timeout",
            r"(?:\[Rank (?P<rank>\d+)\] )?Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?"
            r"OpType=(?P<collective>\w+)(?:[^\n)]{0,80}Timeout\(ms\)=(?P<timeout_ms>\d+))?",
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
            remedy=_NOT_ALL_CAME,
        ),
        sign(
            ("RendezvousTimeoutError", "client socket has timed out after", "Socket Timeout"),
            _EXCEPTION
            + r"RendezvousTimeoutError|client socket has timed out after \d+ ?m?s while trying to connect to \((?P<address>[^)]{1,80})\)"
            r"|RuntimeError: Socket Timeout",
            confidence=0.85,
            remedy=_NOT_ALL_CAME,
        ),
        sign(
            ("socketStartConnect: Connect to ", "socketPollConnect"),
            r"socket(?:StartConnect: Connect to|PollConnect: connect to|PollConnect:? [^\n]{0,40}) ?(?P<address>\S{1,80})[^\n]{0,40}"
            r"(?:failed|returned|refused|exceeded)",
            confidence=0.8,
            remedy=_NOT_ALL_CAME,
        ),
        sign(
            "NET/IB ",
            r"NET/IB ?: Got completion (?:from peer (?P<address>\S{1,80}) )?with (?:error|status)[ =]12\b",
            confidence=0.7,
            remedy=(
                "a node or the network between the nodes did not answer: look at the output of the other ranks for one that died\n"
                "otherwise submit it again, without the node at that address: --sbatch exclude={node}"
            ),
        ),
        sign(
            ("DEADLINE_EXCEEDED: ", "heartbeat timeout"),
            r"XlaRuntimeError: DEADLINE_EXCEEDED: (?:Barrier timed out|Connect\(\) timed out)|UNAVAILABLE: Task \S{1,80} heartbeat timeout",
            confidence=0.85,
            remedy=_NOT_ALL_CAME,
        ),
        sign("Wait timeout", r"RuntimeError: Wait timeout\b", confidence=0.85),
        sign(
            "detected by watchdog at work: ",
            r"\[PG [^\]\n]{1,80}Rank (?P<rank>\d+)\] Exception \(either an error or timeout\) detected by watchdog at work: (?P<seq>\d+)",
            role=Role.CASCADE,
        ),
        sign("watchdog got stuck", r"ProcessGroupNCCL's watchdog got stuck for \d+ seconds", confidence=0.85),
        sign("eartbeat monitor", r"Heartbeat monitor timed out!", confidence=0.85),
    ),
)

PORT_IN_USE = Cause(
    id="port_in_use",
    title="the rendezvous port is in use",
    meaning="Another program on the first node already listens on the port at which the ranks meet.",
    remedy=(
        "submit it again: each run picks a port of its own\n"
        "in a script of your own take a port from the job id, or torchrun --standalone on one node"
    ),
    retry=True,
    precedence=85,
    explains=frozenset(("collective_timeout", "python_exception")),
    signs=(
        sign(
            ("ddress already in use", "EADDRINUSE", "another process is utilizing it"),
            r"(?:bind|listen)[^\n]{0,80}?(?:\[::\]|0\.0\.0\.0|\?UNKNOWN\?)?:?(?P<port>\d{2,5})?[^\n]{0,40}errno: 98"
            r"|EADDRINUSE|distributed communication on port `(?P<port_2>\d+)`, but another process is utilizing it"
            r"|Error(?:: \[Errno 98\]|:)[^\n]{0,60} ?[Aa]ddress already in use",
        ),
    ),
)

CAUSES = (COLLECTIVE_TIMEOUT, PORT_IN_USE)
