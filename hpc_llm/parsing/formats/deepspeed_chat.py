"""DeepSpeed-Chat: what its training scripts print beside the engine's lines.

`print_throughput` times one micro batch of one device, and divides the operations of that batch by the number of all
devices: neither its latency nor its rate nor its teraflops are those of a step. The engine's lines give the time.

With `--print_loss` each rank prints the loss of each of its micro batches, which are counted anew in each epoch: no line is a
step's. Of rank 0 the first and the last are taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, number, rule


def _batch_loss(match: re.Match[bytes]) -> Mapping[str, Value]:
    loss = number(match[2])
    return {} if int(match[1]) or loss is None else {"batch_loss_first": loss, "batch_loss_last": loss}


FORMAT = LineFormat(
    name="deepspeed-chat",
    hints=(
        b"***** Evaluating perplexity, Epoch ",
        b"***** Evaluating reward",
        b", Latency: ",
    ),
    precedence=85,
    companion=True,
    rules=(
        rule(Kind.RUN, r"^ppl: <perplexity>(?:, loss: <eval_loss>)?$", literal="ppl: "),
        rule(Kind.RUN, r"\*\*\*\*\* Evaluating (?:perplexity|rewards?), Epoch", literal="***** Evaluating "),
        rule(Kind.RUN, r"^chosen: \S+, rejected: \S+, loss: <eval_loss>$", literal=", rejected: "),
        rule(Kind.RUN, r"^Epoch \d+/\d+ with loss ", literal=" with loss "),
        rule(
            Kind.RUN,
            r"Model Parameters: (?:[\d.]+ B|NA), Latency: [\d.]+s, TFLOPs: [\d.]+, Samples/sec: [\d.]+, Time/seq [\d.]+s"
            r", Batch Size: <micro_batch_size>, Sequence Length: <sequence_length>",
            literal="Model Parameters: ",
        ),
        rule(
            Kind.RUN,
            r"^Epoch: \d+, Step: \d+, Rank: (\d{1,7}), loss = ([-+.\deEnaif]+)$",
            _batch_loss,
            literal=", Rank: ",
        ),
        rule(Kind.START, r"\*\*\*\*\* Running training \*\*\*\*\*", literal="***** Running training *****"),
        rule(Kind.END, r"^saving (?:the final )?model \.\.\.", literal="saving "),
    ),
)
