"""The process that ranks of tests, or commands, are copies of: for ranks it has imported what training needs, and nothing of hpc-llm.

    python copied.py SOCKET ranks|commands

Of `commands` it has imported hpc-llm but for the worker.

It answers each start (`sitecustomize.py`) with the number of the copy, and with its end when that has come. A copy whose Python is
gone is killed. It ends when nobody holds it any more: who is to do so sends the word `hold` and keeps the line open.
"""

from __future__ import annotations

import _imp
import array
import atexit
import builtins
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import runpy
import selectors
import signal
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any

HOLD = "hold"
NEEDED = (
    "bitsandbytes", "peft", "torch.distributed.fsdp", "torch.distributed.run", "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama", "transformers.models.t5.modeling_t5",
)  # fmt: skip


def compile_once(package: Path) -> None:
    """Ranks compile the code that travels with a run: here each text is compiled once, and its code given to whoever has that very
    text."""
    texts = [file.read_text() for file in package.rglob("*.py")]
    known = {text: compile(text, "?", "exec", dont_inherit=True) for text in texts}
    really = builtins.compile

    def quick(source: Any, filename: Any, mode: str, *more: Any, **others: Any) -> Any:
        if isinstance(source, str) and source in known and (mode, more, others) == ("exec", (), {"dont_inherit": True}):
            _imp._fix_co_filename(known[source], str(filename))  # type: ignore[attr-defined]
            return known[source]
        return really(source, filename, mode, *more, **others)

    builtins.compile = quick  # type: ignore[assignment]


def import_commands() -> None:
    import hpc_llm

    for module in pkgutil.walk_packages(hpc_llm.__path__, "hpc_llm."):
        if not module.name.startswith(("hpc_llm.worker", "hpc_llm.__main__")):
            importlib.import_module(module.name)
    for name in ("submitit", "psutil", "tabulate"):
        importlib.import_module(name)
    gc.freeze()


def import_all() -> None:
    """As the worker does, so that no compiler of torch comes along which a rank would not load."""
    from hpc_llm.worker.engines import deepspeed

    for name in NEEDED:
        importlib.import_module(name)
    deepspeed.imported()
    sys.modules["deepspeed.utils.nvtx"].enable_nvtx = False  # type: ignore[attr-defined]  # ranges that nobody looks at
    compile_once(Path(sys.modules["hpc_llm"].__path__[0]))
    for name in [name for name in sys.modules if name.partition(".")[0] == "hpc_llm"]:
        del sys.modules[name]  # what a rank runs is what it was submitted with
    assert len(os.listdir("/proc/self/task")) == 1, "threads would be missing in the copies"
    gc.collect()
    gc.freeze()  # DeepSpeed collects often, and would look through all modules, which copies them


