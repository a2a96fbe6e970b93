"""The launchers: what starts the ranks of a job. Each is one module that defines `LAUNCHER`.

Those that come along are the modules of `hpc_llm.job.launchers`. Further ones come from installed packages, by an entry
point of the group `hpc_llm.launchers` that leads to a Launcher, or from a program that calls `register`. Profiles name
them, so they are known here, below the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hpc_llm.errors import ProfileError
from hpc_llm.immutable import dataclass
from hpc_llm.records.rank_variables import RankVariables
from hpc_llm.registry import Modules, Registry, check_name

if TYPE_CHECKING:
    from hpc_llm.site.parts import Launch


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a launcher is to start."""

    nodes: int
    ranks_per_node: int
    launch: Launch
    """The launch habits of the site's profile, with the arguments that its launchers get there."""

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """A way to start the ranks of a job."""

    name: str
    """As profiles, plans, scripts and records have it."""
    command: Callable[[Start], str]
    """The launch line in bash, without the function of the job script before it. It holds one of these arrays, which
    the script has made, and quotes what it takes from a profile:

    - `"${rank[@]}"`: the command of one rank. What is to stand before it (a container, a debugger) is in it already;
    - `"${task[@]}"`: the same for srun, whose tasks obey signals that the script ignores;
    - `"${agent[@]}"` and later `"${program[@]}"`: torchrun, which itself starts what follows."""
    variables: RankVariables | None
    """By which a rank knows its place; None: one process, which needs none."""
    meets: Callable[[Start], bool] = lambda start: start.ranks > 1
    """Whether the script says in MASTER_ADDR and MASTER_PORT where the ranks meet."""
    needs_slurm: bool = False
    is_one_task: bool = False
    """Whether Slurm is asked for one task a node, which starts the ranks there itself."""
    leaves_out: Callable[[Start], Sequence[str]] = lambda start: ()
    """Options of the profile that it does not pass on, as they would do harm to what it starts; `--explain` names them."""

    def __post_init__(self) -> None:
        check_name("launcher", self.name, ProfileError)

    @property
    def starts_several(self) -> bool:
        return self.variables is not None


_registry: Registry[Launcher] = Registry(
    "launcher", Modules("hpc_llm.job.launchers", "LAUNCHER"), lambda: Launcher, error=ProfileError
)
register, unregister = _registry.register, _registry.unregister
known, find_launcher = _registry.known, _registry.find
