"""A real Slurm of six virtual nodes that lives wholly under one folder and leaves nothing behind.

    with ScratchSlurm(folder) as slurm:
        slurm.run("sbatch", "job.sh")

Nothing under /etc, /run or /var is read or written, and no privilege is needed: SlurmUser is whoever runs the tests.
Every daemon is a child in the foreground that the kernel ends with its parent, so a killed test session leaves none.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from polling import pause
from scratch_conf import ACCOUNTING, ACCOUNTS, GRES_CONF, NODES, SLURM_CONF, SLURMDBD_CONF, SQL_SETUP

TOOLS = {
    "sbatch": "slurm-client",
    "srun": "slurm-client",
    "sacct": "slurm-client",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "slurmdbd": "slurmdbd",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "modulecmd": "environment-modules",
}


def missing_tools() -> str:
    """Sentence with the apt command for the tools that are absent, or an empty string."""
    absent = {tool: package for tool, package in TOOLS.items() if shutil.which(tool, path=search_path()) is None}
    if not absent:
        return ""
    packages = " ".join(sorted(set(absent.values())))
    return (
        f"these tests run against a real Slurm and need {', '.join(sorted(absent))}: "
        f"apt-get install -y --no-install-recommends {packages}"
    )


def search_path() -> str:
    """PATH with the folders of the daemons, which an unprivileged user's PATH lacks."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/bin", "/sbin", "/bin"])


