"""Which Python a job of ours ran, and how a person comes into its environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from hpc_llm.records.files import read_text
from hpc_llm.records.run import RunPaths
from hpc_llm.site.cluster import Cluster

FIRST = "first, "
"""Begins a line of advice that by itself mends nothing: the next one does."""
_LAUNCHED = re.compile(r"^hpc-llm: [^\s,]+, (/[^\n,]{1,400}), modules ", re.MULTILINE)
_BEGINNING = 1 << 16
"""Bytes of the output before which a script has said which Python it uses."""
_PIP = re.compile(r"(?<![\w/.-])python -m pip install\b")


def of_the_profile(cluster: object) -> list[str]:
    """Where a run of ours on that cluster has its modules and its environment from; nothing of others' runs."""
    if not cluster:
        return []
    return [
        f"a run of hpc-llm gets modules and environment by prelude of the profile: `hpc-llm clusters {cluster}` shows it, and its file"
    ]


def job_python(run: RunPaths) -> str | None:
    """The Python that the run's script used, as it says before the ranks are launched; None where it did not come so far."""
    found = _LAUNCHED.findall(read_text(run.stdout, _BEGINNING) or "")
    return str(found[-1]) if found else None


def facts_of(cluster: Cluster, nodes: int) -> dict[str, str]:
    """What `of_the_job` has to know of a cluster."""
    facts = {"way_in": words} if (words := way_in(cluster, nodes)) else {}
    if cluster.prelude.python.kind == "module":
        facts["pip_options"] = " --user"  # what a module brings is everybody's
    return facts


def way_in(cluster: Cluster, nodes: int) -> str | None:
    """The commands that load what a job of that cluster loads, for a person's shell; None where there is nothing to do.

    >>> from hpc_llm.site.cluster import load_cluster
    >>> way_in(load_cluster("local"), 1)
    """
    prelude = cluster.prelude
    modules = [*prelude.load, *(prelude.load_multi_node if nodes > 1 else [])]
    steps = [f"module load {' '.join(map(shlex.quote, modules))}"] if modules else []
    if prelude.python.kind == "conda":
        steps.append(f"conda activate {prelude.python.env}")
    elif prelude.python.kind == "venv":
        steps.append(f"source {prelude.python.env}/bin/activate")
    return " && ".join(steps) or None


def of_the_job(remedy: str, facts: Mapping[str, str]) -> str:
    """The remedy with what it installs going into the environment of the job, not of whoever reads it.

    >>> of_the_job("python -m pip install six", {"python": "/e/bin/python", "way_in": "conda activate /e"})
    'first, on a login node: conda activate /e\\n/e/bin/python -m pip install six'
    """
    if not _PIP.search(remedy):
        return remedy
    python, first = facts.get("python"), facts.get("way_in")
    words = f"{shlex.quote(python) if python else 'python'} -m pip install{facts.get('pip_options', '')}"
    lines = remedy.splitlines()
    if first:
        lines.insert(next(n for n, line in enumerate(lines) if _PIP.search(line)), f"{FIRST}on a login node: {first}")
    return _PIP.sub(lambda _: words, "\n".join(lines))
