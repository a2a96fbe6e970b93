"""The launchers: what starts the ranks of a job. Each is one module that defines `LAUNCHER`.

Those that come along are the modules of `hpc_llm.job.launchers`. Further ones come from installed packages, by an entry
point of the group `hpc_llm.launchers` that leads to a Launcher, or from a program that calls `register`. Profiles name
them, so the registry lies here, below the plan; the modules are found by name and nothing here depends on one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc_llm.errors import ProfileError, unknown_name
from hpc_llm.outside import Group
from hpc_llm.records.rank_variables import RankVariables

if TYPE_CHECKING:
    from hpc_llm.site.parts import Launch

_PACKAGE = "hpc_llm.job.launchers"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_registered: dict[str, Launcher] = {}


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

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ProfileError(
                f"{self.name!r} is no name of a launcher: use letters, digits, dot, underscore and hyphen."
            )

    @property
    def starts_several(self) -> bool:
        return self.variables is not None


def register(launcher: Launcher) -> None:
    """Make a launcher known to this process, in place of one of the same name."""
    _registered[launcher.name] = launcher


def known() -> Mapping[str, Launcher]:
    """All launchers by name, but for those of installed packages that cannot be loaded."""
    installed = {}
    for name in _OUTSIDE.names():
        with contextlib.suppress(ProfileError):
            installed[name] = _loaded(name)
    return {**_bundled(), **installed, **_registered}


def find_launcher(name: str) -> Launcher:
    """The launcher of that name; installed packages are asked only where nothing nearer has it.

    Raises:
        ProfileError: there is none, or it cannot be loaded.
    """
    near = {**_bundled(), **_registered}
    if name in near:
        return near[name]
    try:
        return _loaded(name)
    except KeyError:
        raise ProfileError(unknown_name("launcher", name, known())) from None


@functools.cache
def _bundled() -> Mapping[str, Launcher]:
    package = importlib.import_module(_PACKAGE)
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    found: list[Launcher] = [importlib.import_module(f"{_PACKAGE}.{name}").LAUNCHER for name in names]
    return {launcher.name: launcher for launcher in found}


_OUTSIDE = Group(name="hpc_llm.launchers", what="launcher", kind=Launcher, error=ProfileError)


@functools.cache
def _loaded(name: str) -> Launcher:
    """One of an installed package. Raises ProfileError where that is broken, KeyError where there is none."""
    found: Launcher = _OUTSIDE.load(name)
    return found
