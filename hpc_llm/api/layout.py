"""How plans, scripts and times are laid out for reading."""

from __future__ import annotations

from hpc_llm.job.render import WIDTH, arrow, folded
from hpc_llm.site.slurm_time import format_time

__all__ = ["WIDTH", "arrow", "folded", "format_time"]
