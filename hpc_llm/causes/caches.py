"""Databases of compiled kernels that libraries of the GPU keep in a folder, and cannot read or write there."""

from __future__ import annotations

from hpc_llm.causes.cause import sign

SIGNS = (
    sign(
        ("Internal error while accessing SQLite database", "MIOpen(HIP): Error "),
        r"\bMIOpen Error: [^\n]{0,300}Internal error while accessing SQLite database"
        r"|\bMIOpen\(HIP\): Error \[[^\]\n]{1,60}\] [^\n]{0,300}(?:database file|readonly database|disk I/O error|database is locked)",
        precedence=60,
        confidence=0.85,
        retry=False,
        meaning=(
            "MIOpen keeps its kernels in a database, and could not read or write it: the folder is somebody else's, full, or on a shared file system, "
            "on which databases break."
        ),
        remedy=(
            "give each job a folder of its own on the node's own disk, made on each node before the program starts: "
            "export MIOPEN_USER_DB_PATH=/tmp/miopen-$USER-$SLURM_JOB_ID MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen-$USER-$SLURM_JOB_ID, and srun --ntasks-per-node=1 mkdir -p of it\n"
            "several ranks of a node may each have one below it, by SLURM_LOCALID, where they stand in each other's way\n"
            "in a container see that the folder is bound and may be written"
        ),
    ),
)
