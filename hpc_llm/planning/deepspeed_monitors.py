"""The trackers that DeepSpeed itself writes figures to during a run. Standard library only.

Read from DeepSpeed 0.19.8 (monitor/), which ends in its first rank where a tracker's package is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpc_llm.errors import PlanError

MONITORS = {"tensorboard": "tensorboard", "wandb": "wandb", "comet": "comet_ml", "csv_monitor": None}
"""Block of the config -> the package that it imports."""


def enabled_monitors(config: Mapping[str, Any]) -> list[str]:
    """The blocks of a config that are switched on."""
    return [name for name in MONITORS if (config.get(name) or {}).get("enabled")]


def monitor_packages(config: Mapping[str, Any]) -> list[str]:
    """What a job with that config imports for its trackers."""
    return [package for name in enabled_monitors(config) if (package := MONITORS[name])]


def check_monitors(config: Mapping[str, Any], variables: Mapping[str, str], where: str) -> None:
    """Raise a PlanError for a tracker that sends figures from a job with these variables, whose nodes have no internet (`where`)."""
    comet = config.get("comet") or {}
    is_offline = {
        "wandb": variables.get("WANDB_MODE") in ("offline", "disabled", "dryrun"),
        "comet": comet.get("online") is False or variables.get("COMET_START_ONLINE", "").lower() in ("0", "false"),
    }
    for name in enabled_monitors(config):
        if not is_offline.get(name, True):
            raise PlanError(
                f"deepspeed.{name} sends figures while the job runs, and {where}. {_OFFLINE[name]}, or leave it out and send the finished "
                "run with `hpc-llm export`."
            )


_OFFLINE = {
    "wandb": "Add --set env.WANDB_MODE=offline and send its folder later with `wandb sync`",
    "comet": "Add --set deepspeed.comet.online=false and send its archive later with `comet upload`",
}
