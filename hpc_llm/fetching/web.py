"""HTTP as fetching needs it: a secret that only its own server gets, redirects, parts of files, errors that can be told apart."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO, Any

from hpc_llm import __version__
from hpc_llm.errors import FetchError, RequestError
from hpc_llm.fetching.patience import Headers, TryAgain, told_wait
from hpc_llm.fetching.source import Stream
from hpc_llm.text.json_text import DamagedRecordError, figures

_TIMEOUT_S = 30.0
_CONNECT_S = 8.0
"""Seconds for all addresses of a server together until one of them answers; a firewall that drops packets says nothing."""
_LARGEST_ANSWER = 1 << 25
"""Bytes; a listing or an index that is larger is none."""
_NO_HUB = "Is its address right? Nothing was fetched."
_LARGEST_COMPLAINT = 1 << 14
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 522, 524})
"""States of HTTP after which the same question can go well."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass
class Refused(Exception):
    """The server's answer to a question is no."""

    status: int
    code: str
    """A word of the server's own for the reason; empty where it gives none."""
    message: str
    """What it says for people; not to be trusted with anything."""


class _WebStream(Stream):
    """What a server sends. Raises TryAgain where the connection breaks."""

    def read(self, most: int) -> bytes:
        return self._received(super().read, most)

    def some(self, most: int) -> bytes:
        return self._received(super().some, most)

    def _received(self, read: Callable[[int], bytes], most: int) -> bytes:
        try:
            return read(most)
        except (OSError, http.client.HTTPException) as error:
            raise TryAgain(f"the connection broke ({_reason(error)})") from None


class _NoConnection(OSError):
    """No connection came about: there was nobody to ask."""


class _Connecting(http.client.HTTPConnection):
    """Gives up a connection that does not come about long before one that is silent."""

    def connect(self) -> None:
        patient = self.timeout
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self.timeout = min(_timeout(), _CONNECT_S / max(len(addresses), 1))
            super().connect()
        except ssl.SSLError:
            raise  # somebody was there
        except OSError as error:
            raise _NoConnection(error.errno, _reason(error)) from None
        finally:
            self.timeout = patient
        self.sock.settimeout(patient)


class _ConnectingSafely(_Connecting, http.client.HTTPSConnection):
    """The same, encrypted."""


class _Plain(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connecting, req)


