"""From the flags of a command to what it asks of the api."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc_llm.api.batches import Places
    from hpc_llm.api.request import Request
    from hpc_llm.cli.options import RunOptions
    from hpc_llm.job.batch import Batch


def asked(options: RunOptions) -> tuple[Request, Places]:
    """What the flags and the experiment file ask for, and where."""
    from hpc_llm.api.batches import Places
    from hpc_llm.api.request import BESIDE, read_request
    from hpc_llm.api.values import NAMES
    from hpc_llm.text.homes import from_home

    beside = {"logs": options.logs, "templates": options.templates, "run_id": options.run_id}
    given = {name: getattr(options, name) for name in (*NAMES, *BESIDE)}
    places = Places(
        logs=options.logs, templates=options.templates and from_home(options.templates), run_id=options.run_id
    )
    return read_request(options.experiment, given, beside=beside), places


def would_submit(options: RunOptions) -> list[Batch]:
    """All batches of the request, planned, checked as for a submission from this machine, and rendered."""
    from hpc_llm.api.batches import batches

    return batches(*asked(options), preview=True, as_submitted=True)
