"""The node itself: its disks, its shared memory, native code that crashed."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left

from hpc_llm.causes import aborts, jupyter
from hpc_llm.causes.cause import STARTED, Cause, sign
from hpc_llm.causes.crashes import says_where
from hpc_llm.causes.exits import exit_code, exit_texts
from hpc_llm.causes.schedulers import by_signal, openmpi_signal, pbs_status
from hpc_llm.causes.watchers import is_of_a_program


def _named(name: str, number: int) -> str:
    """What torch.multiprocessing, glog and PBS say of a process that was ended by this signal."""
    return rf"terminated with signal {name}\b|\*\*\* {name} \(@0x[0-9a-f]+\) received by PID|{pbs_status(by_signal(number))}"


_SHARED_MEMORY = (b"_multiprocessing.SemLock(", b"_posixshmem.shm_open(", b"/multiprocessing/synchronize.py")
_QUOTED = 400
"""Bytes before an exception in which its last frame is quoted."""


def _made_shared_memory(text: bytes, position: int) -> bool:
    """Whether the code that failed asked for shared memory."""
    before = text[max(0, position - _QUOTED) : position]
    return any(call in before for call in _SHARED_MEMORY)


_APPLE = re.compile(rb"\b[Dd]evice\b[ =:'\"]{1,6}mps\b|/Users/\w|/opt/homebrew/|\bmacOS\b|\bDarwin\b|\.dylib\b")
_LOOKED_AT = 1 << 16
_OF_A_SHELL = r"^[^\n\"]{0,200}\b%s(?:$| {2,}\S)"


def _is_not_of_apple(text: bytes, position: int) -> bool:
    """Whether nothing before tells of macOS: it has no /dev/shm, and ends a program so for a bad pointer."""
    places = _places_of_apple(text)
    before = bisect_left(places, position)
    return before == 0 or places[before - 1] < position - _LOOKED_AT


@functools.lru_cache(maxsize=1)
def _places_of_apple(text: bytes) -> list[int]:
    """Where it tells of it: asked of one text for each of its lines."""
    return [one.start() for one in _APPLE.finditer(text)]


_NO_DISK = re.compile(
    rb"NET/(?:OFI|IB|UCX)|\b(?:fi|ibv|cxil?|ucp|uct|efa)_\w|\b[Ll]ibfabric\b|\bRC: -\d|\bopen (?:CQ|EP|AV)\b"
    rb"|\binotify|file watchers|/sys/fs/cgroup|\b(?:sem|shm|msg)get\b"
    rb"|\bAPI\b|<Response|\bHTTP|\b(?:403|429)\b|[Qq]uota exceeded for |\b[Rr]ate limit|\bper (?:minute|day)\b"
)
"""The system has the same words for other things that are used up: queues of a network card, watches of files, control groups, and servers for theirs."""


def _is_of_a_disk(text: bytes, position: int) -> bool:
    """Whether the line at `position` does not speak of anything else that is used up."""
    end = text.find(b"\n", position)
    start = max(text.rfind(b"\n", 0, position) + 1, position - _QUOTED)
    return _NO_DISK.search(text, start, min(end if end >= 0 else len(text), position + _QUOTED)) is None


DISK_FULL = Cause(
    id="disk_full",
    title="no space left",
    meaning="The file system, or the quota on it, is full.",
    remedy=(
        "see which: `df -h DIR`, and the site's quota command (quota, lfs quota -u $USER DIR)\n"
        "put runs and caches where there is room: --logs DIR, --set env.HF_HOME=…, --set env.TMPDIR=…, --set env.TORCH_EXTENSIONS_DIR=…"
    ),
    retry=False,
    precedence=88,
    explains=frozenset(("python_exception", "collective_timeout", "cancelled", "package_missing")),
    signs=(
        sign("No space left on device", where=_is_of_a_disk),
        sign(
            "no space left on device",
            r"\bWorkerError: [^\n]{1,500} cannot be (?:written|read): no space left on device",
        ),
        sign(
            ("isk quota exceeded", "uota exceeded"),
            r"[Dd]isk quota exceeded|\[Errno 122\]|[Qq]uota exceeded",
            where=_is_of_a_disk,
        ),
        # What torch.save says of a file that ends too soon.
        sign(
            "unexpected pos ", r"enforce fail at inline_container[^\n]{0,40} unexpected pos \d+ vs \d+", confidence=0.85
        ),
        sign("failed writing file", r"PytorchStreamWriter failed writing file", confidence=0.8),
        sign("No space left", r"ENOSPC|No space left", where=_is_of_a_disk, confidence=0.9),
        sign("low on resource: ", r"The node was low on resource: ephemeral-storage", confidence=0.95),
        sign(
            "ot enough free disk space",
            r"[Nn]ot enough free disk space to download",
            survived_after=STARTED,
            confidence=0.8,
        ),
    ),
)

BUS_ERROR = Cause(
    id="bus_error",
    title="shared memory failed",
    meaning=(
        "A process could not use its shared memory: most often /dev/shm is full or too small. Where it was killed by SIGBUS, a file "
        "under mmap may have been cut, too."
    ),
    remedy=(
        "fewer data loader workers, or none; in a container more shared memory: --shm-size=16g or --ipc=host\n"
        "see `df -h /dev/shm` on the node: what an earlier job left there counts\n"
        "if /dev/shm is empty, a mapped file became shorter while it was read: give each job a cache folder of its own"
    ),
    retry=False,
    precedence=89,
    explains=frozenset(("python_exception", "collective_timeout", "segfault", "disk_full")),
    signs=(
        sign("nexpected bus error encountered in worker", confidence=0.97),
        sign(
            "us error",
            r"is killed by signal: Bus error|Signal: Bus error \(7\)|Caught signal 7 \(Bus error|^[^\n\"]{0,200}\b[Bb]us error +\(core dumped\)",
            confidence=0.95,
        ),
        sign(
            "Bus error",
            rf"Fatal Python error: Bus error|{_OF_A_SHELL % 'Bus error'}",
            where=_is_not_of_apple,
            confidence=0.95,
        ),
        sign(
            (
                "exitcode: -7)",
                "return code = -7",
                "exit code 135",
                "code 135",
                "(SIGBUS)",
                "SIGBUS: 7>",
                "signal SIGBUS",
                "*** SIGBUS",
                "Exit_status",
                "signal 7 (",
                *exit_texts(7),
            ),
            rf"{_named('SIGBUS', 7)}|{exit_code(7)}|{openmpi_signal(7, 'Bus error')}|"
            r"failed \(exitcode: -7\)|return code = -7\b|exit(?:ed with)?(?: exit)? code 135\b|Signal 7 \(SIGBUS\)"
            r"|died with <Signals\.SIGBUS: 7>",
            confidence=0.9,
        ),
        # NCCL's older releases name the segment without its folder.
        sign(
            "shared memory segment nccl-",
            r"\bwhile creating shared memory segment nccl-[^\n]{1,120}",
            confidence=0.9,
        ),
        sign(
            "/dev/shm",
            r"(?:creating|allocating|[Ff]ailed to (?:create|open|extend)) [^\n]{0,40}shared memory segment /dev/shm|No space left on device[^\n]{0,80}/dev/shm|/dev/shm[^\n]{0,80}No space left on device",
            confidence=0.95,
        ),
        # Named semaphores and blocks of shared memory are files there, and Python's error does not name them.
        sign(
            "[Errno 28] No space left on device",
            r"\bOSError: \[Errno 28\] No space left on device$",
            where=_made_shared_memory,
            confidence=0.93,
        ),
        sign("posix_fallocate failed", r"posix_fallocate failed : No space left on device", confidence=0.9),
        sign(
            ("unable to write to file </torch", "</torch_"),
            r"unable to write to file </torch_\w+>|unable to (?:resize|open|allocate|mmap) [^\n]{0,60}</torch_\w+>[^\n]{0,80}No space left on device",
            confidence=0.95,
        ),
        sign("shared memory", r"insufficient shared memory \(shm\)|out of shared memory", confidence=0.9),
    ),
)

_CRASHED_THERE = (
    "it crashed in {crashed_at}: the frames below the evidence, the innermost first, show how it came there\n"
    "a package with compiled code that is named there is the first suspect: install it again, in a release that was built for this torch, CUDA or ROCm\n"
    "mixed builds are the usual reason: one CUDA or ROCm, one MPI, extensions built for this torch\n"
    "if it happens on one node only, leave that node out: --sbatch exclude={node}"
)

SEGFAULT = Cause(
    id="segfault",
    title="crashed in native code",
    meaning="A process was ended by SIGSEGV, SIGABRT or the like: a crash in compiled code, not in Python.",
    remedy=(
        "run it once with PYTHONFAULTHANDLER=1 (--set env.PYTHONFAULTHANDLER=1) to see where\n"
        "mixed builds are the usual reason: one CUDA or ROCm, one MPI, extensions built for this torch\n"
        "if it happens on one node only, leave that node out: --sbatch exclude={node}"
    ),
    retry=False,
    precedence=70,
    explains=frozenset(("collective_timeout",)),
    signs=(
        # Python's faulthandler was on, and says where.
        sign(
            "Fatal Python error: ",
            r"Fatal Python error: Segmentation fault$",
            where=says_where,
            precedence=71,
            remedy=_CRASHED_THERE,
        ),
        # Who aborts had mostly a reason, which stands before it.
        sign(
            "Fatal Python error: ",
            r"Fatal Python error: (?:Aborted|Floating[ -]point exception)$",
            where=says_where,
            precedence=40,
            confidence=0.75,
            remedy=_CRASHED_THERE,
        ),
        sign("egmentation fault", r"^[^\n\"]{0,200}?\b[Ss]egmentation fault\b", where=is_of_a_program),
        sign(
            (
                "exitcode: -11)",
                "return code = -11",
                "exit code 139",
                "code 139",
                "(SIGSEGV)",
                "SIGSEGV: 11>",
                "signal SIGSEGV",
                "*** SIGSEGV",
                "Exit_status",
                "EXIT CODE: 139",
                "SIGNAL: 11 ",
                "signal 11 (",
                *exit_texts(11),
            ),
            rf"{_named('SIGSEGV', 11)}|{exit_code(11)}|{openmpi_signal(11, 'Segmentation fault')}|^= +EXIT CODE: 139$|KILLED BY SIGNAL: 11 |"
            r"failed \(exitcode: -11\)|return code = -11\b|exit(?:ed with)?(?: exit)? code 139\b|Signal 11 \(SIGSEGV\)"
            r"|died with <Signals\.SIGSEGV: 11>",
            confidence=0.9,
        ),
        sign(
            (
                "exitcode: -6)",
                "return code = -6",
                "exit code 134",
                "Aborted",
                "exitcode: -4)",
                "exitcode: -8)",
                "exit code 132",
                "exit code 136",
                "SIGABRT",
                "(core dumped)",
                "Exit_status",
                "EXIT CODE: 134",
                "SIGNAL: 6 ",
                *exit_texts(4, 6, 8),
            ),
            rf"{_named('SIGABRT', 6)}|{exit_code(4, 6, 8)}|^= +EXIT CODE: 134$|KILLED BY SIGNAL: 6 |{openmpi_signal(6, 'Aborted')}|"
            r"failed \(exitcode: -[468]\)|return code = -[468]\b|[Ee]xited with exit code 13[246]\b|^[^\n\"]{1,200}: line \d+: +\d+ Aborted|Fatal Python error: Aborted"
            # The word before it is in the language of the shell.
            r"|^[^\n\"]{0,200}\(core dumped\)(?:$| {2,}\S)|Signal 6 \(SIGABRT\)|died with <Signals\.SIGABRT: 6>",
            where=is_of_a_program,
            precedence=40,
            confidence=0.7,
        ),
        *aborts.SIGNS,
        jupyter.KERNEL_DIED,
        # zsh has these words on macOS, too, and bash the number there; on Linux most others name it with a capital letter.
        sign(
            "us error",
            rf"{_OF_A_SHELL % '[Bb]us error(?:: 10)?'}|Fatal Python error: Bus error",
            where=is_of_a_program,
            precedence=44,
            confidence=0.7,
            remedy=(
                "run it once with PYTHONFAULTHANDLER=1 (--set env.PYTHONFAULTHANDLER=1) to see where\n"
                "on macOS it is a bad pointer of compiled code; on Linux also shared memory or a mapped file that had no room or was cut"
            ),
        ),
        # glibc's words for a heap that was damaged.
        sign(
            ("free(): ", "malloc(): ", "realloc(): ", "munmap_chunk(): ", "double free or corruption", "corrupted "),
            r"^[^\n]{0,120}?(?:(?:free|malloc|realloc|munmap_chunk)\(\): (?:invalid|double free|corrupted|unaligned|memory corruption)"
            r"|double free or corruption|corrupted (?:size vs\. prev_size|double-linked list))",
            confidence=0.9,
        ),
        sign(
            ("Memory access fault by GPU", "HSA_STATUS_ERROR_MEMORY_"),
            r"Memory access fault by GPU node-\d+|\bwith error ?: HSA_STATUS_ERROR_MEMORY_(?:APERTURE_VIOLATION|FAULT)\b",
            confidence=0.9,
            remedy=(
                "a kernel touched memory that is not its own: see that torch and its extensions were built for this GPU and ROCm\n"
                "--set env.AMD_SERIALIZE_KERNEL=3 makes it stop at the kernel that does it\n"
                "if it happens on one node only, leave that node out: --sbatch exclude={node}"
            ),
        ),
        # What else the runtime of AMD's GPUs ends a queue with; a fault of the hardware, of memory and of the build have causes of their own.
        sign(
            "HSA_STATUS_ERROR",
            r"\bwith error ?: HSA_STATUS_ERROR(?!_(?:EXCEPTION|HARDWARE|MEMORY_|OUT_OF_RESOURCES|ILLEGAL_INSTRUCTION|INVALID_(?:ISA|CODE|EXECUTABLE)))",
            confidence=0.85,
        ),
        # Rust's word; where Python passes it on as an exception, that says more.
        sign(
            "' panicked at ",
            r"^thread '[^'\n]{0,80}' (?:\(\d+\) )?panicked at ",
            precedence=40,
            confidence=0.7,
        ),
        # The runtime of AMD's GPUs says it of each kernel that faulted; one that stops itself says before why.
        sign(
            "HSA_STATUS_ERROR_EXCEPTION",
            r"\bwith error ?: HSA_STATUS_ERROR_EXCEPTION",
            precedence=71,
            confidence=0.7,
            remedy=(
                "a kernel crashed: see that torch and its extensions were built for this GPU and ROCm, and that HSA_OVERRIDE_GFX_VERSION is not set\n"
                "--set env.AMD_SERIALIZE_KERNEL=3 makes it stop at the kernel that does it\n"
                "if it happens on one node only, leave that node out: --sbatch exclude={node}"
            ),
        ),
        sign(
            "llegal instruction",
            r"^[^\n\"]{0,200}\b[Ii]llegal instruction\b(?: +\(core dumped\)|$)",
            confidence=0.85,
            remedy="the program was built for another processor than the node's: build it there, or ask for another node type: --sbatch constraint=…",
        ),
    ),
)

CAUSES = (DISK_FULL, BUS_ERROR, SEGFAULT)
