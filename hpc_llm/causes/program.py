"""The program: an exception of which no other cause is known; and what is left."""

from __future__ import annotations

from hpc_llm.causes import impossible_sizes
from hpc_llm.causes.cause import STARTED, Cause, Role, sign
from hpc_llm.causes.frames import is_of_a_loader, is_of_a_request, is_of_a_spawned_child, only_infers
from hpc_llm.causes.loggers import is_no_warning, opens_a_message
from hpc_llm.causes.own_ends import is_ended_from_elsewhere
from hpc_llm.causes.ray_workers import WORKER_DIED
from hpc_llm.causes.schedulers import flux
from hpc_llm.causes.summaries import is_of_a_summary, state
from hpc_llm.records.run import Outcome


def _is_of_a_peer(text: bytes, position: int) -> bool:
    """Whether it says of another rank that its connection broke, and neither warns of it nor speaks of a worker of its own."""
    return is_no_warning(text, position) and not is_of_a_loader(text, position)


def _fails_to_draw(text: bytes, position: int) -> bool:
    return only_infers(text, position) and not is_of_a_request(text, position)


OF_A_CHILD = sign(
    ("UnpicklingError: pickle data was truncated", "EOFError"),
    r"\bUnpicklingError: pickle data was truncated$|\bEOFError(?:: Ran out of input)?$",
    role=Role.CASCADE,
    where=is_of_a_spawned_child,
)
"""Who is started by another process reads first what that one hands it, and gets it by halves where that one ended."""

_ALONE = (
    "no data loader workers (num_workers=0) shows the error itself, with its traceback\n"
    "look for what a worker wrote before that line"
)

