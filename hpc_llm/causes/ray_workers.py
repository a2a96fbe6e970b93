"""A worker of Ray's that died: who waited for it raises an exception, and its traceback shows the waiting."""

from __future__ import annotations

from hpc_llm.causes.cause import Role, sign

WORKER_DIED = sign(
    (
        "Raylet is terminated",
        "worker died or was killed",
        "WorkerCrashedError: ",
        "ActorDiedError: ",
        "ActorUnavailableError: ",
        "RayActorError: ",
    ),
    r"Raylet is terminated[^\n]{0,200}Termination is unexpected"
    r"|A worker died or was killed while executing a task by an unexpected system error"
    r"(?:[^\n]{0,600}?\bWorker IP address: (?P<worker_host>[\w.:-]{1,60})[^\n]{0,80}?\bWorker PID: (?P<worker_pid>\d{1,10})\b)?"
    r"|ray\.exceptions\.(?:WorkerCrashed|ActorDied|ActorUnavailable|RayActor)Error: ",
    role=Role.CONFIRMATION,
    meaning="A process of Ray's died, and nothing in the output says of what: the exceptions are those of the ones that waited for it.",
    remedy=(
        "see what the worker wrote last, on {worker_host}: /tmp/ray/session_latest/logs/*{worker_pid}*\n"
        "ask {worker_host} whether memory ran out there: dmesg -T | grep -i 'killed process {worker_pid}'\n"
        "ask the scheduler: sacct -j JOB -o JobID,State,ExitCode,MaxRSS,Elapsed,NodeList\n"
        "the logs of the workers are in /tmp/ray/session_latest/logs of each node: worker-*.err and python-core-worker-*.log"
    ),
)
