"""A Python that begins a rank hands its start over to a process that has imported what ranks need, and lives as its copy does.

Python imports this by its name, where PYTHONPATH or the environment of a job leads here. What it starts is the same program with the
same words, folder, variables, files, limits and processors; only torch and its like are there already, which take four seconds of a
processor. Signals reach the copy, which ends with this process, and this process ends as the copy did. It has not this process's
place in the tree of processes, so what proves how ranks are started does without.
"""

import os
import signal
import sys

PLACE = "HPC_LLM_TESTS_COPIES"
"""Variable with the socket of the process that is copied."""
_PROGRAMS = ("torch.distributed.run", "hpc_llm.worker.")
_PACKAGES = ("torch", "transformers", "deepspeed", "peft", "accelerate", "bitsandbytes")
_SCRIPTS = ("worlds.py", "rank_1_is_slow.py", "rank_1_fails.py", "forked_ranks.py", "slow_disk.py", "tells_its_pid.py")
_PASSED_ON = [
    getattr(signal, name) for name in "SIGHUP SIGINT SIGQUIT SIGTERM SIGUSR1 SIGUSR2 SIGALRM SIGXCPU SIGPIPE".split()
]


def wanted(words):  # type: ignore[no-untyped-def]
    """Kind and words of a program that is worth a copy; None of any other."""
    words = list(words[1:])
    while words and words[0] in ("-u", "-B"):
        words.pop(0)
    if len(words) > 4 and words[0] == "-c" and "class Carried(" in words[1] and words[4].startswith(_PROGRAMS):
        return "code", words[1:]
    if len(words) > 1 and words[0] == "-m" and words[1].startswith(_PROGRAMS):
        return "module", words[1:]
    if words and os.path.basename(words[0]) in _SCRIPTS:
        return "script", words
    return None


def brings_its_own():  # type: ignore[no-untyped-def]
    """Whether other packages stand before those that a copy has."""
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return any(os.path.exists(os.path.join(place, name)) for place in places if place for name in _PACKAGES)


def send(line, kind, words, files, folder, environ):  # type: ignore[no-untyped-def]
    """Ask for a copy with the umask, limits, processors and ignored signals of this process."""
    import array
    import json
    import resource
    import socket

    mask = os.umask(0)
    os.umask(mask)
    kinds = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    request = {
        "kind": kind,
        "words": words,
        "orig_argv": sys.orig_argv,
        "folder": folder,
        "environ": environ,
        "mask": mask,
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in kinds},
        "processors": sorted(os.sched_getaffinity(0)),
        "nice": os.nice(0),
        "ignored": [int(number) for number in _PASSED_ON if signal.getsignal(number) is signal.SIG_IGN],
        "executable": sys.executable,
        "prefix": sys.prefix,
    }
    content = json.dumps(request).encode()
    controls = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    line.sendmsg([len(content).to_bytes(8, "big")], controls)
    line.sendall(content)


def hand_over(place):  # type: ignore[no-untyped-def]
    program = wanted(sys.orig_argv)
    if program is None or brings_its_own() or not os.path.exists(place):
        return
    import resource
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(place)
        send(line, program[0], program[1], [0, 1, 2], os.getcwd(), dict(os.environ))
        answers = line.makefile("r")
        copy = int(answers.readline())

        def pass_on(number, _):  # type: ignore[no-untyped-def]
            try:
                os.kill(copy, number)
            except ProcessLookupError:
                return  # it ends, and says so next

        for number in _PASSED_ON:  # those that are ignored too: a rank may want them
            signal.signal(number, pass_on)
        status = int(answers.readline())
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        os.kill(os.getpid(), -status)
    os._exit(status)


if os.environ.get(PLACE):
    hand_over(os.environ[PLACE])
