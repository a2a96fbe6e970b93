"""How every rank starts: the carried code is read once, checked as it was read, and run from memory.

    python -u -c "$start" ARCHIVE DIGEST [MODULE [ARGUMENT ...]]

Others may be able to write where the archive lies, so no file of it is looked at a second time. Without a module it is
only checked. The job script holds the text below, which therefore has no single quote, and needs nothing of ours.
"""

import sys

if __name__ == "__main__":
    sys.path[:] = [place for place in sys.path if place]  # nothing is imported from the run folder

import hashlib
import importlib.abc
import importlib.util
import io
import os
import runpy
import stat
import types
import zipfile
from importlib.machinery import ModuleSpec
from typing import Any, Optional

CODE_CHANGED = 78
LARGEST = 1 << 26


def read_archive(path: str, digest: str) -> bytes:
    content = b""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                content = file.read(LARGEST)
    except OSError as error:
        print("hpc-llm: %s: %s" % (path, error.strerror), file=sys.stderr)
    if hashlib.sha256(content).hexdigest() != digest:
        print("hpc-llm: the code in %s is not what was submitted with this run" % path, file=sys.stderr)
        sys.exit(CODE_CHANGED)
    return content


class Carried(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports what the archive holds; everything else is left to the environment."""

    def __init__(self, place: str, content: bytes, program: str) -> None:
        self.place, self.program = place, program
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            self.files = {name: archive.read(name) for name in archive.namelist()}

    def file_of(self, name: str) -> str:
        module = (self.program if name == "__main__" else name).replace(".", "/")
        package = module + "/__init__.py"
        return package if package in self.files else module + ".py"

    def find_spec(self, name: str, path: Any = None, target: Optional[types.ModuleType] = None) -> Optional[ModuleSpec]:
        if self.file_of(name) not in self.files:
            return None
        spec = importlib.util.spec_from_loader(name, self, origin=self.place + "/" + self.file_of(name))
        if spec is not None:
            spec.has_location = True
        return spec

    def is_package(self, name: str) -> bool:
        return self.file_of(name).endswith("/__init__.py")

    def get_source(self, name: str) -> str:
        if self.file_of(name) not in self.files:
            raise ImportError(name)
        return self.files[self.file_of(name)].decode("utf-8")

    def get_code(self, name: str) -> Optional[types.CodeType]:
        return compile(self.get_source(name), self.place + "/" + self.file_of(name), "exec", dont_inherit=True)


def main() -> None:
    place, digest = sys.argv[1:3]
    content = read_archive(place, digest)
    sys.argv[:3] = []
    if sys.argv:
        sys.meta_path.insert(0, Carried(place, content, sys.argv[0]))
        runpy.run_module(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
