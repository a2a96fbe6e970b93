"""What the no of a hub means, as one sentence: what is wrong, who must do what, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hpc_llm.errors import FetchError, HpcLlmError, RequestError, did_you_mean
from hpc_llm.fetching.names import DATASET, Wanted
from hpc_llm.fetching.web import Refused
from hpc_llm.text.shown import one_line

_MANY = 20
_LONGEST = 300
_WRONG_TOKEN = "invalid credentials"
_ALONE = "GatedRepo"


@dataclass(frozen=True)
class Asked:
    """What was asked of whom, and as whom."""

    wanted: Wanted
    revision: str
    endpoint: str
    who: str
    token: str | None
    """Where the token was found; None where there was none."""

    @property
    def page(self) -> str:
        """Where a person reads about it."""
        return f"{self.endpoint}/{'datasets/' if self.wanted.kind == DATASET else ''}{self.wanted.name}"

    @property
    def thing(self) -> str:
        return f"{'data set' if self.wanted.kind == DATASET else 'model'} {self.wanted.name}"


def is_absence(refused: Refused) -> bool:
    """Whether it can mean that nothing of that name is there; a hub says 401 of that to those whom it does not know."""
    return refused.status in (401, 404) and refused.code in ("", "RepoNotFound") and not _is_wrong_token(refused)


def explain(
    refused: Refused,
    asked: Asked,
    revisions: Callable[[Wanted], list[str]],
    near: Callable[[Wanted], list[str]],
) -> HpcLlmError:
    """The error that tells a user of a refusal."""
    if refused.code == _ALONE:
        return _gated(refused, asked)
    if _is_wrong_token(refused) and asked.token is not None:
        return RequestError(
            f"{asked.who} does not take the token of {asked.token}: it is mistyped, expired or withdrawn. "
            f"Make one at {asked.endpoint}/settings/tokens."
        )
    if refused.code == "RevisionNotFound":
        return _no_revision(asked, revisions(asked.wanted))
    if is_absence(refused):
        return _absent(asked, near(asked.wanted))
    if refused.status == 403:
        return RequestError(f"{asked.who} does not give the {asked.thing}{_said(refused)}. {_rights(asked)}")
    return FetchError(f"{asked.who} refuses the {asked.thing}: {refused.status}{_said(refused)}.")


def _is_wrong_token(refused: Refused) -> bool:
    return refused.status == 401 and _WRONG_TOKEN in refused.message.lower()


def _gated(refused: Refused, asked: Asked) -> RequestError:
    """Who must accept what: the owner of the token, the conditions on the page."""
    if asked.token is None:
        return RequestError(
            f"the {asked.thing} is given only to those who accepted its conditions: log in at {asked.page} and accept them "
            f"there, make a token that may read at {asked.endpoint}/settings/tokens, {way_in()}"
        )
    return RequestError(
        f"the {asked.thing} is given only to those who accepted its conditions, and the owner of the token of {asked.token} "
        f"is none of them{_said(refused)}. Log in as that owner at {asked.page} and accept them, or wait until the request is "
        "granted; a fine-grained token must be allowed to read gated repositories."
    )


def way_in() -> str:
    """How a token is given."""
    return "and give it as HF_TOKEN in the environment, or as the line HF_TOKEN=VALUE of a file of mode 600 by --env-file FILE."


def _rights(asked: Asked) -> str:
    if asked.token is None:
        return f"If it is private, make a token that may read it at {asked.endpoint}/settings/tokens, {way_in()}"
    return f"See at {asked.endpoint}/settings/tokens what the token of {asked.token} may read."


def _no_revision(asked: Asked, there: list[str]) -> RequestError:
    more = f" and {len(there) - _MANY} more" if len(there) > _MANY else ""
    valid = f" Valid: {', '.join(map(one_line, there[:_MANY]))}{more}, or a commit." if there else ""
    near = did_you_mean(asked.revision or "", map(one_line, there)) or "."
    return RequestError(f"--revision {asked.revision}: the {asked.thing} has none of that name{near}{valid}")


def _absent(asked: Asked, near: list[str]) -> RequestError:
    hint = f": did you mean {near[0]}?" if near and near[0] != asked.wanted.name else "."
    kind = "" if asked.wanted.is_sure else " Nor is there a data set of that name."
    if asked.token is not None:
        private = f" If it is private, the owner of the token of {asked.token} may not see it."
    else:
        private = f" If it is private, make a token that may read it at {asked.endpoint}/settings/tokens, {way_in()}"
    return RequestError(f"{asked.who} has no {asked.thing}{hint}{kind}{private}")


def _said(refused: Refused) -> str:
    said = one_line(refused.message).strip().rstrip(".")[:_LONGEST]
    return f" ({said})" if said else ""