class _Encrypted(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_ConnectingSafely, req)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Where a server sends us on, nobody but itself gets the secret, and nothing that was encrypted goes on in the clear."""

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        before, after = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if after.scheme not in ("http", "https") or (before.scheme, after.scheme) == ("https", "http"):
            raise FetchError(
                f"{before.hostname} sends us on to an address that is not safe ({after.scheme}): nothing is fetched there."
            )
        new = super().redirect_request(req, fp, 307 if code == 308 else code, msg, headers, newurl)
        if new is not None and _origin(before) != _origin(after):
            for name in ("Authorization", "Cookie"):
                new.remove_header(name)
        return new


def _origin(url: urllib.parse.SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or {"http": 80, "https": 443}.get(url.scheme)


class Web:
    """One server and what lets us in there."""

    def __init__(self, endpoint: str, secret: Mapping[str, str], variable: str) -> None:
        """`secret` are headers for this server alone; `variable` is where the user gave `endpoint`."""
        self.endpoint = _checked(endpoint, variable)
        url = urllib.parse.urlsplit(self.endpoint)
        self.host = url.netloc
        self._secret = dict(secret) if url.scheme == "https" or url.hostname in _LOOPBACK else {}
        self._opener = urllib.request.build_opener(_Redirects(), _Plain(), _Encrypted())

    def json(self, url: str) -> tuple[Any, Headers]:
        """The JSON document at an address of this server, and the headers that came with it.

        Raises:
            FetchError: it is larger, or nested deeper, than any answer of a hub.
        """
        with self.open(url) as stream:
            content = stream.read(_LARGEST_ANSWER)
        if len(content) == _LARGEST_ANSWER:
            raise FetchError(f"{self.host} answers with more than {_LARGEST_ANSWER >> 20} MiB to a question. {_NO_HUB}")
        try:
            return figures(content), stream.headers
        except DamagedRecordError as error:
            raise FetchError(f"{self.host} answers with what no hub says: {error}. {_NO_HUB}") from None
        except ValueError:
            raise TryAgain(f"{self.host} answered with what is no JSON") from None

    def open(self, url: str, start: int = 0) -> Stream:
        """The file at an address, from byte `start` on where the server can.

        Raises:
            Refused: the server's answer is no.
            TryAgain: it may go well the next time.
        """
        request = urllib.request.Request(self.here(url), headers=self._headers(start))
        try:
            response = self._opener.open(request, timeout=_timeout())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and start:
                    return self.open(url)  # what we have is longer than what is there: from the beginning
                raise _refusal(error, self.host) from None
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(error, self.host) from None
        return _WebStream(
            response, start if response.status == 206 and _begins_at(response.headers, start) else 0, response.headers
        )

    def here(self, url: str) -> str:
        """An address as one of this server, even where it names another: nobody else is asked, or shown the secret."""
        own, asked = (
            urllib.parse.urlsplit(self.endpoint),
            urllib.parse.urlsplit(urllib.parse.urljoin(f"{self.endpoint}/", url)),
        )
        if _origin(asked) == _origin(own):
            return asked.geturl()
        return f"{self.endpoint}{asked._replace(scheme='', netloc='').geturl()}"

    def _headers(self, start: int) -> dict[str, str]:
        part = {"Range": f"bytes={start}-"} if start else {}
        return {"User-Agent": f"hpc-llm/{__version__}", "Accept-Encoding": "identity", **self._secret, **part}


def _checked(endpoint: str, variable: str) -> str:
    try:
        url = urllib.parse.urlsplit(endpoint.strip())
        is_one = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0 and not url.query
    except ValueError:
        is_one = False
    if not is_one or "@" in url.netloc:
        raise RequestError(
            f"{variable} is no address of a server without a name or password in it: it must look like https://huggingface.co."
        )
    return endpoint.strip().rstrip("/")


def _timeout() -> float:
    """Seconds of silence after which a connection counts as broken."""
    try:
        return min(max(float(os.environ.get("HF_HUB_DOWNLOAD_TIMEOUT") or _TIMEOUT_S), 0.1), 3600.0)
    except ValueError:
        return _TIMEOUT_S


def _begins_at(headers: Message, start: int) -> bool:
    return (headers.get("Content-Range") or "").startswith(f"bytes {start}-")


def _refusal(error: urllib.error.HTTPError, host: str) -> Exception:
    """What an answer other than the file means."""
    headers: Headers = error.headers or {}
    if error.code in _PASSING:
        return TryAgain(f"{host} answered {error.code}", told_wait(headers, time.time()))
    return Refused(error.code, headers.get("X-Error-Code") or "", headers.get("X-Error-Message") or _said(error))


def _said(error: urllib.error.HTTPError) -> str:
    """What a refusal says in its body, where that is JSON."""
    try:
        document = figures(error.read(_LARGEST_COMPLAINT))
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    if not isinstance(document, dict):
        return ""
    said = next((document[key] for key in ("error", "Message", "message") if isinstance(document.get(key), str)), "")
    return str(said)


def _unreachable(error: Exception, host: str) -> Exception:
    cause = getattr(error, "reason", error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return FetchError(
            f"the certificate of {host} is not one that this Python trusts ({cause.verify_message}). "
            "SSL_CERT_FILE=FILE names the certificates of your site."
        )
    said = f"{host} cannot be reached ({_reason(cause if isinstance(cause, Exception) else error)})"
    return TryAgain(said, is_unreached=isinstance(cause, _NoConnection))


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
