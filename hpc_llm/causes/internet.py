"""No way from a compute node to the internet, where a download was asked for that is no model or data set of the Hub."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, Cause, sign
from hpc_llm.causes.frames import is_no_helper

_BRING = (
    "download it on a login node, into a folder or cache that the job sees (HF_HOME, TORCH_HOME, NLTK_DATA, TIKTOKEN_CACHE_DIR and their like), "
    "and submit again\n"
    "where the site has a proxy for its compute nodes, export https_proxy as its documentation says\n"
    "install packages and clone repositories before the job, not in it"
)
_ASKED = "the traceback names the call that asked for it, and of whom\n" + _BRING
_OF_THE_SITE = "{host} was not reached\n" + _BRING

_OUTSIDE = r"(?!localhost\b|(?:[\w-]{1,63}\.){0,5}(?:local|localdomain|internal|cluster|lan)\b)(?P<host>(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,12})"
"""A name of the internet: with a dot, and no address, which may be that of another node."""
_NO_WAY = r"(?:\[Errno (?:-3|-5|101)\]|Network is unreachable|Temporary failure in name resolution|No address associated with hostname)"
_EXCEPTION = r"^(?:\[rank\d{1,5}\]: ?|\d{1,5}: ?)?(?:[A-Za-z_]\w{0,60}\.){0,6}"

NO_INTERNET = Cause(
    id="no_internet",
    title="an address on the internet could not be reached",
    meaning="Something was asked for over the internet, to which the compute node has no way.",
    remedy=_ASKED,
    retry=False,
    precedence=76,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable")),
    signs=(
        sign(
            ("onnectError: ", "URLError: "),
            rf"{_EXCEPTION}(?:ConnectError|URLError): (?:<urlopen error )?[^\n]{{0,60}}{_NO_WAY}",
            survived_after=STARTED,
            confidence=0.9,
            where=is_no_helper,
        ),
        sign(
            "ConnectionPool(host='",
            rf"{_EXCEPTION}(?:ConnectionError|ConnectTimeout|ProxyError|MaxRetryError|OSError|SSLError): [^\n]{{0,60}}HTTPS?ConnectionPool\(host='{_OUTSIDE}', port=\d{{1,5}}\)"
            r"(?:: Max retries exceeded with url: (?=[^\n]{0,900}(?:NewConnectionError|NameResolutionError|Failed to resolve|Network is unreachable|ConnectTimeoutError|Unable to connect to proxy))"
            r"|[^\n]{0,60}timed out)",
            survived_after=STARTED,
            confidence=0.9,
            remedy=_OF_THE_SITE,
            where=is_no_helper,
        ),
        sign(
            "Cannot connect to host ",
            rf"{_EXCEPTION}ClientConnector(?:DNS)?Error: Cannot connect to host {_OUTSIDE}:(?:443|80) ssl:",
            survived_after=STARTED,
            confidence=0.85,
            remedy=_OF_THE_SITE,
            where=is_no_helper,
        ),
        # Of what a script calls before or beside its program: it may go on without.
        sign(
            ("ould not resolve host", "unable to resolve host address", "CONNECTION FAILED for url"),
            rf"^(?:curl: \(6\) Could not resolve host: |wget: unable to resolve host address ['‘]|fatal: unable to access '[^'\n]{{1,200}}': Could not resolve host: ){_OUTSIDE}"
            r"|\bCondaHTTPError: HTTP 000 CONNECTION FAILED for url <https?://(?P<host_2>[\w.-]{1,100})",
            survived_after=STARTED,
            confidence=0.6,
            remedy="{host} was not reached: where the program went on without it, look at what it says behind that\n"
            + _BRING,
        ),
    ),
)

CAUSES = (NO_INTERNET,)
