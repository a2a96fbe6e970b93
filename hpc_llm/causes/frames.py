"""What a program was reading when reading failed: configuration, a model, data. The frames of its traceback tell."""

from __future__ import annotations

import re

from hpc_llm.causes.tracebacks import LONGEST, TRACEBACK

_FRAME = re.compile(
    rb"File \"(?P<path>[^\"\n]{1,400})\", line \d{1,7}, in (?P<function>[^\n]{1,200})\n(?P<code>[^\n]{0,400})"
)
_PARSER = re.compile(
    rb"(?:^|/)(?:json|simplejson|orjson|ujson|xml|lxml|csv|codecs|encodings|gzip|zipfile|tarfile|lzma|bz2|_compression|pathlib|io"
    rb"|pyarrow|pandas|polars|numpy|fsspec)(?:/|\.py$|\.pyx$|\.pxi$)|(?:^|/)[^/]{0,80}\.px[id]$|^<frozen (?:codecs|zipimport|posixpath)"
)
"""Files of the libraries that take a text apart: they do not know what it is."""
_CONFIGURATION = re.compile(
    rb"(?i)conf(?:ig)?s?\b|config|cfg|setting|hparam|parse_args|parse_json_file|parse_yaml|argument|recipe|\.ya?ml\b|\.toml\b|ds_json"
)
_MODEL = re.compile(
    rb"(?i)index_file|weight_map|vocab|tokenizer|merges|checkpoint|ckpt|state_dict|trainer_state|safetensors|from_pretrained|load_model"
)
_OTHERS = re.compile(
    rb"(?:^|/)(?:requests|httpx|urllib3?|aiohttp|http|huggingface_hub|wandb|mlflow|clearml|subprocess|socket|multiprocessing/connection|asyncio"
    rb"|importlib|tokenize|linecache|ray)(?:/|\.py$)"
)
"""What comes of these was no file: an answer of a server, the output of a program, a module."""


_SPAWNED = re.compile(
    rb"/multiprocessing/(?:spawn|forkserver|popen_\w{1,20})\.py\", line \d{1,7}, in _?main\n[^\n]{0,200}pickle\.load\("
)
_IN_A_LOADER = re.compile(rb", in _pin_memory_loop\n")
_SERVES = re.compile(
    rb"/uvicorn/protocols/|/starlette/(?:middleware/|_exception_handler)|/flask/app\.py\", line \d{1,7}, in (?:wsgi_app|(?:full_)?dispatch_request)"
    rb"|/werkzeug/serving\.py|/tornado/web\.py|/aiohttp/web_protocol\.py|/gradio/(?:queueing|routes|route_utils)\.py"
    rb"|/(?:vllm|sglang)/[\w/]{0,40}entrypoints/[\w/]{0,60}\.py\", line \d{1,7}, in (?:create_\w{1,40}|_?(?:preprocess|tokenize|validate|process|handle)_\w{1,60})\b"
)
_OF_A_REQUEST = re.compile(
    rb"Exception in ASGI application|ERROR in app: Exception on /|Uncaught exception [A-Z]{3,7} /|Error handling request"
)
"""What servers write before the traceback of a request that failed."""
_BY_A_HANDLER = re.compile(rb"\[serving\w{0,40}\.py:\d{1,6}\] ")
"""The module of vLLM that answers requests, as its logger names it before each line of a traceback."""
_OF_A_HELPER = re.compile(
    rb"[^\n]{0,200}\n[^\n]{0,200}?File \"[^\"\n]{0,400}/(?:bin|Scripts)/(?:wandb|mlflow|tensorboard|aim|comet|neptune|clearml-\w{1,20}|gpustat|nvitop|codecarbon"
    rb"|hf|huggingface-cli|gdown|aws|gsutil)(?:\.exe)?\""
)
_OF_DATASETS = re.compile(rb"/datasets/(?:load|data_files|builder)\.py|\bload_dataset\(")
_READS_A_SET = re.compile(
    rb"/datasets/(?:iterable_dataset|arrow_dataset|builder|packaged_modules/\w{1,30}/\w{1,30}|utils/file_utils)\.py"
)
_OVER_HTTP = re.compile(rb"/huggingface_hub/|/fsspec/implementations/http\.py")
_AT_EXIT = re.compile(rb"Exception ignored in atexit callback\b[^\n]{0,300}\n[^\n]{0,80}$")
_RIGHT_ABOVE = 480
_TOLD_TO_STOP = b"[shutdown] EngineCore: trigger received signal=SIG"
_CHAINED = re.compile(
    rb"(?:During handling of the above exception, another exception occurred|The above exception was the direct cause of the following exception):\s*$"
    rb"|\+-[+-]-{8,20} \d{1,3} -{8,20}\s*$"
)
"""What stands between the tracebacks of one exception."""
_SIGNAL = re.compile(
    rb"\bSIG(?:TERM|INT|USR[12]|HUP|CONT|XCPU)\b|\b[Ss]ignal(?:s\.|[ :=(]{1,3})(?:15|10|12|2|1|18)\b|^SystemExit: (?:15|143|130|-15)$"
)
_IN_A_HANDLER = re.compile(
    rb"(?i)^[^\n]{0,60}?File \"[^\"\n]{1,400}\", line \d{1,7}, in (?:\w{1,60}\.)?(?:_?handler|\w{0,30}sig(?:term|int|usr\d|hup)\w{0,30}"
    rb"|\w{0,30}(?:signal_handler|handle_signals?|on_signal)\w{0,30})$",
    re.MULTILINE,
)
"""A frame of what a program has set to be called for a signal."""
_TRAINS_HERE = re.compile(
    rb"(?i)(?<![a-z])(?:train|rlhf|ppo|grpo|dpo|sft)|trainer|finetun|tuning|backward|optimizer|/(?:trl|verl|openrlhf|deepspeed|axolotl|lightning|megatron|nemo)/"
)


