"""Causes of failure that one site alone has."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, sign

CAUSES = (
    Cause(
        id="licence_server",
        title="no licence was free",
        meaning="The licence server of the site had no licence left for the data reader.",
        remedy="wait until a licence is free, then submit again",
        retry=True,
        precedence=70,
        signs=(sign("toylicd: no seat left", r"^toylicd: no seat left for (?P<feature>\w+)"),),
    ),
)
