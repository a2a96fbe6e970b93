"""What the job script does besides its work, as one file of bash that travels with the run (`support.sh`).

The script holds its digest and runs the very bytes that it has checked. The file holds in turn the name and digest of
the archive of the training program, so one digest in the script stands for all that is carried.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from hpc_llm.immutable import dataclass
from hpc_llm.records.run import TRY_FILES, Stop, carried_file
from hpc_llm.site.launchers import known
from hpc_llm.text.shell import shell_word

_HERE = Path(__file__).parent
_START = _HERE / "start.py"
"""What each rank runs first; the file holds it without its docstring."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """The file that a job script relies on."""

    path: Path
    digest: str
    """SHA-256 of the text, 64 hexadecimal digits, as `sha256sum` prints it."""
    text: str


def make_support(code_archive: Path, code_digest: str) -> Support:
    """The file for the training program in `code_archive`, beside which it belongs."""
    text = support_text(code_archive.name, code_digest)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Support(path=carried_file(code_archive.parent.parent, digest, ".sh"), digest=digest, text=text)


def support_text(archive_name: str, code_digest: str) -> str:
    """The same bytes for the same version, launchers and training program."""
    body = (_HERE / "support.sh").read_text(encoding="utf-8")
    return "".join([body, *(f"{line}\n" for line in _facts(archive_name, code_digest))])


def _facts(archive_name: str, code_digest: str) -> list[str]:
    """What the functions know from Python."""
    start = _START.read_text(encoding="utf-8").partition('"""\n\n')[2].strip()
    return [
        "",
        "# --- what hpc-llm puts in ".ljust(121, "-"),
        "",
        *(f"stop_{stop.name.lower()}={stop.value}  # {stop.meaning}" for stop in Stop),
        f"try_files=({' '.join(map(shell_word, TRY_FILES))})",
        "declare -A rank_variables=(",
        *(
            f"  [{name}]={shell_word(one.variables.text() if one.variables else '')}"
            for name, one in sorted(known().items())
        ),
        ")",
        f'code_archive="${{support%/*}}"/{shell_word(archive_name)}',
        f"code_digest={code_digest}",
        "# shellcheck disable=SC2016",
        f"start='{start}'",
    ]
