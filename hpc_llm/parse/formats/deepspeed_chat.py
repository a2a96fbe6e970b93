"""DeepSpeed-Chat: what its training scripts print beside the engine's lines.

`print_throughput` gives the engine's rate of one step; TFLOPs there are one GPU's.
"""

from __future__ import annotations

from hpc_llm.parse.registry import LineFormat
from hpc_llm.parse.rules import Kind, rule

FORMAT = LineFormat(
    name="deepspeed-chat",
    hints=(
        b"***** Evaluating perplexity, Epoch ",
        b"***** Evaluating reward, Epoch ",
        b", Latency: ",
    ),
    precedence=85,
    companion=True,
    rules=(
        rule(Kind.RUN, r"^ppl: <perplexity>(?:, loss: <eval_loss>)?$", literal="ppl: "),
        rule(Kind.RUN, r"\*\*\*\*\* Evaluating (?:perplexity|reward), Epoch", literal="***** Evaluating "),
        rule(Kind.RUN, r"^Epoch \d+/\d+ with loss ", literal=" with loss "),
        rule(
            Kind.TICK,
            r"Model Parameters: [\d.]+ B, Latency: <step_time_s>s, TFLOPs: <model_tflops_per_gpu>, Samples/sec: "
            r"<samples_per_second>, Time/seq [\d.]+s, Batch Size: <global_batch_size>, Sequence Length: <sequence_length>",
            literal="Model Parameters: ",
        ),
        rule(Kind.END, r"^saving (?:the final )?model \.\.\.", literal="saving "),
    ),
)
