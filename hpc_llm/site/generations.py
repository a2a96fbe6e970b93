"""Generations of GPUs: which architecture a name has, and what none of it can do. A profile that was copied and half changed says both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_FORMS = {"nvidia": (r"sm_\d{2,3}[a-z]?", "sm_80"), "amd": (r"gfx[0-9a-f]{3,5}", "gfx90a")}
"""How an architecture is written, and an example."""
_UNKNOWN = "unknown"
"""The architecture of a GPU that was found on this machine, and whose driver does not say."""
_NAMES = {
    "sm_60": "P100",
    "sm_61": "P40",
    "sm_70": "V100 V100S",
    "sm_75": "T4 2080 2080TI",
    "sm_80": "A100 A800 A30",
    "sm_86": "A40 A10 A10G A16 A6000 A5000 A4000 3080 3090 3090TI",
    "sm_89": "L4 L20 L40 L40S 4080 4090",
    "sm_90": "H100 H200 H800 H20 GH200",
    "sm_100": "B200 GB200",
    "sm_103": "B300 GB300",
    "sm_120": "5080 5090",
    "gfx906": "MI50 MI60",
    "gfx908": "MI100",
    "gfx90a": "MI210 MI250 MI250X",
    "gfx942": "MI300A MI300X MI308X MI325X",
    "gfx950": "MI350X MI355X",
}
_OF_NAME = {name: arch for arch, names in _NAMES.items() for name in names.split()}
"""Word of a name -> the architecture of the chip."""
_SINCE = {"bf16": 80, "tf32": 80, "flash_attention_2": 80, "int8": 75}
"""What a GPU of NVIDIA can, and from which compute capability on, times ten."""


def check_generation(vendor: str, model: str | None, arch: str | None, capabilities: Mapping[str, bool]) -> None:
    """Raise ValueError where name, architecture and capabilities are not of one GPU: a job would be planned for another and die."""
    if vendor not in _FORMS or not arch or arch == _UNKNOWN:
        return
    form, example = _FORMS[vendor]
    if not re.fullmatch(form, arch):
        raise ValueError(f"arch is '{arch}', and those of vendor '{vendor}' are written as {example}")
    named = _archs_of(model)
    if len(named) == 1 and (meant := named.pop()) != arch.rstrip("abcf" if vendor == "nvidia" else ""):
        raise ValueError(
            f"arch is {arch}, and a {model} has {meant}. Write arch: {meant}, or the name of the other GPU"
        )
    if vendor == "nvidia":
        since = int(re.findall(r"\d+", arch)[0])
        lacking = [name for name, first in _SINCE.items() if capabilities.get(name) and since < first]
        if lacking:
            raise ValueError(
                f"capabilities: {', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} true, which GPUs have from "
                f"sm_{max(_SINCE[name] for name in lacking)} on, and arch is {arch}. Write false"
            )


def missing_facts(vendor: str, model: str | None, names: Sequence[str]) -> str:
    """What is said of a GPU's facts that a profile lacks: all at once, each with what is to be written."""
    told = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    wanted = ", ".join(f"{name}: {_written(name, vendor, model)}" for name in names)
    are, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return f"{told} {are} missing, a GPU of vendor '{vendor}' has {them}. Write {wanted}"


def _written(name: str, vendor: str, model: str | None) -> str:
    """What stands in a profile for a fact of a GPU: an example, or how it is found out."""
    tool = "nvidia-smi" if vendor == "nvidia" else "rocm-smi"
    meant = _archs_of(model)
    return {
        "model": f"the name that {tool} shows",
        "arch": meant.pop() if len(meant) == 1 else f"as in {_FORMS[vendor][1]}",
        "memory_gib": f"GiB of one GPU as {tool} shows them",
        "capabilities": "{bf16: …, flash_attention_2: …, int8: …, nf4: …}, each true or false",
        "per_node": "GPUs of a node",
    }[name]


def _archs_of(model: str | None) -> set[str]:
    """The architectures that the words of a GPU's name stand for."""
    return {_OF_NAME[word] for word in re.findall(r"[A-Z0-9]+", (model or "").upper()) if word in _OF_NAME}
