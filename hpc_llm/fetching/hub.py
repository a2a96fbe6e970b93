"""The Hugging Face Hub, or what speaks as it does at HF_ENDPOINT."""

from __future__ import annotations

import difflib
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from hpc_llm.errors import FetchError, HpcLlmError, RequestError
from hpc_llm.fetching.listing import Entry, Listing, checked_entry
from hpc_llm.fetching.names import DATASET, MODEL, Wanted, is_name
from hpc_llm.fetching.patience import Patience
from hpc_llm.fetching.refusals import Asked, explain, is_absence
from hpc_llm.fetching.source import Source, Stream
from hpc_llm.fetching.token import HUB_VARIABLES, find_token
from hpc_llm.fetching.web import Refused, Web
from hpc_llm.planning.model import ALIASES

T = TypeVar("T")

DEFAULT_ENDPOINT = "https://huggingface.co"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NEXT = re.compile(r'<([^<>]{1,4000})>\s*;\s*rel="?next"?')
_MOST_PAGES = 1000
_MOST_FILES = 200_000
"""Of a model or data set; the Hub itself advises against more than half as many."""
_TELL_EVERY_S = 5.0


class Hub(Source):
    """Models and data sets by the Hub's HTTP interface."""

    word = "hub"

    def __init__(self, env_file: str | None, patience: Callable[[str], Patience]) -> None:
        if os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in ("1", "true", "yes", "on"):
            raise RequestError(
                "HF_HUB_OFFLINE is set, so nothing may be fetched: unset it, or name a folder by --from PATH."
            )
        self._token = find_token(env_file, HUB_VARIABLES)
        secret = {"Authorization": f"Bearer {self._token.value}"} if self._token else {}
        self._web = Web(os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT, secret, "HF_ENDPOINT")
        self._patience = patience
        self.who = self._web.host

    def find(self, wanted: Wanted, revision: str | None) -> Listing:
        wanted, about = self._about(wanted, revision or "main")
        commit, name = about.get("sha"), about.get("id")
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or not is_name(name):
            raise FetchError(f"{self.who} does not answer as the Hub does: is HF_ENDPOINT right? Nothing was fetched.")
        entries = tuple(self._asking(wanted, revision, lambda: list(self._entries(wanted, commit))))
        return Listing(wanted.kind, str(name), commit, entries)

    def open(self, listing: Listing, entry: Entry, start: int) -> Stream:
        place = f"{'datasets/' if listing.kind == DATASET else ''}{_quoted(listing.name)}"
        try:
            return self._web.open(f"{place}/resolve/{listing.commit}/{_quoted(entry.path)}", start)
        except Refused as refused:
            raise self._explained(refused, Wanted(listing.name, listing.kind, listing.name), listing.commit) from None

    def _about(self, wanted: Wanted, revision: str) -> tuple[Wanted, dict[str, Any]]:
        """What the Hub says of it. A name that only a data set has is that data set's."""
        try:
            return wanted, self._info(wanted, revision)
        except Refused as refused:
            other = replace(wanted, kind=DATASET, is_sure=True)
            if (
                not wanted.is_sure
                and is_absence(refused)
                and (found := self._info_or_none(other, revision)) is not None
            ):
                return other, found
            raise self._explained(refused, wanted, revision) from None

    def _info_or_none(self, wanted: Wanted, revision: str) -> dict[str, Any] | None:
        try:
            return self._info(wanted, revision)
        except Refused:
            return None

    def _info(self, wanted: Wanted, revision: str) -> dict[str, Any]:
        place = f"{_api(wanted)}/revision/{urllib.parse.quote(revision, safe='')}"
        found, _ = self._patience(self.who).run(lambda: self._web.json(place))
        return found if isinstance(found, dict) else {}

    def _entries(self, wanted: Wanted, commit: str) -> Iterator[Entry]:
        page: str | None = f"{_api(wanted)}/tree/{commit}?recursive=true&expand=false"
        patience, told, count = self._patience(self.who), time.monotonic(), 0
        for _ in range(_MOST_PAGES):
            if page is None:
                patience.tell("")
                return
            found, page = self._page(page)
            count += len(found)
            if count > _MOST_FILES:
                raise FetchError(
                    f"{self.who} lists more than {_MOST_FILES} files in {wanted.name}. Nothing was fetched."
                )
            if time.monotonic() - told > _TELL_EVERY_S:
                told = time.monotonic()
                patience.tell(f"{self.who} lists what {wanted.name} holds, {count} files so far")
            yield from (self._entry(one) for one in found if isinstance(one, dict) and one.get("type") == "file")
        raise FetchError(f"{self.who} lists {wanted.name} on more than {_MOST_PAGES} pages. Nothing was fetched.")

    def _page(self, place: str) -> tuple[list[Any], str | None]:
        """One page of a list, and where the next one is; always on this server, for a mirror may hand on another's words."""
        found, headers = self._patience(self.who).run(lambda: self._web.json(place))
        if not isinstance(found, list):
            raise FetchError(f"{self.who} does not answer as the Hub does: is HF_ENDPOINT right? Nothing was fetched.")
        following = _NEXT.search(headers.get("Link") or "")
        return found, self._web.here(following[1]) if following else None

    def _entry(self, one: dict[str, Any]) -> Entry:
        lfs = one.get("lfs")
        if isinstance(lfs, dict):
            return checked_entry(one.get("path"), lfs.get("size"), "sha256", lfs.get("oid"), self.who)
        return checked_entry(one.get("path"), one.get("size"), "git-sha1", one.get("oid"), self.who)

    def _asking(self, wanted: Wanted, revision: str | None, errand: Callable[[], T]) -> T:
        try:
            return errand()
        except Refused as refused:
            raise self._explained(refused, wanted, revision or "main") from None

    def _explained(self, refused: Refused, wanted: Wanted, revision: str) -> HpcLlmError:
        asked = Asked(wanted, revision, self._web.endpoint, self.who, self._token.origin if self._token else None)
        return explain(refused, asked, self._revisions, _near)

    def _revisions(self, wanted: Wanted) -> list[str]:
        """The branches and tags that there are; none where that is not to be had."""
        try:
            found, _ = self._patience(self.who).run(lambda: self._web.json(f"{_api(wanted)}/refs"))
        except (Refused, HpcLlmError):
            return []
        lists = [found.get(kind) for kind in ("branches", "tags")] if isinstance(found, dict) else []
        return [
            str(one["name"])
            for some in lists
            if isinstance(some, list)
            for one in some
            if isinstance(one, dict) and "name" in one
        ]


def _api(wanted: Wanted) -> str:
    return f"api/{'datasets' if wanted.kind == DATASET else 'models'}/{_quoted(wanted.name)}"


def _quoted(path: str) -> str:
    return urllib.parse.quote(path, safe="/")


def _near(wanted: Wanted) -> list[str]:
    """Names that are known and look like it."""
    presets = {preset: preset for preset in ALIASES.values()}
    names = {name.lower(): name for name in ALIASES} | presets if wanted.kind == MODEL else {}
    return [names[one] for one in difflib.get_close_matches(wanted.name.lower(), names, n=1, cutoff=0.75)]
