"""A model that cannot be loaded."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, Cause, sign
from hpc_llm.causes.data import BAD_TEXT
from hpc_llm.causes.frames import is_no_spawned_child, reads_model
from hpc_llm.causes.hub import TOO_MANY_FOR_MODELS

_DAMAGED = (
    "a file of the checkpoint is damaged, cut off or a Git LFS pointer: the traceback names the call that read it\n"
    "bring it again where it was downloaded; go on from an earlier one where a run that ended early wrote it"
)

_MORE_THAN_TENSORS = (
    "a file of the model or checkpoint holds more than tensors, and what reads all of it runs code that the file brings: leave torch's check on\n"
    "take the model as safetensors: hpc-llm fetch NAME --to DIR, then --model DIR\n"
    "where a run wrote the file, go on with the releases that wrote it, or begin from its weights alone"
)

_OWN_FOLDER = (
    "the folder that is named lacks a file of a whole model: see whether the path is right, and the node sees it\n"
    "where it holds adapter_config.json it is an adapter: load its base model, and the adapter on it (peft.PeftModel.from_pretrained)\n"
    "where ZeRO-3 or FSDP wrote it in parts, join them first: the zero_to_fp32.py beside them, or accelerate merge-weights"
)

_NO_FOLDER = (
    "a path was given and no name of the Hub, and the program finds no model there: `ls -l {folder}` in the job shows what the compute node has; it may be "
    "misspelled, not mounted on that node, or without the files of a whole model\n"
    "put the model on a file system that the node sees, and give its folder from / on: what the program got is not expanded (`~`, `$HOME`), and "
    "a relative path begins in the folder in which it was started"
)
_FOLDER = r"'?(?P<folder>(?:[/~]|\.{1,2}/|(?!https?:)[^'\s/]{1,80}/[^'\s/]{1,80}/)[^'\n]{0,300}?)'?"
"""What is no name of the Hub: it begins as a path, or has more than one slash."""

MODEL_MISSING = Cause(
    id="model_missing",
    title="the model could not be loaded",
    meaning="The checkpoint or tokenizer is not there or is damaged: wrong name or folder, no permission, no network on the compute node.",
    remedy=(
        "download it on a login node first: hpc-llm fetch NAME --to DIR, then --model DIR\n"
        "for a gated model accept its licence on its page and log in: hf auth login\n"
        "to measure speed and memory only, use a preset initialised at random: `hpc-llm models`"
    ),
    retry=False,
    precedence=77,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable", "no_internet")),
    signs=(
        sign(
            ("gated repo", "GatedRepoError"),
            r"trying to access a gated repo|Cannot access gated repo|\bGatedRepoError(?:: |$)",
            remedy=(
                "accept the model's licence on its page, and log in where you download it: hf auth login\n"
                "then on a login node: hpc-llm fetch NAME --to DIR, and --model DIR\n"
                "to measure speed and memory only, use a preset initialised at random: `hpc-llm models`"
            ),
        ),
        sign(
            "we cannot find the requested files in the",
            r"Connection error, and we cannot find the requested files in the (?:cached path|disk cache)",
            survived_after=STARTED,
        ),
        sign(
            ("LocalEntryNotFoundError", "OfflineModeIsEnabled"),
            r"\b(?:LocalEntryNotFoundError|OfflineModeIsEnabled)(?:: |$)",
            survived_after=STARTED,
        ),
        sign(
            ("connect to 'https://huggingface.co", "connect to 'https://hf"),
            r"We couldn't connect to 'https://[^'\n]{1,80}' to load (?:the|this) (?:files|file|model)",
            survived_after=STARTED,
        ),
        sign(
            (
                "Incorrect path_or_model_id: ",
                "HFValidationError: ",
                " is not a local folder and is not a valid model",
                "an't load ",
            ),
            rf"(?:Incorrect path_or_model_id: |HFValidationError: [^\n]{{1,250}}: |OSError: Can't load [\w ]{{1,30}} (?:of|for) )(?='){_FOLDER}(?:\.|$)"
            rf"|OSError: {_FOLDER.replace('folder', 'folder_2')} is not a local folder and is not a valid model",
            survived_after=STARTED,
            confidence=0.96,
            meaning="The model was to be read from a folder, and that is not there on the compute node, or holds no whole model.",
            remedy=_NO_FOLDER,
        ),
        sign(
            ("RepositoryNotFoundError", "is not a local folder and is not a valid model"),
            r"RepositoryNotFoundError|is not a local folder and is not a valid model identifier",
            survived_after=STARTED,
        ),
        sign(
            ("Incorrect path_or_model_id", "HFValidationError"),
            r"Incorrect path_or_model_id: '(?P<model>[^'\n]{1,120})'|HFValidationError: ",
            survived_after=STARTED,
        ),
        sign(
            ("does not appear to have a file named", "no file named"),
            r"(?:^|[ '\"])(?P<local>(?:/|\./|~/|\.\./)(?!\S{0,200}/models--)[^\s'\"]{1,300}) does not appear to have a file named \S+"
            r"|OSError: Error no file named [^\n]{1,300} in directory (?P<directory>[^\s'\"]{1,300})",
            survived_after=STARTED,
            remedy=_OWN_FOLDER,
        ),
        sign(
            ("does not appear to have a file named", "no file named"),
            r"(?P<model>(?!f[\"'])[^\s{}]{1,120}) does not appear to have a file named \S+|OSError: Error no file named [^\n]{1,160}",
            survived_after=STARTED,
        ),
        sign(
            "an't load ",
            r"OSError: Can't load (?:tokenizer|the model|the configuration|config|feature extractor|weights) (?:of|for) '(?P<model>[^'\n]{1,120})'",
            survived_after=STARTED,
        ),
        sign(
            ("huggingface.co'", 'huggingface.co"'),
            r"(?:Max retries exceeded with url|Failed to resolve|NameResolutionError|ConnectionError|ProxyError)[^\n]{0,200}huggingface\.co|huggingface\.co[^\n]{0,200}(?:Max retries exceeded|Failed to resolve|NameResolutionError)",
            survived_after=STARTED,
            confidence=0.9,
        ),
        # Ours say by the name of their class whose fault it is.
        sign(
            ("ModelFileError: ", "ModelRequestError: "),
            r"\bModel(?:File|Request)Error: [^\n]{1,200}",
            confidence=0.97,
            remedy=(
                "the message in the evidence names the folder, and what is wrong in it, or when `hpc-llm clean` removed it and how it is made again; "
                "a model or tokenizer of the Hub is brought again by "
                "hpc-llm fetch NAME --to DIR, and given with --model DIR\n"
                "where it is a checkpoint that a run kept, go on from an earlier one"
            ),
        ),
        sign(
            "RequestError: there is no model '",
            r"RequestError: there is no model '(?P<model>[^'\n]{1,200})'",
            remedy=(
                "the compute node sees no such folder: put the checkpoint on a file system that it sees, and --model DIR\n"
                "or a preset initialised at random: `hpc-llm models`"
            ),
        ),
        sign(
            ("lient Error: ", "lient error '"),
            r"(?:40[13] Client Error: [^\n]{0,60}|Client error '40[13] \w+') for url:? '?https://(?:huggingface\.co|hf-mirror\.com)/"
            r"(?:\S{1,200}/resolve/|api/whoami|api/(?:models|datasets)/[\w.-]+(?:/[\w.-]+)?(?:/(?:revision|tree)/\S*)?(?:[ ']|$))",
            survived_after=STARTED,
            confidence=0.85,
            remedy=(
                "the Hub knows no such name, or does not let you have it: see the name, accept the model's licence on its page, "
                "and log in where you download it: hf auth login\n"
                "then on a login node: hpc-llm fetch NAME --to DIR, and --model DIR"
            ),
        ),
        TOO_MANY_FOR_MODELS,
        sign(
            "SafetensorError",
            r"SafetensorError: Error while deserializing header",
            remedy="the checkpoint is damaged or a Git LFS pointer: download it again",
        ),
        # A file of torch.save that was cut off, or is none.
        sign(
            ("PytorchStreamReader failed", "failed finding central directory"),
            r"PytorchStreamReader failed (?:reading (?:zip archive|file)|locating file)",
            confidence=0.9,
            remedy=_DAMAGED,
        ),
        sign(*BAD_TEXT, where=reads_model, confidence=0.85, remedy=_DAMAGED),
        sign(
            "UnpicklingError: ",
            r"\bUnpicklingError: (?:invalid load key|pickle data was truncated|unpickling stack underflow)",
            where=is_no_spawned_child,
            confidence=0.85,
            remedy=_DAMAGED,
        ),
        # torch advises to switch the check off, by which a file of a stranger runs as a program of the user.
        sign(
            ("Weights only load failed", "WeightsUnpickler error"),
            r"\bUnpicklingError: Weights only load failed|\bWeightsUnpickler error: ",
            confidence=0.9,
            remedy=_MORE_THAN_TENSORS,
            meaning="The file is there and was read: it holds more than tensors, which torch since 2.6 does not load unless it is told to.",
        ),
    ),
)


CAUSES = (MODEL_MISSING,)
