"""An engine of another package: plain PyTorch that says how many steps it took. torch is imported on the nodes alone."""

from __future__ import annotations

from typing import Any

from hpc_llm.planning.engines import EngineFacts, Wanted


def lacks(wanted: Wanted) -> str | None:
    return "cannot split anything" if wanted.zero_stage else None


FACTS = EngineFacts(name="counting", module="their_engine", packages=("tokenizers",), lacks=lacks)


def kind() -> Any:
    from hpc_llm.worker.engines import Built, EngineKind
    from hpc_llm.worker.engines.plain import KIND, PlainEngine
    from hpc_llm.worker.model.build import build_model

    class Counting(PlainEngine):
        name = "counting"
        taken = 0

        def step(self) -> Any:
            self.taken += 1
            return super().step()

        def close(self) -> None:
            print(f"counted {self.taken} steps in {__file__}")
            super().close()

    def build(plan: Any, device: Any) -> Any:
        return Built(Counting(plan, build_model(plan, {}, device), device))

    return EngineKind("counting", missing=KIND.missing, join=KIND.join, build=build)
