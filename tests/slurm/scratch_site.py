"""What the three sites offer to a job besides Slurm: modulefiles for real environment modules, and a stand-in conda.

The stand-in does what the job script relies on and no more: `conda info --base`, and a shell hook whose
`conda activate PREFIX` puts the environment first. The environments are real virtual environments, with a Python of
their own that sees the packages of the tests' Python, but not an installed hpc-llm.
"""

from __future__ import annotations

import shlex
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import yaml
from profiling_programs import write_profilers

CLUSTERS = ("taiwania2", "mi210", "delta")
MODULES_INIT = "/usr/share/modules/init/bash"

CONDA = """\
#!/bin/sh
# Stand-in for conda's executable.
if [ "$1 $2" = "info --base" ]; then echo {base}; exit 0; fi
echo "CondaError: Run 'conda init' before 'conda $1'" >&2
exit 1
"""

CONDA_HOOK = """\
conda() {
  if [ "$1" != activate ]; then command conda "$@"; return; fi
  if [ ! -x "$2/bin/python" ]; then
    echo "EnvironmentLocationNotFound: Not a conda environment: $2" >&2
    return 1
  fi
  export CONDA_PREFIX="$2" CONDA_SHLVL=1 PATH="$2/bin:$PATH"
}
"""

MPIRUN = """\
#!{python}
# Stand-in for Open MPI's launcher on one node: N processes with the variables by which a program finds its rank.
import os, subprocess, sys
words, count = sys.argv[1:], 1
while words and words[0].startswith("-"):
    count = int(words[1]) if words[0] == "-np" else count
    words = words[2:]
ranks = [
    {{"OMPI_COMM_WORLD_RANK": str(k), "OMPI_COMM_WORLD_LOCAL_RANK": str(k), "OMPI_COMM_WORLD_SIZE": str(count),
      "OMPI_COMM_WORLD_LOCAL_SIZE": str(count)}}
    for k in range(count)
]
children = [subprocess.Popen(words, env={{**os.environ, **rank}}) for rank in ranks]
sys.exit(max(abs(child.wait()) for child in children))
"""


class ScratchSite:
    """The files of the sites under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.modulefiles = self.folder / "modulefiles"
        self.conda = self.folder / "miniconda3"
        self.env = self.folder / "envs" / "deepspeed pretrain"  # a blank, as in many a user's folder
        self.tools = self.folder / "tools"

    def create(self, customized: str = "") -> None:
        """`customized` is the `sitecustomize.py` of the environment."""
        self._create_conda()
        create_environment(self.env, customized)
        self._create_mpirun()
        self._create_modules()

    def profile(self, cluster: str) -> dict[str, Any]:
        """The shipped profile of `cluster`, changed only where this machine differs from the site.

        That is its folders and its network interfaces, that all nodes share its few cores, and that they have no GPUs to
        train on. Jobs ask Slurm for two per node all the same.
        """
        prelude: dict[str, Any] = {"init": [MODULES_INIT], "use": [str(self.modulefiles)]}
        if cluster == "taiwania2":
            prelude["python"] = {"env": str(self.env)}
        if cluster == "mi210":
            prelude["python"] = {"env": str(self.env), "hook": str(self.conda / "etc/profile.d/conda.sh")}
        prelude["profilers"] = {"nsys": "nsight-systems/2026.1"}
        variables = {
            "common": {"OMP_NUM_THREADS": "1"},
            "multi_node": {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"},
        }
        gpus = "--gpus-per-node=2" if cluster == "delta" else "--gres=gpu:2"
        no_gpu = {"gpu": {"vendor": "none", "per_node": 0}, "request": {"extra": [gpus]}}
        return {"extends": cluster, "prelude": prelude, "env": variables, **no_gpu}

    def write_profiles(self, folder: Path) -> None:
        """`folder`/clusters/<name>.yaml for the three clusters."""
        (folder / "clusters").mkdir(parents=True, exist_ok=True)
        for cluster in CLUSTERS:
            text = yaml.safe_dump(self.profile(cluster))
            (folder / "clusters" / f"{cluster}.yaml").write_text(text)

    def _create_conda(self) -> None:
        executable(self.conda / "bin" / "conda", CONDA.format(base=shlex.quote(str(self.conda))))
        hook = self.conda / "etc" / "profile.d" / "conda.sh"
        hook.parent.mkdir(parents=True)
        hook.write_text(CONDA_HOOK)

    def _create_mpirun(self) -> None:
        executable(self.tools / "mpirun", MPIRUN.format(python=sys.executable))

    def _create_modules(self) -> None:
        conda_bin, env_bin = self.conda / "bin", self.env / "bin"
        for name, folder in {
            "miniconda3/conda24.5.0_py3.9": conda_bin,
            "cmake/3.31": None,
            "nvhpc-24.11_hpcx-2.20_cuda-12.6": self.tools,
            "rocm/6.4": None,
            "ucx/1.18.1": None,
            "ucc/1.4.4": None,
            "openmpi/5.0.8": self.tools,
            "pytorch-conda/2.8": env_bin,
            "aws-ofi-nccl/1.14": None,
            "nsight-systems/2026.1": write_profilers(self.folder / "profilers"),
        }.items():
            self._create_module(name, folder)

    def _create_module(self, name: str, path_folder: Path | None) -> None:
        text = "#%Module1.0\n"
        if path_folder is not None:
            text += f"prepend-path PATH {{{path_folder}}}\n"
        file = self.modulefiles / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def create_environment(folder: Path, customized: str = "") -> None:
    """A Python environment that has the training packages of this Python, as a cluster's conda environment has."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    Path(packages, "training.pth").write_text("\n".join(ours) + "\n")
    if customized:
        Path(packages, "sitecustomize.py").write_text(customized)


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
