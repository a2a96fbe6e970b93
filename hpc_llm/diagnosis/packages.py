"""From the name of an import, a command or a library to what is to be installed: the names differ more often than not.

A name that is not known here is not advised: on PyPI anybody may own it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hpc_llm.diagnosis import libraries, standard_library
from hpc_llm.diagnosis.environment import of_the_profile
from hpc_llm.text.secret_values import HIDDEN

_SAME = frozenset(
    """accelerate aiohttp bitsandbytes boto3 colorama cupy dacite datasets decord deepspeed diffusers dill einops evaluate
    fairscale fastapi fire flask fsspec ftfy gradio h5py hjson httpx jinja2 joblib jsonlines keras lightning loguru
    lxml matplotlib mpi4py msgpack networkx ninja nltk numba numpy omegaconf onnx onnxruntime openai optuna orjson packaging
    pandas peft plotly polars protobuf psutil py7zr pyarrow pydantic pytest ray redis regex requests rich rouge_score
    sacrebleu safetensors scipy seaborn sentencepiece setuptools six sqlalchemy submitit sympy tabulate tensorboard
    tensorboardX tensorflow tensorstore termcolor tiktoken timm tokenizers toml torch torchaudio torchdata torchmetrics
    torchvision tqdm transformers triton trl typer ujson vllm wandb websockets wheel xformers xxhash zstandard""".split()
)
"""Imports that PyPI calls the same."""
_OTHERWISE = dict(
    pair.split("=")
    for pair in """Crypto=pycryptodome IPython=ipython Levenshtein=levenshtein OpenSSL=pyOpenSSL PIL=pillow amdsmi=amdsmi
    attr=attrs bs4=beautifulsoup4 cv2=opencv-python-headless dateutil=python-dateutil docx=python-docx dotenv=python-dotenv
    faiss=faiss-cpu fitz=PyMuPDF flash_attn=flash-attn git=GitPython hydra=hydra-core imblearn=imbalanced-learn
    jwt=PyJWT lm_eval=lm-eval lightning_fabric=lightning-fabric llama_cpp=llama-cpp-python magic=python-magic
    markdown=Markdown mpl_toolkits=matplotlib optimum=optimum psycopg2=psycopg2-binary
    pynvml=nvidia-ml-py pytorch_lightning=pytorch-lightning rouge=rouge ruamel=ruamel.yaml sentence_transformers=sentence-transformers
    serial=pyserial skimage=scikit-image sklearn=scikit-learn slugify=python-slugify soundfile=soundfile
    torch_geometric=torch-geometric transformer_engine=transformer-engine[pytorch] websocket=websocket-client yaml=pyyaml
    zmq=pyzmq""".split()
)
_OTHERWISE["pkg_resources"] = "setuptools<81"
"""Imports that PyPI calls otherwise. Newer releases of setuptools have no pkg_resources."""
_NOT_FROM_PYPI = {
    "apex": "NVIDIA's apex is built from its source (PyPI's apex is another program)",
    "amp_C": "it is a part of NVIDIA's apex, built from its source with its CUDA extensions",
    "fused_layer_norm_cuda": "it is a part of NVIDIA's apex, built from its source with its CUDA extensions",
    "megatron": "it is Megatron-LM's own folder: put its checkout on PYTHONPATH",
    "hpc_llm": "the folder that holds hpc_llm is not visible to the job: see PYTHONPATH there, and --logs",
}
_COMMANDS = {
    "torchrun": "torch",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
    "ninja": "ninja",
    "vllm": "vllm",
    "axolotl": "axolotl",
    "llamafactory-cli": "llamafactory",
    "composer": "mosaicml",
    "trl": "trl",
    "lm_eval": "lm-eval",
}
"""Programs that come with a package of PyPI, which may have another one of the program's name."""
_OF_LIBRARIES = (
    ("flash_attn", "flash-attn"),
    ("bitsandbytes", "bitsandbytes"),
    ("xformers", "xformers"),
    ("torchvision", "torchvision"),
    ("torchaudio", "torchaudio"),
    ("transformer_engine_torch", "transformer-engine-torch"),
    ("transformer_engine", "transformer-engine"),
    ("causal_conv1d", "causal-conv1d"),
    ("mamba_ssm", "mamba-ssm"),
    ("selective_scan_cuda", "mamba-ssm"),
    ("vllm", "vllm"),
)
"""Text in the path of a compiled library, and the package that brings it."""
_BUILT_AGAINST_TORCH = frozenset(("flash-attn", "transformer-engine-torch", "causal-conv1d", "mamba-ssm"))
"""Packages that pip compiles here, against the torch that is installed."""
_IS_BUILT = {
    "flash-attn": "FLASH_ATTENTION_FORCE_BUILD=TRUE ",
    "causal-conv1d": "CAUSAL_CONV1D_FORCE_BUILD=TRUE ",
    "mamba-ssm": "MAMBA_FORCE_BUILD=TRUE ",
}
"""Without these their setups fetch a wheel that was built elsewhere, which may be the one that does not work."""
_RELEASED_WITH_TORCH = frozenset(("torchvision", "torchaudio", "xformers", "vllm"))
_SECRET_AS_NAME = (
    "what was called there looks like a secret: a blank behind = ends an assignment, so that bash calls the value (NAME= value); write NAME=value",
    "the output holds it now, and whoever may read that: have a new one made, and keep it in a file that only you can read (`chmod 600`)",
)
_NEWER_BITSANDBYTES = "python -m pip freeze | grep '^torch==' > torch.txt; python -m pip install --upgrade -c torch.txt bitsandbytes  (a newer release that leaves torch as it is)"
_NO_LAUNCHER = (
    "where DeepSpeed asks for it (mpi_discovery in the traceback), the program was started by no launcher, and needs one and not mpi4py: start it with torchrun "
    "--nproc-per-node=N, or deepspeed"
)
_SEE = "if it is there, the job runs another Python: see the environment in the first lines of the output"


