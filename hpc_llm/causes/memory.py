"""Memory that ran out: of the GPU, of the host."""

from __future__ import annotations

import re
from typing import Any

from hpc_llm.causes import accelerators, tensorflow_memory
from hpc_llm.causes.cause import STARTED, Cause, Role, Sign, sign
from hpc_llm.causes.exits import exit_code, exit_texts
from hpc_llm.causes.impossible_sizes import is_possible
from hpc_llm.causes.own_ends import is_ended_from_elsewhere
from hpc_llm.causes.schedulers import by_signal, lsf, openmpi_signal, pbs_status
from hpc_llm.causes.summaries import is_of_a_summary, state
from hpc_llm.causes.watchers import is_of_a_program
from hpc_llm.records.run import Outcome
from hpc_llm.text import out_of_memory as words
from hpc_llm.text.out_of_memory import SIZE, Words


def _says(said: Words, **more: Any) -> Sign:
    """The sign by which words show that the worker knows, too."""
    return sign(said.literals, said.pattern, **more)


_AMOUNTS = (
    rf"(?:[^\n]{{0,40}}?[GN]PU (?P<gpu>\d+))?"
    rf"(?:[^\n]{{0,40}}?total capac(?:i?ty) of (?P<capacity>{SIZE}) of which (?P<free>{SIZE}) is free"
    rf"|; (?P<capacity_old>{SIZE}) total capacity; (?P<allocated_old>{SIZE}) already allocated"
    rf"(?:; {SIZE} current active)?; (?P<free_old>{SIZE}) free; (?:(?P<allowed_old>{SIZE}) allowed; )?(?P<reserved_total>{SIZE}) reserved)?"
    rf"(?:\. (?P<allowed>{SIZE}) allowed;)?"
    rf"(?:[^\n]{{0,20}}?(?P<held>(?:(?:Including non-PyTorch memory, this process|Process \d+) has {SIZE} memory in use\. ?){{1,32}}))?"
    rf"(?: ?(?P<allowed_2>{SIZE}) allowed;)?"
    rf"(?:[^\n]{{0,200}}?(?P<allocated>{SIZE}) is allocated by PyTorch)?"
    rf"(?:[^\n]{{0,60}}?(?P<reserved>{SIZE}) is reserved by PyTorch but unallocated)?"
)
"""What torch says behind the amount that it was asked for."""

_ASSERTION = re.compile(rb"\bAssertion `[^\n]{1,300}[`'] failed|\bdevice-side assert triggered")
_BEFORE, _BEHIND = 1 << 16, 1 << 12


def _no_assertion_failed(text: bytes, position: int) -> bool:
    """Whether no assertion on the GPU failed around `position`: after one every call of a library fails in some way."""
    return _ASSERTION.search(text, max(0, position - _BEFORE), position + _BEHIND) is None


_OTHER_FAILURE = re.compile(rb"\b(?:Cuda|HIP) failure (?:\d+ )?'(?!out of memory)")


def _nothing_else_failed(text: bytes, position: int) -> bool:
    """Whether NCCL names no call that failed before `position` of something else than lack of memory."""
    nearby = _OTHER_FAILURE.search(text, max(0, position - _BEHIND), position)
    return nearby is None and _no_assertion_failed(text, position)


def _is_of_the_work(text: bytes, position: int) -> bool:
    """Whether it is said of no helper that the script ended itself."""
    return is_of_a_program(text, position) and is_ended_from_elsewhere(text, position)


_BEFORE_ANY_MODEL = re.compile(
    rb", in (?:_?barrier|_?init_process_group|init_distributed|set_device|_lazy_init|_cuda_init|mem_get_info)\n[^\n]{0,200}\n[^\n]{0,40}$"
)
"""The last frame is of a call that comes before a model, and that needs of the GPU little more than to be reached."""


def _is_before_any_model(text: bytes, position: int) -> bool:
    return _BEFORE_ANY_MODEL.search(text, max(0, position - 600), position) is not None


_HANDLE_REMEDY = (
    "run it once with CUDA_LAUNCH_BLOCKING=1 (--set env.CUDA_LAUNCH_BLOCKING=1): an error of a kernel before it, such as an index "
    "out of range, then shows itself\n"
    "see with nvidia-smi on the node whether other processes hold the GPU's memory, and whether it runs with half the "
    "--micro-batch-size\n"
    "see that torch was built for this driver, and that no other CUDA is in LD_LIBRARY_PATH"
)

_COLLECTIVES_REMEDY = (
    "see with `nvidia-smi` or `rocm-smi` on the node whether other processes, or some that an earlier run left, hold the GPU's memory\n"
    "--set env.NCCL_DEBUG=INFO shows which call failed: NCCL says that it got no memory whatever went wrong\n"
    "where it comes while it trains: NCCL asks for memory beside torch's, which holds the GPU's: leave it some, as with a smaller micro batch"
)

