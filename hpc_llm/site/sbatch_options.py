"""Which options of sbatch a request or a profile may add to a job: one check for both, by sbatch's own spellings.

sbatch takes an option long, short or as any unambiguous beginning, and of one that comes twice the last. So what the plan
decides could be overruled in many ways; here each way has the same name, and what the plan has to know is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

from hpc_llm.errors import PlanError, RequestError
from hpc_llm.immutable import dataclass
from hpc_llm.site.sbatch_values import wrong_value
from hpc_llm.text.late_pattern import late_pattern

_SHORT = dict(
    pair.split("=")
    for pair in """A=account B=extra-node-info C=constraint D=chdir F=nodefile G=gpus H=hold J=job-name L=licenses M=clusters
    N=nodes O=overcommit Q=quiet S=core-spec V=version W=wait a=array b=begin c=cpus-per-task d=dependency e=error h=help
    i=input k=no-kill m=distribution n=ntasks o=output p=partition q=qos s=oversubscribe t=time v=verbose w=nodelist
    x=exclude""".split()
)
_SWITCHES = frozenset(
    """consolidate-segments contiguous help hold ignore-pbs no-requeue overcommit oversubscribe parsable quiet reboot requeue
    spread-job spread-segments stepmgr test-only usage use-min-nodes verbose version wait""".split()
)
"""Options that take no value."""
_MAY_HAVE_VALUE = frozenset("exclusive get-user-env nice no-kill oom-kill-step propagate resv-ports x11".split())
_NEED_VALUE = frozenset(
    """account acctg-freq admin-comment array batch bb bbf begin chdir cluster-constraint clusters comment constraint
    container container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency
    distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node
    gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type mail-user
    mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes ntasks ntasks-per-core
    ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output partition power prefer priority profile qos
    reservation segment signal sockets-per-node switches tasks-per-node thread-spec threads-per-core time time-min tmp
    tres-per-job tres-per-node tres-per-socket tres-per-task tres-bind uid wait-all-nodes wckey wrap""".split()
)
KNOWN = _SWITCHES | _MAY_HAVE_VALUE | _NEED_VALUE
"""The options of sbatch since Slurm 20.11. A site may have added others, which pass as they are written."""

_OWNED = {
    "job-name": ("--name", None),
    "account": ("--account", "account.default"),
    "partition": ("--partition", "partitions, with default: true"),
    "nodes": ("--nodes", None),
    "time": ("--time", "defaults.time"),
    "time-min": ("--time", "defaults.time"),
    "ntasks": ("--gpus-per-node, or --set tasks_per_node=N where nodes have no GPUs", "defaults.gpus_per_node"),
    **dict.fromkeys(  # the second is the first in older words, which no manual names
        ("ntasks-per-node", "tasks-per-node"),
        ("--gpus-per-node, or --set tasks_per_node=N where nodes have no GPUs", "defaults.gpus_per_node"),
    ),
    "ntasks-per-gpu": ("--gpus-per-node", "defaults.gpus_per_node"),
    "cpus-per-gpu": ("--sbatch cpus-per-task=N", "node.cpus_per_gpu"),
    "nodefile": ("--sbatch nodelist=NAMES", "--nodelist=NAMES"),
}
"""What the plan has to know, and what sets it in a request and in a profile; None where each request decides."""
_OWNED_BY_PROFILE = {"cpus-per-task": "node.cpus_per_gpu"}
"""What a request may give, since the plan reads it there, and a profile says in a field of its own."""
_GPUS = frozenset(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"))
_MAY_HOLD_GPUS = frozenset(("gres", "tres-per-job", "tres-per-node", "tres-per-socket", "tres-per-task"))
_CPU_AMONG_OTHERS = late_pattern(r"(?:^|,)cpu[:=]")
_GPU_AMONG_OTHERS = late_pattern(r"(?:^|[,/:])gpu(?:$|[:=,/])")
_TRACKED = frozenset(
    """output error open-mode array export export-file clusters parsable quiet test-only wait wrap help usage version""".split()
)
"""Options by which hpc-llm would lose the job: it sets them itself, or they change what sbatch does or answers."""
_AGAINST_PLAN = {
    "overcommit": "Slurm then counts the CPUs of the job once a node and not once a task, so that each rank has a part of what the plan gives it",
}
"""Switches that take from the ranks what the plan counts for them, and how."""
_OF_ROOT = frozenset(("gid", "uid"))
_RUNS_OR_LEADS = late_pattern(r"bbf?|chdir|container(?:-.*)?|get-user-env|gid|input|uid|x11")
"""Options that run or load something, take the job or its files elsewhere, or make it somebody else's."""
ADDRESSEE = "mail-user"
"""To whom Slurm writes of a job: its name, its cluster and its times."""
_SHORTEST_PART = 3
"""Letters of an option that a longer word is taken to mean."""
_ONE_OF = (
    ("mem", "mem-per-cpu", "mem-per-gpu"),
    ("requeue", "no-requeue"),
    ("exclusive", "oversubscribe"),
    ("core-spec", "thread-spec"),
)
"""Options of which sbatch refuses two together, or takes the last."""
_FOR_PEOPLE = ("comment", "admin-comment", "extra")
"""Options that take any text."""
_NO_SIGNAL = "nothing in the job acts on a signal before the end. Leave it out, and ask for enough time with {time}"
_SIGNAL = late_pattern(r"(?:[BR]:|RB:|BR:)?(?:SIG)?(?:USR1|TERM)@[1-9][0-9]{0,5}")
_BEFORE_THE_END = "B:USR1@300"
"""What a run that keeps checkpoints can be asked for: seconds in which to save."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where options are written, so that a refusal can say what to change there."""

    place: str
    """`--sbatch`, or the field of a profile."""
    is_profile: bool = False
    is_header: bool = False
    """Whether a template writes them into the script."""
    forbidden: Collection[str] = ()
    """Options that the site refuses."""
    refuser: str = ""
    """Who forbids them, as in `cluster delta`."""
    counts_gpus: bool = True
    """Whether the plan counts the job's GPUs; without any, a job may ask for them as for anything else."""

    def said(self, name: str) -> str:
        """The option as it is written there."""
        return f"{self.place} {self.instead('', '' if name.startswith('-') else '--')}{name}"

    def instead(self, request: str, profile: str) -> str:
        return profile if self.is_profile or self.is_header else request


