"""python: one rank, started by nothing."""

from __future__ import annotations

from hpc_llm.site.launchers import Launcher

LAUNCHER = Launcher(name="python", command=lambda start: '"${rank[@]}"', variables=None, is_one_task=True)