def missing(facts: Mapping[str, Any]) -> list[str]:
    """What to do about a package or a program that is not there; nothing where no name is known."""
    if HIDDEN in f"{facts.get('program')} {facts.get('package')}":
        return list(_SECRET_AS_NAME)
    if facts.get("missing_library"):
        return libraries.not_found(facts)
    if facts.get("program"):
        return _program(str(facts["program"]))
    names = [name for name in re.split(r"[,\s]+", str(facts.get("package") or "")) if name]
    if not names and not facts.get("attention"):
        return []
    tops = [name.partition(".")[0] for name in names]
    if facts.get("attention") or tops == ["flash_attn"]:
        return _without_flash(facts)
    lines = [_not_installable(name) for name, top in zip(names, tops, strict=True) if _known(top) is None]
    known = [package for package in map(_known, tops) if package]
    if known:
        lines.insert(
            0, f"install it into the environment of the job: python -m pip install {' '.join(map(_word, known))}"
        )
    if "mpi4py" in tops:
        lines.insert(0, _NO_LAUNCHER)
    return lines if all(map(standard_library.is_damaged, names)) else [*lines, _SEE]


_FLASH = (
    "python -m pip install --no-build-isolation flash-attn\n"
    "pip compiles it against the torch that is installed, on a machine with the toolkit of that torch's CUDA (nvcc)"
)


def _without_flash(facts: Mapping[str, Any]) -> list[str]:
    """How to do without flash-attn in a run of ours, or in a program of others that asks for it or imports it."""
    if facts.get("cluster"):
        without = "leave the letter f out of --method, or --set attention=sdpa: torch's own attention needs no package"
        return [without, f"or install it: {_FLASH}", _SEE]
    setting = 'take torch\'s own attention, which needs no package: attn_implementation="sdpa" in from_pretrained, or in the settings of the program'
    if facts.get("attention"):
        return [setting, f"or install it: {_FLASH}", _SEE]
    return [
        f"where a setting alone asks for it, {setting}",
        f"where the program imports it itself, install it: {_FLASH}",
        _SEE,
    ]