PYTHON_EXCEPTION = Cause(
    id="python_exception",
    title="a Python exception",
    meaning="The program raised an error that hpc-llm does not know by name.",
    remedy="read the last lines of the traceback: they show the call that failed, and why",
    retry=False,
    precedence=45,
    signs=(
        # What a rank says when another one has died; `tracebacks` finds the exceptions themselves. Who warns of it goes on: torch
        # does so wherever the process with the store of a rendezvous ends first, of a good end too.
        sign("onnection closed by peer", role=Role.CASCADE, where=is_no_warning),
        sign("onnection reset by peer", role=Role.CASCADE, where=_is_of_a_peer),
        OF_A_CHILD,
        sign(
            (
                "remote process exited or there was a network error",
                "ncclRemoteError",
                "unexpected exit of a remote peer",
                "onnection closed by remote peer",
            ),
            role=Role.CASCADE,
        ),
        # NCCL's words for a call that failed below it: alone they do not say which.
        sign(
            ("ncclSystemError", "unhandled system error"),
            r"\bncclSystemError\b|NCCL error(?: in)?: [^\n]{0,200}unhandled system error",
            precedence=46,
            confidence=0.75,
            remedy=(
                "a call of the system failed in NCCL: a socket, shared memory or a limit; the program is not at fault\n"
                "--set env.NCCL_DEBUG=INFO shows which: the first line with NCCL WARN\n"
                "see `df -h /dev/shm` and `ulimit -a` on the node, and the network interface: --set env.NCCL_SOCKET_IFNAME=…\n"
                "if it happens with one node only, leave that node out: --sbatch exclude={node}"
            ),
        ),
        sign(
            "no socket interface found",
            precedence=68,
            confidence=0.9,
            remedy="unset NCCL_SOCKET_IFNAME, or name an interface that each node has: `srun ip -br addr`",
        ),
        sign(
            "NET/OFI ",
            r"NCCL WARN NET/OFI [^\n]{0,160}(?:RC: -28\b|No space left on device)",
            precedence=68,
            confidence=0.85,
            remedy=(
                "the network card, or what its driver gives a process, is used up (ENOSPC of libfabric), and no disk: fewer ranks a card, and one process group less\n"
                "on Slingshot see the site's advice on FI_CXI_DEFAULT_CQ_SIZE and FI_CXI_RX_MATCH_MODE, and what an earlier job left on the node\n"
                "if it happens with one node only, leave that node out: --sbatch exclude={node}"
            ),
        ),
        sign(
            "busy or unavailable",
            r"CUDA-capable device(?:\(s\) is/are|s are) busy or unavailable",
            precedence=66,
            confidence=0.9,
            remedy=(
                "give each rank a GPU of its own: as many ranks on a node as GPUs were asked for\n"
                "see who holds it: `nvidia-smi` on the node; what an earlier job left there is the site's to end"
            ),
        ),
        sign(
            ("when stream is capturing", "previous error during capture"),
            r"operation not permitted when stream is capturing|operation failed due to a previous error during capture",
            precedence=63,
            confidence=0.9,
            remedy=(
                "train without CUDA graphs: torch.compile without mode='reduce-overhead', Megatron without --enable-cuda-graph\n"
                "or take what the traceback shows out of the captured part: copies to the host, waiting, prints"
            ),
        ),
        sign(
            ("BLAS_STATUS_INVALID_VALUE", "BLAS_STATUS_NOT_SUPPORTED", "BLAS_STATUS_ARCH_MISMATCH"),
            r"\bCUDA error: (?:CU|HIP)BLAS_STATUS_(?:INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH) when calling\b",
            precedence=46,
            confidence=0.85,
            remedy=(
                "cuBLAS (on AMD: hipBLAS) refused the multiplication itself: its shapes, strides and types stand in the message\n"
                "see that no tensor of it is empty, and that the GPU knows the type (`nvidia-smi` tells which GPU it is; before A100 none has bf16)\n"
                "see that no other cuBLAS is loaded than torch's own: `echo $LD_LIBRARY_PATH`, and `pip list | grep -i cublas`"
            ),
        ),
        sign(
            ("api_key not configured", "No API key configured. Use `wandb login`"),
            r"api_key not configured \(no-tty\)|UsageError: No API key configured\. Use `wandb login`",
            precedence=46,
            confidence=0.9,
            remedy=(
                "without a key: export WANDB_MODE=offline in the job, and `wandb sync` its folder later\n"
                "or log in once on a login node: wandb login"
            ),
        ),
        sign(
            ("PermissionError: [Errno 13]", ": permission denied"),
            r"PermissionError: \[Errno 13\] Permission denied|\bWorkerError: [^\n]{1,500} cannot be (?:written|read): permission denied",
            precedence=46,
            confidence=0.9,
            remedy=(
                "see whose it is: `ls -ld` of the path in the evidence and of the folders above it\n"
                "give caches and outputs a folder of your own: HF_HOME, TMPDIR, TRITON_CACHE_DIR, TORCH_EXTENSIONS_DIR"
            ),
        ),
        sign(
            "exited unexpectedly with exit code ",
            r"DataLoader worker \(pid \d+\) exited unexpectedly with exit code \d+",
            precedence=46,
            confidence=0.8,
            meaning="A worker of the data loader failed and ended itself, and was not killed: what failed in it, an exception mostly, is not in that line.",
            remedy=_ALONE,
        ),
        sign(
            "exited unexpectedly",
            r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly",
            precedence=46,
            confidence=0.8,
            remedy=_ALONE
            + "\nwhere the scheduler or the kernel says that one was killed, more memory of the host: sbatch --mem=…; what was used: sacct -j JOB -o MaxRSS",
        ),
        # Where nothing trains no loss ran away.
        sign(
            "probability tensor contains",
            r"probability tensor contains either `inf`, `nan` or element < 0",
            where=_fails_to_draw,
            precedence=46,
            confidence=0.85,
            remedy=(
                "what the model gives is no number: bf16 or fp32 instead of fp16 weights, where its range is too small for this model\n"
                "see that the weights are whole and are those of this model: what was merged, converted, quantised or trained last\n"
                "greedy decoding (do_sample=False) shows whether all of its answers are such"
            ),
        ),
        sign(
            "JSONDecodeError: ",
            r"\bJSONDecodeError: [^\n]{1,200}",
            precedence=46,
            confidence=0.8,
            remedy=(
                "what was read is no JSON: the frames above the error in the traceback say which file or answer it was\n"
                "see that it is whole: a file that is empty or was cut off, or a page of HTML in its place"
            ),
        ),
        *impossible_sizes.SIGNS,
        sign("NCCL communicator was aborted", role=Role.CASCADE),
        sign("is killed by signal: Terminated", role=Role.CASCADE),
        sign("Broken pipe", r"BrokenPipeError|: Broken pipe", role=Role.CASCADE, where=is_no_warning),
        sign(
            ("SyntaxError: ", "IndentationError: ", "TabError: "),
            r"^(?P<exception>SyntaxError|IndentationError|TabError): (?P<message>[^\n]{1,200})",
            confidence=0.85,
        ),
        # Without a traceback only these are taken for the end of a program: others write lines like them and go on.
        sign(
            "Error: ",
            r"(?<![\w.])(?P<exception>(?:torch\.Accelerator|torch\.distributed\.DistBackend|Runtime|Assertion|Import|FileNotFound|FileExists|Permission|Value|Type|Key|Index|Attribute"
            r"|Name|NotImplemented|ZeroDivision|Recursion|UnicodeDecode|ConnectionRefused|OS)Error)"
            r": (?P<message>\S[^\n]{0,300})",
            where=opens_a_message,
            confidence=0.75,
            not_after="Traceback (most recent call last)",
        ),
        sign(
            ") ***",
            r"(?:slurmstepd: error: |^[^\n\"']{0,60} error: )\*\*\* STEP \S{1,40}(?: ON \S{1,200})? FAILED \([^\n)]{1,80}\) \*\*\*",
            role=Role.CONFIRMATION,
            ends_job=True,
        ),
        sign("FAILED", state("FAILED"), where=is_of_a_summary, role=Role.CONFIRMATION, ends_job=True),
        sign(
            (
                "MPI_ABORT was invoked",
                "MPI_Abort(",
                "detected that one or more",
                "Primary job ",
                "noticed that process",
                "has exited due to process rank",
            ),
            r"^[^\n]{0,40}\bMPI_ABORT was invoked on rank \d|\bapplication called MPI_Abort\(|^(?:mpirun|mpiexec|prterun) (?:noticed that process rank|detected that one or more"
            r" processes|has exited due to process rank)|^Primary job +terminated normally, but \d+ process\w* returned",
            role=Role.CONFIRMATION,
            ends_job=True,
        ),
        sign(
            ("job.exception ", "flux-job: task(s) "),
            flux("exec") + r"|^flux-job: task\(s\) (?!Terminated)\w",
            role=Role.CONFIRMATION,
            ends_job=True,
        ),
        WORKER_DIED,
        sign("ChildFailedError", role=Role.CONFIRMATION, ends_job=True),
        sign(
            "exits with return code = ",
            r"exits with return code = (?!0\b)-?\d+",
            role=Role.CONFIRMATION,
            ends_job=True,
        ),
        sign(
            "Exited with exit code",
            r"^[^\n]{0,12}srun: error: [^\n]{1,120}: Exited with exit code \d+",
            where=is_ended_from_elsewhere,
            role=Role.CONFIRMATION,
            ends_job=True,
        ),
    ),
)

