"""Each optimizer that a method can name is planned, handed to DeepSpeed and trains."""

from __future__ import annotations

import pytest
from rendering import planned
from tiny_plans import RunPlan, make_plan

from hpc_llm.errors import RequestError
from hpc_llm.planning.optimizers import NAMES, OF_DEEPSPEED, PURE_BF16, bitsandbytes_name

pytestmark = pytest.mark.train


WITH_ZERO = [name for name in NAMES if name not in PURE_BF16]


@pytest.mark.parametrize("method", ["z2o", "z3"])
@pytest.mark.parametrize("name", WITH_ZERO)
def test_it_trains(name: str, method: str, run_plan: RunPlan) -> None:
    values = {"type": name, "lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
    result = run_plan(make_plan(method, optimizer=values))
    assert result["outcome"] == "COMPLETED", result["outcome_reason"]
    assert result["loss_last"] < result["loss_first"] - 0.2


@pytest.mark.parametrize("name", WITH_ZERO)
def test_it_can_be_planned_and_deepspeed_gets_its_own_alone(name: str) -> None:
    plan = planned("delta", "z3", set=(f"optimizer.type={name}",)).plan
    assert plan.optimizer.type == name
    assert ("optimizer" in plan.engine.deepspeed) == (name in OF_DEEPSPEED)


@pytest.mark.parametrize("name", [name for name in WITH_ZERO if name not in OF_DEEPSPEED])
def test_bitsandbytes_has_it(name: str) -> None:
    import bitsandbytes

    assert issubclass(getattr(bitsandbytes.optim, name), bitsandbytes.optim.optimizer.Optimizer2State)
    assert bitsandbytes_name(name.lower()) == name


def test_small_changes_are_kept_in_the_mean_where_nothing_is_in_fp32() -> None:
    """Each step asks for a change of 1e-4 of weights of 1.0, of which bf16 has no neighbour nearer than 0.0039."""
    import torch

    from hpc_llm.worker.engines.pure_bf16 import AdamWBF16

    def moved(seed: int, steps: int) -> torch.Tensor:
        weight = torch.ones(40_000, dtype=torch.bfloat16, requires_grad=True)
        optimizer = AdamWBF16([weight], lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, seed=seed)
        for _ in range(steps):
            weight.grad = torch.full_like(weight, 0.01)
            optimizer.step()
        return weight.detach().float()

    after = moved(1, 300)
    assert float(after.mean()) == pytest.approx(1 - 300 * 1e-4, abs=1e-3)
    assert torch.equal(after, moved(1, 300))
    assert not torch.equal(after, moved(2, 300))


def test_what_is_no_number_stays_none_where_it_is_rounded_at_random() -> None:
    import torch

    from hpc_llm.worker.engines.pure_bf16 import noise, rounded

    values = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0, -1.5])
    low = rounded(values, noise(5, torch.tensor(7, dtype=torch.int32)))
    assert torch.equal(low.float()[:2], values[:2]) and bool(low[2].isnan()) and low.tolist()[3:] == [0.0, -1.5]


def test_what_is_drawn_is_even_and_other_for_each_place_and_step() -> None:
    import torch

    from hpc_llm.worker.engines.pure_bf16 import noise

    rows = torch.stack([noise(1 << 16, torch.tensor(salt, dtype=torch.int32)) for salt in (0, 1, -1, 2**31 - 1)])
    for low in (rows & 0xFFFF, (rows >> 16) & 0xFFFF):
        share = low.double() / 2**16
        assert (share.mean(1) - 0.5).abs().max() < 0.005 and (share.var(1) - 1 / 12).abs().max() < 0.002
        together = torch.corrcoef(torch.cat((share, share[:1].roll(1, 1))))
        assert (together - torch.eye(5)).abs().max() < 0.02  # of neither another step nor a neighbour


