"""Compare ZeRO-2 with offload and ZeRO-3: submit both, wait, make a table and a plot.

    python examples/compare_methods.py

It runs on this machine, on its GPU or without one. For a cluster change `cluster=`, and add its partition and account.
"""

import matplotlib

matplotlib.use("Agg")  # a login node has no screen
import matplotlib.pyplot as plt

import hpc_llm


def main() -> None:
    runs = hpc_llm.submit(
        cluster="local",
        method=["z2o", "z3"],
        model="tiny",
        micro_batch_size=4,
        sequence_length=64,
        steps=30,
        set={"optimizer": {"lr": 3e-3}},
    )
    for status in hpc_llm.wait(runs):
        print(status.run_id, status.outcome and status.outcome.value, status.reason or "")

    table = hpc_llm.results(runs).to_pandas()
    print(table[["method", "outcome", "tokens_per_second", "step_time_s_mean", "loss_last"]].to_string())

    steps = hpc_llm.parse_steps(runs).to_pandas().merge(table[["run_id", "method"]], on="run_id")
    figure, (speed, loss) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    speed.bar(table["method"], table["tokens_per_second"])
    speed.set_ylabel("tokens/s over all ranks")
    for method, of_method in steps.groupby("method"):
        loss.plot(of_method["step"], of_method["loss"], label=method)
    loss.set_xlabel("step")
    loss.set_ylabel("loss (nats per token)")
    loss.legend()
    figure.savefig("compare_methods.png", dpi=150)


if __name__ == "__main__":
    main()
