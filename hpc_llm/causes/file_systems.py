"""A file system that failed, or refuses what is asked of it."""

from __future__ import annotations

from hpc_llm.causes import caches
from hpc_llm.causes.cause import Cause, Sign, sign

_REPLACED = (
    "submit it again; if it is one node that fails, without that: --sbatch exclude={node}, and tell the site\n"
    "if every try ends at the same file, somebody replaces or deletes it while the job reads it"
)
_READ_ONLY = (
    "let the job write elsewhere: compute nodes of many sites mount home and software to be read alone; outputs and caches (HF_HOME, TRITON_CACHE_DIR, "
    "TORCH_EXTENSIONS_DIR, TMPDIR) belong on scratch, and a container writes only into folders that are bound to be written\n"
    "where the same job could write there before, the node's mount has failed: leave it out with --sbatch exclude={node}, and tell the site"
)
_NO_LOCKS = (
    "put what is locked (caches, data bases, HDF5 files) on a file system that has locks, as the node's own disk: HF_HOME, TRITON_CACHE_DIR, TMPDIR\n"
    "where files of HDF5 are only read: export HDF5_USE_FILE_LOCKING=FALSE\n"
    "tell the site, with the path: NFS wants its lock daemon, Lustre to be mounted with flock"
)


_TOO_LARGE = (
    "see in the job whether the process has a limit: `ulimit -f` says unlimited, or the size of the largest file that it may write (in bash in KiB)\n"
    "where that is a number: `ulimit -f unlimited` in the shell from which it is submitted or started; where that is refused the limit is the site's to raise\n"
    "Slurm hands on the limits of the shell that submits: sbatch --propagate=NONE leaves a job those of its node\n"
    "where it is unlimited the file system has no room for so large a file in one piece (FAT: 4 GiB, ext4: 16 TiB): write to another one, or smaller files"
)
_OF_OURS = r"\bWorkerError: [^\n]{1,500} cannot be (?:written|read): "
"""Before the words of the system, which our own worker begins with a small letter."""


def _refuses(literals: tuple[str, ...], words: str, meaning: str, remedy: str, after: str | None = None) -> Sign:
    """The sign of what it never does there: the same job would fail again."""
    return sign(literals, words, meaning=meaning, remedy=remedy, retry=False, confidence=0.9, after=after)


_HAS_NO_LOCKS = "The file system on which the file lies gives no locks to this node."

FILE_SYSTEM = Cause(
    id="file_system",
    title="the file system failed",
    meaning="A file system did not answer, or took a file away: the node lost its server or its mount, or a file was replaced under it.",
    remedy=(
        "submit it again: where the node lost the file system for a while, the next try finds it\n"
        "if it is one node that fails, leave that out: --sbatch exclude={node}\n"
        "if it comes again, tell the site the path, the node and the time, and write to another file system until it is mended"
    ),
    retry=True,
    precedence=87,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable", "cancelled", "segfault")),
    signs=(
        sign(
            ("Stale file handle", "Stale NFS file handle", "stale "),
            rf"\[Errno 116\] Stale (?:NFS )?file handle|{_OF_OURS}stale (?:NFS )?file handle",
            remedy=_REPLACED,
        ),
        sign(
            "Stale ",
            r"^[^\n\"']{1,200}: Stale (?:NFS )?file handle$",
            precedence=46,
            confidence=0.75,
            remedy=_REPLACED,
        ),
        sign(
            ("ransport endpoint shutdown", "Transport endpoint is not connected"),
            r"\[Errno 108\] Cannot send after transport endpoint shutdown"
            r"|\[Errno 107\] Transport endpoint is not connected: ['\"]/|^[^\n\"']{1,200}: Cannot send after transport endpoint shutdown$",
        ),
        sign("LustreError: ", r"LustreError: [^\n]{0,200}This client was evicted by", confidence=0.9),
        sign(
            ("Input/output error", "Remote I/O error", ": input/output error"),
            rf"\[Errno 5\] Input/output error: ['\"]/|\[Errno 121\] Remote I/O error|{_OF_OURS}input/output error",
        ),
        _refuses(
            ("Read-only file system", ": read-only file system"),
            rf"\bOSError: \[Errno 30\] Read-only file system|{_OF_OURS}read-only file system",
            "Nothing can be written there: the file system is mounted on this node to be read alone.",
            _READ_ONLY,
        ),
        _refuses(
            ("File too large", ": file too large", "File size limit exceeded", "SIGXFSZ"),
            rf"\bOSError: \[Errno 27\] File too large|{_OF_OURS}file too large|^[^\n\"']{{0,200}}\bFile size limit exceeded(?:$| +\(core dumped\))"
            r"|\bSIGXFSZ\b",
            "A file grew beyond what this process may write, or beyond what the file system takes as one file.",
            _TOO_LARGE,
        ),
        _refuses(
            ("No locks available", "appear to support flock", "to lock file, errno = ", "synchronously lock file"),
            r"\bOSError: \[Errno 37\] No locks available|Error: File ?[sS]ystem does not appear to support flock"
            r"|[Uu]nable to (?:synchronously )?lock file(?:, | \()errno = (?:37|38|524)\b",
            _HAS_NO_LOCKS,
            _NO_LOCKS,
        ),
        _refuses(
            ("[Errno 38] Function not implemented",),
            r"\bOSError: \[Errno 38\] Function not implemented",
            _HAS_NO_LOCKS,
            _NO_LOCKS,
            after="fcntl.",
        ),
        *caches.SIGNS,
    ),
)

CAUSES = (FILE_SYSTEM,)