@pytest.mark.parametrize(
    ("cluster", "method", "settings", "said"),
    [
        ("delta", "z2", ("optimizer.type=AdamWBF16",), "no engine can do this: deepspeed keeps copies in fp32"),
        ("delta", "ddp", ("optimizer.type=AdamWBF16", "engine=deepspeed"), "Engines that can: plain."),
        ("delta", "z3", ("optimizer.type=AdamWBF16", "engine=fsdp2"), "no engine can do this: fsdp2 keeps in fp32"),
        ("taiwania2", "bf16", (), "the precision is fp16"),
        ("delta", "bf16", ("precision=fp32",), "the precision is fp32"),
    ],
)
def test_pure_bf16_is_refused_where_it_cannot_be(
    cluster: str, method: str, settings: tuple[str, ...], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        planned(cluster, method, set=settings)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("factor", [None, 0.3])
def test_adamw_in_one_pass_is_that_of_torch(dtype: str, factor: float | None) -> None:
    import torch

    from hpc_llm.worker.engines.row_step import RowStep

    draw = torch.Generator().manual_seed(5)
    ours, theirs = (torch.linspace(-2, 2, 641) for _ in range(2))
    low = torch.empty(641, dtype=torch.bfloat16)
    one, other = (torch.optim.AdamW([row], lr=1e-2, weight_decay=0.1) for row in (ours, theirs))
    step, scale = RowStep(one), None if factor is None else torch.tensor([factor])
    for number in range(50):
        gradient = torch.randn(641, generator=draw).to(getattr(torch, dtype))
        for optimizer, row in ((one, ours), (other, theirs)):
            optimizer.param_groups[0]["lr"] = 1e-2 * (1 - number / 60)
            row.grad = gradient.float() * (1.0 if factor is None else factor)
        other.step()
        with torch.no_grad():
            if step.begin(scale):
                step(ours, low, gradient)
            else:
                assert number == 0  # torch makes the states
                one.step()
    assert not step.sentences
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert torch.equal(low, ours.bfloat16())
    for key in ("step", "exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(one.state[ours][key], other.state[theirs][key], rtol=1e-6, atol=1e-6)


def test_an_optimizer_whose_pass_cannot_be_compiled_steps_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from hpc_llm.worker.engines.row_step import RowStep

    def refused(*args: object) -> None:
        raise RuntimeError("the compiler of this node is broken")

    monkeypatch.setattr(torch, "compile", lambda function, **how: refused)
    row, low = torch.ones(64), torch.empty(64, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW([row], lr=1e-2)
    step = RowStep(optimizer)
    row.grad = torch.ones(64)
    optimizer.step()
    with torch.no_grad():
        assert step.begin(None)
        step(row, low, torch.ones(64))
    assert float(row[0]) == pytest.approx(1 - 2e-2 - 2e-4, abs=1e-5) and torch.equal(low, row.bfloat16())
    assert len(step.sentences) == 1 and "the compiler of this node is broken" in step.sentences[0]


def test_a_step_in_bf16_that_cannot_be_compiled_says_so_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from hpc_llm.worker.engines import pure_bf16

    def refused(*args: object, **how: object) -> None:
        raise RuntimeError("no compiler was found")

    monkeypatch.setattr(torch, "compile", refused)

    def stepped(compiles: bool) -> tuple[torch.Tensor, list[str]]:
        weight = torch.linspace(-1, 1, 100).bfloat16().requires_grad_()
        optimizer = pure_bf16.AdamWBF16([weight], lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, seed=1)
        if compiles:
            optimizer._compiled = pure_bf16.change
            optimizer._compile()  # as on a GPU, which is not here
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        return weight.detach(), optimizer.sentences

    (plain, nothing), (same, said) = stepped(False), stepped(True)
    assert torch.equal(plain, same) and nothing == []
    assert len(said) == 1 and said[0].endswith("nothing can be compiled here: no compiler was found")


def test_every_piece_of_a_step_in_bf16_draws_for_its_own_place_and_steps_by_its_groups_rate() -> None:
    """What is sent to the device once a step is each piece's own: 5 numbers, 2**20, 3 and 64."""
    import torch

    from hpc_llm.worker.engines import pure_bf16

    how = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
    weights = [torch.linspace(-1, 1, size).bfloat16().requires_grad_() for size in (5, 2**20 + 3, 64)]
    rates = (1e-2, 1e-2, 1e-3)
    expected = []
    for weight, lr, pieces in zip(weights, rates, ([1], [2, 3], [4]), strict=True):
        weight.grad = torch.full_like(weight, 0.25)
        moved = weight.detach().clone()
        for place, piece in zip(pieces, moved.split(2**20), strict=True):
            moments = torch.zeros_like(piece), torch.zeros_like(piece)
            by = pure_bf16._rates({"lr": lr, **how}, 1, piece.device)
            salt = pure_bf16.salt_on(piece.device, 7, 1, place)
            pure_bf16.change(piece, torch.full_like(piece, 0.25), *moments, by, salt)
        expected.append(moved)
    groups = [{"params": weights[:2]}, {"params": weights[2:], "lr": 1e-3}]
    pure_bf16.AdamWBF16(groups, lr=1e-2, seed=7, **how).step()
    assert all(torch.equal(weight.detach(), moved) for weight, moved in zip(weights, expected, strict=True))
