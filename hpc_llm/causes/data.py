"""Data that are not there, or cannot be read: a bad line, a file that was cut off or is of another kind than its name says."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, Cause, sign
from hpc_llm.causes.frames import finds_data_files, reads_data, streams_data
from hpc_llm.causes.hub import TOO_MANY_FOR_DATA

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
        # Ours say by the name of their class whose fault it is.
        sign(
            ("DataFileError: ", "DataRequestError: "),
            r"\bData(?:File|Request)Error: [^\n]{1,200}",
            confidence=0.97,
            remedy="do what the message in the evidence says, with the file or with the setting that it names, then submit again",
        ),
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

_DATASET_URL = r"(?:huggingface\.co|hf-mirror\.com|hf\.co)(?::\d+)?/(?:api/)?datasets/"
_NO_CONNECTION = (
    r"(?:Max retries exceeded|Failed to resolve|NameResolutionError|ProxyError|offline mode is enabled|Cannot (?:send a request|reach)"
    r"|Network is unreachable|Connection (?:refused|timed out)|ConnectTimeout|ReadTimeout)"
)
_BRING_DATASET = (
    "bring it on a login node first: hf download --repo-type dataset NAME --local-dir DIR, and give the program DIR\n"
    "or fill the cache there that the job reads: run load_dataset once on the login node, with the same HF_HOME"
)

_STREAM_BROKE = (
    "submit it again, from its last checkpoint: nothing is wrong with the program\n"
    "what is on the disk no network can break: download the data set once (hf download --repo-type dataset NAME --local-dir DIR), and read DIR without streaming"
)

DATA_MISSING = Cause(
    id="data_missing",
    title="the data set could not be loaded",
    meaning="The data set is not there: wrong name or folder, no permission, no network on the compute node.",
    remedy=_BRING_DATASET,
    retry=False,
    precedence=78,
    explains=frozenset(("model_missing", "python_exception", "collective_timeout", "unreachable", "no_internet")),
    signs=(
        sign(
            " cannot be had from the Hub: ",
            r"\bWorkerError: the data set (?P<dataset>\S{1,160}) cannot be had from the Hub: [^\n]{1,200}",
            confidence=0.97,
            remedy="bring it where there is a way out, as the message says: hpc-llm fetch NAME --to DIR, then --data NAME=DIR",
        ),
        sign(
            "is a gated dataset on the Hub",
            r"Dataset '(?P<dataset>[^'\n]{1,160})' is a gated dataset on the Hub[^\n]{0,160}",
            survived_after=STARTED,
            remedy="accept the data set's terms on its page, and log in where you download it: hf auth login\n"
            + _BRING_DATASET,
        ),
        sign(
            "exist on the Hub or cannot be accessed",
            r"Dataset '(?P<dataset>[^'\n]{1,160})' doesn't exist on the Hub or cannot be accessed",
            survived_after=STARTED,
            remedy=(
                "see its name, OWNER/NAME, on the Hub; a private one wants a login where you download it: hf auth login\n"
                + _BRING_DATASET
            ),
        ),
        TOO_MANY_FOR_DATA,
        # Megatron's data sets are a pair of files, of which the program is given the name without its ending.
        sign(
            "Could not find a dataset index file",
            r"Could not find a dataset index file (?P<dataset>\S{1,300})",
            remedy=(
                "there is no such pair of files, NAME.bin and NAME.idx: see the path on the compute node, which is given without the ending\n"
                "where there is none yet, make it with tools/preprocess_data.py"
            ),
        ),
        sign(
            ("Couldn't reach '", "Couldn't reach http", "Couldn't reach the Hugging Face Hub"),
            r"\bConnectionError: Couldn't reach (?:(?:the Hugging Face Hub for dataset )?'(?P<dataset>[^'\n]{1,160})'(?: on the Hub|: Offline)"
            r"|https?://\S{1,200})[^\n]{0,120}",
            survived_after=STARTED,
        ),
        sign(
            "/datasets/",
            rf"{_NO_CONNECTION}[^\n]{{0,300}}{_DATASET_URL}|{_DATASET_URL}[^\n]{{0,300}}{_NO_CONNECTION}",
            survived_after=STARTED,
        ),
        # The libraries of HTTP name the server apart from the path.
        sign(
            "url: /",
            r"\bMax retries exceeded with url: /(?:api/)?datasets/(?P<dataset>[\w.-]+/[\w.-]+)?",
            survived_after=STARTED,
        ),
        sign(
            ("lient Error", "lient error '", "Not Found for url", "to repo "),
            rf"(?:40[134] Client Error[^\n]{{0,80}}|Client error '40[134] [\w ]+'|Repository Not Found) for url:? '?https://{_DATASET_URL}[^\n]{{0,200}}"
            rf"|Cannot access gated repo for url https://{_DATASET_URL}[^\n]{{0,200}}",
            survived_after=STARTED,
            remedy=(
                "the Hub knows no such data set, or does not let you have it: see its name, accept its terms on its page, "
                "and log in where you download it: hf auth login\n" + _BRING_DATASET
            ),
        ),
        # A stream that breaks in the middle of training; the Hub's client may try again with the connection that it has closed itself.
        sign(
            ("onnection reset by peer", "as the client has been closed", "peer closed connection without"),
            r"(?:\b\w{2,40}Error: [^\n]{0,160}?onnection reset by peer|\bRuntimeError: Cannot send a request, as the client has been closed"
            r"|\b(?:RemoteProtocolError|ProtocolError): peer closed connection without)",
            where=streams_data,
            confidence=0.85,
            retry=True,
            meaning="The connection broke over which the data were read from the Hub, or another server, as the program ran.",
            remedy=_STREAM_BROKE,
        ),
        # datasets says so of the pattern or path that it was given as `data_files`; other programs have the same words for other files.
        sign(
            "Unable to find '",
            r"\bFileNotFoundError: Unable to find '(?P<dataset>[^'\n]{1,300})'(?: with any supported extension \[[^\n]{0,2000})?$",
            survived_after=STARTED,
            where=finds_data_files,
            remedy="nothing that is called so is there: see the path or the pattern of data_files, on the machine that runs the job (ls), from the folder in "
            "which the program starts\nbring the file there where it is missing",
        ),
        sign(
            ("Couldn't find cache for ", "Couldn't find a dataset script at ", "Couldn't find any data file at "),
            r"\b(?:ValueError|FileNotFoundError|ConnectionError): Couldn't find (?:cache for|a dataset script at|any data file at) [^\n]{1,300}",
            survived_after=STARTED,
            remedy="where a folder is meant: see that the compute node sees it, and that there are data files in it\n"
            + _BRING_DATASET,
        ),
    ),
)

CAUSES = (DATA_MISSING, DATA_ERROR)