def _frames(text: bytes, position: int) -> bytes:
    """The traceback that ends at `position`, from its heading on; empty where there is none."""
    begin = text.rfind(TRACEBACK, max(0, position - LONGEST), position)
    return text[begin:position] if begin >= 0 else b""


def is_of_a_spawned_child(text: bytes, position: int) -> bool:
    """Whether what ended is a process that was being started: what it was to read did not come, as who started it had ended."""
    return _SPAWNED.search(_frames(text, position)) is not None


def is_no_spawned_child(text: bytes, position: int) -> bool:
    """Whether it is anything else."""
    return not is_of_a_spawned_child(text, position)


def is_of_a_loader(text: bytes, position: int) -> bool:
    """Whether it is the thread of a data loader, whose peer is a worker of the same process and no rank."""
    return _IN_A_LOADER.search(_frames(text, position)) is not None


def is_no_helper(text: bytes, position: int) -> bool:
    """Whether the traceback that ends at `position` is not that of a tool that a script calls beside the program, as `wandb login`.

    >>> log = b'Traceback (most recent call last):\\n  File "/u/.local/bin/wandb", line 5, in <module>\\nModuleNotFoundError: x'
    >>> is_no_helper(log, len(log) - 3), is_no_helper(log.replace(b"bin/wandb", b"train.py"), len(log) - 3)
    (False, True)
    """
    return _OF_A_HELPER.match(_frames(text, position)) is None


def is_of_a_request(text: bytes, position: int) -> bool:
    """Whether it is one request to a server that failed: with the next one the server goes on."""
    if _BY_A_HANDLER.search(text, text.rfind(b"\n", 0, position) + 1, position):
        return True
    begin = _chain_before(text, position)
    if begin is None:
        return False
    line = text.rfind(b"\n", 0, begin) + 1
    return (
        _OF_A_REQUEST.search(text, max(0, line - 200), line) is not None
        or _SERVES.search(text, begin, position) is not None
    )


def is_of_a_stop(text: bytes, position: int, name: str) -> bool:
    """Whether it is vLLM's server that misses its engine, which a signal had told to stop a little before."""
    return name.rpartition(".")[2] == "EngineDeadError" and _TOLD_TO_STOP in text[max(0, position - LONGEST) : position]


def is_of_a_signal(text: bytes, position: int) -> bool:
    """Whether the exception at `position` is what a signal made the program raise: it names one, or its last frame is of what handles one.

    >>> log = b'Traceback (most recent call last):\\n  File "t.py", line 5, in on_sigterm\\n    raise Stop()\\nt.Stop: now\\n'
    >>> is_of_a_signal(log, log.index(b"t.Stop")), is_of_a_signal(log.replace(b"on_sigterm", b"f"), log.index(b"t.Stop") - 9)
    (True, False)
    """
    end = text.find(b"\n", position)
    if _SIGNAL.search(text[position : end if end >= 0 else len(text)]):
        return True
    frames = _frames(text, position)
    last = frames.rfind(b'File "')
    return last >= 0 and _IN_A_HANDLER.search(frames, frames.rfind(b"\n", 0, last) + 1) is not None


def is_not_at_exit(text: bytes, position: int) -> bool:
    """Whether the exception at `position` is none that Python tells of what it calls at its exit, when the program had ended.

    >>> log = b'Exception ignored in atexit callback: <function f>\\nTraceback (most recent call last):\\n  File "t.py", line 5\\nKeyboardInterrupt'
    >>> is_not_at_exit(log, len(log) - 5), is_not_at_exit(log[log.index(b"Trace"):], 80)
    (False, True)
    """
    begin = text.rfind(TRACEBACK, max(0, position - LONGEST), position)
    return begin < 0 or _AT_EXIT.search(text[max(0, begin - _RIGHT_ABOVE) : begin]) is None


