"""A launcher of somebody else's package: installed beside hpc-llm, named by a profile, with variables of its own."""

from __future__ import annotations

from pathlib import Path

MODULE = """\
from hpc_llm.records.rank_variables import RankVariables
from hpc_llm.site.launchers import Launcher, Start

RENAMED = "export MY_PLACE=$SLURM_PROCID MY_ALL=$SLURM_NTASKS MY_SLOT=$SLURM_LOCALID; unset ${!SLURM_*}; exec"


def command(start: Start) -> str:
    return f"srun --nodes={start.nodes} --ntasks={start.ranks} bash -c '{RENAMED} \\"$@\\"' bash \\"${{rank[@]}}\\""


LAUNCHER = Launcher(
    name="theirs",
    command=command,
    variables=RankVariables(rank=("MY_PLACE",), world_size=("MY_ALL",), local_rank=("MY_SLOT",)),
    needs_slurm=True,
)
"""


def install(folder: Path) -> Path:
    """Put the package where PYTHONPATH is to lead."""
    folder.mkdir()
    (folder / "their_launcher.py").write_text(MODULE)
    about = folder / "their_launcher-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-launcher\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[hpc_llm.launchers]\ntheirs = their_launcher:LAUNCHER\n")
    return folder