_OTHER_COMMANDS = (
    (
        r"srun|sbatch|scontrol|sacct|squeue",
        "{name} is not on PATH on the compute node, and belongs to Slurm: in a container, or on a machine without Slurm, start the ranks with torchrun or mpirun; "
        "else put the folder of Slurm's commands on PATH",
    ),
    (
        r"mpirun|mpiexec|orterun|mpicc",
        "{name} is not on PATH on the compute node: load the module of MPI in the job, before that line; or start the ranks with srun or torchrun",
    ),
    (
        r"(?:python|pip)[\d.]*|ipython",
        "{name} is not on PATH on the compute node: load the module, or activate the environment, that has it in the job, before that line; "
        "where a system has python3 alone, call that",
    ),
)
"""Commands that no package of PyPI brings."""


def command_missing(facts: Mapping[str, Any]) -> list[str]:
    """What to do about a command that a shell did not find; nothing where it is not known which."""
    name = str(facts.get("program") or "")
    if not name:
        return []
    if HIDDEN in name:
        return list(_SECRET_AS_NAME)
    return [*_program(name), *of_the_profile(facts.get("cluster"))]


def _program(name: str) -> list[str]:
    if name not in _COMMANDS:
        other = next((words for pattern, words in _OTHER_COMMANDS if re.fullmatch(pattern, name)), None)
        usual = (
            "{name} is not on PATH on the compute node: load the module, or activate the environment, that brings it"
        )
        return [(other or usual).format(name=name)]
    brought = _COMMANDS[name]
    lines = [
        f"{name} comes with {brought}: is this the environment that has it? Otherwise: python -m pip install {brought}"
    ]
    return [*lines, f"python -m torch.distributed.run does the same as {name}"] if brought == "torch" else lines


def _known(name: str) -> str | None:
    if name in _NOT_FROM_PYPI:
        return None
    return _OTHERWISE.get(name) or (name if name in _SAME else None)


def _not_installable(name: str) -> str:
    top = name.partition(".")[0]
    if top in _NOT_FROM_PYPI:
        return f"{top}: {_NOT_FROM_PYPI[top]}"
    return standard_library.advice(name) or (
        f"find out what brings {top}: a file of the program (then PYTHONPATH), or a package whose name on PyPI may be another"
    )


def mismatched(facts: Mapping[str, Any]) -> list[str]:
    """What to do about a compiled library that lacks a symbol, by where it lies; nothing where that is not known."""
    library = str(facts.get("library") or "")
    if not library:
        return libraries.not_found(facts)
    if "torch_extensions" in library:
        return [
            "it was compiled here for another torch: remove its build folder, and it is built again: "
            f"rm -r {_word(library.rpartition('/')[0] or library)}",
            "give each environment a TORCH_EXTENSIONS_DIR of its own",
        ]
    package = next((package for text, package in _OF_LIBRARIES if text in library), None)
    if package == "bitsandbytes":
        return [f"it was built for another CUDA: {_NEWER_BITSANDBYTES}", *_LOADED]
    if package in _RELEASED_WITH_TORCH:
        return [f"each {package} belongs to one release of torch: python -m pip install --upgrade torch {package}"]
    if package in _BUILT_AGAINST_TORCH:
        return [
            f"{package} was compiled against another torch. Build it against this one: {_IS_BUILT.get(str(package), '')}"
            f"python -m pip install --force-reinstall --no-deps --no-cache-dir --no-build-isolation {_word(str(package))}",
            "pip compiles it on a machine with the toolkit of that torch's CUDA (nvcc), for up to hours; MAX_JOBS=4 before it takes less memory",
        ]
    if re.search(r"(?:^|/)lib[^/]*\.so[\d.]*$", library):
        return _LOADED
    return [f"{library} was compiled against another version of what it needs: install it again, for this environment"]


_LOADED = [
    "another copy of a library is found before the one that belongs here: see LD_LIBRARY_PATH and LD_PRELOAD in the job",
    "load no CUDA, NCCL or MPI module besides those that torch was built with",
]


def _word(package: str) -> str:
    """As a shell takes it: brackets are quoted."""
    return f"'{package}'" if re.search(r"[^A-Za-z0-9._/+-]", package) else package
