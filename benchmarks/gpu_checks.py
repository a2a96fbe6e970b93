"""What can only be proven on a GPU: recorded, fused and compiled steps train as others do, and what cannot be recorded runs.

    python benchmarks/gpu_checks.py        flat, offload, documents, fp8: those alone

One line a check, with what was compared; exit code 1 where one of them fails. Needs torch, transformers, peft, bitsandbytes.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from hpc_llm.planning.experiment import Experiment, Plan  # noqa: E402
from hpc_llm.planning.method import load_method  # noqa: E402
from hpc_llm.planning.parts import OptimizerSetup  # noqa: E402
from hpc_llm.planning.plan import Site, plan  # noqa: E402
from hpc_llm.site.cluster import load_cluster  # noqa: E402
from hpc_llm.site.hardware import detect  # noqa: E402
from hpc_llm.worker import engines  # noqa: E402
from hpc_llm.worker.data import batches  # noqa: E402
from hpc_llm.worker.data.batch import LABELS, MASKED, POSITIONS  # noqa: E402
from hpc_llm.worker.engines.flat_units import Unit  # noqa: E402
from hpc_llm.worker.engines.host_memory import HostMemory  # noqa: E402
from hpc_llm.worker.engines.host_states import HostStates  # noqa: E402
from hpc_llm.worker.engines.pure_bf16 import AdamWBF16, change  # noqa: E402
from hpc_llm.worker.engines.streamed_step import StreamedStep  # noqa: E402
from hpc_llm.worker.kernels.fp8 import fp8_layers  # noqa: E402
from hpc_llm.worker.loop import take_step  # noqa: E402
from hpc_llm.worker.ranks import find_ranks  # noqa: E402

STEPS = 14
DEVICE = torch.device("cuda", 0)


def planned(method: str, *settings: str, model: str = "llama-68m") -> Plan:
    """A run of a small model, of the plain engine where nothing else is set."""
    asked = Experiment(
        cluster="local",
        method=method,
        model=model,
        micro_batch_size=2,
        sequence_length=128,
        steps=STEPS,
        set=settings if any(one.startswith("engine=") for one in settings) else ("engine=plain", *settings),
    )
    return plan(asked, load_cluster("local"), load_method(method), Site(scheduler="local", hardware=detect())).plan


def losses(one: Plan, lengths: tuple[int, ...] = (), way: str = "") -> tuple[list[float], list[str]]:
    """The loss of each step, and what the engine says; `lengths` cut the sequences of the steps in turn, `way` makes documents of them."""
    torch.manual_seed(one.workload.seed)
    built = engines.find(one.engine.name).build(one, DEVICE)
    source = batches(one, built.engine.module.config.vocab_size, find_ranks(os.environ), DEVICE)
    found = []
    for number in range(STEPS):
        cut = lengths[number % len(lengths)] if lengths else None
        loss, _ = take_step(built.engine, in_documents(shortened(source, cut), number, way), one)
        found.append(float(loss.total) / float(loss.targets))
    return found, built.engine.sentences()


def shortened(source: Iterator[Any], length: int | None) -> Iterator[Any]:
    for batch in source:
        yield {name: tensor[:, :length].contiguous() for name, tensor in batch.items()} if length else batch


def in_documents(source: Iterator[Any], step: int, way: str) -> Iterator[Any]:
    """Each row cut into documents, at other places in each step and row; `together`: with positions, and not cut."""
    for batch in source:
        if not way:
            yield batch
            continue
        rows, length = batch["input_ids"].shape
        places = torch.arange(length, device=DEVICE).repeat(rows, 1)
        for row in range(rows if way == "apart" else 0):
            border = 9 + (step * 31 + row * 17) % (length - 20)
            places[row, border:] -= border
        labels = batch["input_ids"].masked_fill(places == 0, MASKED)
        yield {**batch, POSITIONS: places, LABELS: labels}


def documents(name: str, tolerance: float, method: str, *settings: str) -> tuple[str, str]:
    """Recorded steps on rows of documents lose what unrecorded ones do, and not what they lose where documents see each other."""
    recorded = planned(method, *settings)
    assert recorded.engine.cuda_graph
    unrecorded = dataclasses.replace(recorded, engine=dataclasses.replace(recorded.engine, cuda_graph=False))
    first, said = losses(recorded, way="apart")
    second, _ = losses(unrecorded, way="apart")
    other, _ = losses(unrecorded, way="together")
    assert not said, said
    largest = max(abs(a - b) / abs(b) for a, b in zip(first, second, strict=True))
    seen = max(abs(a - b) / abs(b) for a, b in zip(first, other, strict=True))
    assert largest <= tolerance < seen, f"{largest:.2e} is more than {tolerance:.0e}, or {seen:.2e} is not"
    return (
        name,
        f"losses of {STEPS} steps differ by {largest:.1e} at most, by {seen:.1e} from documents that see each other",
    )


def largest_difference(method: str, *settings: str, lengths: tuple[int, ...] = ()) -> float:
    """Between the losses of recorded and of unrecorded steps, relative."""
    recorded = planned(method, *settings)
    assert recorded.engine.cuda_graph
    unrecorded = dataclasses.replace(recorded, engine=dataclasses.replace(recorded.engine, cuda_graph=False))
    first, said = losses(recorded, lengths)
    second, _ = losses(unrecorded, lengths)
    assert not said, said
    assert len(set(first)) == STEPS, "the loss stands still"
    return max(abs(a - b) / abs(b) for a, b in zip(first, second, strict=True))


def equal(name: str, tolerance: float, method: str, *settings: str, lengths: tuple[int, ...] = ()) -> tuple[str, str]:
    found = largest_difference(method, *settings, lengths=lengths)
    assert found <= tolerance, f"{found:.2e} is more than {tolerance:.0e}"
    return name, f"losses of {STEPS} steps differ by {found:.1e} at most"


def fp8_products() -> tuple[str, str]:
    """A layer in fp8 beside the same numbers in bf16, with a number of places that 16 does not divide."""
    layers = [torch.nn.Sequential(torch.nn.Linear(768, 3072)).to(DEVICE, torch.bfloat16)]
    x, found = torch.randn(2, 175, 768, device=DEVICE, dtype=torch.bfloat16), []
    for turn in range(2):
        lack = fp8_layers(layers, DEVICE) if turn else None
        assert lack is None, lack
        one = x.detach().requires_grad_()
        layers[0].zero_grad()
        out = layers[0](one)
        (out * out.detach().sin()).sum().backward()
        weight, bias = layers[0].parameters()
        found.append([each.float() for each in (out.detach(), one.grad, weight.grad, bias.grad) if each is not None])
    differences = [float((a - b).norm() / b.norm()) for a, b in zip(found[1], found[0], strict=True)]
    assert 1e-3 < max(differences) < 0.1, differences
    return "fp8, products", f"differ by {', '.join(f'{one:.1e}' for one in differences)} from bf16's"


def beside_bf16(name: str, tolerance: float, method: str, *settings: str) -> tuple[str, str]:
    """Losses in fp8 are near those in bf16, and others."""
    first, said = losses(planned(f"{method}+fp8", *settings))
    second, _ = losses(planned(method, *settings))
    largest = max(abs(a - b) / abs(b) for a, b in zip(first, second, strict=True))
    assert not said and 0 < largest <= tolerance, f"{largest:.2e} and {tolerance:.0e}; {said}"
    return f"{name}, beside bf16", f"losses of {STEPS} steps differ by {largest:.1e} at most"


def int8_says_so() -> tuple[str, str]:
    one = planned("q", "quantization.kind=int8")
    assert not one.engine.cuda_graph
    forced = dataclasses.replace(one, engine=dataclasses.replace(one.engine, cuda_graph=True))
    found, said = losses(forced)
    plain, _ = losses(one)
    largest = max(abs(a - b) / abs(b) for a, b in zip(found, plain, strict=True))
    return "int8, recorded by force", f"losses of {STEPS} steps differ by {largest:.1e} at most; says {said}"


FUSED = ("fused_dequantization", "fused_lora", "fused_loss", "fused_layers")


def fused(name: str, tolerance: float, method: str, *settings: str) -> tuple[str, str]:
    """Losses with all that the plan fuses beside those without, both recorded where they can be."""
    whole = planned(method, *settings)
    unfused: dict[str, Any] = dict.fromkeys(FUSED, False)
    bare = dataclasses.replace(whole, engine=dataclasses.replace(whole.engine, **unfused))
    first, said = losses(whole)
    second, _ = losses(bare)
    assert not said, said
    parts = [part for part in FUSED if getattr(whole.engine, part)]
    largest = max(abs(a - b) / abs(b) for a, b in zip(first, second, strict=True))
    assert parts and largest <= tolerance, f"{largest:.2e} is more than {tolerance:.0e}"
    return f"{name}, fused", f"{', '.join(parts)}: losses of {STEPS} steps differ by {largest:.1e} at most"


def split(name: str, tolerance: float, *settings: str) -> tuple[str, str]:
    """Losses of FSDP2 with kept, compiled units of layers beside those of plain PyTorch; a step without a wait of the host."""
    one = planned("z3", "engine=fsdp2", *settings)
    assert one.engine.keeps_parameters and one.engine.compiled_layers and one.engine.layers_per_unit > 1
    first, said = losses(one)
    second, _ = losses(planned("ddp", *settings))
    assert not said, said
    largest = max(abs(a - b) / abs(b) for a, b in zip(first, second, strict=True))
    assert largest <= tolerance, f"{largest:.2e} is more than {tolerance:.0e}"
    return f"fsdp2 {name}", f"losses of {STEPS} steps differ by {largest:.1e} at most"


def steps_in_bf16_are_compiled() -> tuple[str, str]:
    """AdamWBF16's step as one kernel beside the same in single operations, on several sizes."""
    for count in (48, 4096, 100_003):
        rows = [torch.randn(count, device=DEVICE).bfloat16() for _ in range(2)]
        ends = []
        for compiled in (None, change):
            weight = rows[0].clone().requires_grad_()
            optimizer = AdamWBF16([weight], lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, seed=3)
            optimizer._compiled = compiled
            for _ in range(5):
                weight.grad = rows[1] * weight.detach()
                optimizer.step()
            assert not optimizer.sentences, optimizer.sentences
            ends.append(weight.detach().float())
        apart = float((ends[0] != ends[1]).float().mean())
        assert apart < 0.01, f"{apart:.1%} of {count} weights differ"
    return "AdamWBF16, compiled", "the same weights after 5 steps, but for fewer than 1 in 100"