_START_REMEDY = (
    "it came before there was a model on the GPU, so no batch can be the reason: `nvidia-smi` or `rocm-smi` on that node shows "
    "whether another process, or one that an earlier job left, holds its memory\n"
    "otherwise the GPU may be faulty: leave the node out (sbatch --exclude=NODE) and tell the site"
)

CACHE_REMEDY = (
    "give the engine more of the GPU: gpu_memory_utilization of vLLM, --mem-fraction-static of SGLang\n"
    "shorter sequences, which need less of a cache: max_model_len of vLLM, --context-length of SGLang, --max-total-tokens and "
    "--max-batch-prefill-tokens of TGI\n"
    "share the weights among more GPUs: tensor_parallel_size of vLLM, --tp-size of SGLang, --num-shard of TGI; or a quantised model"
)
SHARE_REMEDY = (
    "other processes hold memory of the GPU, or an engine that ended has not given it back yet: `nvidia-smi` or `rocm-smi` on the node shows whose it is\n"
    "where they may stay, ask for a smaller share: gpu_memory_utilization below the free part"
)

DEVICE_OOM = Cause(
    id="device_oom",
    title="out of GPU memory",
    meaning="The GPU's memory ran out: parameters, gradients, optimizer states and activations together do not fit.",
    remedy=(
        "halve --micro-batch-size and double --gradient-accumulation-steps: the global batch stays the same\n"
        "recompute activations: add +r to --method, as in z3+r\n"
        "partition more: --method z3, then --method z3o, which moves optimizer states and parameters to the host\n"
        "shorter --sequence-length, or more GPUs with --gpus-per-node or --nodes"
    ),
    retry=False,
    precedence=90,
    outcome=Outcome.OOM_DEVICE,
    explains=frozenset(("collective_timeout", "python_exception", "segfault")),
    signs=(
        sign(
            words.DEVICE_ALLOCATION.literals,
            words.DEVICE_ALLOCATION.pattern + _AMOUNTS,
            confidence=0.98,
            where=is_possible,
        ),
        _says(words.DEVICE_ERROR_TYPE, where=is_possible),
        _says(words.DEVICE_LIBRARY, confidence=0.85, where=_no_assertion_failed),
        _says(words.DEVICE_HANDLE, confidence=0.45, precedence=46, where=_no_assertion_failed, remedy=_HANDLE_REMEDY),
        _says(words.DEVICE_DRIVER, confidence=0.96, where=_is_before_any_model, remedy=_START_REMEDY),
        _says(words.DEVICE_DRIVER),
        _says(words.DEVICE_COLLECTIVES, confidence=0.9),
        _says(
            words.DEVICE_COLLECTIVES_ROOM,
            confidence=0.5,
            precedence=46,
            where=_nothing_else_failed,
            remedy=_COLLECTIVES_REMEDY,
        ),
        sign("Allocation failed : Device memory", confidence=0.9),
        # Engines of inference take a share of the GPU, and what the weights leave of it is for the cache.
        sign(
            (
                "No available memory for the cache blocks",
                "tokens that can be stored in KV cache",
                "available KV cache memory",
                "Not enough memory. Please try to increase",
                "Not enough memory to handle ",
            ),
            r"No available memory for the cache blocks|[^\n]{0,80}larger than the maximum number of tokens that can be stored in KV cache"
            r"|KV cache is needed, which is larger than the available KV cache memory|Not enough memory\. Please try to increase --mem-fraction-static"
            r"|Not enough memory to handle \d+ (?:total|prefill) tokens",
            confidence=0.9,
            remedy=CACHE_REMEDY,
        ),
        sign(
            "Free memory on device",
            r"Free memory on device [^\n]{0,60}on startup is less than desired GPU memory utilization",
            confidence=0.9,
            remedy=SHARE_REMEDY,
        ),
        _says(words.DEVICE_RUNTIME),
        # The driver of AMD's GPUs says so of queues and scratch memory.
        sign(
            "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
            r"\bwith error ?: HSA_STATUS_ERROR_OUT_OF_RESOURCES",
            confidence=0.85,
        ),
        *tensorflow_memory.SIGNS,
        *accelerators.SIGNS,
    ),
)

_HOST_REMEDY = (
    "ask for more: --sbatch mem=…, or --sbatch mem=0 for all of the node\n"
    "fewer ranks per node: each loads the model and pins buffers of its own\n"
    "keep parameters on the GPU: --method z2o or z3 instead of z3o (drop offload_param)"
)

_OF_RAY = (
    "fewer or smaller tasks and actors on a node at a time: tell Ray what each needs (memory= and num_cpus= of ray.remote), which it then keeps apart\n"
    "keep less on the host: less offload of parameters and optimizer states, fewer data loader workers, a smaller object store\n"
    "ask for more only where the node has more than the whole that Ray names (USED / WHOLE in its message): sbatch --mem=0; else take more nodes"
)

