"""Which runs of a sweep a refusal is about: of one request that is several runs, the sentence says which of them it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from hpc_llm.errors import HpcLlmError, RequestError

if TYPE_CHECKING:
    from hpc_llm.api.layers import RunRequest
    from hpc_llm.planning.method import Method

T = TypeVar("T")
_NAMED = 8
"""So many runs are named in a refusal."""


def method_of(run: RunRequest, load: Callable[[str], Method]) -> Method:
    """Its method; one that is wrong in a file is told with the file, and in a study with the run."""
    try:
        return load(run.method)
    except HpcLlmError as error:
        source = run.sources.get("method", "method")
        if source in ("method", "--method"):
            raise
        raise _named(error, f"{source}: method of run {run.place.name}" if run.place else f"{source}: method") from None


def methods_of(runs: Sequence[RunRequest]) -> dict[str, Method]:
    """The methods by the names that were given; in a sweep two names of one method would be one run twice."""
    from hpc_llm.planning.method import load_method

    is_study = runs[0].place is not None
    found: dict[str, Method] = {}
    for run in runs:
        name = run.method
        if name in found:
            continue
        method = method_of(run, load_method)
        twin = next((other for other, one in found.items() if one.name == method.name), None)
        if twin is not None and not is_study:
            raise RequestError(f"method {name} is the same as {twin}. Repeats are separate submissions.")
        found[name] = method
    return found


def check_twins(run: RunRequest, first: RunRequest) -> None:
    """Refuse a run of a study that asks for the same as the first that did, unless the file calls both by name, or they are small."""
    if run is first or run.place is None or first.place is None or run.place.smoke:
        return
    if run.place.is_named and first.place.is_named:
        return
    raise RequestError(f"it asks for the same as {first.place.name}. Give repeats a seed each, or names of their own.")


def each(runs: Sequence[RunRequest], cluster: str, make: Callable[[RunRequest], T], *, several: bool) -> list[T]:
    """`make(run)` for each run of a cluster; all are tried, so that a refusal names all runs that it holds for."""
    from hpc_llm.api.corpora import NotPreparedError

    made, refused = [], []
    for run in runs:
        try:
            made.append(make(run))
        except RequestError as error:
            refused.append((run.place.name if run.place else run.method, error))
    if refused:
        refused.sort(key=lambda one: isinstance(one[1], NotPreparedError))  # nothing is prepared for what cannot run
        what = "run" if runs[0].place else "method"
        raise _of_runs(refused, len(runs), cluster, what) if several else refused[0][1]
    return made


def _of_runs(refused: Sequence[tuple[str, RequestError]], runs: int, cluster: str, what: str) -> HpcLlmError:
    error = refused[0][1]
    names = [name for name, other in refused if str(other) == str(error)]
    if len(names) == runs > 1:
        return error if f"cluster {cluster}" in str(error) else _named(error, f"every {what} on cluster {cluster}")
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return _named(error, f"{what}{'s' * (len(names) > 1)} {', '.join(names[:_NAMED])}{more} on cluster {cluster}")


def _named(error: HpcLlmError, whose: str) -> HpcLlmError:
    error.args = (f"{whose}: {error}",)
    return error


@contextmanager
def of_cluster(cluster: str, *, several: bool) -> Iterator[None]:
    """Name the cluster in an error about all of its runs, where there are other clusters and it does not do so itself."""
    try:
        yield
    except HpcLlmError as error:
        if several and f"cluster {cluster}" not in str(error):
            _named(error, f"cluster {cluster}")
        raise