def flat(name: str, tolerance: float, *settings: str) -> tuple[str, str]:
    """Losses of flat units, recorded with their collectives, beside those of plain PyTorch."""
    one = planned("z3", "engine=flat", *settings)
    assert one.engine.cuda_graph and one.engine.overlap and one.engine.fused_loss
    first, said = losses(one)
    second, _ = losses(planned("ddp", *(each for each in settings if not each.startswith(OF_UNITS))))
    assert not said, said
    largest = max(abs(a - b) / abs(b) for a, b in zip(first, second, strict=True))
    assert largest <= tolerance, f"{largest:.2e} is more than {tolerance:.0e}"
    return f"flat {name}", f"losses of {STEPS} steps differ by {largest:.1e} at most"


def offloaded(
    name: str, tolerance: float, *settings: str, method: str = "z2o", model: str = "llama-68m"
) -> tuple[str, str]:
    """Losses with states on the host beside those of flat units that have them on the device."""
    one = planned(method, "engine=flat", *settings, model=model)
    assert one.engine.offloaded_step != "none" and one.engine.overlap
    first, said = losses(one)
    own = [each for each in settings if each.partition("=")[0] in ("precision", "gradient_accumulation_steps")]
    second, _ = losses(planned("z2", "engine=flat", "cuda_graph=false", *own, model=model))
    assert not said, said
    largest = max(abs(a - b) / abs(b) for a, b in zip(first, second, strict=True))
    assert largest <= tolerance, f"{largest:.2e} is more than {tolerance:.0e}"
    return f"offload {name}", f"losses of {STEPS} steps differ by {largest:.1e} at most"


