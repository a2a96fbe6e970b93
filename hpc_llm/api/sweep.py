"""Which runs of a sweep a refusal is about: of one request that is several runs, the sentence says which of them it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from hpc_llm.errors import HpcLlmError, RequestError

if TYPE_CHECKING:
    from hpc_llm.planning.method import Method

T = TypeVar("T")


def methods_of(names: Sequence[str]) -> dict[str, Method]:
    """The methods by the names that were given; two names of one method would be one run twice."""
    from hpc_llm.planning.method import load_method

    found: dict[str, Method] = {}
    for name in names:
        method = load_method(name)
        twin = next((other for other, one in found.items() if one.name == method.name), None)
        if twin is not None:
            raise RequestError(f"method {name} is the same as {twin}. Repeats are separate submissions.")
        found[name] = method
    return found


def each(methods: Sequence[str], cluster: str, make: Callable[[str], T], *, several: bool) -> list[T]:
    """`make(method)` for each run of a cluster; all are tried, so that a refusal names all runs that it holds for."""
    made, refused = [], []
    for method in methods:
        try:
            made.append(make(method))
        except RequestError as error:
            refused.append((method, error))
    if refused:
        raise _of_runs(refused, len(methods), cluster) if several else refused[0][1]
    return made


def _of_runs(refused: Sequence[tuple[str, RequestError]], runs: int, cluster: str) -> HpcLlmError:
    error = refused[0][1]
    names = [method for method, other in refused if str(other) == str(error)]
    if len(names) == runs > 1:
        return error if f"cluster {cluster}" in str(error) else _named(error, f"every method on cluster {cluster}")
    return _named(error, f"method{'s' * (len(names) > 1)} {', '.join(names)} on cluster {cluster}")


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
