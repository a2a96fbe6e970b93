"""Program for an environment with all of MLflow: sends a run to its real server, twice, and reads it back over HTTP.

`make test-export` makes the environment; ends with 1 where something is not right.
"""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))

from mlflow import MlflowClient
from run_folders import Folder

import hpc_llm

_PATIENCE_S = 90.0
_TRIES = 3


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(uri: str, server: subprocess.Popen[bytes]) -> bool:
    """Whether the server comes up; where its port was taken meanwhile it stays, and never does."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"{uri}/health", timeout=2):
            return True
        time.sleep(0.5)
    return False


@contextmanager
def served(folder: Path) -> Iterator[str | None]:
    """The address of a server that keeps its runs in the folder; None where it did not come up."""
    uri = f"http://127.0.0.1:{free_port()}"
    kept = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/artifacts"]
    place = ["--host", "127.0.0.1", "--port", uri.rpartition(":")[2], "--workers", "1"]
    server = subprocess.Popen([sys.executable, "-m", "mlflow", "server", *kept, *place])
    try:
        yield uri if answers(uri, server) else None
    finally:
        server.terminate()
        server.wait(30)


def send(run: Folder, uri: str) -> list[str]:
    """What becomes of a run that is sent twice, and again when it has got more steps."""
    states = [hpc_llm.export(run.run.root, to="mlflow", uri=uri).runs[0].state for _ in range(2)]
    run.steps(2600)
    return [*states, hpc_llm.export(run.run.root, to="mlflow", uri=uri).runs[0].state]


def check(folder: Path, uri: str) -> None:
    run = Folder(folder / "logs" / "run-1").exit(0).result("COMPLETED", loss_last=3.0).steps(2500)
    said = io.StringIO()
    with redirect_stdout(said):
        states = send(run, uri)
    assert states == ["written", "unchanged", "replaced"] and not said.getvalue(), (states, said.getvalue())
    client = MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("hpc-llm").experiment_id])
    history = client.get_metric_history(found.info.run_id, "loss")
    assert sorted(one.step for one in history) == list(range(1, 2601)), len(history)
    assert found.info.status == "FINISHED" and found.data.params["batch.sequence_length"] == "64", found
    print(json.dumps({"states": states, "steps": len(history), "parameters": len(found.data.params)}))


def main() -> None:
    for _ in range(_TRIES):
        with tempfile.TemporaryDirectory() as name, served(Path(name)) as uri:
            if uri is not None:
                return check(Path(name), uri)
    raise SystemExit(f"the server did not come up in {_TRIES} tries of {_PATIENCE_S:.0f} s")


if __name__ == "__main__":
    main()
