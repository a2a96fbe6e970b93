"""The DeepSpeed config that a request asks for, its method's with the settings, and how it goes with the rest of the plan."""

from __future__ import annotations

import copy
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.planning.deepspeed_config import COMPUTED, check_keys
from hpc_llm.planning.deepspeed_limits import check_set
from hpc_llm.planning.deepspeed_monitors import check_monitors
from hpc_llm.planning.deepspeed_schedules import schedule_notices
from hpc_llm.planning.draft import Draft
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.method import Method
from hpc_llm.records.run import is_record
from hpc_llm.site.cluster import Cluster
from hpc_llm.site.reach import refuse_way_out

COMPUTED_BLOCKS = {
    "optimizer": "Set optimizer.lr and its like.",
    "fp16.enabled": "Set precision.",
    "bf16.enabled": "Set precision.",
    "bfloat16": "Set precision.",
    **dict.fromkeys(COMPUTED, "Set micro_batch_size, gradient_accumulation_steps, or use --nodes and --gpus-per-node."),
}
"""Places in the DeepSpeed config that follow from the plan."""


def ask_deepspeed(method: Method, draft: Draft) -> dict[str, Any]:
    """The method's DeepSpeed config with the settings, without what is computed."""
    settings = draft.settings.of("deepspeed")
    config: dict[str, Any] = draft.put("deepspeed", copy.deepcopy(method.deepspeed), f"method {method.name}")
    for place in (".".join(setting.inside) for setting in settings):
        for computed, advice in COMPUTED_BLOCKS.items():
            if place == computed or place.startswith(f"{computed}."):
                raise RequestError(f"deepspeed.{place} is computed. {advice}")
    where = draft.settings.said("deepspeed") if settings else "deepspeed"
    check_keys(config, where)
    draft.notices += check_set(config, {key for one in settings for key in one.inside[:1]}, where)
    refuse_way_out(config, where, is_record)
    for key in (*COMPUTED, "optimizer"):
        if key in config:
            raise RequestError(f"deepspeed.{key} is computed. {COMPUTED_BLOCKS[key]}")
    return config


def check_beside_plan(plan: Plan, cluster: Cluster, searches: bool) -> list[str]:
    """What is to be told of the config beside the rest of the plan. Raises PlanError for a tracker that the nodes cannot reach."""
    if plan.engine.name != "deepspeed":
        return []
    # What a file of variables says is not looked at here.
    if cluster.access.internet_compute == "no" and plan.job.env_file is None:
        of_nodes = cluster.env.single_node if plan.parallel.nodes == 1 else cluster.env.multi_node
        variables = {**cluster.env.common, **of_nodes, **plan.job.env}
        where = f"the nodes of cluster {cluster.name} have no internet (access.internet_compute)"
        check_monitors(plan.engine.deepspeed, variables, where)
    return [] if searches else schedule_notices(plan.engine.deepspeed, plan.workload.steps)