def offloaded_steps_are_those_of_torch() -> tuple[str, str]:
    """AdamW streamed through the GPU in small pieces, beside torch's on the host, 50 steps of odd sizes in fp32."""
    memory, apart = HostMemory(DEVICE), 0.0
    rows = [torch.randn(size, device=DEVICE).bfloat16() for size in (1, 7, 1003, 3_000_001)]
    units = [Unit([(str(n), torch.nn.Parameter(row))], 1, 0, copies=False) for n, row in enumerate(rows)]
    setup = OptimizerSetup(type="AdamW", lr=1e-2, weight_decay=0.1)
    states = HostStates(units, setup, memory, torch.float32, whole=False)
    step = StreamedStep(states, DEVICE, True, 1)
    expected = [torch.nn.Parameter(unit.own.float()) for unit in units]
    adamw = torch.optim.AdamW(expected, lr=1e-2, weight_decay=0.1)
    gradients = [memory.zeros(unit.own.numel(), torch.bfloat16) for unit in units]
    space, factor = torch.empty(2_000_000, device=DEVICE), torch.tensor([0.3], device=DEVICE)
    for _ in range(50):
        torch.cuda.synchronize()  # the host writes what the device may still be reading
        for row, one in zip(gradients, expected, strict=True):
            row.copy_(torch.randn(row.numel()))
            one.grad = row.to(DEVICE).float() * factor
        adamw.step()
        step(gradients, factor, space, lambda unit: None)
    torch.cuda.synchronize()
    with states.in_fp32(changing=False):
        for unit, one in zip(units, expected, strict=True):
            state = states.optimizer.state[unit.share]
            pairs = [
                (unit.share, one.detach()),
                *((state[key], adamw.state[one][key]) for key in ("exp_avg", "exp_avg_sq")),
            ]
            for found, right in pairs:
                apart = max(apart, float((found - right.cpu()).abs().max() / right.abs().max()))
    memory.close()
    assert apart <= 1e-6, f"{apart:.2e} is more than 1e-6 of the largest"
    return "offload, against torch's AdamW", f"weights and moments differ by {apart:.1e} of the largest at most"


