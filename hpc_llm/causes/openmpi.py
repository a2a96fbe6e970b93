"""Open MPI that did not start: in the words of its own help texts, which stand in a box of dashes, and in those that each process writes."""

from __future__ import annotations

from hpc_llm.causes.cause import sign

_BESIDE_THE_FABRIC = 58
"""Precedence: what names the network says more than that the start failed."""
_SETTINGS = "see what is set for it and may not fit this node: `env | grep -E '^(OMPI_MCA|UCX|PMIX|PRTE)_'`, and that all nodes load the same MPI and UCX\n"
_OVER_TCP = (
    "see that UCX or libfabric finds the network card in the job, inside a container too: `srun ucx_info -d`, `srun fi_info -l`\n"
    + _SETTINGS
    + "to see whether it is the fast network: export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,sm,tcp (vader in place of sm before Open MPI 5) takes TCP, which is "
    "slower; with several networks name the nodes' own, export OMPI_MCA_btl_tcp_if_include=…\n"
    "if it happens with one node only, leave that node out: --sbatch exclude={node}"
)
_NOT_STARTED = (
    "read the lines of the box in the output, which name the step that failed\n"
    "where srun starts the ranks, it must speak the PMI of this MPI: `srun --mpi=list` shows what Slurm offers, and srun --mpi=pmix is what Open MPI takes "
    "since its release 4; else start them with the mpirun of this MPI, within the job\n"
    "take one MPI alone: the mpirun, the libmpi and the mpi4py of one module or environment\n" + _SETTINGS.rstrip("\n")
)
_NO_NETWORK = "Open MPI found no network by which its processes reach each other, or could not use the one that it was told to take."
_NO_START = "Open MPI did not start: MPI_Init, or the runtime below it, failed in a process before the program began to compute."
_NODE = r"^[^\n]{0,40}\[(?P<node>[\w.-]{1,80}):\d{1,10}\] "

OF_THE_FABRIC = (
    sign(
        ("PML add procs failed", "PML ", "in the pml framework", "unable to reach each other for MPI", "one MPI process is unreachable"),
        r"^ *PML add procs failed$|" + _NODE + r"PML \w{1,20} cannot be selected|No components were able to be opened in the pml framework"
        r"|At least one pair of MPI processes are unable to reach each other for MPI|MPI_INIT has failed because at least one MPI process is unreachable",
        confidence=0.85,
        meaning=_NO_NETWORK,
        remedy=_OVER_TCP,
    ),
)  # fmt: skip
_AS_ROOT = (
    "start the job as a user that is not root: Open MPI's launcher refuses root\n"
    "where there is no other user, as in many containers: mpirun --allow-run-as-root (launch.mpirun_args of the profile); or set both variables that the message names, "
    "--set env.OMPI_ALLOW_RUN_AS_ROOT=1 and env.OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 (PRTE_… in place of OMPI_… where it says so)"
)
_IS_ROOT = "Open MPI's launcher was started as root, refused that, and started nothing."
OF_THE_LAUNCH = (
    sign(
        "has detected an attempt to run as root",
        r"^[^\n]{0,40}?\b[\w.-]{1,40} has detected an attempt to run as root",
        meaning=_IS_ROOT,
        remedy=_AS_ROOT,
    ),
    sign(
        ("It looks like ", "*** An error occurred in MPI_Init"),
        r"^[^\n]{0,40}It looks like (?:MPI_INIT|MPI runtime init|(?:opal|orte|prte|ompi)\w{0,12}) failed for some reason"
        r"|^(?:[^\n]{0,40}\[(?P<node>[\w.-]{1,80}):\d{1,10}\] )?\*\*\* An error occurred in MPI_Init(?:_thread)?$",
        precedence=_BESIDE_THE_FABRIC,
        confidence=0.8,
        meaning=_NO_START,
        remedy=_NOT_STARTED,
    ),
)