class Copied:
    """Serves until its last holder has gone."""

    def __init__(self, place: str) -> None:
        self._lines = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"{place}.new")
        self._listener.listen(64)
        os.rename(f"{place}.new", place)
        self._lines.register(self._listener, selectors.EVENT_READ, None)
        self._copies: dict[socket.socket, tuple[int, int]] = {}
        """Of each line the number of its copy and what tells of its end."""
        self._holders: set[socket.socket] = set()
        self._was_held = False

    def serve(self) -> dict[str, Any] | None:
        """What a copy is to do, in the copy; None in the end."""
        while self._holders or not self._was_held:
            for key, _ in self._lines.select():
                if key.fileobj is self._listener:
                    request = self._start()
                    if request is not None:
                        return request
                elif isinstance(key.data, socket.socket):
                    self._ended(key.data)
                elif isinstance(key.fileobj, socket.socket):
                    self._gone(key.fileobj)
        return None

    def _start(self) -> dict[str, Any] | None:
        line, _ = self._listener.accept()
        line.settimeout(60.0)
        head, controls, _, _ = line.recvmsg(8, socket.CMSG_SPACE(12))
        request = json.loads(_exactly(line, int.from_bytes(head, "big")))
        self._lines.register(line, selectors.EVENT_READ, None)
        if request == HOLD:
            self._holders.add(line)
            self._was_held = True
            return None
        files = array.array("i")
        for _, _, content in controls:
            files.frombytes(content)
        copy = os.fork()
        if not copy:
            os.setsid()
            for number, file in enumerate(files):
                os.dup2(file, number)
            for known in (*self._copies, *self._holders, line, self._listener):
                known.close()
            self._lines.close()
            for file in (*files, *(end for _, end in self._copies.values())):
                os.close(file)
            return dict(request)
        for file in files:
            os.close(file)
        end = os.pidfd_open(copy)
        self._copies[line] = copy, end
        self._lines.register(end, selectors.EVENT_READ, line)
        self._say(line, copy)
        return None

    def _ended(self, line: socket.socket) -> None:
        copy, end = self._copies.pop(line)
        self._lines.unregister(end)
        os.close(end)
        _, status = os.waitpid(copy, 0)
        self._say(line, os.waitstatus_to_exitcode(status))
        with contextlib.suppress(KeyError):
            self._lines.unregister(line)
        line.close()

    def _gone(self, line: socket.socket) -> None:
        """The Python that is lived for has ended, or a holder has."""
        self._lines.unregister(line)
        self._holders.discard(line)
        if line in self._copies:
            # It is waited for yet, so the number is its own; what it has started itself is of its group.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._copies[line][0], signal.SIGKILL)
                os.killpg(self._copies[line][0], signal.SIGKILL)
        else:
            line.close()

    @staticmethod
    def _say(line: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            line.sendall(f"{number}\n".encode())


def _exactly(line: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        content += line.recv(count - len(content)) or sys.exit("a start broke off")
    return content


def become(request: dict[str, Any]) -> None:
    """Take the place of the Python that asked."""
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN if number in request["ignored"] else signal.SIG_DFL)
    if signal.SIGINT not in request["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.chdir(request["folder"])
    os.umask(request["mask"])
    for name, limits in request["limits"].items():
        resource.setrlimit(getattr(resource, name), limits)
    os.sched_setaffinity(0, request["processors"])
    os.nice(request["nice"] - os.nice(0))
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.executable, sys.prefix, sys.orig_argv = request["executable"], request["prefix"], request["orig_argv"]
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(0, "r", closefd=False)),  # type: ignore[type-var]
        *(io.TextIOWrapper(io.FileIO(n, "w", closefd=False), write_through=True) for n in (1, 2)),  # type: ignore[type-var]
    )
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
    for name in ("random", "numpy.random"):
        if name in sys.modules:
            sys.modules[name].seed()


def run(request: dict[str, Any]) -> None:
    """The program, as Python itself would run it."""
    words = request["words"]
    is_safe = bool(request["environ"].get("PYTHONSAFEPATH"))
    places = [place for place in request["environ"].get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [*places, *(place for place in sys.path if place not in places)]
    if request["kind"] == "command":
        for file in (Path(place) / "sitecustomize.py" for place in places):
            if file.exists() and not file.samefile(Path(__file__).with_name(file.name)):
                # As Python does before a program begins; it brings another clock.
                exec(compile(file.read_text(), file, "exec"), {"__name__": "sitecustomize"})
        sys.argv = words
        importlib.import_module("hpc_llm.cli").main()
        return
    if request["kind"] == "script":
        sys.argv = words
        sys.path[:0] = [] if is_safe else [str(Path(words[0]).resolve().parent)]
        runpy.run_path(words[0], run_name="__main__")
        return
    sys.path[:0] = [] if is_safe else [request["folder"] if request["kind"] == "module" else ""]
    if request["kind"] == "module":
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = ["-c", *words[1:]]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(words[0], "<string>", "exec"), main.__dict__)


def carry_out(request: dict[str, Any]) -> int:
    try:
        become(request)
        run(request)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def main() -> None:
    here = str(Path(__file__).parent)
    sys.path[:] = [place for place in sys.path if place != here]
    os.environ.pop("HPC_LLM_TESTS_COPIES", None)
    import_commands() if sys.argv[2] == "commands" else import_all()
    request = Copied(sys.argv[1]).serve()
    if request is None:
        return
    code = carry_out(request)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
