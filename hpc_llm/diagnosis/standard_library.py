"""Modules of Python's standard library that are not there: which of them a Python can be without, and what it means where it cannot.

A module of C wants a library of the system when Python is built; the others are files that every Python of its release has.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_TAKEN_OUT = {
    **dict.fromkeys("asynchat asyncore distutils imp smtpd".split(), "3.12"),
    **dict.fromkeys(
        "aifc audioop cgi cgitb crypt imghdr lib2to3 mailcap msilib nis nntplib ossaudiodev pipes sndhdr spwd sunau telnetlib uu xdrlib".split(), "3.13"
    ),
}  # fmt: skip
"""The release from which on Python has them no more."""
_ADDED = {"dataclasses": "3.7", "contextvars": "3.7", "zoneinfo": "3.9", "graphlib": "3.9", "tomllib": "3.11"}
"""The first release that has them."""
_OF_ONE_SYSTEM = {
    **dict.fromkeys("_msi _overlapped _winapi msvcrt nt winreg winsound".split(), "Windows"),
    **dict.fromkeys("fcntl grp posix pty pwd resource syslog termios tty".split(), "Linux and its like"),
}
_LEFT_OUT = frozenset(
    """_bz2 _crypt _ctypes _ctypes_test _curses _curses_panel _dbm _decimal _elementtree _gdbm _hashlib _lzma _sqlite3 _ssl _tkinter _uuid _zstd
    bz2 ctypes curses dbm ensurepip idlelib lzma pyexpat readline sqlite3 ssl tkinter turtle turtledemo venv zlib""".split()
)
"""What is not built where a library of the system was missing, and what systems give in packages of their own."""
_DAMAGED = "this Python's own folder was not there, or not whole, when the module was asked for"


def is_damaged(package: str) -> bool:
    """Whether a Python that lacks it is not whole.

    >>> is_damaged("argparse"), is_damaged("_ctypes"), is_damaged("tomllib"), is_damaged("torch")
    (True, False, False, False)
    """
    others = (_TAKEN_OUT, _ADDED, _OF_ONE_SYSTEM, _LEFT_OUT)
    return package in sys.stdlib_module_names and not any(package in one for one in others)


def meaning_of(facts: Mapping[str, Any]) -> str | None:
    """What it means that a module is not there without which no Python is whole; None of other modules."""
    name = str(facts.get("package") or "")
    if not is_damaged(name):
        return None
    return f"{name} is a part of every Python: {_DAMAGED}. It is no package that was forgotten."


def advice(name: str) -> str | None:
    """What to do where a module of Python's own is not there, in lines; None of other modules."""
    top, _, part = name.partition(".")
    if part and top in sys.stdlib_module_names:
        return f"Python's own {top} has no such part in that release: take a newer Python; or a file of the program's own is called {top}"
    if name in _TAKEN_OUT:
        return (
            f"Python {_TAKEN_OUT[name]} has no {name} any more: an older Python, or a newer release of what imports it"
        )
    if name in _ADDED:
        return f"{name} belongs to Python from {_ADDED[name]} on: take a newer Python, or an older release of what imports it"
    if name in _OF_ONE_SYSTEM:
        return f"{name} belongs to Python on {_OF_ONE_SYSTEM[name]} alone: what imports it is not made for this system"
    if name in _LEFT_OUT:
        return f"{name} belongs to Python itself: this Python was built, or installed, without it. Use another one"
    if not is_damaged(name):
        return None
    return (
        "see that the folder of the Python in the evidence is whole, on that node: python -c 'import argparse, json, logging' with that very Python, and "
        "`ls` of its lib/python3.*\n"
        "where the job had run before, somebody or something changed the folder meanwhile: an environment that was installed or removed while the job ran, "
        "a purge of scratch, a quota, a file system that the node lost. Make it again, on a file system that stays, and change none that a job uses\n"
        "where it fails from the first line on, see that PYTHONHOME is not set in the job: echo $PYTHONHOME"
    )
