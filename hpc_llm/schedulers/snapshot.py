"""The code that travels with a run: the job's Python may be somebody else's environment and hold nothing of ours.

It is one archive a content and user, `logs/.code/<digest>-<user id>.zip`, and beside it what the job script does besides
its work (`hpc_llm.job.support`). A later edit or upgrade of the checkout does not reach jobs that are still queued.

Others may be able to write where runs live, so both are used only while they are exactly what their digest says: they are
looked at before a job is submitted, and script and ranks check the very bytes that they run (`hpc_llm.job.start`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
import shutil
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import hpc_llm
from hpc_llm.errors import RequestError, SubmissionError
from hpc_llm.job.start import LARGEST
from hpc_llm.job.support import Support, make_support
from hpc_llm.records.files import NO_ROOM, OTHERS_MAY_WRITE, make_shared_folder, read_regular, reason_of
from hpc_llm.records.run import carried_file

_PACKAGE = Path(hpc_llm.__file__).parent
_MODULES = (
    "__init__", "errors", "immutable", "outside", "registry",
    "text/__init__", "text/assignments", "text/bare_values", "text/connection_strings", "text/env_file",
    "text/homes", "text/json_text", "text/json_weight", "text/late_pattern", "text/out_of_memory",
    "text/own_secrets", "text/pasted", "text/program_patterns", "text/secrecy", "text/secret_addresses",
    "text/secret_blocks", "text/secret_encoded", "text/secret_inputs", "text/secret_logins", "text/secret_messages",
    "text/secret_names", "text/secret_options", "text/secret_pairs", "text/secret_programs", "text/secret_shapes",
    "text/secret_values", "text/shell_joins", "text/shown", "text/word_lists",
    "records/__init__", "records/checkpoints", "records/compiled", "records/digests", "records/fetched",
    "records/files", "records/metrics", "records/models", "records/possible", "records/rank_variables",
    "records/removed", "records/run", "records/stops", "records/weight_files",
    "planning/__init__", "planning/checkpoint", "planning/deepspeed_config", "planning/deepspeed_limits",
    "planning/deepspeed_monitors", "planning/deepspeed_schedules", "planning/deepspeed_values",
    "planning/encoder_decoder", "planning/engines/__init__", "planning/engines/deepspeed", "planning/engines/facts",
    "planning/engines/plain", "planning/experiment", "planning/families", "planning/loadable",
    "planning/micro_batches", "planning/model", "planning/model_sizes", "planning/optimizers", "planning/parts",
    "planning/recompute", "planning/schedule", "planning/synthetic", "planning/tasks/__init__",
    "planning/tasks/finetune", "planning/tasks/infer", "planning/tasks/prepare", "planning/tasks/pretrain",
    "planning/tasks/task", "planning/tasks/training", "planning/tasks/tune",
    "corpus/__init__", "corpus/columns", "corpus/facts", "corpus/format", "corpus/holes", "corpus/key",
    "corpus/order", "corpus/reading", "corpus/rows", "corpus/sets", "corpus/sources", "corpus/tables",
    "corpus/trust", "corpus/words",
)  # fmt: skip
"""What the worker may import besides itself; nothing in them needs more than the standard library."""
_THE_SAME_TIME = (1980, 1, 1, 0, 0, 0)


def code_archive(logs: Path, package: Path = _PACKAGE, also: Sequence[str] = ()) -> Path:
    """Where the archive of this code belongs."""
    return _archive_file(logs, code_digest(package, also))


def code_digest(package: Path = _PACKAGE, also: Sequence[str] = ()) -> str:
    """SHA-256 of the archive, 64 hexadecimal digits, as `sha256sum` prints it."""
    return _digest(_archive(package, also))


def support_of(logs: Path, package: Path = _PACKAGE, also: Sequence[str] = ()) -> Support:
    """What the scripts of runs in `logs` rely on, as it is or will be there."""
    return _support(logs, code_digest(package, also))


def code_snapshot(logs: Path, package: Path = _PACKAGE, also: Sequence[str] = ()) -> Path:
    """The archive, made on first use with what lies beside it, and made anew where it is not, or no longer, what it should be.

    `also` names top-level modules or packages of a task or an engine from elsewhere, which then travel too.

    Raises:
        RequestError: one of `also` is not there, or is not Python source throughout.
        SubmissionError: it cannot be written, or something that is in its place cannot be removed.
    """
    archive = _archive(package, also)
    digest = _digest(archive)
    support, target = _support(logs, digest), _archive_file(logs, digest)
    _refuse_a_strangers(target.parent)
    for path, content in ((target, archive), (support.path, support.text.encode())):
        if not _holds(path, content):
            _write(path, content)
    return target


def _digest(archive: bytes) -> str:
    return hashlib.sha256(archive).hexdigest()


def _archive_file(logs: Path, digest: str) -> Path:
    return carried_file(logs, digest, ".zip")


def _support(logs: Path, digest: str) -> Support:
    return make_support(_archive_file(logs, digest), digest)


def _refuse_a_strangers(folder: Path) -> None:
    """Raise SubmissionError where the folder is a link, or one of somebody else that is no shared one as we make them."""
    try:
        found = folder.lstat()
    except OSError:
        return  # it is not there yet
    is_shared = bool(found.st_mode & OTHERS_MAY_WRITE and found.st_mode & stat.S_ISVTX)
    if stat.S_ISDIR(found.st_mode) and (found.st_uid in (os.geteuid(), 0) or is_shared):
        return
    what = "somebody else's folder without the sticky bit" if stat.S_ISDIR(found.st_mode) else "a link or a file"
    raise SubmissionError(
        f"{folder}, where the code that travels with the runs belongs, is {what} and not a folder to be trusted: nothing was "
        "submitted. Remove it, or use another --logs, in a folder of your own."
    )


def _write(target: Path, content: bytes) -> None:
    """Put a file in its place, whole or not at all."""
    made = target.with_name(f".{uuid4()}")
    try:
        make_shared_folder(target.parent)
        with open(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "wb") as file:
            file.write(content)
        if target.is_dir() and not target.is_symlink():
            os.rename(target, made.with_suffix(".old"))
        os.replace(made, target)
    except OSError as error:
        room = "Free room there, or use" if error.errno in NO_ROOM else "Use"
        raise SubmissionError(
            f"the code that travels with the runs cannot be written to {target}: {reason_of(error)}. "
            f"{room} another --logs, in a folder of your own."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)
        shutil.rmtree(made.with_suffix(".old"), ignore_errors=True)
    if not _holds(target, content):
        raise SubmissionError(
            f"{target} does not stay as it was written: others write there. Use another --logs, in a folder of your own."
        )


def _archive(package: Path, also: Sequence[str] = ()) -> bytes:
    """The same bytes for the same code, whenever and wherever they are made."""
    sources = {f"hpc_llm/{name}.py": package / f"{name}.py" for name in _MODULES}
    sources |= _sources_in(package / "worker", "hpc_llm/worker")
    for name in also:
        sources |= _sources_of(name)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, path in sources.items():
            entry = zipfile.ZipInfo(name, _THE_SAME_TIME)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, path.read_bytes())
    if content.tell() > LARGEST:
        raise RequestError(
            f"the code that travels with a run would take {content.tell()} bytes, {LARGEST} are the most."
        )
    return content.getvalue()


def _sources_of(name: str) -> dict[str, Path]:
    """Name in the archive -> file, for a top-level module or package that is not ours. It is not imported."""
    found = importlib.util.find_spec(name)
    if found is None:
        raise RequestError(f"the module {name}, which the runs need, is not there: install the package that brings it.")
    origin = Path(found.origin or "")
    if origin.suffix != ".py":
        raise RequestError(f"the module {name} cannot travel with a run: it is no Python source with an __init__.py.")
    if found.submodule_search_locations is None:
        return {f"{name}.py": origin}
    return _sources_in(origin.parent, name)


def _sources_in(folder: Path, name: str) -> dict[str, Path]:
    """The same for all Python files in a folder that is called `name` in the archive."""
    found = sorted(os.path.join(place, file) for place, _, files in os.walk(folder) for file in files)
    return {f"{name}{path[len(str(folder)) :]}": Path(path) for path in found if path.endswith(".py")}


def _holds(path: Path, content: bytes) -> bool:
    """Whether the file is this user's and holds that; whatever else may be there is none of it."""
    try:
        return path.lstat().st_uid == os.geteuid() and read_regular(path) == content
    except (OSError, ValueError):
        return False