_NO_CLASS = (
    "The loss was given a label that is no class: it is below 0, or not below the number of the model's outputs."
)
_LABELS = (
    "compare the smallest and the largest label of the data with the model's outputs (num_labels, num_classes): labels go from 0 to one less\n"
    "labels that begin at 1 want to be counted from 0; those that mean none, as -1 or 255, want the loss's ignore_index (-100 unless it is set)\n"
    "where the labels are tokens, the largest id must be below the outputs of the head: model.resize_token_embeddings(len(tokenizer)) after tokens were added\n"
    "--set env.CUDA_LAUNCH_BLOCKING=1 makes it stop at the call that does it"
)

INDEX_OUT_OF_RANGE = Cause(
    id="index_out_of_range",
    title="an index was out of range",
    meaning=(
        "A lookup was given a number beyond its table: most often a token id at or above the size of the vocabulary, a position "
        "beyond the longest sequence that the model takes, or a label that is no class."
    ),
    remedy=(
        "compare the tokenizer with the model: the largest token id must be below vocab_size (tokens that were added want "
        "model.resize_token_embeddings(len(tokenizer)))\n"
        "see that no sequence is longer than the model's max_position_embeddings\n"
        "--set env.CUDA_LAUNCH_BLOCKING=1 makes it stop at the call that does it"
    ),
    retry=False,
    precedence=79,
    explains=frozenset(("python_exception", "segfault", "kernel_failed", "collective_timeout", "unreachable")),
    signs=(
        sign(
            "Assertion `",
            r"Assertion `(?:srcIndex < srcSelectDimSize|[^`'\n]{0,200}\"index out of bounds\""
            r"|idx_dim >= 0 && idx_dim < index_size[^`'\n]{0,60}|ind >= ?0 && ind < ind_dim_size[^`'\n]{0,60})[`'] failed",
        ),
        sign("IndexError: index out of range in self", confidence=0.9),
        sign(
            ("Assertion `", "IndexError: Target "),
            r"Assertion `(?:t|cur_target) >= 0 && (?:t|cur_target) < n_classes[`'] failed|IndexError: Target -?\d+ is out of bounds",
            meaning=_NO_CLASS,
            remedy=_LABELS,
        ),
    ),
)

UNKNOWN = Cause(
    id="unknown",
    title="not recognised",
    meaning="Nothing in the output says why it ended. What is killed from outside leaves no word.",
    remedy=(
        "ask the scheduler: sacct -j JOB -o JobID,State,ExitCode,MaxRSS,Elapsed,NodeList\n"
        "look at the other output: standard error and the logs of the other ranks"
    ),
    retry=False,
    precedence=0,
    outcome=Outcome.UNKNOWN,
)

NONE = Cause(
    id="none",
    title="nothing failed",
    meaning="The run came to its end.",
    remedy="nothing to do",
    retry=False,
    precedence=0,
    outcome=Outcome.COMPLETED,
    # With the least precedence: a script goes on after what failed in it, and may end well.
    signs=(sign("COMPLETED", state("COMPLETED"), where=is_of_a_summary, confidence=0.95, survived_after=STARTED),),
)

CAUSES = (PYTHON_EXCEPTION, INDEX_OUT_OF_RANGE, UNKNOWN, NONE)
