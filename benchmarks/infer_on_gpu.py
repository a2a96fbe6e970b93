"""How fast task infer's passes are beside transformers' own `generate` of the same model, in one sitting.

    python benchmarks/infer_on_gpu.py --model llama3.2-3b --method ddp --method q

Both answer the same prompts with the same weights, greedily and to the same length, in turn, each after a warm-up of its own;
`generate` as it comes, with its dynamic cache. One JSON object a method: seconds a batch of either (median of the rounds), their
ratio, the share of tokens that agree (in 16 bits two ways to add may choose apart), whether recorded passes choose as unrecorded
ones do, and the floor: the bytes of the weights that
each pass must read over the bandwidth that this device shows in copying. It also runs on a CPU, to see that it works.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from hpc_llm.planning.experiment import Experiment, Plan  # noqa: E402
from hpc_llm.planning.method import load_method  # noqa: E402
from hpc_llm.planning.plan import Site, plan  # noqa: E402
from hpc_llm.site.cluster import load_cluster  # noqa: E402
from hpc_llm.site.hardware import detect  # noqa: E402
from hpc_llm.worker.data.share import Share  # noqa: E402
from hpc_llm.worker.device import synchronize  # noqa: E402
from hpc_llm.worker.generating.choosing import Choice  # noqa: E402
from hpc_llm.worker.generating.decoder import Answered, Decoder  # noqa: E402
from hpc_llm.worker.generating.queries import QueryBatch, batches, queries_of  # noqa: E402
from hpc_llm.worker.model.build import load_model  # noqa: E402
from hpc_llm.worker.model.prepare import stop_dropout  # noqa: E402

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
WARMUP = 2


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama3.2-3b", help="preset or folder of a checkpoint")
    parser.add_argument("--method", action="append", help="ddp, q, int8 (repeatable)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5, help="batches of either that are timed")
    parser.add_argument("--precision", default="", help="bf16, fp16 or fp32; what the device has where it is left out")
    return parser.parse_args()


def planned(arguments: argparse.Namespace, method: str) -> Plan:
    sizes = [f"prompt_tokens={arguments.prompt_tokens}", f"new_tokens={arguments.new_tokens}", "stop_at_end=false"]
    asked = Experiment(
        cluster="local", method=method, task="infer", model=arguments.model, micro_batch_size=arguments.batch,
        set=(*sizes, *([f"precision={arguments.precision}"] if arguments.precision else [])),
    )  # fmt: skip
    return plan(asked, load_cluster("local"), load_method(method), Site(scheduler="local", hardware=detect())).plan


def decoder_of(one: Plan, model: Any) -> Decoder:
    work, size = one.inference, one.batch.sequence_length
    return Decoder(
        model, batch=one.batch.micro_batch_size, size=size, new_tokens=work.new_tokens, choice=Choice(0.0, 1.0), ends=(),
        attention=one.model.attention,
    )  # fmt: skip


def generated(model: Any, batch: QueryBatch, new_tokens: int) -> torch.Tensor:
    """By transformers itself."""
    tokens, mask = batch.tokens.to(DEVICE), batch.real.long().to(DEVICE)
    with torch.inference_mode():
        whole = model.generate(
            input_ids=tokens, attention_mask=mask, do_sample=False, max_new_tokens=new_tokens, min_new_tokens=new_tokens,
            pad_token_id=0, eos_token_id=None,
        )  # fmt: skip
    found: torch.Tensor = whole[:, tokens.shape[1] :].cpu()
    return found


def timed(do: Any) -> tuple[float, Any]:
    synchronize(DEVICE)
    began = time.perf_counter()
    found = do()
    synchronize(DEVICE)
    return time.perf_counter() - began, found


def copying_bytes_per_second() -> float:
    """What the device reads and writes in copying a large tensor, the best of a few times."""
    size = 2**31 if DEVICE.type == "cuda" else 2**27
    source = torch.zeros(size, dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    return max(2 * size / timed(lambda: target.copy_(source))[0] for _ in range(10))


def weight_bytes(model: Any) -> int:
    """What a pass reads of the weights: all but the embedding, of which it looks up a row, where that is not the head too."""
    head = model.get_output_embeddings().weight
    embedding = model.get_input_embeddings().weight
    left_out = embedding.numel() * embedding.element_size() if embedding is not head else 0
    whole: int = sum(p.numel() * p.element_size() for p in model.parameters())
    return whole - left_out


def measure(arguments: argparse.Namespace, method: str) -> dict[str, Any]:
    one = planned(arguments, method)
    torch.manual_seed(one.workload.seed)
    model = load_model(one, {}, DEVICE)
    stop_dropout(model)
    batch = next(batches(queries_of(one, model.config.vocab_size, Share(0, 1)), arguments.batch))
    decoder, nothing = decoder_of(one, model), torch.zeros(arguments.batch, arguments.new_tokens)
    if one.engine.cuda_graph:
        decoder.record(batch.tokens, batch.real)

    def ours() -> Answered:
        return decoder.answer(batch.tokens, batch.real, nothing)

    def theirs() -> torch.Tensor:
        return generated(model, batch, arguments.new_tokens)

    for _ in range(WARMUP):
        ours(), theirs()
    rounds = [(timed(ours), timed(theirs)) for _ in range(arguments.rounds)]
    own_s, peer_s = (statistics.median(each[side][0] for each in rounds) for side in (0, 1))
    answered, whole = rounds[-1][0][1], rounds[-1][1][1]
    unrecorded = decoder_of(one, model).answer(batch.tokens, batch.real, nothing)
    behind = arguments.new_tokens - 1
    floor_s = weight_bytes(model) / copying_bytes_per_second()
    return {
        "model": arguments.model, "method": method, "precision": one.model.precision, "batch": arguments.batch,
        "prompt_tokens": arguments.prompt_tokens, "new_tokens": arguments.new_tokens, "recorded": decoder.is_recorded,
        "says": decoder.sentences, "ours_s": own_s, "generate_s": peer_s, "ratio": peer_s / own_s,
        "time_to_first_token_s": answered.times[0], "time_per_token_s": (answered.times[-1] - answered.times[0]) / behind,
        "floor_per_token_s": floor_s, "tokens_that_agree": float((answered.tokens == whole).float().mean()),
        "first_that_differs": first_apart(answered.tokens, whole),
        "same_as_unrecorded": bool((answered.tokens == unrecorded.tokens).all()),
        "first_unlike_unrecorded": first_apart(answered.tokens, unrecorded.tokens),
        "same_each_time": bool((decoder.answer(batch.tokens, batch.real, nothing).tokens == answered.tokens).all()),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated() if DEVICE.type == "cuda" else None,
        "device": torch.cuda.get_device_name(0) if DEVICE.type == "cuda" else platform.processor() or platform.machine(),
        "torch": torch.__version__, "transformers": importlib.metadata.version("transformers"),
    }  # fmt: skip


def first_apart(one: torch.Tensor, other: torch.Tensor) -> int | None:
    """The first token of any answer in which the two differ; None where they are equal."""
    places = (one != other).any(dim=0).nonzero()
    return int(places[0]) if len(places) else None


def main() -> None:
    arguments = read_arguments()
    for method in arguments.method or ["ddp", "q"]:
        print(json.dumps(measure(arguments, method)), flush=True)


if __name__ == "__main__":
    main()
