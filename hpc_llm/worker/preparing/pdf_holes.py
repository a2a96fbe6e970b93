"""Signs of a hole of zeros in a PDF file, of which pypdf says nothing: zeros are blanks to it, and a stream it decodes as far as it can.

Between the streams of a file no writer leaves zeros, nor among the words of a page; and what is compressed has a checksum.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import IO, Any

_HOLE = bytes(8)
"""So many zeros in a row are a hole in what is compressed and does not end."""
_BLOCK = 1 << 20
_LONGEST_MARK = 32
_MARKS = re.compile(rb"endstream|stream\r?\n|%%EOF|\bobj\b|\0{8,}")
_AMONG_WORDS = re.compile(rb"\bID\s|\sEI\b|\0{16,}")
"""A hole among words, where letters of two bytes may be a few zeros by themselves; and where an image begins and ends, which may
hold any number."""
_MOST_FORMS = 100


def hole_between_streams(file: IO[bytes]) -> str | None:
    """Where zeros stand in the file's own words; None where nowhere. Before the first object and behind an end there may be any."""
    place, at, rest = b"%%EOF", 0, b""
    while block := file.read(_BLOCK):
        text, begin = rest + block, 0
        for found in _MARKS.finditer(text):
            word = found[0].strip()
            if not word.startswith(b"\0") and found.end() > len(text) - _LONGEST_MARK and len(block) == _BLOCK:
                break
            begin = found.end()
            if not word.startswith(b"\0"):
                place = word if place != b"stream" or word == b"endstream" else place
            elif place in (b"obj", b"endstream"):
                return f"there is a hole of zeros at byte {at + found.start()}"
        begin = max(begin, len(text) - _LONGEST_MARK)
        at, rest = at + begin, text[begin:]
    return None


def hole_in_page(page: Any) -> str | None:
    """What shows that some of a page's words are lost; None where nothing does."""
    for stream in _streams(page):
        if not hasattr(stream, "get_data"):
            return "what its words should be in is no stream"
        if (why := _is_cut(stream)) is not None:
            return why
        if _has_hole(stream.get_data()):
            return "there is a hole of zeros among its words"
    return None


def _has_hole(words: bytes) -> bool:
    in_image = False
    for found in _AMONG_WORDS.finditer(words):
        if found[0].startswith(b"\0") and not in_image:
            return True
        in_image = found[0].startswith(b"ID") or (in_image and found[0].startswith(b"\0"))
    return False


def _streams(page: Any) -> Iterator[Any]:
    """What its words are in: its own contents, and the forms that it shows."""
    contents = _of(page, "/Contents")
    yield from map(_resolved, contents) if isinstance(contents, list) else () if contents is None else (contents,)
    forms = _of(_of(page, "/Resources") or {}, "/XObject")
    for number, form in enumerate(map(_resolved, forms.values()) if isinstance(forms, dict) else ()):
        if number < _MOST_FORMS and isinstance(form, dict) and form.get("/Subtype") == "/Form":
            yield form


def _of(entries: Any, name: str) -> Any:
    found = _resolved(entries.get(name)) if isinstance(entries, dict) else None
    return None if type(found).__name__ == "NullObject" else found


def _resolved(one: Any) -> Any:
    return one.get_object() if hasattr(one, "get_object") else one


def _is_cut(stream: Any) -> str | None:
    """Whether a stream's bytes are not those that were compressed. Where only its checksum is missing nothing is lost."""
    kinds = _of(stream, "/Filter")
    first = _resolved(kinds[0]) if isinstance(kinds, list) and kinds else kinds
    raw = getattr(stream, "_data", None)
    if first != "/FlateDecode" or not isinstance(raw, bytes):
        return None
    unpacked = zlib.decompressobj()
    try:
        unpacked.decompress(raw, 1 << 26)
    except zlib.error as error:
        return f"its words cannot be unpacked whole ({' '.join(str(error).split())})"
    if unpacked.eof or unpacked.unconsumed_tail or _HOLE not in raw:
        return None
    return "its words cannot be unpacked whole (there is a hole of zeros in them)"
