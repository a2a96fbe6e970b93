"""SageMaker: what the service says around the output of a training job, and the log lines of its model parallel library."""

from __future__ import annotations

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, rule


def _finish(values: dict[str, Value]) -> None:
    """The service's time of the job counts where the program prints none."""
    if "job_s" in values:
        values.setdefault("elapsed_s", values["job_s"])


FORMAT = LineFormat(
    name="sagemaker",
    hints=(b"Training seconds: ", b"sagemaker", b" Model TFLOPS/GPU: "),
    precedence=80,
    rules=(
        rule(
            Kind.STEP,
            r"\bBatch <step> Loss: <loss>, Speed: <samples_per_second> samples/sec, Model TFLOPS/GPU: <model_tflops_per_gpu>"
            r"(?:, lr: <learning_rate>)?(?:, gradnorm: <grad_norm>)?(?=[,\s]|$)",
            literal="samples/sec, Model TFLOPS/GPU: ",
        ),
        rule(Kind.RUN, r"\bBatch \d+ Validation loss: <eval_loss>", literal=" Validation loss: "),
        rule(Kind.RUN, r"\bBatch \d+ Validation perplexity: <perplexity>", literal=" Validation perplexity: "),
        rule(Kind.END, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d Completed - ", literal=" Completed - "),
        rule(Kind.RUN, r"^Training seconds: <job_s>", literal="Training seconds: "),
    ),
    finish=_finish,
)