OF_UNITS = ("compiled_layers", "layers_per_unit", "reduce_precision", "fused_layers", "fused_optimizer")
DEEP = "tinyllama-1.1b"
"""Has more layers than there are rows for parameters that visit the device."""
SUMS = "gradient_accumulation_steps=3"
COMPILED = ("compiled_layers=true", "fused_layers=false")
CHECKS: list[Callable[[], tuple[str, str]]] = [
    lambda: equal("ddp fp32", 1e-6, "ddp", "precision=fp32"),
    lambda: equal("ddp fp32, 3 micro batches a step", 1e-6, "ddp", "precision=fp32", "gradient_accumulation_steps=3"),
    lambda: equal("ddp bf16", 1e-4, "ddp"),
    lambda: equal("ddp bf16, 3 micro batches a step", 1e-4, "ddp", "gradient_accumulation_steps=3"),
    lambda: equal("ddp fp16", 1e-3, "ddp", "precision=fp16"),
    lambda: equal("lora", 1e-4, "lora"),
    lambda: equal("lora+r", 1e-4, "lora+r"),
    lambda: equal("qlora", 1e-4, "qlora"),
    lambda: equal("q", 1e-4, "q"),
    lambda: fused("ddp fp32", 1e-5, "ddp", "precision=fp32"),
    lambda: fused("lora fp32", 1e-5, "lora", "precision=fp32"),
    lambda: fused("lora fp32, 3 micro batches a step", 1e-5, "lora", "precision=fp32", "gradient_accumulation_steps=3"),
    lambda: fused("lora+r bf16", 1e-2, "lora+r"),
    lambda: fused("qlora bf16", 1e-2, "qlora"),
    lambda: fused("q bf16", 1e-2, "q"),
    lambda: fused("q in bf16", 1e-2, "q", "optimizer.type=AdamWBF16"),
    steps_in_bf16_are_compiled,
    lambda: fused("ddp fp16", 1e-2, "ddp", "precision=fp16"),
    lambda: split("fp32", 1e-5, "precision=fp32"),
    lambda: split("bf16", 1e-2),
    lambda: equal("half of the layers recomputed", 1e-4, "lora", "recompute=0.5"),
    lambda: equal("three lengths in turn", 1e-4, "lora", lengths=(128, 96, 64)),
    lambda: equal("seven lengths in turn", 1e-4, "lora", lengths=(128, 112, 96, 80, 64, 48, 32)),
    int8_says_so,
]

