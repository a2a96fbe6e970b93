"""Train a causal language model from a plan, and measure it.

    python -m hpc_llm.worker.pretrain_llm --run-dir logs/RUN
    torchrun --nproc-per-node 2 -m hpc_llm.worker.pretrain_llm --run-dir logs/RUN
    srun python -m hpc_llm.worker.pretrain_llm --run-dir logs/RUN

Exit codes: 0 the run came to its end and result.json says how it went, 1 it failed and result.json says why,
2 the request was wrong before anything started, 143 SIGTERM. SIGUSR1 prints where each rank stands, and the run goes on.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

from hpc_llm.errors import HpcLlmError
from hpc_llm.worker import failure, request, signals
from hpc_llm.worker.ranks import find_ranks
from hpc_llm.worker.result import Record


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    faulthandler.enable()
    signals.survive()
    # torch warns of names that DeepSpeed uses, at every call.
    warnings.filterwarnings("ignore", message=".*(all_gather_into_tensor|reduce_scatter_tensor)")
    arguments = request.parse_arguments(sys.argv[1:] if argv is None else argv)
    try:
        record = prepare(arguments)
    except HpcLlmError as error:
        print(f"pretrain_llm: {error}", file=sys.stderr, flush=True)
        failure.report_refusal(arguments.run_dir, error)
        return error.exit_code
    signals.listen(record)
    return run(record)


def command() -> NoReturn:
    """Entry point of a process of its own: ends it at once when all is written.

    The interpreter's teardown is left out: after a failure the peers hang in a collective and it would too, and after a
    success a thread of the collectives that is still there aborts the process now and then, which fails a good job.
    """
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def prepare(arguments: argparse.Namespace) -> Record:
    """Read the rank and the request. Raises HpcLlmError where one of them is wrong."""
    ranks = find_ranks(os.environ)
    wanted = request.read_request(arguments, ranks)
    return Record(paths=wanted.paths, ranks=ranks, plan=wanted.plan, adaptations=list(wanted.sentences))


def run(record: Record) -> int:
    """Train as the record's plan says. Whatever happens ends in result.json."""
    try:
        if record.ranks.world_size != record.plan.parallel.world_size:
            raise failure.RunIsInvalid(
                f"{record.ranks.world_size} ranks were started, the plan is for {record.plan.parallel.world_size}: look at the "
                f"launch line, {record.ranks.launcher} was read (HPC_LLM_LAUNCHER overrules)."
            )
        from hpc_llm.worker.training import train  # imports torch: slow, and it may be missing

        train(record)
    except BaseException as error:
        traceback.print_exc()
        failure.report_error(record, error)
        return 1
    return 0


if __name__ == "__main__":
    command()