def _chain_before(text: bytes, position: int) -> int | None:
    """Where the first of the tracebacks begins that belong to the exception at `position`."""
    begin, first = text.rfind(TRACEBACK, max(0, position - LONGEST), position), None
    while begin >= 0:
        first, line = begin, text.rfind(b"\n", 0, begin) + 1
        between = text[max(0, line - 200) : line].replace(b"|", b"")
        if not _CHAINED.search(between):
            break
        begin = text.rfind(TRACEBACK, max(0, begin - LONGEST), begin)
    return first


def only_infers(text: bytes, position: int) -> bool:
    """Whether the frames above are those of a program that trains nothing; not where no frame tells."""
    frames = _frames(text, position)
    return b'File "' in frames and _TRAINS_HERE.search(frames) is None


def may_train(text: bytes, position: int) -> bool:
    """Whether they may be those of one that trains."""
    return not only_infers(text, position)


def reads_configuration(text: bytes, position: int) -> bool:
    """Whether the exception at `position` came of reading a file of settings."""
    return _read(text, position) == "configuration"


def reads_model(text: bytes, position: int) -> bool:
    """Whether it came of reading a file of a model, a tokenizer or a checkpoint."""
    return _read(text, position) == "model"


def reads_data(text: bytes, position: int) -> bool:
    """Whether it came of reading another file."""
    return _read(text, position) == "data"


def finds_data_files(text: bytes, position: int) -> bool:
    """Whether it was datasets that looked for them: the call stands in the traceback that ends at `position`.

    >>> log = b'Traceback (most recent call last):\\n  File "/e/datasets/data_files.py", line 7, in resolve_pattern\\nFileNotFoundError: x'
    >>> finds_data_files(log, len(log) - 5), finds_data_files(log.replace(b"datasets/", b"tools/"), len(log) - 5)
    (True, False)
    """
    return _OF_DATASETS.search(_frames(text, position)) is not None


def streams_data(text: bytes, position: int) -> bool:
    """Whether datasets was reading over the network there: frames of both stand in the traceback that ends at `position`.

    >>> log = b'Traceback (most recent call last):\\n  File "/e/datasets/iterable_dataset.py", line 7\\n  File "/e/huggingface_hub/f.py", line 9\\nX: y'
    >>> streams_data(log, len(log) - 3), streams_data(log.replace(b"/datasets/", b"/hub/"), len(log) - 3)
    (True, False)
    """
    frames = _frames(text, position)
    return _READS_A_SET.search(frames) is not None and _OVER_HTTP.search(frames) is not None


def _read(text: bytes, position: int) -> str | None:
    """What the innermost frame that is of no parser says that it was reading; None where no frame tells."""
    begin = text.rfind(TRACEBACK, max(0, position - LONGEST), position)
    frames = list(_FRAME.finditer(text, begin, position)) if begin >= 0 else []
    caller = next((frame for frame in reversed(frames) if not _PARSER.search(frame["path"])), None)
    if caller is None or _OTHERS.search(caller["path"]):
        return None
    said = b"\n".join((caller["path"].rpartition(b"/")[2], caller["function"], caller["code"]))
    if _CONFIGURATION.search(said):
        return "configuration"
    return "model" if _MODEL.search(said) else "data"


_ENGINES = (
    (
        "vLLM",
        rb"[/.]vllm[/.]|\((?:EngineCore|VllmWorker|VLLM::|Worker_[TP]P\d|APIServer)\w* pid=|\bVllmWorkerProcess\b|\bERROR \d\d-\d\d [\d:]{8} \[",
    ),
    ("SGLang", rb"/sglang/|\[20[\d-]{8} [\d:]{8} (?:DP\d+ )?(?:TP|PP)\d+\] "),
    ("TGI", rb"/text_generation_server/|\btext_generation_launcher\b"),
    ("lm-eval", rb"/lm_eval/|/lighteval/"),
    ("generate", rb"/transformers/generation/"),
)
_ENGINES_FOUND = tuple((name, re.compile(pattern)) for name, pattern in _ENGINES)
_TRAINS = re.compile(
    rb"(?i)train|/(?:trl|verl|openrlhf|deepspeed|peft|accelerate|axolotl|llamafactory|swift|lightning|megatron|nemo|composer)/|backward|optimizer"
)


def engine_of_inference(text: bytes, position: int) -> str | None:
    """The program that only infers which fails at `position`, by the prefix of its line or the frames of its traceback.

    None where it is not known, or where what trains calls it.
    """
    line = text.rfind(b"\n", 0, position) + 1
    heading = text.rfind(TRACEBACK, max(0, position - LONGEST), position)
    begin = text.rfind(b"\n", 0, heading) + 1 if heading >= 0 else line
    frames = text[begin:position]
    if _TRAINS.search(frames):
        return None
    return next((name for name, pattern in _ENGINES_FOUND if pattern.search(frames)), None)