OF_FLAT: list[Callable[[], tuple[str, str]]] = [
    lambda: flat("fp32", 1e-5, "precision=fp32"),
    lambda: flat("fp32, 3 micro batches a step", 1e-5, "precision=fp32", SUMS),
    lambda: flat("bf16", 1e-2),
    lambda: flat("bf16, the optimizer in several passes", 1e-2, "fused_optimizer=false"),
    lambda: flat("bf16, 3 micro batches a step", 1e-2, SUMS),
    lambda: flat("bf16, compiled layers", 1e-2, "compiled_layers=true", "fused_layers=false"),
    lambda: flat(
        "bf16, compiled layers, half of them recomputed",
        1e-2,
        "compiled_layers=true",
        "fused_layers=false",
        "recompute=0.5",
    ),
    lambda: equal("flat, recorded and not", 1e-4, "z3", "engine=flat"),
    lambda: equal("flat, half of the layers recomputed, recorded and not", 1e-4, "z3", "engine=flat", "recompute=0.5"),
    lambda: equal("flat, recorded and not, in turn", 1e-4, "z3", "engine=flat", "overlap=false"),
]

OF_OFFLOAD: list[Callable[[], tuple[str, str]]] = [
    offloaded_steps_are_those_of_torch,
    lambda: offloaded("fp32", 1e-5, "precision=fp32"),
    lambda: offloaded("fp32, 3 micro batches a step", 1e-5, "precision=fp32", SUMS),
    lambda: offloaded("fp32, stepped on the host", 1e-5, "precision=fp32", "offloaded_step=host"),
    lambda: offloaded("bf16", 1e-2),
    lambda: offloaded("bf16, 3 micro batches a step", 1e-2, SUMS),
    lambda: offloaded("bf16, stepped on the host", 1e-2, "offloaded_step=host"),
    lambda: offloaded("bf16, moments in bf16", 1e-2, "moments_precision=bf16"),
    lambda: offloaded("z3o fp32", 1e-5, "precision=fp32", method="z3o"),
    lambda: offloaded("z3o fp32, 3 micro batches a step", 1e-5, "precision=fp32", SUMS, method="z3o"),
    lambda: offloaded("z3o bf16, 22 layers", 1e-2, method="z3o", model=DEEP),
    lambda: offloaded("z3o bf16, 22 layers recomputed", 1e-2, "recompute=true", method="z3o", model=DEEP),
    lambda: offloaded("z3o bf16, stepped on the host", 1e-2, "offloaded_step=host", method="z3o"),
]
OF_DOCUMENTS: list[Callable[[], tuple[str, str]]] = [
    lambda: documents("documents, ddp fp32", 1e-5, "ddp", "precision=fp32"),
    lambda: documents("documents, lora fp32, 3 micro batches a step", 1e-5, "lora", "precision=fp32", SUMS),
    lambda: documents("documents, qlora bf16", 1e-3, "qlora"),
    lambda: documents("documents, flat fp32", 1e-5, "z3", "engine=flat", "precision=fp32"),
    lambda: documents("documents, flat fp32, compiled layers", 1e-5, "z3", "engine=flat", "precision=fp32", *COMPILED),
]
OF_FP8: list[Callable[[], tuple[str, str]]] = [
    fp8_products,
    lambda: equal("fp8, plain", 1e-3, "ddp+fp8"),
    lambda: equal("fp8, flat", 1e-3, "z3+fp8", "engine=flat"),
    lambda: beside_bf16("fp8, flat", 2e-2, "z3", "engine=flat"),
    lambda: beside_bf16("fp8, fsdp2", 2e-2, "z3", "engine=fsdp2"),
]
ALL = {"flat": OF_FLAT, "offload": OF_OFFLOAD, "documents": OF_DOCUMENTS, "fp8": OF_FP8}


def main() -> int:
    asked = sys.argv[1] if len(sys.argv) > 1 else None
    checks = [*CHECKS, *OF_FLAT, *OF_OFFLOAD, *OF_DOCUMENTS, *OF_FP8] if asked is None else ALL[asked]
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29571")
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    torch.cuda.set_device(DEVICE)
    engines.find("flat").join(DEVICE)
    failed = 0
    for check in checks:
        try:
            name, found = check()
            print(f"ok    {name}: {found}", flush=True)
        except Exception as error:  # the other checks are to be seen too
            failed += 1
            print(f"FAIL  {type(error).__name__}: {str(error)[:600]}", flush=True)
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}: {len(checks) - failed} of {len(checks)} hold")
    return 1 if failed else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # recorded collectives may still be held, for whose end what carries them out would wait
