"""What looks into a few steps behind the measured ones, and what a program of a GPU's maker is given before a rank's command. Pure."""

from __future__ import annotations

from hpc_llm.errors import PlanError, RequestError, unknown_name
from hpc_llm.immutable import dataclass

IN_THE_WORKER = "torch"
"""torch.profiler, which needs no program and nothing of the launch line."""
KERNELS = 200
"""That ncu looks into, where nothing is said: each is run anew for every group of counters, which takes about a second, and
until the last one is done there is no report."""
_COUNT = "#"
"""Stands for their number."""


@dataclass(frozen=True, kw_only=True)
class Profiler:
    """A program that starts each rank's and looks at it."""

    name: str
    """As `--profile` has it."""
    program: str
    vendor: str
    """Whose GPUs it knows."""
    arguments: tuple[str, ...]
    """Until the rank's own command; `@` is the rank. It writes into the working directory, which is the run's folder."""
    without_gpu: tuple[str, ...] = ()
    """The same where ranks have no GPU; empty where it has nothing to look at then."""
    one_rank: str = ""
    """Why it looks at a single rank only; empty where it takes any number."""

    @property
    def counts_kernels(self) -> bool:
        """Whether it ends after so many kernels."""
        return any(_COUNT in word for word in self.arguments)


_NSYS = ("nsys", "profile", "--output=profile-rank-@", "--force-overwrite=true")
PROFILERS = {
    one.name: one
    for one in (
        Profiler(
            name="nsys",
            program="nsys",
            vendor="nvidia",
            # It is told when to begin: all of a training would be gigabytes, and its start is not what is asked about.
            arguments=(
                *_NSYS,
                "--trace=cuda,nvtx,osrt,cublas,cudnn",
                "--cuda-graph-trace=node",
                "--capture-range=cudaProfilerApi",
                "--capture-range-end=stop",
            ),
            without_gpu=(*_NSYS, "--trace=osrt"),
        ),
        Profiler(
            name="ncu",
            program="ncu",
            vendor="nvidia",
            arguments=(
                "ncu",
                "--export=profile-rank-@",
                "--force-overwrite",
                "--target-processes=all",
                "--profile-from-start=off",
                f"--launch-count={_COUNT}",
            ),
            one_rank="it runs each kernel several times, and a collective that one rank repeats waits for the others for ever",
        ),
        Profiler(
            name="rocprof",
            program="rocprofv3",
            vendor="amd",
            # Regions are heeded where markers are traced.
            arguments=(
                "rocprofv3",
                "--runtime-trace",
                "--marker-trace",
                "--selected-regions",
                "--output-directory=.",
                "--output-file=profile-rank-@",
                "--output-format=pftrace",
                "--",
            ),
        ),
    )
}
"""By name, those that stand in the launch line."""
NAMES = (IN_THE_WORKER, *PROFILERS)


def check_name(name: str | None) -> str | None:
    """The name, if there is such a profiler. Raises RequestError."""
    if name is None or name in NAMES:
        return name
    program = {one.program: one.name for one in PROFILERS.values()}.get(str(name))
    if program:
        raise RequestError(f"profile is {name}: it is called {program} here. Use --profile {program}.")
    raise RequestError(unknown_name("profiler", str(name), NAMES))


def check_kernels(kernels: object) -> int | None:
    """The number of kernels, if it can be one. Raises RequestError."""
    if kernels is None:
        return None
    if isinstance(kernels, bool) or not isinstance(kernels, int):
        raise RequestError(f"profile_kernels is {kernels!r}: a whole number is needed.")
    if kernels < 1:
        raise RequestError(f"profile_kernels is {kernels}, it must be at least 1.")
    return kernels


def check_profiler(
    name: str | None, vendor: str, *, gpus: int, ranks: int, searches: bool, kernels: int | None = None
) -> list[str]:
    """What is to be said of what `--profile` names, for a run with `gpus` a node, of that vendor, and `ranks` in all.

    Raises PlanError where it can see nothing of such a run.
    """
    one = PROFILERS.get(name or "")
    if kernels is not None and (one is None or not one.counts_kernels):
        counting = " or ".join(f"--profile {name}" for name, other in PROFILERS.items() if other.counts_kernels)
        raise PlanError(f"profile_kernels is {kernels}, and nothing counts kernels here: it belongs to {counting}.")
    if one is None:
        return []
    why = ""
    if searches:
        why = "a search is many short trainings, and it would slow down what they compare. Profile a training of the size that it finds"
    elif gpus and vendor != one.vendor:
        others = [other.name for other in PROFILERS.values() if other.vendor == vendor]
        why = f"{one.program} knows no GPU of {vendor}. Use --profile {' or '.join([*others, IN_THE_WORKER])}"
    elif not gpus and not one.without_gpu:
        why = f"{one.program} looks at kernels of a GPU, and there is none. Use --profile {IN_THE_WORKER}"
    elif ranks > 1 and one.one_rank:
        why = f"the plan has {ranks} ranks: {one.one_rank}. Use --gpus-per-node 1 on one node, or --profile nsys"
    if why:
        raise PlanError(f"profile is {name}: {why}.")
    return [
        f"{one.program} stands around the ranks from their start and may slow down the measured steps too: take times from a run without it"
    ]


def command_of(name: str | None, *, gpus: int, kernels: int | None = None) -> tuple[str, ...]:
    """What stands before a rank's command; empty where nothing does."""
    one = PROFILERS.get(name or "")
    words = () if one is None else one.arguments if gpus else one.without_gpu
    return tuple(word.replace(_COUNT, str(kernels or KERNELS)) for word in words)
