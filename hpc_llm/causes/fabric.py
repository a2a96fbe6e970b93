"""The network between the nodes of Cray machines, and others that libfabric drives: MPI, Slurm's switch plugin or NCCL's plugin could not use it."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, sign
from hpc_llm.causes.openmpi import OF_THE_FABRIC

_NOT_LINKED = (
    "what calls MPI was built without Cray's layer for GPUs: build it with the accelerator's module loaded, as `module load craype-accel-nvidia80 "
    'cudatoolkit` or `craype-accel-amd-gfx90a rocm`, and for mpi4py: MPICC="cc -shared" pip install --force-reinstall --no-cache-dir --no-binary=mpi4py mpi4py\n'
    "where the program gives MPI no memory of a GPU (NCCL and RCCL do not use it), turn that off: export MPICH_GPU_SUPPORT_ENABLED=0\n"
    "in Python, `from mpi4py import MPI` before torch loads the MPI that was linked with it"
)
_POLICY = (
    "MPI could not give each rank the network card near to it: export MPICH_OFI_NIC_POLICY=BLOCK needs no place of a rank\n"
    "for NUMA each rank must stay on one NUMA node: srun --cpus-per-task=N --cpu-bind=cores, and no program of one rank over all cores; for GPU the "
    "accelerator's module must be loaded and the ranks must see their GPUs\n"
    "in Python, `from mpi4py import MPI` before torch: torch may move a process off its cores"
)
_SWITCH = (
    "Slurm did not get for the step what Slingshot needs (a network id, VNI, or a service of the card): submit it again, and tell the site if it stays so\n"
    "where it happens on the same node, without that one: --sbatch exclude={node}\n"
    "where another step of the job runs, or was killed, at that time: wait for it, or start fewer steps at once\n"
    "a step of one node needs no network of its own: srun --network=no_vni"
)
_OTHER_NETWORK = (
    "the processes are in different virtual networks (VNI): start all ranks by one srun\n"
    "where several steps speak with each other: srun --network=job_vni for each of them\n"
    "where mpirun starts them within a job, it must start its daemons with MPI of Slurm: unset SLURM_MPI_TYPE, or use srun itself"
)
_NO_CARD = (
    "libfabric found no network card that the rank may use, or got none of it: `srun fi_info -p cxi` (on other networks `srun fi_info -l`) in the job shows what is there\n"
    "start the ranks with srun from within the job, where Slurm sets the network up; in a container bind the host's libfabric and its devices (/dev/cxi*)\n"
    "see that FI_PROVIDER, MPICH_OFI_IFNAME and FI_CXI_DEVICE_NAME name no other than those\n"
    "if it happens on one node only, leave that node out: --sbatch exclude={node}"
)
_QUEUE = (
    "the card's queue of events was too short for so many messages: --set env.FI_CXI_DEFAULT_CQ_SIZE=131072, and twice that where it is not enough\n"
    "and --set env.FI_CXI_RX_MATCH_MODE=software, fewer ranks a card, or fewer process groups at once"
)
_MATCHING = (
    "the card's table of expected messages was full: --set env.FI_CXI_RX_MATCH_MODE=software (or hybrid) keeps it in the host's memory\n"
    "or fewer messages at once: fewer ranks a card, larger buckets"
)
_NO_PLUGIN = (
    "NCCL_NET asks for the plugin of libfabric, and NCCL did not find it: load the module aws-ofi-nccl (on AMD aws-ofi-rccl), or name its folder in LD_LIBRARY_PATH; "
    "in a container bind it, with the host's libfabric\n"
    "--set env.NCCL_DEBUG=INFO shows which file it looked for, in the lines with NET/Plugin\n"
    "until then NCCL over sockets, far slower: unset NCCL_NET"
)
_RESOURCES = (
    "the card did not give what the plugin asked for: `srun fi_info -p cxi` in the job shows whether it may be used at all, and `ulimit -l` should be unlimited\n"
    "libfabric, its plugin and NCCL must fit: take those of one module, and in a container the host's\n"
    "if it happens on one node only, leave that node out: --sbatch exclude={node}"
)

NO_ANSWER = (
    "a node or the network between the nodes did not answer: look at the output of the other ranks for one that died\n"
    "otherwise submit it again, without the node at that address: --sbatch exclude={other_node}"
)

LOST = (
    # Where NCCL may do without the plugin it goes on over sockets.
    sign(
        "NET/OFI ",
        r"NCCL WARN NET/OFI [^\n]{0,100}(?:[Cc]ould(?:n't| not)|[Uu]nable to|[Ff]ailed to) (?:open|enable|create|allocate|bind|register|initialize|init)\b[^\n]{0,120}\bRC: -(?!28\b)\d",
        confidence=0.75,
        retry=False,
        remedy=_RESOURCES,
    ),
    # MPICH's words for a message that did not get through, from all files of its netmod but the one that sets it up.
    sign(
        "(ofi_",
        r"\bOFI \w[\w() ]{1,60} failed \(ofi_(?!init\.c)\w{1,40}\.[ch]:\d+:",
        confidence=0.7,
        remedy=NO_ANSWER,
    ),
    sign(
        ":cxi:",
        r"\blibfabric:\d+:\d*:{1,2}cxi:\w{1,20}:cxip_\w{1,60}\(\):\d{1,6}<(?:warn|critical)> ?[^\n]{0,160}\b(?:PTLTE_NOT_FOUND|UNDELIVERABLE|HOST_PTL_NOT_FOUND|Failed request, event:)",
        precedence=44,
        confidence=0.5,
        remedy=NO_ANSWER,
    ),
)
"""What did not get through, as where another process has ended, or what NCCL may go on without: signs of a process that was not reached."""

FABRIC = Cause(
    id="fabric",
    title="the fast network could not be used",
    meaning="MPI, NCCL or Slurm did not get the network between the nodes as it was asked for: Slingshot or another one under libfabric.",
    remedy=_NO_CARD,
    retry=False,
    precedence=69,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable", "segfault", "cancelled")),
    signs=(
        sign(
            "GTL library is not linked",
            r"\bMPIDI_CRAY_init: (?:MPICH_)?GPU_SUPPORT_ENABLED is requested, but GTL library is not linked",
            remedy=_NOT_LINKED,
        ),
        sign("NIC_", r"\bMPICH ERROR\b[^\n]{0,160}\bNIC_(?:POLICY|MAPPING)\b", remedy=_POLICY),
        sign(
            "MPICH_OFI_NIC_",
            r"\bMPIDI_\w{1,60}\(\d+\)\.{0,20}: [^\n]{0,60}\bMPICH_OFI_NIC_(?:POLICY|MAPPING)\b",
            remedy=_POLICY,
        ),
        # What it says of a step that has ended is left out: the card was still busy, and the next step gets another service.
        sign(
            ("Error configuring interconnect", "error: switch_", "CXI "),
            r"^[^\n]{0,40}\bsrun: error: [^\n]{1,160}: Error configuring interconnect"
            r"|^[^\n\"']{0,80}(?:slurmstepd\S{0,80}|srun|salloc): error: (?:switch_[gp]_(?!\w{0,20}(?:fini|postfini)\b)\w{1,40}: |[^\n]{0,80}\bswitch(?:_|/)hpe_slingshot\b"
            r"|(?:Could(?:n't| not)|Cannot|Failed to) (?!destroy)[^\n]{0,60}\bCXI |No CXI devices available|Cannot allocate VNI\b)",
            confidence=0.85,
            retry=True,
            remedy=_SWITCH,
        ),
        sign(
            "VNI",
            r"\bVNI_NOT_FOUND\b|^[^\n]{0,40}\bMPICH ERROR\b[^\n]{0,120}\bSLINGSHOT_VNIS?\b",
            precedence=61,
            confidence=0.8,
            remedy=_OTHER_NETWORK,
        ),
        sign(
            "(ofi_init.c:",
            r"\bOFI (?:call )?\w[\w() ]{1,60} failed \(ofi_init\.c:\d+:\w{1,80}:(?P<why>[^()\n]{1,120})",
            confidence=0.85,
        ),
        sign("OFI call ", r"\bOFI call \w{1,40} failed\b", precedence=68, confidence=0.8),
        sign("Cassini Event Queue overflow", precedence=61, confidence=0.8, remedy=_QUEUE),
        sign(
            "LE resources not recovered",
            r"\bLE resources not recovered during flow control\b",
            confidence=0.9,
            remedy=_MATCHING,
        ),
        # Its log of warnings, of which many do no harm: a guess where nothing else is known.
        sign(
            ":cxi:",
            r"\blibfabric:\d+:\d*:{1,2}cxi:\w{1,20}:cxip_\w{1,60}\(\):\d{1,6}<(?:warn|critical)> ?[^\n]{0,120}(?:PtlNIInit failed|\bFatal\b|[Ff]ailed to (?:alloc|open|init|get|enable|bind)\w*|cxil_\w{1,40} failed|cxip_get_if)",
            precedence=44,
            confidence=0.6,
        ),
        sign("PtlNIInit failed", precedence=44, confidence=0.6),
        sign(
            "NCCL WARN Error: network ",
            r"NCCL WARN Error: network (?:AWS Libfabric|Libfabric|OFI)\b[^\n]{0,20} not found",
            confidence=0.9,
            remedy=_NO_PLUGIN,
        ),
        *OF_THE_FABRIC,
    ),
)

CAUSES = (FABRIC,)