def plain_environment() -> dict[str, str]:
    """This process's environment without what an enclosing Slurm job would leak into the scratch cluster."""
    foreign = ("SLURM", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "HPC_LLM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "PATH": search_path()}


class PortBlock:
    """Forty TCP ports that no other scratch cluster of this machine uses, held until this process ends."""

    FIRST, SIZE = 20000, 40

    def __init__(self) -> None:
        for base in range(self.FIRST, 30000, self.SIZE):
            # An abstract socket is a lock across users that the kernel drops with its process.
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0scratch-slurm-ports-{base}")
            except OSError:
                claim.close()
                continue
            if all(self._is_free(port) for port in range(base, base + self.SIZE)):
                self.base, self._claim = base, claim
                return
            claim.close()
        raise RuntimeError("no free block of ports between 20000 and 30000")

    @staticmethod
    def _is_free(port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True

    @property
    def number(self) -> int:
        """Which of the blocks this is, from 0 on."""
        return (self.base - self.FIRST) // self.SIZE

    def release(self) -> None:
        self._claim.close()


_ASK, _TRIES = ("squeue", "sacct", "sinfo"), 5
"""Commands that change nothing."""


class ScratchSlurm:
    """One cluster; `environ` is what a client needs to talk to it.

    Without `accounting` it starts in a tenth of the time and sacct fails, as at a site that keeps none. Accounting keeps no
    comments unless `keeps_comments`, which is Slurm's default. `message_timeout_s` is how long a client waits for a
    controller that hangs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "scratch",
        accounting: bool = True,
        keeps_comments: bool = False,
        message_timeout_s: int = 10,
    ) -> None:
        self.folder = folder.resolve()
        self.name = name
        self.has_accounting = accounting
        self._keeps_comments = keeps_comments
        self._message_timeout_s = message_timeout_s
        self.conf = self.folder / "etc" / "slurm.conf"
        self._ports = PortBlock()
        # The port at which a job's ranks meet follows from its id: clusters beside each other give other ids.
        self._first_job_id = 1 + 170 * (self._ports.number % 8)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environ = {**plain_environment(), "SLURM_CONF": str(self.conf)}
        self.commands: Path | None = None
        """Where the process is of which commands on the login node are copies; None: they start by themselves."""

    def __enter__(self) -> ScratchSlurm:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # starting and stopping

    def start(self) -> None:
        """Bring all daemons up; returns when all six nodes are idle."""
        self._write_configuration()
        self._start_munge()
        if self.has_accounting:
            self._start_database()
            self.start_accounting()
            self._create_accounts()
        self._start_cluster()

    def _start_cluster(self) -> None:
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self._wait("all nodes are idle", lambda: self.node_states() == dict.fromkeys(NODES, "idle"))

    def start_accounting(self) -> None:
        """Start slurmdbd, beside its database, and return when it answers."""
        self._spawn("slurmdbd", "slurmdbd", "-D")
        self._wait("slurmdbd answers", lambda: self.ok("sacctmgr", "-n", "show", "cluster"))

    def start_controller(self) -> None:
        """Start slurmctld, with the jobs that it had saved, and return when it answers."""
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        # A client whose connection is refused sleeps for a second.
        self._wait("slurmctld listens", self.is_listening)
        self._wait("slurmctld answers", lambda: self.ok("scontrol", "show", "config"))

    def stop(self) -> None:
        """Cancel what still runs and end every daemon."""
        if "slurmctld" in self._daemons:
            self._drain()
        for name in reversed(list(self._daemons)):
            # Nothing of the cluster is kept, so there is no state to save: killing takes no time.
            self.end(name)
        for pid in self._processes():  # what no daemon was left to end
            _signal(pid, signal.SIGKILL)
        self._ports.release()

    def start_node(self, node: str) -> None:
        (self.folder / "spool" / node).mkdir(parents=True, exist_ok=True)
        self._spawn(f"slurmd-{node}", "slurmd", "-D", "-N", node)

    def bring_back(self, node: str) -> None:
        """A node that crashed takes jobs again."""
        self.start_node(node)
        self.ok("scontrol", "update", f"nodename={node}", "state=resume")  # refused where it has come back by itself
        self.wait_until(f"{node} is back", lambda: self.node_states().get(node) in ("idle", "mix", "alloc"))

    def crash_node(self, node: str) -> None:
        """The node dies with everything that runs on it, and the controller has noticed."""
        self._kill_node(node)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=crashed")

    def _kill_node(self, node: str) -> None:
        self.end(f"slurmd-{node}")
        tasks = self._processes(f"SLURMD_NODENAME={node}")
        # slurmstepd itself has no such variable, but is the parent of those that have.
        steps = {_parent(pid) for pid in tasks} & set(self._processes()) - set(tasks)
        for pid in steps:  # frozen first, or they would still report how their tasks died
            _signal(pid, signal.SIGSTOP)
        for pid in [*tasks, *steps]:
            _signal(pid, signal.SIGKILL)

    def end(self, daemon: str, sign: signal.Signals = signal.SIGKILL) -> None:
        """End `slurmctld`, `slurmdbd` or `slurmd-NODE`; by SIGTERM it saves its state first."""
        process = self._daemons.pop(daemon)
        process.send_signal(sign)
        process.wait(timeout=100)

    def freeze(self, daemon: str) -> None:
        """The daemon hangs: who connects to it gets no answer."""
        self._daemons[daemon].send_signal(signal.SIGSTOP)

    def thaw(self, daemon: str) -> None:
        self._daemons[daemon].send_signal(signal.SIGCONT)

    def wipe(self, first_job_id: int, *, accounting: bool = True) -> None:
        """Start anew with nothing known of any job, as after an installation; ids are given from `first_job_id` on.

        Without `accounting` the database keeps what it had, under ids that will be given again.
        """
        self.end("slurmctld")
        for node in NODES:
            self._kill_node(node)
        for name in ("state", "spool"):
            shutil.rmtree(self.folder / name)
        self._write_configuration(first_job_id)
        if accounting and self.has_accounting:
            self._sql("".join(f"DELETE FROM slurm_acct_db.{self.name}_{table}_table;" for table in ("job", "step")))
        self._start_cluster()

    # using it

    def run(self, *command: str, environ: dict[str, str] | None = None) -> str:
        """Stdout of a client command; its stderr is in the error when it fails. A busy controller is asked again."""
        done = self._client(command, environ or self.environ)
        for _ in range(_TRIES if command[0] in _ASK else 0):
            if "Socket timed out" not in done.stderr:
                break
            done = self._client(command, environ or self.environ)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} exited {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def ok(self, *command: str) -> bool:
        return self._client(command, self.environ).returncode == 0

    @staticmethod
    def _client(command: Sequence[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, check=False, env=environ, capture_output=True, text=True, timeout=150)

    def is_listening(self) -> bool:
        """Whether a controller is there, and be it one that hangs."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._ctld_port)) == 0

    def node_states(self) -> dict[str, str]:
        # %N is the virtual node; %n would be the host name, the same for all of them.
        done = self._client(("sinfo", "-h", "-N", "-o", "%N %t"), self.environ)
        return dict(line.split() for line in done.stdout.splitlines()) if done.returncode == 0 else {}

    def job_state(self, job_id: str) -> str:
        """What the controller says, e.g. RUNNING."""
        return self.run("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T").strip()

    def stored_script(self, job_id: str) -> bytes:
        """The batch script as the controller keeps it."""
        target = self.folder / f"stored-{job_id}.sh"
        self.run("scontrol", "write", "batch_script", job_id, str(target))
        return target.read_bytes()

    def expire(self, job_id: str) -> None:
        """Let the job's time limit pass within seconds; limits themselves are whole minutes."""
        self.run("scontrol", "update", f"jobid={job_id}", "EndTime=now+1")

    def wait_until(self, what: str, condition: Callable[[], bool], seconds: float = 150.0) -> None:
        self._wait(what, condition, seconds)

    # details

    def _write_configuration(self, first_job_id: int | None = None) -> None:
        for name in ("etc", "log", "run", "state", "munge", "spool"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        os.chmod(self.folder / "munge", 0o700)
        ports = {"port_sql": 6, "port_ctld": 17, "port_dbd": 19, **{f"port_{n}": 31 + i for i, n in enumerate(NODES)}}
        values = {
            "folder": self.folder,
            "host": socket.gethostname().split(".")[0],
            "user": getpass.getuser(),
            "name": self.name,
            "first_job_id": first_job_id or self._first_job_id,
            "message_timeout_s": self._message_timeout_s,
            **{name: self._ports.base + offset for name, offset in ports.items()},
        }
        self._sql_port, self._ctld_port = values["port_sql"], values["port_ctld"]
        self.conf.write_text(SLURM_CONF.format(**values, accounting=self._accounting(values)))
        (self.folder / "etc" / "gres.conf").write_text(GRES_CONF)
        (self.folder / "etc" / "plugstack.conf").write_text("")
        dbd = self.folder / "etc" / "slurmdbd.conf"
        dbd.write_text(SLURMDBD_CONF.format(**values))
        dbd.chmod(0o600)

    def _accounting(self, values: dict[str, object]) -> str:
        if not self.has_accounting:
            return "AccountingStorageType=accounting_storage/none\n"
        stored = "AccountingStoreFlags=job_comment\n" if self._keeps_comments else ""
        return ACCOUNTING.format(**values) + stored

    def _start_munge(self) -> None:
        key, run = self.folder / "munge" / "munge.key", self.folder / "run"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self._spawn(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={run}/munge.socket",
            f"--pid-file={run}/munged.pid", f"--log-file={self.folder}/log/munged.log",
            f"--seed-file={self.folder}/munge/munged.seed", "--num-threads=2", "--group-update-time=-1",
        )  # fmt: skip
        self._wait("munged answers", lambda: self.ok("munge", "-S", f"{run}/munge.socket", "-n"))

    def _start_database(self) -> None:
        data, user, socket_path = self.folder / "mysql", getpass.getuser(), f"{self.folder}/run/mysql.sock"
        # A server that starts removes the temporary tables of all that share this folder with it.
        tmpdir = f"--tmpdir={self.folder}/run"
        self.run(
            "mariadb-install-db", "--no-defaults", f"--user={user}", f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=normal", tmpdir,
        )  # fmt: skip
        self._spawn(
            "mariadbd", "mariadbd", "--no-defaults", f"--user={user}", f"--datadir={data}", f"--socket={socket_path}",
            f"--pid-file={self.folder}/run/mariadbd.pid", "--bind-address=127.0.0.1", f"--port={self._sql_port}",
            "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF", "--skip-log-bin", tmpdir,
        )  # fmt: skip
        self._wait("mariadbd answers", lambda: self.ok(*self._sql_client("SELECT 1")))
        self._sql(SQL_SETUP)

    def _sql_client(self, statements: str) -> list[str]:
        socket_path = f"--socket={self.folder}/run/mysql.sock"
        return ["mariadb", "--no-defaults", socket_path, "-u", "root", "-e", statements]

    def _sql(self, statements: str) -> None:
        self.run(*self._sql_client(statements))

    def _create_accounts(self) -> None:
        # Associations are enforced, so that an account nobody was given is refused by sbatch itself.
        user = getpass.getuser()
        self.run("sacctmgr", "-i", "add", "cluster", self.name)
        accounts = ",".join(ACCOUNTS)
        self.run("sacctmgr", "-i", "add", "account", accounts, "Description=test", "Organization=test")
        self.run("sacctmgr", "-i", "add", "user", user, f"Account={accounts}", f"DefaultAccount={ACCOUNTS[0]}")

    def _spawn(self, name: str, *command: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ("setpriv", "--pdeathsig", "TERM", *command),
                env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _drain(self) -> None:
        # slurmstepd outlives slurmd: the jobs go first, while somebody can still end them.
        try:
            self.run("scancel", "-u", getpass.getuser())
            self._wait("the queue is empty", lambda: self.run("squeue", "-h").strip() == "", seconds=5)
        except RuntimeError:
            pass  # whatever is left is found by its environment

    def _processes(self, *variables: str) -> list[int]:
        """Processes that were started with this cluster in their environment, and with these variables."""
        marks = {each.encode() for each in (f"SLURM_CONF={self.conf}", *variables)}
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                    if marks <= set((process / "environ").read_bytes().split(b"\0")):
                        found.append(int(process.name))
        return found

    def _wait(self, what: str, condition: Callable[[], bool], seconds: float = 150.0) -> None:
        deadline = (began := time.monotonic()) + seconds
        while not condition():
            for name, daemon in self._daemons.items():
                if daemon.poll() is not None:
                    words = self._last_words(name)
                    raise RuntimeError(f"{name} exited {daemon.returncode} while waiting until {what}: {words}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{seconds:.0f} s were not enough until {what}")
            pause(began, 0.05)
            began = time.monotonic()

    def _last_words(self, name: str) -> str:
        logs = [self.folder / "log" / f"{name}.out", self.folder / "log" / f"{name}.log"]
        return " | ".join(log.read_text(errors="replace")[-800:] for log in logs if log.exists())


def _parent(pid: int) -> int:
    """0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _signal(pid: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sign)
