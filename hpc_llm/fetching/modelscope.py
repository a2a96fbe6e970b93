"""ModelScope, by its HTTP interface; it knows no commits of a whole model, so what was fetched is known by its digests."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable
from typing import Any

from hpc_llm.errors import FetchError, RequestError
from hpc_llm.fetching.listing import Entry, Listing, checked_entry
from hpc_llm.fetching.names import DATASET, Wanted
from hpc_llm.fetching.patience import Patience
from hpc_llm.fetching.source import Source, Stream
from hpc_llm.fetching.token import find_token
from hpc_llm.fetching.web import Refused, Web
from hpc_llm.text.shown import one_line

DEFAULT_ENDPOINT = "https://www.modelscope.cn"
_LONGEST = 300
_MOST_FILES = 200_000


class ModelScope(Source):
    """Models of ModelScope, or of what speaks as it does at MODELSCOPE_DOMAIN."""

    word = "modelscope"

    def __init__(self, env_file: str | None, patience: Callable[[str], Patience]) -> None:
        token = find_token(env_file, ("MODELSCOPE_API_TOKEN",))
        domain = os.environ.get("MODELSCOPE_DOMAIN") or DEFAULT_ENDPOINT
        secret = {"Authorization": f"Bearer {token.value}", "Cookie": f"m_session_id={token.value}"} if token else {}
        self._web = Web(domain if "://" in domain else f"https://{domain}", secret, "MODELSCOPE_DOMAIN")
        self._patience = patience
        self._revision = "master"
        self.who = self._web.host

    def find(self, wanted: Wanted, revision: str | None) -> Listing:
        if wanted.kind == DATASET:
            raise RequestError(f"--from modelscope brings models only, {wanted.asked} is a data set: leave --from out.")
        self._revision = revision or self._revision
        query = urllib.parse.urlencode({"Revision": self._revision, "Recursive": "True"})
        try:
            found, _ = self._patience(self.who).run(lambda: self._web.json(f"{_api(wanted.name)}/repo/files?{query}"))
        except Refused as refused:
            raise self._absent(wanted, refused.message) from None
        files = _files(found)
        if files is not None and len(files) > _MOST_FILES:
            raise FetchError(f"{self.who} lists more than {_MOST_FILES} files in {wanted.name}. Nothing was fetched.")
        if files is None:
            raise self._absent(wanted, str(found.get("Message") or "") if isinstance(found, dict) else "")
        return Listing(wanted.kind, wanted.name, "", tuple(self._entry(one) for one in files))

    def open(self, listing: Listing, entry: Entry, start: int) -> Stream:
        query = urllib.parse.urlencode({"Revision": self._revision, "FilePath": entry.path})
        try:
            return self._web.open(f"{_api(listing.name)}/repo?{query}", start)
        except Refused as refused:
            said = one_line(refused.message)[:_LONGEST]
            raise FetchError(
                f"{self.who} refuses {entry.path} of {listing.name}: {refused.status} {said}".rstrip()
            ) from None

    def _entry(self, one: dict[str, Any]) -> Entry:
        return checked_entry(one.get("Path"), one.get("Size"), "sha256", one.get("Sha256"), self.who)

    def _absent(self, wanted: Wanted, message: str) -> RequestError:
        said = f" ({one_line(message)[:_LONGEST]})" if message else ""
        return RequestError(
            f"{self.who} has no model {wanted.name} of revision {self._revision}{said}. Owners are others there than on the "
            f"Hub: give the name as its page at {self._web.endpoint}/models spells it."
        )


def _api(name: str) -> str:
    return f"api/v1/models/{urllib.parse.quote(name, safe='/')}"


def _files(found: Any) -> list[dict[str, Any]] | None:
    """The files of an answer; None where it is none."""
    data = found.get("Data") if isinstance(found, dict) else None
    files = data.get("Files") if isinstance(data, dict) else None
    if not isinstance(files, list):
        return None
    return [one for one in files if isinstance(one, dict) and one.get("Type") != "tree"]
