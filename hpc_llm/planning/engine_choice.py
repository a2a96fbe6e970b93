"""Which engine carries out the training steps of a plan, and whether it can."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hpc_llm.errors import PlanError, RequestError
from hpc_llm.outside import reason_of
from hpc_llm.planning import engines
from hpc_llm.planning.engines import EngineFacts, Wanted
from hpc_llm.planning.optimizers import OF_DEEPSPEED

_T = TypeVar("_T")

_OF_ALL = ("gradient_clipping", "fp16", "bf16", "steps_per_print")
"""Keys of a DeepSpeed config that every engine heeds, or that change nothing but what is printed."""


def choose_engine(asked: str, settings: Iterable[Sequence[str]]) -> tuple[EngineFacts, str | None]:
    """The engine, and why another one than `asked`: what it does not heed must not be set in vain.

    `settings` are the keys within the DeepSpeed config that the request sets, the outermost first. Raises RequestError
    where there is no engine of that name.
    """
    facts = engines.find(asked)
    for keys in settings:
        if not _is_heeded(facts, keys):
            path = ".".join(("deepspeed", *keys))
            why = f"engine {asked} becomes deepspeed: {path} is set, which only it heeds"
            return engines.find("deepspeed"), why
    return facts, None


def first_suited(names: str | Sequence[str], wanted: Wanted) -> tuple[str, list[str]]:
    """The engine of a method that names one or several, and why those before it are left out, each in a sentence."""
    passed: list[str] = []
    *before, last = [names] if isinstance(names, str) else names
    able: list[str] = []
    for name in before:
        facts = engines.find(name)
        lack = _lack(facts, wanted)
        able += [name] if lack is None else []
        lack = lack or answer(facts, facts.unsuited, wanted)
        if lack is None:
            return name, passed
        passed.append(f"{name} {lack}")
    lack = _lack(engines.find(last), wanted) if able else None
    return (last, passed) if lack is None else (able[0], [*passed, f"{last} {lack}"])


def check_engine(facts: EngineFacts, wanted: Wanted, passed: Sequence[str] = ()) -> None:
    """Raise PlanError where the engine cannot do what the plan asks for; the message names those that can.

    Where none can, it says why not those that the method would rather have, `passed`, and what to do without.
    """
    lack = _lack(facts, wanted)
    if lack is None:
        return
    if able := list(_able(wanted)):
        raise PlanError(f"engine {facts.name} {lack}. Engines that can: {', '.join(able)}.")
    why = "; ".join(dict.fromkeys((f"{facts.name} {lack}", *passed)))
    ways = [f"without {what} {', '.join(able)} can" for what, less in _less(wanted) if (able := list(_able(less)))]
    raise PlanError(f"no engine can do this: {why}." + (f" {_first_upper('; '.join(ways))}." if ways else ""))


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _less(wanted: Wanted) -> Iterator[tuple[str, Wanted]]:
    """What a plan could do without, where it wants it: what that is called, and the rest."""
    if wanted.model.fp8:
        yield "fp8 in the method", replace(wanted, model=replace(wanted.model, fp8=False))
    if wanted.optimizer.type not in OF_DEEPSPEED:
        yield (
            f"the optimizer {wanted.optimizer.type}",
            replace(wanted, optimizer=replace(wanted.optimizer, type="AdamW")),
        )
    if wanted.parallel.tensor > 1:
        yield "--tensor-parallel", replace(wanted, parallel=replace(wanted.parallel, tensor=1))


def able_fallback(facts: EngineFacts, wanted: Wanted) -> str | None:
    """What does where a node's software cannot run that one; None where it could not do the same."""
    if facts.fallback is None or _lack(engines.find(facts.fallback), wanted) is not None:
        return None
    return facts.fallback


def _able(wanted: Wanted) -> Iterator[str]:
    """Those that can; one from elsewhere that is broken is none of them."""
    for name in engines.names():
        with contextlib.suppress(RequestError):
            if _lack(engines.find(name), wanted) is None:
                yield name


def _lack(facts: EngineFacts, wanted: Wanted) -> str | None:
    questions = [facts.lacks]
    questions += [facts.unshared] if wanted.parallel.tensor > 1 else []
    questions += [facts.without_fp8] if wanted.model.fp8 else []
    return next((lack for each in questions if (lack := answer(facts, each, wanted)) is not None), None)


def answer(facts: EngineFacts, question: Callable[..., _T], *about: Any) -> _T:
    """What the engine says. Raises RequestError where it fails to."""
    try:
        return question(*about)
    except Exception as error:  # its code may be anybody's
        raise RequestError(
            f"the engine {facts.name} of {facts.module} cannot say whether it can: {reason_of(error)}."
        ) from error


def _is_heeded(facts: EngineFacts, keys: Sequence[str]) -> bool:
    return not keys or facts.heeds is None or keys[0] in _OF_ALL or keys[0] in facts.heeds
