"""How far a setting reaches: places outside the run's folder, others' accounts, variables that steer a job's traffic. Standard library only.

Who types a flag means it. A file may be a stranger's, as in a checkout that was tried out, and says neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.site.code_variables import loads_code, steers_srun
from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_names import is_secret_name
from hpc_llm.text.shell import variables_in

SCRATCH = "nvme_path"
"""DeepSpeed's folder on a disk of the node; the only one of its settings that has to lie outside the run's folder."""
_ADDRESSEES = ("wandb.team", "comet.workspace")
"""DeepSpeed's settings of whose figures a tracker keeps."""
_LEAVES = re.compile(r"\A(?:[/~\\]|[A-Za-z][A-Za-z0-9+.-]*:[/\\]|(?:.*[/\\])?\.\.(?:[/\\]|$))", re.DOTALL)
"""Absolute, somebody's home, an address, or a way up."""
_STEERS_TRAFFIC = late_pattern(
    r"""\A(?:\w{0,60}PROXY(?:_(?:URL|HOST|PORT|SERVER))? | \w{0,60}(?:CA_?BUNDLE|CA_?CERTS?|CAINFO|CA_?FILE|CA_?PATH|CA_?DIR)\w{0,20}
    | SSL_?\w{0,60} | (?!UCX_)\w{0,60}_(?:SSL|TLS)_\w{1,60} | \w{0,60}(?:_SSL|HTTPSVERIFY|INSECURE|NO_VERIFY|SSL_VERIFY|TRUSTED_HOST) | PIP_CERT
    | \w{0,60}ENDPOINT(?:_URL)?(?:_\w{1,30})? | \w{1,60}_(?:URL|URI|DSN)(?:_OVERRIDE)? | MODELSCOPE_DOMAIN | \w{0,60}INDEX_URL
    | (?:WANDB|COMET|NEPTUNE|SWANLAB|CLEARML|LANGSMITH|LANGCHAIN|OPIK|TRACKIO)_\w{0,40}(?:ENTITY|WORKSPACE|TEAM|WORKSPACE_ID|SPACE_ID)
    | RES_OPTIONS | LOCALDOMAIN | HOSTALIASES | RESOLV_\w{1,60} | NSS_\w{1,60}
    | MASTER_PORT | DISPLAY | WAYLAND_DISPLAY | \w{1,60}_(?:ADDR|ADDRESS(?:ES)?|HOSTS?|HOSTNAMES?|SERVERS?) | \w{0,60}HOST_?FILE | NCCL_COMM_ID | \w{0,60}RDZV\w{0,60} | SOCKS_\w{1,60} | KRB5\w{1,60})\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""Variables by which programs choose through whom and to whom they speak, and whom they believe."""
_NAMES_PLACE = re.compile(r"(?:HOME|DIRS?|PATH|FILES?|ROOT|CACHE|PREFIX|FOLDER)\Z", re.IGNORECASE)


def steers_traffic(variable: str) -> bool:
    """Whether a variable of that name says where traffic of the job goes, or whose certificate it trusts, whatever its value.

    >>> steers_traffic("https_proxy"), steers_traffic("CURL_CA_BUNDLE"), steers_traffic("HF_ENDPOINT"), steers_traffic("MASTER_ADDR")
    (True, True, True, True)
    >>> steers_traffic("NCCL_SOCKET_IFNAME"), steers_traffic("NCCL_PROXY_APPEND_BATCH_SIZE"), steers_traffic("HF_HUB_OFFLINE")
    (False, False, False)
    """
    return _STEERS_TRAFFIC.match(variable) is not None


def leaves_folder(text: str) -> bool:
    """Whether a path leads out of the folder that it is relative to.

    >>> leaves_folder("/tmp/x"), leaves_folder("a/../../x"), leaves_folder("s3://b/x"), leaves_folder("profile/x..txt")
    (True, True, True, False)
    """
    return _LEAVES.match(text) is not None


def refuse_way_out(config: Mapping[str, Any], where: str, is_record: Callable[[str], bool]) -> None:
    """Raise a RequestError for the first text of a DeepSpeed config by which something would be written elsewhere.

    `is_record` tells whether a path in the run's folder is one of its records, which would be overwritten.
    """
    for place, key, text in _texts(config):
        if key != SCRATCH and leaves_folder(text):
            raise RequestError(
                f"{where}: {place} is {text!r}, which leads out of the run's folder. Give a path inside it, as in "
                "profile/flops.txt: relative, and without '..'."
            )
        if is_record(text):
            raise RequestError(
                f"{where}: {place} is {text!r}, which is a record of the run itself. Choose another name."
            )


def refuse_reach(config: Mapping[str, Any], where: str) -> None:
    """Raise a RequestError where a file that may be a stranger's says on which disk of the node to write, or whose figures a
    tracker keeps."""
    for place, key, text in _texts(config):
        if key == SCRATCH and leaves_folder(text):
            raise RequestError(
                f"{where}: {place} is {text!r}, outside the run's folder. Which disk of a node is written to is said on the "
                f"command line (--set {place}=FOLDER) or by a method in ~/.config/hpc-llm/configs."
            )
        if place.endswith(_ADDRESSEES) and text:
            raise RequestError(
                f"{where}: {place} is {text!r}, to whom the job sends its figures. That is said on the command line "
                f"(--set {place}=NAME) or by a method in ~/.config/hpc-llm/configs."
            )


def leads_elsewhere(variable: str, value: str) -> bool:
    """Whether a variable may send what reads or writes by it to a place outside the run's folder.

    A value that is itself a variable (`${SCRATCH}`) is judged by the name beside it.

    >>> leads_elsewhere("NCCL_DEBUG_FILE", "/tmp/x"), leads_elsewhere("A", ".."), leads_elsewhere("HF_HOME", "${SCRATCH}")
    (True, True, True)
    >>> leads_elsewhere("NCCL_DEBUG", "INFO"), leads_elsewhere("OMP_NUM_THREADS", "${SLURM_CPUS_PER_TASK}")
    (False, False)
    """
    is_place = "/" in value or "\\" in value or leaves_folder(value)
    return is_place or ("$" in value and _NAMES_PLACE.search(variable) is not None)


def refuse_loading(variable: str, value: str, where: str, is_record: Callable[[str], bool]) -> None:
    """Raise a RequestError where a file that may be a stranger's would have the job load code, write or speak somewhere else,
    write over a record of the run, which `is_record` tells, or pass a secret on under another name.

    Not all variables by which a library finds code are known here; that each of them leads somewhere is.
    """
    if loads_code(variable):
        what = "decides which code the job loads"
    elif steers_srun(variable):
        what = "decides where or with what srun starts the ranks"
    elif steers_traffic(variable):
        what = "decides where the job's traffic goes, or whom it trusts"
    elif leads_elsewhere(variable, value):
        what = "leads to a place outside the run's folder"
    elif is_record(value.strip()):
        what = "names a record of the run itself"
    elif any(map(is_secret_name, variables_in([value]))):
        what = "would hold what a variable for a secret holds"
    else:
        return
    raise RequestError(
        f"{where}: env.{variable} {what}. Say it on the command line (--set env.{variable}=VALUE) or under env in a profile "
        "of your own."
    )


def _texts(value: Any, place: str = "", key: str = "") -> Iterator[tuple[str, str, str]]:
    """(dotted place, key, text) of every text in a value of JSON types."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{place}.{name}" if place else str(name), str(name))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, place, key)
    elif isinstance(value, str):
        yield place, key, value
