"""The Hub that takes no more requests for a while."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, Sign, sign

_MEANING = "The Hub took no more requests for a while: too many came from this user or this address, as from all ranks or nodes at once."
_THEN = (
    "then let the job ask the Hub for nothing: --set env.HF_HUB_OFFLINE=1\n"
    "log in where something is downloaded (hf auth login, or HF_TOKEN): who is known to the Hub may ask more often\n"
    "where a job must download, let one rank do so first, and the others read its cache (HF_HOME on a file system that all nodes see)"
)


def _too_many(addresses: str, remedy: str) -> Sign:
    """The exception with which the Hub's client gives up: each further try it tells as a warning."""
    return sign(
        (": 429", " 429 ", "'429 "),
        r"\b(?:HfHubHTTP|HTTPStatus|HTTP|BadRequest|LocalEntryNotFound)Error: (?:[^\n]{0,160}? )?(?:429 Client Error: Too Many Requests|Client error '429 Too Many Requests'"
        rf"|429 Too Many Requests)[^\n]{{0,60}}https://(?:huggingface\.co|hf-mirror\.com)/{addresses}",
        survived_after=STARTED,
        precedence=79,
        meaning=_MEANING,
        remedy=f"{remedy}\n{_THEN}",
    )


TOO_MANY_FOR_MODELS = _too_many(
    "(?!(?:api/)?datasets/)",
    "download it once, on a login node: hf download NAME --local-dir DIR (hpc-llm fetch NAME --to DIR does so), and give the program DIR in place of the name",
)
TOO_MANY_FOR_DATA = _too_many(
    "(?:api/)?datasets/",
    "download it once, on a login node: hf download NAME --repo-type dataset --local-dir DIR (hpc-llm fetch NAME --to DIR does so), and let the program "
    "read DIR",
)
