"""What a job makes ready before it trains: extensions that are compiled there, a container that is started."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, Cause, sign

_COMPILERS = r"(?:c\+\+|g\+\+|gcc|cc|clang(?:\+\+)?|icpx?|icpc|nvcc|hipcc)(?:-\d+)?"

BUILD_FAILED = Cause(
    id="build_failed",
    title="compiled code could not be built",
    meaning="A package compiles a part of itself when it is first used, and the compiler, the toolkit or the linker failed.",
    remedy=(
        "what failed is said above, in the first line with `error:` or FAILED: the compiler says which file or version it misses\n"
        "load a C++ compiler and the toolkit that torch was built with (prelude.load in the cluster's profile)\n"
        "after that remove what was half built: rm -r ~/.cache/torch_extensions"
    ),
    retry=False,
    precedence=83,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable", "driver_mismatch")),
    signs=(
        sign("Error building extension ", r"Error building extension '(?P<extension>\w+)'", survived_after=STARTED),
        sign(
            ("ninja: build stopped", "['ninja', "),
            r"^ninja: build stopped: |CalledProcessError: Command '\['ninja', [^\n]{0,40} returned non-zero exit status",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "C compiler",
            r"RuntimeError: Failed to find C compiler\. Please specify via CC",
            remedy="put a C compiler on PATH (module load gcc, or the like), or name it: --set env.CC=/path/gcc",
        ),
        sign(
            "op due to it not being compatible",
            r"Unable to JIT load the async_io op due to it not being compatible",
            survived_after=STARTED,
            remedy=(
                "DeepSpeed's async_io is compiled against libaio, whose library and header are not found: load the site's module "
                "of it, or install libaio into the environment (conda install -c conda-forge libaio)\n"
                "then show it to the compiler: export CFLAGS=-I$CONDA_PREFIX/include LDFLAGS=-L$CONDA_PREFIX/lib; `ds_report` tells whether it is found\n"
                "only offload to NVMe needs it: offload to the host's memory (device cpu) does without"
            ),
        ),
        sign(
            "op due to it not being compatible",
            r"Unable to JIT load the (?!async_io )(?P<extension>\w+) op due to it not being compatible",
            survived_after=STARTED,
            remedy="`ds_report` on the compute node says what this operator of DeepSpeed misses there: a compiler, the toolkit, a GPU of another kind",
        ),
        # torch looks for the compiler by `which`; others start it at once.
        sign(
            ("'which", "No such file or directory: '"),
            rf"CalledProcessError: Command '(?:which |\['which', ')(?P<compiler>{_COMPILERS})(?:'\])?' returned non-zero exit status"
            rf"|FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<compiler_2>{_COMPILERS})'",
            survived_after=STARTED,
            confidence=0.9,
            remedy="the compiler that the evidence names is not on PATH: load the module that brings it (gcc for C++, the toolkit for nvcc or hipcc)",
        ),
        sign(
            "cannot find -l",
            r"\bld(?:\.\w+)?: cannot find -l(?P<library>[\w.+-]+)",
            survived_after=STARTED,
            confidence=0.85,
            remedy="the linker finds no such library: load the module that brings it, and add its folder: --set env.LIBRARY_PATH=/path/lib",
        ),
        sign(
            ("nvcc fatal", "Unsupported gpu architecture"),
            r"^nvcc fatal +: [^\n]{1,120}",
            survived_after=STARTED,
            remedy="nvcc is older than the GPU or the compiler that it is to serve: load a newer toolkit, of torch's CUDA version",
        ),
        sign(
            ("bin/nvcc'", "bin/hipcc'"),
            r"No such file or directory: '\S{1,200}/bin/(?:nvcc|hipcc)'",
            survived_after=STARTED,
            remedy="CUDA_HOME or ROCM_HOME has no compiler: load the toolkit's module, which sets it",
        ),
        sign(
            ("minimum required version by CUDA", "maximum required version by CUDA", "unsupported GNU version"),
            r"installed version of \S{1,60} \([\d.]+\) is (?:less|greater) than the (?:min|max)imum required version by CUDA|unsupported GNU version! gcc versions later than",
            survived_after=STARTED,
            remedy="the C++ compiler is of a version that this CUDA does not take: load one that it does",
        ),
    ),
)

CONTAINER_FAILED = Cause(
    id="container_failed",
    title="the container did not start",
    meaning="Apptainer, Singularity, Enroot or Docker could not start the container: nothing of the program ran.",
    remedy=(
        "the evidence says what is missing: an image, a folder to mount, or a program of the node\n"
        "see that the image and each folder that is bound are on the compute node: ls -ld PATH there\n"
        "if it happens on one node only, leave that node out: --sbatch exclude={node}"
    ),
    retry=False,
    precedence=81,
    explains=frozenset(("python_exception", "collective_timeout", "cancelled", "config_error")),
    signs=(
        sign(
            "FATAL: ",
            r"^[^\n]{0,40}FATAL: {1,4}(?:container creation failed|(?:[Ww]hile [^\n:]{1,80}: )?could not open image|[Ww]hile (?:making image|checking (?:image|container)|opening image|performing build|loading|extracting|handling)|[Uu]nable to (?:handle|build|pull|open))[^\n]{0,200}",
            survived_after=STARTED,
        ),
        sign(
            "pyxis: ",
            r"slurmstepd\S{0,80}: error: pyxis: (?:error: a container with name|container start failed|couldn't start container|failed to import|child \d+ failed|failed to create container|\[ERROR\])[^\n]{0,120}",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "Error response from daemon",
            r"^docker: Error response from daemon: [^\n]{1,160}",
            survived_after=STARTED,
            confidence=0.9,
        ),
    ),
)

CAUSES = (BUILD_FAILED, CONTAINER_FAILED)