PAGE_LOCKED_REMEDY = (
    "page-locked host memory ran out: turn it off with "
    "--set deepspeed.zero_optimization.offload_optimizer.pin_memory=false\n" + _HOST_REMEDY
)

_AT_SOME_POINT = r"Exceeded (?:job|step)(?: virtual)? memory limit at some point"
_KILLED = re.compile(
    exit_code(9).encode()
    + rb"|: Killed\b|^Killed$|\d Killed +\S|\bSIGKILL\b|\bsignal 9\b|exit code 137\b|exitcode: -9\b|return code = -9\b",
    re.MULTILINE,
)


def _was_killed(text: bytes, position: int) -> bool:
    """Whether something near `position` says that a process was killed."""
    near = text[max(0, position - _BEHIND) : position + _BEHIND]
    return any(word in near for word in (b"ill", b"ILL", b"9", b"137")) and _KILLED.search(near) is not None


HOST_OOM = Cause(
    id="host_oom",
    title="out of host memory",
    meaning="The memory of the node, or what the job asked of it, ran out: a process was killed, or got no more of it.",
    remedy=_HOST_REMEDY,
    retry=False,
    precedence=86,
    outcome=Outcome.OOM_HOST,
    explains=frozenset(("collective_timeout", "python_exception", "cancelled", "segfault")),
    signs=(
        sign(
            "in all: nothing was built",
            r"\bWorkerError: the weights of [^\n]{1,300} take (?P<weights>\d{1,9} GiB) [^\n]{1,60} and (?P<on_nodes>\d{1,6}) node\(s\) have "
            r"(?P<there>\d{1,9} GiB) of host and GPU memory in all: nothing was built",
            confidence=0.98,
            meaning="The weights alone take more than the memory of all nodes and their GPUs: it would fail again as it is.",
        ),
        sign(
            ("oom_kill event", "oom-kill event"),
            r"Detected \d+ oom[-_]kill event(?:\(s\)|s)? in (?P<step>(?:StepId=|step )?\w+(?:[.+]\w+)*)",
            confidence=0.98,
        ),
        sign(("TERM_MEMLIMIT", "TERM_SWAP"), lsf("MEMLIMIT|SWAP"), confidence=0.97),
        sign(
            "OUT_OF_MEMORY",
            state("OUT_OF_MEMORY|OUT_OF_ME\\+"),
            where=is_of_a_summary,
            confidence=0.95,
            survived_after=STARTED,
        ),
        sign("Exit_status", pbs_status("-2[67]"), confidence=0.85),
        # Grid Engine's log on the node, and those who keep containers.
        sign(
            ("exceeds job ", "exceeded hard limit "),
            r"\bjob [\d.]+ (?:exceeds job (?:master )?|exceeded )hard limit \"h_(?:vmem|rss|data)\"",
            confidence=0.97,
        ),
        sign(
            ("low on resource: memory", "OOMKilled", "gone over memory limit", "gone over cgroup memory limit"),
            r"The node was low on resource: memory|^ *(?:Reason|reason|Last State|State): +(?:Terminated +)?OOMKilled"
            r"|\b[Jj]ob has gone over (?:cgroup )?memory limit of \d+",
            confidence=0.95,
        ),
        sign(
            ("killed due to memory pressure", "node running low on memory"),
            r"[1-9]\d* Workers \(tasks / actors\) killed due to memory pressure|OutOfMemoryError: Task was killed due to the node running low on memory",
            confidence=0.95,
            remedy=_OF_RAY,
        ),
        sign(
            "PBS: job killed: ",
            r"=>> PBS: job killed: (?:p?v?mem|RSS) (?P<used_text>\d+\w{0,2}) exceeded limit (?P<limit_text>\d+\w{0,2})",
            confidence=0.97,
        ),
        sign("killed by the cgroup out-of-memory", confidence=0.97),
        sign(
            "oom: Memory cgroup",
            r"flux-shell\[\d+\]: +ERROR: oom: Memory cgroup out of memory: killed",
            confidence=0.97,
        ),
        sign(
            "Killed signal terminated program",
            r"fatal error: Killed signal terminated program cc1plus",
            confidence=0.9,
            remedy="a compiler ran out of memory: --set env.MAX_JOBS=2 starts fewer of them at once\n" + _HOST_REMEDY,
        ),
        sign(
            ("exceeded memory limit", "Exceeded job memory limit", "Exceeded step memory limit"),
            r"(?:[Ss]tep \S{1,30}|[Jj]ob \S{1,30}|StepId=\S{1,30})[^\n]{0,40}? exceeded memory limit"
            r"(?: \((?P<used>\d+) > (?P<limit>\d+)\))?|Exceeded (?:job|step) memory limit(?! at some point)",
            confidence=0.97,
        ),
        # The limit was reached at some time, if only by files that the system keeps in memory: that alone kills nothing.
        sign("emory limit at some point", _AT_SOME_POINT, where=_was_killed, confidence=0.9),
        sign(
            "emory limit at some point",
            _AT_SOME_POINT,
            confidence=0.4,
            precedence=41,
            at_any_time=True,
            remedy="ask the scheduler whether it was that: sacct -j JOB -o JobID,State,ExitCode,MaxRSS,ReqMem\n"
            + _HOST_REMEDY,
        ),
        sign(": Out Of Memory", r"^[^\n]{0,12}srun: error: [^\n]{1,80}: Out Of Memory", confidence=0.97),
        sign(
            ("oom-kill:", "out of memory: Kill", "Out of memory: Kill", "invoked oom-killer", "oom_reaper:"),
            r"(?:Out of memory|[Mm]emory cgroup out of memory): Kill(?:ed)? process (?P<pid>\d+)"
            r"|\binvoked oom-killer|\boom-kill:constraint=|\boom_reaper: reaped process",
            confidence=0.97,
        ),
        sign(
            "unable to mmap ",
            r"unable to mmap \d{1,18} bytes from file <(?!/torch_)[^\n>]{1,400}>: Cannot allocate memory",
            confidence=0.96,
            remedy="a file was mapped, which takes address space: `ulimit -v` in the job should say unlimited\n"
            + _HOST_REMEDY,
        ),
        _says(words.HOST_ALLOCATOR, where=is_possible),
        _says(words.HOST_CPP),
        sign("memory allocation of ", r"^memory allocation of (?P<asked>\d+) bytes failed"),
        _says(words.HOST_NUMPY, where=is_possible),
        sign("MemoryError", r"^[^\n]{0,120}?(?<![\w.])MemoryError$", confidence=0.9),
        _says(words.PAGE_LOCKED, precedence=91, confidence=0.85, remedy=PAGE_LOCKED_REMEDY),
        # The driver has the same words for the device's memory: only the code tells.
        sign(
            ("CUDA error: out of memory", "HIP error: out of memory", "CUDA error: invalid argument"),
            r"^[^\n]{0,120}Error: (?:CUDA|HIP) error: (?:out of memory|invalid argument)",
            precedence=91,
            confidence=0.9,
            after="pin_memory",
            remedy=PAGE_LOCKED_REMEDY,
        ),
        sign(
            "(pid",
            r"DataLoader worker \(pid\(?s?\)? [\d, ]+\)? is killed by signal: Killed",
            confidence=0.85,
        ),
        sign(
            (" Killed ", " Killed\n"),
            r"^[^\n\"]{1,160}: line \d+: +\d+ Killed(?: |$)",
            where=_is_of_the_work,
            precedence=42,
            confidence=0.6,
        ),
        sign("Killed", r"^Killed$", where=is_ended_from_elsewhere, precedence=40, confidence=0.5),
        sign(
            (": Killed", "tasks "),
            r"^[^\n]{0,12}srun: error: \S{1,80}: tasks? [\d,-]+: Killed",
            where=is_ended_from_elsewhere,
            role=Role.CONFIRMATION,
        ),
        # The launcher's verdict on the rank that died first; survivors are killed with SIGTERM.
        sign(
            (
                "exitcode: -9)",
                "(SIGKILL)",
                "return code = -9",
                "return code = 247",
                "exit code 137",
                "code 137",
                "SIGKILL: 9>",
                "signal 9 (Killed)",
                "signal SIGKILL",
                "SIGNAL: 9 ",
                "EXIT CODE: ",
                "status (137)",
                "by signal 9",
                "Exit_status",
                *exit_texts(9),
            ),
            rf"{exit_code(9)}|"
            r"failed \(exitcode: -9\)(?: local_rank: (?P<local_rank>\d+))?|exits with return code = (?:-9|247)\b"
            # A survivor that lost its peer within the same second may be named as the first failure in its stead.
            r"|Signal 9 \(SIGKILL\) received by PID"
            r"|[Ee]xited with exit code 137\b|exit(?:ed with)? code 137\b|died with <Signals\.SIGKILL: 9>"
            rf"|{openmpi_signal(9, 'Killed')}"
            r"|terminated with signal SIGKILL\b|KILLED BY SIGNAL: 9 |^= +EXIT CODE: (?:9|137)$"
            r"|terminated with an error exit status \(137\)|^Exited by signal 9\.$|" + pbs_status(by_signal(9)),
            where=is_ended_from_elsewhere,
            precedence=41,
            confidence=0.6,
        ),
    ),
)

CAUSES = (DEVICE_OOM, HOST_OOM)
