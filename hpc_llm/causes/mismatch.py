"""Ranks of one program that do not take the same path: their collectives do not match."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, sign

COLLECTIVE_MISMATCH = Cause(
    id="collective_mismatch",
    title="the ranks' collectives do not match",
    meaning=(
        "Two ranks met in a collective operation, and one had another one, or other sizes, than the other: the ranks did not take the same path "
        "through the program, or do not have the same parameters or data."
    ),
    remedy=(
        "look above the call in the traceback for what only some ranks do: a branch on the rank or on a rank's own data, a metric that not all log, "
        "a batch that one leaves out\n"
        "give each rank as many batches as the others (drop_last=True, a DistributedSampler), and the same parameters to train\n"
        "--set env.TORCH_DISTRIBUTED_DEBUG=DETAIL names the collective of each rank where they part, and slows it down: for a short run"
    ),
    retry=False,
    precedence=64,
    explains=frozenset(("collective_timeout", "unreachable", "python_exception", "segfault")),
    signs=(
        sign(
            "Detected mismatch between collectives on ranks",
            r"Detected mismatch between collectives on ranks\. Rank (?P<rank>\d{1,7}) is running (?:inconsistent )?collective: "
            r"(?:CollectiveFingerPrint\((?:SequenceNumber=(?P<seq>\d{1,18}),? ?)?OpType=(?P<collective>\w{1,40}))?",
            remedy=(
                "the evidence names the collective of two ranks and where they differ: look for what only one of them does before it, such as a branch "
                "on the rank or on a rank's own data, a metric that not all log, a batch that one leaves out\n"
                "give each rank as many batches as the others (drop_last=True, a DistributedSampler), and the same parameters to train"
            ),
        ),
        sign(
            "op.preamble.length <= op.nbytes",
            r"op\.preamble\.length <= op\.nbytes\. \d{1,18} vs \d{1,18}",
            confidence=0.9,
        ),
        sign("Mismatched collective detected", r"NCCL WARN Mismatched collective detected"),
        sign(
            "Message truncated",
            r"NCCL WARN Message truncated ?: received \d{1,18} bytes instead of \d{1,18}",
            confidence=0.85,
        ),
        sign(
            ("DDP expects same model across all ranks", "of the same param in process"),
            r"DDP expects same model across all ranks, but Rank \d{1,7} has |appears not to match (?:sizes|strides) of the same param in process \d",
            remedy=(
                "the ranks built different models: see that each has the same configuration, checkpoint and frozen parameters, and that nothing of the "
                "model depends on the rank or on a rank's own data"
            ),
        ),
        sign("MPI_ERR_TRUNCATE", r"\bMPI_ERR_TRUNCATE: message truncated", confidence=0.7),
    ),
)

CAUSES = (COLLECTIVE_MISMATCH,)
