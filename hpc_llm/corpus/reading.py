"""Which files of a source are read, and who else may read them. Standard library only.

A folder of data may come from a stranger: a link in it may lead to what only its user can read, a pipe in it may never end.
"""

from __future__ import annotations

import codecs
import os
import re
import shlex
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from hpc_llm.errors import DataRequestError, ModelRequestError
from hpc_llm.records.files import load_json, open_plain, reason_of
from hpc_llm.records.models import stays_within
from hpc_llm.text.json_text import DamagedRecordError

_MARKS = (
    (codecs.BOM_UTF8, "UTF-8-SIG"),
    (codecs.BOM_UTF32_LE, "UTF-32"),  # begins as that of UTF-16 does
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_OF_ONE_BYTE = {"WINDOWS-1252": "Western Europe", "WINDOWS-1250": "Central Europe"}
_GUESSED_FROM = 4096
_LOOKED_AT = 1 << 16
"""Bytes at the beginning of a file by which it is told from one that is no text."""
NO_TEXT = "is no text, it holds zero bytes. Text, JSONL, CSV, parquet and PDF files are read; hpc-llm makes the tokens itself."
_NEVER_OPENED = "special_tokens_map_file"
"""Of a tokenizer's settings: where they were read from when they were saved."""


def sure_encoding(sample: bytes) -> str | None:
    r"""In what a text is written that is no UTF-8, as iconv calls it, where its first bytes decide that.

    >>> sure_encoding("ab".encode("utf-16")), sure_encoding("ab".encode("utf-16-le")), sure_encoding("ab".encode("utf-32"))
    ('UTF-16', 'UTF-16LE', 'UTF-32')
    >>> sure_encoding(b"caf\xe9"), sure_encoding("日本".encode("gb18030"))
    (None, None)
    """
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    return next((name for name in ("UTF-16LE", "UTF-16BE") if _is_written_in(sample, name)), None)


def possible_encodings(sample: bytes) -> list[str]:
    r"""Encodings of one byte that a text may be in whose bytes decide nothing; none where it is not mostly letters of ASCII.

    Letters beyond ASCII stand alone in the languages of Europe that Latin letters write, and beside each other elsewhere.

    >>> possible_encodings("déjà vu, le café".encode("latin-1")), possible_encodings("日本, ab".encode("gb18030"))
    (['WINDOWS-1252', 'WINDOWS-1250'], [])
    """
    high, plain = (len(re.findall(kind, sample)) for kind in (rb"[\x80-\xff]", rb"[A-Za-z]"))
    beside = sum(map(len, re.findall(rb"[\x80-\xff]{2,}", sample)))
    if 2 * high > plain or 2 * beside > high:
        return []
    return [name for name in _OF_ONE_BYTE if _can_be(sample, name)]


def _can_be(sample: bytes, name: str) -> bool:
    try:
        sample.decode(name)
    except UnicodeDecodeError:
        return False
    return True


def said_encoding(sample: bytes) -> str:
    """What can be said of the encoding of a text that is no UTF-8."""
    if sure := sure_encoding(sample):
        return f"it looks like {sure}"
    names = " or ".join(f"{name} ({_OF_ONE_BYTE[name]})" for name in possible_encodings(sample))
    return f"it may be {names}: its bytes do not decide it" if names else "its bytes do not say in which encoding it is"


def _is_written_in(sample: bytes, name: str) -> bool:
    """Whether half of the bytes are zeros and the text is one in that encoding of two bytes a character."""
    part = sample[: _GUESSED_FROM // 2 * 2]
    text = part[: len(part) // 2 * 2].decode(name, "replace")
    return (
        len(part) >= 4 and part.count(0) * 4 > len(part) and all(one.isprintable() or one in "\t\r\n" for one in text)
    )


def no_utf8(path: str, line: int | None, sample: bytes) -> str:
    """The sentence for a file that is not in UTF-8: where, what it may be, and the command that mends it."""
    sure, names = sure_encoding(sample), possible_encodings(sample)
    place = f"{path} line {line}" if line else path
    new = f"{path.removesuffix(Path(path).suffix)}.utf8{Path(path).suffix}"
    encoding = sure or (names[0] if names else "ENCODING")
    whose = "" if sure or names else " with the ENCODING in which it was made (`iconv -l` lists them)"
    look = "" if sure else f", and look whether {f'line {line}' if line else 'its first lines'} can be read then"
    return (
        f"{place} is not written in UTF-8, {said_encoding(sample)}. Write it anew{whose}{look}: "
        f"iconv -f {encoding} -t UTF-8 {shlex.quote(path)} > {shlex.quote(new)}, and give that file."
    )


EVERYBODY, NOBODY_ELSE = 0o755, 0o700
"""Most that others may do with a folder of tokens; its files lack what only folders need."""
_SNAPSHOTS = "snapshots"
_OF_HUB = ("datasets--", "models--", "spaces--")
"""How the folders of the Hub's cache begin, in which links of `snapshots` lead to `blobs`."""


def check_file(path: Path, folder: Path | None = None) -> None:
    """Raise RequestError where a source is no regular file, or a link that leads out of the `folder` in which it was found."""
    if folder is not None and path.is_symlink() and not leads_within(path, folder):
        raise DataRequestError(
            f"--data {folder}: {path} is a link that leads out of the folder, and is not followed. Name what it leads to by a "
            "--data of its own, or put a copy there."
        )
    try:
        kind = path.stat().st_mode
    except OSError as error:
        raise DataRequestError(f"--data {path}: it cannot be read: {reason_of(error)}.") from None
    if not stat.S_ISREG(kind):
        raise DataRequestError(
            f"--data {path}: it is no regular file. Write what it gives into a file, and name that one."
        )


def refuse_binary(path: str, *, is_plain: bool) -> None:
    """Raise RequestError where a file that would be read as text begins with what is none, such as tokens or an image.

    A zero byte in a text that is not plain, a table or JSON, is told with its row, where all else is UTF-8.
    """
    try:
        with open_plain(path) as file:
            head = file.read(_LOOKED_AT)
    except OSError:
        return  # what reads it says so
    if holds_no_text(head) and (is_plain or not _is_utf8(head)):
        raise DataRequestError(f"--data {path}: it {NO_TEXT}")


def holds_no_text(sample: bytes) -> bool:
    r"""Whether bytes hold zeros, and are no text in an encoding that has them.

    >>> holds_no_text(b"\x0b\0\xc6\0\xfa\xf9"), holds_no_text("ab".encode("utf-16-le")), holds_no_text(b"caf\xe9")
    (True, False, False)
    """
    return b"\0" in sample and sure_encoding(sample) is None


def _is_utf8(head: bytes) -> bool:
    """Whether the beginning of a file is in UTF-8; its last letter may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def leads_within(path: Path, folder: Path) -> bool:
    """Whether what a path of the folder leads to lies in the folder, or belongs to it in the Hub's cache."""
    real = os.path.realpath(path)
    return any(real.startswith(os.path.join(root, "")) for root in _roots(os.path.realpath(folder)))


def _roots(folder: str) -> Iterable[str]:
    """The folder itself, and of a snapshot in the Hub's cache where the contents of its files lie."""
    yield folder
    parts = Path(folder).parts
    for number, name in enumerate(parts):
        if name == _SNAPSHOTS and number and parts[number - 1].startswith(_OF_HUB) and number + 1 < len(parts):
            yield str(Path(*parts[:number], "blobs"))


def check_no_pipes(folder: Path) -> None:
    """Raise RequestError where a file of a model that its tokenizer may be read from is none: whoever opens it might wait for ever."""
    for place in (folder, folder / "additional_chat_templates"):
        try:
            found = sorted(place.iterdir())
        except OSError:
            continue
        for path in found:
            if path.suffix in (".json", ".txt", ".model", ".jinja") and not path.is_file():
                raise ModelRequestError(
                    f"the model in {folder}: {path.name} is no regular file, or leads to none. Fetch the model anew, or remove it."
                )


def check_tokenizer_names(folder: Path) -> None:
    """Raise RequestError where the tokenizer's settings name a file outside the model's folder that is there.

    Releases of transformers before 5 read the tokens from it, and no digest of the model's files is of it. Names that led
    somewhere on the machine where a tokenizer was saved stand in many a model and mean nothing here.
    """
    path = folder / "tokenizer_config.json"
    try:
        settings = load_json(path) if path.is_file() else None
    except DamagedRecordError:
        return  # what reads the tokenizer says so
    for key, name in (settings or {}).items():
        if key.endswith("_file") and key != _NEVER_OPENED and _leads_out(folder, name):
            raise ModelRequestError(
                f"{path} names a file that is not in its folder, {key} {name!r}: what lies elsewhere is no part of the model. "
                "Take the key out, the tokenizer's files in the folder are found by their names."
            )


def _leads_out(folder: Path, name: object) -> bool:
    if not isinstance(name, str) or not name or "\0" in name or stays_within(name):
        return False
    place = os.path.abspath(name)  # as what opens it would take it
    return os.path.lexists(place) and not Path(place).is_relative_to(os.path.abspath(folder))


Identity = tuple[str, int, int, int, int]
"""Path, device, inode, bytes and time of the last change: what is written to a file changes them."""


def identity(path: str) -> Identity:
    """Of a file as it is now; opened, as a file system of many machines may remember what it was. Raises RequestError."""
    try:
        with open_plain(path) as file:
            found = os.fstat(file.fileno())
    except OSError as error:
        raise DataRequestError(f"--data {path}: it cannot be read: {reason_of(error)}.") from None
    return path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def rights_of(paths: Iterable[str], above: Path) -> int:
    """The mode of a new folder in `above` that nobody may read who may not read all of these files."""
    mode = EVERYBODY
    groups = {above.stat().st_gid, os.getegid()}  # which of the two it gets is the file system's to decide
    for real in {os.path.realpath(path) for path in paths}:
        mode &= _rights_at(real, stat.S_IROTH, groups)
        for place in Path(real).parents:
            mode &= _rights_at(str(place), stat.S_IXOTH, groups)
    return mode


def _rights_at(place: str, needed: int, groups: Collection[int]) -> int:
    """What one file, or one folder on the way to it, leaves of a mode; `needed` is the right of others that counts there."""
    try:
        found = os.stat(place)
    except OSError:
        return NOBODY_ELSE
    others = bool(found.st_mode & needed)
    members = all(found.st_mode & (needed << 3) if found.st_gid == group else others for group in groups)
    return NOBODY_ELSE | (0o050 if members else 0) | (0o005 if others else 0)
