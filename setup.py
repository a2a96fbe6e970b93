"""Packaging. The data folders stay at the top of the tree, where a user edits them, and are copied into the wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
DATA_FOLDERS = ("clusters", "configs", "experiments", "templates")


class BuildWithData(build_py):
    """Copy clusters/, configs/, experiments/ and templates/ to hpc_llm/_data/ of the built package."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # an editable install reads the folders of the checkout itself
        for folder in DATA_FOLDERS:
            shutil.copytree(HERE / folder, Path(self.build_lib) / "hpc_llm" / "_data" / folder, dirs_exist_ok=True)


TRAIN = [
    # Pinned: with an open range pip takes the newest build, which pulls several GB of CUDA onto a CPU machine.
    "torch==2.13.0",
    "transformers>=5.17,<6",
    "deepspeed>=0.19.8,<0.20",
    "peft>=0.20",
    "bitsandbytes>=0.50",
    "accelerate>=1.15",
    "safetensors",
    "numpy",
    "nvidia-ml-py",  # pure Python, small; the GPU telemetry asks it
    "ninja",  # DeepSpeed compiles its operators when they are first used
    "setuptools",
]
PLOT = ["matplotlib>=3.9", "vl-convert-python>=1.8"]
ZSTD = ["zstandard>=0.22"]  # in the standard library from Python 3.14 on
ROUGE = ["rouge-score>=0.1.2"]  # scores what a T5 writes
PANDAS = ["pandas>=2.2"]  # for a program that wants DataFrames of rows
DATA = [
    "datasets>=3",
    "huggingface_hub>=0.30",
    "pyarrow>=17",
    "pypdf>=5",
]  # what `prepare` reads besides text, JSONL and CSV
WANDB = ["wandb>=0.19"]
MLFLOW = ["mlflow-skinny>=3", "sqlalchemy>=2", "alembic>=1.13"]  # the whole of it brings scikit-learn and a server
TENSORBOARD = ["tensorboard>=2.16", "numpy"]
TEST = [
    *ZSTD,
    *PANDAS,
    *ROUGE,
    *DATA,
    *WANDB,
    *MLFLOW,
    *TENSORBOARD,
    "pytest>=8",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "selenium>=4.25",
]
DEV = ["ruff>=0.8", "mypy>=1.13", "import-linter>=2.1", "types-PyYAML", "types-tabulate"]

setup(
    name="hpc-llm",
    version="0.1.0",
    description="Run the same LLM experiment on any Slurm/module cluster, and trust the table afterwards.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10",
    packages=find_packages(include=["hpc_llm", "hpc_llm.*"]),
    package_data={
        "hpc_llm": ["py.typed"],
        "hpc_llm.reporting": ["page.*"],
        "hpc_llm.job": ["*.sh"],
        "hpc_llm.estimating": ["*.json"],
    },
    cmdclass={"build_py": BuildWithData},
    install_requires=[
        "submitit>=1.5,<1.6",
        "jinja2>=3.1",
        "pyyaml>=6",
        "pydantic>=2.7",
        "typer>=0.15",
        "tabulate>=0.9",
        "psutil>=5.9",
    ],
    extras_require={
        "train": TRAIN,
        "plot": PLOT,
        "zstd": ZSTD,
        "pandas": PANDAS,
        "rouge": ROUGE,
        "data": DATA,
        "wandb": WANDB,
        "mlflow": MLFLOW,
        "tensorboard": TENSORBOARD,
        "test": [*TRAIN, *PLOT, *TEST],
        "dev": [*TRAIN, *PLOT, *TEST, *DEV],
    },
    entry_points={
        "console_scripts": [
            "hpc-llm = hpc_llm.cli:main",
            "pretrain_llm = hpc_llm.worker.pretrain_llm:command",
            "finetune_llm = hpc_llm.worker.finetune_llm:command",
            "infer_llm = hpc_llm.worker.infer_llm:command",
        ]
    },
)
