"""Data that cannot be read: a bad line, a file that was cut off or is of another kind than its name says."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, sign
from hpc_llm.causes.frames import reads_data

BAD_TEXT = (
    ("JSONDecodeError: ", "UnicodeDecodeError: "),
    r"\b(?:JSONDecodeError: [^\n]{1,200}|UnicodeDecodeError: '[\w-]{1,30}' codec can't decode [^\n]{1,200})",
)
"""Literals and pattern of what is said of any text, whatever it is for."""

DATA_ERROR = Cause(
    id="data_error",
    title="a file of data cannot be read",
    meaning=(
        "What the program read is damaged, cut off, empty or of another kind than it took it for: a line that is no JSON, a "
        "text in another encoding, a table with a row too long. It fails again as long as the file is so."
    ),
    remedy=(
        "look at the file that was read: the frames above the error in the traceback name the call, and mostly the path\n"
        "see that it is whole (ls -l, tail -c 300 FILE; a Git LFS pointer is three lines of text) and bring it again where it is not\n"
        "correct or leave out the line or the record that the message names"
    ),
    retry=False,
    precedence=74,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable")),
    signs=(
        sign(*BAD_TEXT, where=reads_data, confidence=0.85),
        sign(
            ("ParseError: ", "XMLSyntaxError: ", "ExpatError: "),
            r"\b(?:ElementTree\.ParseError|XMLSyntaxError|ExpatError): [^\n]{1,200}",
            confidence=0.85,
        ),
        sign(
            ("csv.Error: ", "ParserError: ", "EmptyDataError: "),
            r"\b_?csv\.Error: [^\n]{1,200}|\bpandas\.errors\.(?:ParserError|EmptyDataError): [^\n]{1,200}",
            confidence=0.9,
        ),
        sign(
            ("ArrowInvalid: ", "Parquet magic bytes not found", "ComputeError: "),
            r"\bArrowInvalid: [^\n]{1,200}|Error: [^\n]{0,120}Parquet magic bytes not found|\bpolars\.exceptions\.ComputeError: [^\n]{1,200}",
            confidence=0.85,
        ),
        sign(
            (
                "ReadError: ",
                "BadZipFile: ",
                "BadGzipFile: ",
                "zlib.error: ",
                "LZMAError: ",
                "ZstdError: ",
                "EOFError: Compressed file ended",
            ),
            r"\b(?:tarfile\.ReadError|zipfile\.BadZipFile|gzip\.BadGzipFile|zlib\.error|_?lzma\.LZMAError|zstd\.ZstdError): [^\n]{1,200}"
            r"|EOFError: Compressed file ended before the end-of-stream marker",
            where=reads_data,
            confidence=0.85,
        ),
        # datasets' word for what it found in the files, and Megatron's for its own.
        sign(
            ("DatasetGenerationError", "DatasetGenerationCastError", "EmptyDatasetError: ", "DataFilesNotFoundError: "),
            r"\bdatasets\.(?:exceptions|builder|data_files)\.(?:DatasetGeneration(?:Cast)?Error|EmptyDatasetError|DataFilesNotFoundError)\b",
            confidence=0.8,
        ),
        sign(
            "Index file doesn't match expected format",
            r"Error: Index file doesn't match expected format",
            confidence=0.9,
        ),
    ),
)

CAUSES = (DATA_ERROR,)