def read_options(texts: Iterable[str], source: Source) -> dict[str, str]:
    """Option -> value ('' where it has none) of `KEY=VALUE` texts, with or without dashes in front.

    Raises:
        RequestError: an option that comes twice, that sbatch would take for another, or that is the plan's own.
        PlanError: an option that the site refuses.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name.strip(" -"):
            raise RequestError(f"{source.place} {text!r}: write it as {source.instead('KEY=VALUE', '--KEY=VALUE')}.")
        name = _in_full(name.strip().removeprefix("--"), value, source)
        _check_owner(name, value, source)
        _check_value(name, value, source)
        _check_others(name, value, found, source)
        found[name] = value
    return found


def _in_full(name: str, value: str, source: Source) -> str:
    """The name, refused unless it is written in the one way in which nothing can come twice unseen."""
    if re.fullmatch(r"[A-Za-z]|-[A-Za-z].*", name, re.DOTALL) and (meant := _SHORT.get(name.lstrip("-")[0])):
        _check_owner(meant, value, source)
        example = meant if meant in _SWITCHES else f"{meant}=VALUE"
        raise RequestError(f"{source.said(name)}: write options in full, {source.instead('', '--')}{example}.")
    # A plugin of the site may have an option with an underscore; sbatch has none.
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name) or ("_" in name and name.replace("_", "-") in KNOWN):
        raise RequestError(
            f"{source.place} {name!r}: not a long sbatch option. Write it as in sbatch's manual, "
            f"e.g. {source.instead('qos=high', '--qos=high')}."
        )
    known = KNOWN | set(source.forbidden)
    longer = sorted(option for option in known if option.startswith(name)) if name not in known else []
    if longer:
        # sbatch takes any unambiguous beginning of an option, so `part=x` would pass for partition.
        names = " or ".join(f"--{option}" for option in longer[:3])
        raise RequestError(f"{source.said(name)}: sbatch reads it as the beginning of {names}. Write options in full.")
    return name


def _check_owner(name: str, value: str, source: Source) -> None:
    """Refuse what the site forbids, what the plan has to know and what hpc-llm itself relies on."""
    said = source.said(name)
    if name in source.forbidden:
        raise PlanError(f"{said}: {source.refuser} refuses --{name}. Leave it out.")
    if name == "signal" and source.is_profile:
        raise RequestError(f"{said}: {_NO_SIGNAL.format(time='defaults.time')}.")
    if name == "signal" and not _SIGNAL.fullmatch(value):
        raise RequestError(
            f"{said}={value}: a run saves on USR1 or TERM so many seconds before its end, as in {_BEFORE_THE_END}."
        )
    if name in _TRACKED:
        raise RequestError(f"{said}: hpc-llm sets --{name} itself, because tracking relies on it. Leave it out.")
    if name in _OF_ROOT:
        raise RequestError(f"{said}: Slurm lets only root send a job in another's name. Leave it out.")
    if name in _AGAINST_PLAN:
        raise RequestError(f"{said}: {_AGAINST_PLAN[name]}. Leave it out.")
    own: tuple[str, str | None] | None = _OWNED.get(name)
    if source.counts_gpus and asks_for_gpus(name, value):
        own = ("--gpus-per-node", "gpu.per_node and request.gpu_style")
    if name == "tres-per-task" and _CPU_AMONG_OTHERS.search(value):
        own = _OWNED["cpus-per-gpu"]
    if source.is_profile and name in _OWNED_BY_PROFILE:
        own = ("", _OWNED_BY_PROFILE[name])
    if own is not None:
        way = own[1] if source.is_profile else own[0]
        advice = f"Use {way}" if way else "Leave it out, for each request decides"
        raise RequestError(f"{said}: the plan has to know it. {advice}.")


def _check_value(name: str, value: str, source: Source) -> None:
    if value and name in _SWITCHES:
        raise RequestError(f"{source.said(name)}={value}: sbatch takes no value there. Write {name} alone.")
    if any(ord(c) < 32 or ord(c) == 127 for c in value):
        raise RequestError(
            f"{source.said(name)} {value!r} is empty or holds a control character, which would break a #SBATCH line."
        )
    if value != value.strip() and value.strip() and name not in _FOR_PEOPLE:
        raise RequestError(f"{source.said(name)}={value!r} has a blank at an end. Write {name}={value.strip()}.")
    if not value.strip() and name in _NEED_VALUE:
        raise RequestError(f"{source.said(name)}: sbatch needs a value there. Write {name}=VALUE.")
    if (wrong := wrong_value(name, value)) is not None:
        raise RequestError(f"{source.said(name)}={value}: {wrong}")


def _check_others(name: str, value: str, before: Mapping[str, str], source: Source) -> None:
    if name in before:
        both = " and ".join(f"{name}={text}" if text else name for text in (before[name], value))
        raise RequestError(f"{source.said(name)} is given twice: {both}. Keep one of them.")
    other = next((rival for rival in rivals(name) if rival in before), None)
    if other is not None:
        raise RequestError(f"{source.said(other)} and {name} exclude each other. Keep one of them.")


_LATEST_S = 65535
"""So many seconds before its end at most Slurm sends a job a signal."""


def check_signal(options: Iterable[str], *, saves: bool, time_s: int | None) -> None:
    """Raise RequestError where a request asks for a signal, and the run would do nothing when it comes, or has not begun by then."""
    pairs = (text.strip(" -").partition("=") for text in options)
    asked = next((value.strip() for name, _, value in pairs if name == "signal"), None)
    if asked is None:
        return
    if not saves:
        raise RequestError(
            f"--sbatch signal: {_NO_SIGNAL.format(time='--time')}; with --save-every N a run saves when it comes."
        )
    before = re.search(r"@(\d{1,18})$", asked)
    if before is not None and int(before[1]) > _LATEST_S:
        raise RequestError(f"--sbatch signal={asked}: sbatch takes at most {_LATEST_S} s before the end. Ask for less.")
    if before is not None and time_s is not None and int(before[1]) >= time_s:
        raise RequestError(
            f"--sbatch signal={asked}: the job may take {time_s} s, so the signal would come at its start, when nothing is there to be saved. "
            "Ask for fewer seconds before its end, as in B:USR1@300, or for more time with --time."
        )


def is_harmless(name: str, value: str) -> bool:
    """Whether an option only says what a job asks for, so that a file that may be a stranger's may say it.

    What sbatch does not have by itself is a plugin's, which may do anything. A beginning of an option, which sbatch would
    take for the whole, is refused for that.

    >>> is_harmless("qos", "high"), is_harmless("container-image", "x"), is_harmless("nodelist", "/x"), is_harmless("qo", "x")
    (True, False, False, True)
    """
    if name in _FOR_PEOPLE:
        return True
    return (
        _is_beginning(name)
        and name != ADDRESSEE
        and _RUNS_OR_LEADS.fullmatch(name) is None
        and not value.strip().startswith(("/", "~", ".", "$"))
    )


def _is_beginning(name: str) -> bool:
    return bool(name) and any(option.startswith(name) for option in KNOWN)


def refuse_harmful(texts: Iterable[str], where: str) -> None:
    """Raise a RequestError for the first `KEY=VALUE` of a file that may be a stranger's which is not harmless.

    What `read_options` refuses wherever it is written is left to it.
    """
    for text in texts:
        name, _, value = text.partition("=")
        name = name.strip().removeprefix("--")
        is_whole = re.fullmatch(r"[a-z][a-z0-9-]+", name) and (name in KNOWN or not _is_beginning(name))
        if is_whole and name not in _TRACKED and name not in _OWNED and not is_harmless(name, value):
            hint = f" (did you mean --{near}?)" if (near := _nearest(name)) else ""
            known = (
                "may run or load something, or lead the job elsewhere" if name in KNOWN else f"is not known here{hint}"
            )
            known = "says to whom Slurm writes of the job" if name == ADDRESSEE else known
            raise RequestError(
                f"{where}: sbatch.{name} {known}, and a file may be a stranger's. Say it on the command line: "
                f"{way_of(name) or f'--sbatch {name}=VALUE'}."
            )


def rivals(name: str) -> tuple[str, ...]:
    """Options that cannot stand beside this one; what is given later takes the place of all.

    >>> rivals("mem"), rivals("qos")
    (('mem-per-cpu', 'mem-per-gpu'), ())
    """
    return tuple(other for group in _ONE_OF if name in group for other in group if other != name)


def asks_for_gpus(name: str, value: str) -> bool:
    """Whether the option asks for GPUs, whatever else it asks for.

    >>> asks_for_gpus("gres", "lustre:1,gpu:v100:2"), asks_for_gpus("gres", "lustre:1"), asks_for_gpus("gpus", "2")
    (True, False, True)
    """
    return name in _GPUS or (name in _MAY_HOLD_GPUS and _GPU_AMONG_OTHERS.search(value) is not None)


def way_of(name: str, value: str = "") -> str | None:
    """How a request says an option of sbatch; None of what sbatch does not have, or the plan or hpc-llm decides.

    >>> way_of("qos"), way_of("requeue"), way_of("array"), way_of("gres", "gpu:2"), way_of("gres", "lustre:1")
    ('--sbatch qos=VALUE', '--sbatch requeue', None, None, '--sbatch gres=VALUE')
    """
    if (
        name not in KNOWN
        or name in _OF_ROOT
        or name in _AGAINST_PLAN
        or is_tracked(name)
        or owner(name, value) is not None
    ):
        return None
    return f"--sbatch {name}=VALUE" if name in _NEED_VALUE else f"--sbatch {name}"


def is_tracked(name: str) -> bool:
    """Whether hpc-llm sets the option itself, or would lose the job by it."""
    return name in _TRACKED


def owner(name: str, value: str) -> tuple[str, str | None] | None:
    """What sets in a request, and in a profile, what the plan has to know of the option; None of any other.

    >>> owner("tres-per-task", "cpu=4,gres/gpu=1")[0], owner("gres", "lustre:1")
    ('--gpus-per-node', None)
    """
    if asks_for_gpus(name, value):
        return "--gpus-per-node", "gpu.per_node and request.gpu_style"
    if name == "tres-per-task" and _CPU_AMONG_OTHERS.search(value):
        return _OWNED["cpus-per-gpu"]
    return _OWNED.get(name)


def in_full(letter: str) -> str | None:
    """The option that sbatch takes by that letter."""
    return _SHORT.get(letter)


def takes_word(name: str) -> bool:
    """Whether the word behind an option of sbatch is its value, where nothing joins the two.

    >>> takes_word("comment"), takes_word("requeue"), takes_word("nice")
    (True, False, False)
    """
    return name not in _SWITCHES and name not in _MAY_HAVE_VALUE


def not_known(name: str) -> str | None:
    """What to say of an option that sbatch does not have by itself; None of one that it has.

    >>> not_known("partion"), not_known("qos")
    ('--partion is no option of sbatch that is known here (did you mean --partition?), it passes as it is written', None)
    """
    if name in KNOWN:
        return None
    hint = f" (did you mean --{near}?)" if (near := _nearest(name)) else ""
    return f"--{name} is no option of sbatch that is known here{hint}, it passes as it is written"


def _nearest(name: str) -> str | None:
    """The option that is written nearly so, else the longest with which the name begins or ends, as `memory` with `mem`."""
    close = difflib.get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.8)
    parts = [
        one for one in sorted(KNOWN) if len(one) >= _SHORTEST_PART and one in (name[: len(one)], name[-len(one) :])
    ]
    return next(iter(close or sorted(parts, key=len, reverse=True)), None)
