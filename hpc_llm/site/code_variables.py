"""Variables of the environment by which programs find, load or start code, or take data for code, by families. Standard library only.

A family is whatever one program, interpreter or kind of program reads; of some only the variables that are known to say nothing of code pass.
"""

from __future__ import annotations

import re

from hpc_llm.text.late_pattern import late_pattern

_FAMILIES = (
    # the linker, the C library, the shell and where all find the rest
    r"PATH | HOME | (?:LD|DYLD)_\w{1,60} | GLIBC_TUNABLES | GCONV_PATH | LOCPATH | NLSPATH | GETCONF_DIR | XDG_\w{1,60} | SHELL | ZDOTDIR | FPATH",
    r"LESS\w{0,20} | \w{0,60}(?:PAGER|EDITOR|ASKPASS|BROWSER) | VISUAL | \w{0,40}VIMINIT | EXINIT | INPUTRC | [A-Z0-9]{3,30}RC | HGRCPATH | TERMINFO\w{0,10} | TERMCAP | AWKPATH | AWKLIBPATH | MAKEFILES"
    r" | PKG_CONFIG\w{0,60} | ACLOCAL_PATH | RSH | PDSH_\w{1,60} | DSHPATH | RSYNC_\w{1,60} | OPENSSL_\w{1,60} | SASL_PATH | GIT_\w{1,60} | NETRC | CURL_HOME | GNUPGHOME",
    # containers, which bring all that runs in them
    r"_?(?:PYXIS|ENROOT|APPTAINER|SINGULARITY|APPTAINERENV|SINGULARITYENV|SHIFTER|SARUS|UDOCKER|PODMAN|DOCKER|BUILDAH|CONTAINERS|CONTAINERD|CHARLIECLOUD|NERDCTL|OCI|SCRUN)_\w{1,80}"
    r" | CH_\w{1,60} | CONTAINER_(?:IMAGE|HOST|NAME)\w{0,30} | _?(?:SLURM_)*SPANK_\w{1,80} | (?:SLURM|SRUN|SALLOC)_CONTAINER\w{0,60}",
    # schedulers and launchers
    r"SLURM_(?:CONF|PROLOG|EPILOG|TEST_EXEC|BCAST|SEND_LIBS|PLUGIN)\w{0,60} | (?:FLUX|PALS|ALPS|LSF|PBS|PET|DASK|HYDRA(?!_FULL_ERROR))_\w{1,80} | OPAL_PREFIX"
    r" | (?:OMPI|PRTE|PMIX)_MCA_\w{0,60}(?:path|prefix|agent|launch|param_file|conf|exec|wrapper|host)\w{0,60} | I_MPI_\w{0,60}(?:ROOT|EXEC|LIBRARY|HYDRA)\w{0,60} | OMP_PREFIX | DLTS_HOSTFILE"
    r" | (?:OMPI|MPICH|I_MPI)_(?:CC|CXX|FC|F77)",
    # Python, and what its programs import by a name
    r"_?PYTHON(?!(?:UNBUFFERED|HASHSEED|FAULTHANDLER|DONTWRITEBYTECODE|NOUSERSITE|UTF8|IOENCODING|OPTIMIZE|VERBOSE|MALLOC|MALLOCSTATS|TRACEMALLOC|PROFILEIMPORTTIME|DEVMODE|NODEBUGRANGES"
    r"|COERCECLOCALE|LEGACYWINDOWSFSENCODING|ASYNCIODEBUG|DEBUG|INTMAXSTRDIGITS|SAFEPATH|HTTPSVERIFY|_CPU_COUNT|_GIL|_COLORS|_JIT)\Z)\w{1,60}",
    r"I?PYTHONDIR | (?:JUPYTER|IPYTHON|PYTEST|COVERAGE|COV_CORE|PYDEVD|DEBUGPY|PIPENV|POETRY|PIP|UV|PYENV|PYSPARK|NUMBAPRO|_?CONDA|MAMBA|SPACK|EASYBUILD)_\w{1,60} | VIRTUAL_ENV | VIRTUALENV_\w{1,60} | MAMBARC"
    r" | NUMBA_\w{0,40}(?:DRIVER|LIB|CUDALIB|BINARY|GDB|CACHE)\w{0,40} | MPLBACKEND | KERAS_(?:BACKEND|HOME)",
    # data that are taken for code, and code that comes from a hub
    r"\w{0,60}(?:WEIGHTS_ONLY_LOAD|PICKLE|UNSAFE|INSECURE|REMOTE_CODE|CODE_EVAL|ALLOW_EXECUTABLES?|TRUST_CODE)\w{0,30} | \w{0,40}HUB_KERNELS | LOCAL_KERNELS | KERNELS_\w{1,40} | \w{0,40}USE_(?:MODELSCOPE|OPENMIND)\w{0,10}"
    r" | HF_MODULES_CACHE | TORCH_H(?:OME|UB) | FLASHINFER_\w{1,60} | VLLM_\w{0,60}(?:_CLS|_CLASS|_MODULE|RUNTIME_LORA\w{0,20})",
    # torch, Triton and what compiles kernels
    r"TORCH_EXTENSIONS_DIR | PYTORCH_KERNEL_CACHE_PATH | TORCH\w{0,60}_(?:REDIS|REMOTE|BACKENDS?|HOOK|DIR|PATH|INSTALL_GXX|MARCH)\w{0,60} | \w{0,60}_REDIS_\w{1,60}"
    r" | TRITON_(?:HOME|\w{0,60}(?:PATH|DIR|MANAGER|BACKEND|REDIS|REMOTE|OVERRIDE|PLUGIN|HOOK)\w{0,60}) | (?:DG_JIT|TILELANG|TVM|CUPY|CCACHE|SCCACHE|DISTCC)_\w{1,60} | CUTLASS_PATH",
    # compilers
    r"CC | CXX | CPP | FC | F77 | F90 | AR | LDSHARED | CUDAHOSTCXX | CUDACXX | CMAKE | MAKE | NINJA | \w{0,60}(?:NVCC|HIPCC)\w{0,60} | (?:CUDA|ROCM|HIP)_(?:HOME|PATH) | CUDNN_HOME | CUDA_INC_PATH | CUDA_CACHE_PATH"
    r" | (?:CPLUS_|C_|OBJC_)?INCLUDE_PATH | CPATH | LIBRARY_PATH | COMPILER_PATH | GCC_EXEC_PREFIX | CMAKE_\w{1,60} | ONEAPI_ROOT | HALIDE_INCLUDE | RUSTC | CARGO_\w{1,60} | SUNPRO_DEPENDENCIES | DEPENDENCIES_OUTPUT",
    # what drivers, profilers and libraries load
    r"\w{1,60}_INJECTION(?:32|64)?_PATH | HSA_TOOLS_\w{1,60} | ROCP_TOOL_LIB | ROCP(?:ROFILER)?_\w{1,60} | (?:RDMAV|IBV)_DRIVERS | (?:GIO|GTK|GST|QT|VK|GDK)_\w{1,60} | _{0,2}(?:EGL|GLX)_\w{1,60} | LIBGL_DRIVERS_PATH | GBM_BACKENDS_PATH"
    r" | OMP_TOOL\w{0,60} | OCL_ICD_\w{1,60} | LIBOMPTARGET_\w{1,60} | FLEXIBLAS\w{0,40} | LBT_DEFAULT_LIBS | NVSHMEM_BOOTSTRAP\w{0,60} | XALT_\w{1,60} | \w{0,60}LIBHDFS\w{0,20} | WANDB_(?:X_)?SERVICE(?:_TRANSPORT)?",
    # environment modules and other languages
    r"MODULEPATH | LMOD_\w{1,60} | MODULES_\w{1,60} | __(?:LMOD|MODULES)_\w{1,60} | _ModuleTable\w{1,30} | MODULERCFILE | MODULESHOME | TCLLIBPATH | TCL_LIBRARY | LUA_(?:INIT|PATH|CPATH)\w{0,60} | PERL5?(?:LIB|OPT|DB|SHELL) | PERL_\w{1,60}"
    r" | RUBY(?:LIB|OPT) | NODE_PATH | NPM_\w{1,60} | \w{0,60}CLASSPATH | (?:JAVA|HADOOP|SPARK|JULIA|GUILE|DOTNET|CORECLR|PHP|OCTAVE)_\w{1,60} | R_(?:PROFILE|ENVIRON|LIBS|HOME)\w{0,30} | MATLABPATH | EMACSLOADPATH",
    # files of settings that may name a program, as those of accounts do
    r"\w{0,60}(?:KUBECONFIG|CREDENTIALS_FILE|APPLICATION_CREDENTIALS) | BOTO_CONFIG | REGISTRY_AUTH_FILE | (?:RCLONE|CLOUDSDK|ANSIBLE)_\w{1,60}",
    # any program's, by the end of the name
    r"\w{0,60}_(?:PRELOAD|PLUGINS?|PROLOG|EPILOG|LIBRARY_PATH|(?:PLUGIN|MODULE|PROVIDER|COMPONENT|DRIVER)_(?:PATH|DIR)) | \w{0,60}_(?:CONF|CONFIG|PARAM|RC|INIT)_?(?:FILES?|PATH|DIR)"
    r" | \w{0,60}_(?:CLANG|LLVM|COMPILER|DEVICE_LIB|BIN|TOOLCHAIN|SDK)_PATH | \w{1,60}_(?:LIB|LIBRARY|LIBRARIES|COMPILER) | \w{1,60}_CACHE_DIR | \w{0,60}_?(?:EXECUTABLE|_EXE|_BINARY|_INTERPRETER)"
    r" | (?!PYTORCH_)\w{0,60}(?:COMMAND|_CMD|_CONF|FLAGS|_OPTIONS|_PRELOAD|_SHELL|_LAUNCHER|_RSH|_AGENT|_WRAPPER|_HOOKS?)",
)  # fmt: skip
_LOADS_CODE = late_pattern("|".join(_FAMILIES), re.VERBOSE)
_OF_SRUN = late_pattern(
    r"""(?:SLURM|SRUN)_(?!(?:\w{1,30}_BIND(?:_\w{1,20})?|CPU_FREQ_REQ|HINT|DISTRIBUTION|KILL_BAD_EXIT|LABELIO|UNBUFFEREDIO|(?:SRUN_|SLURMD_)?DEBUG(?:_FLAGS)?|WAIT
    |THREADS?(?:_PER_CORE|_SPEC)?|CORE_SPEC|OVERLAP|EXACT|EXCLUSIVE|OVERCOMMIT|MPI_TYPE|PMIX?_?\w{0,40}|NETWORK|GPUS?(?:_\w{1,30})?|GRES(?:_FLAGS)?|(?:CPUS|MEM|NTASKS)_PER_\w{1,20}
    |ACCTG_FREQ|PROFILE|OPEN_MODE|COMPRESS|SPREAD_JOB|TREE_WIDTH|DISABLE_STATUS|RESV_PORTS|EXIT_ERROR)\Z)\w{1,80}""",
    re.VERBOSE,
)
"""What srun takes for options, but for those that only say how ranks are laid out and watched."""


def loads_code(variable: str) -> bool:
    """Whether programs of a job run code from where a variable of that name points, or take for code what they otherwise would not.

    >>> loads_code("LD_PRELOAD"), loads_code("PYTHONPATH"), loads_code("PYXIS_CONTAINER_IMAGE"), loads_code("NCCL_DEBUG"), loads_code("HF_HOME")
    (True, True, True, False, False)
    """
    return _LOADS_CODE.fullmatch(variable) is not None


def steers_srun(variable: str) -> bool:
    """Whether srun takes it for an option that says where, as whom or with what it starts the ranks.

    >>> steers_srun("SLURM_CLUSTERS"), steers_srun("SLURM_REMOTE_CWD"), steers_srun("SLURM_CPU_BIND")
    (True, True, False)
    """
    return _OF_SRUN.fullmatch(variable) is not None
