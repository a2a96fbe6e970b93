"""GPUs that are missing, do not match their software, or are broken."""

from __future__ import annotations

from hpc_llm.causes import drivers, libraries, precisions
from hpc_llm.causes.cause import STARTED, Cause, sign
from hpc_llm.causes.fallback import needs_a_gpu
from hpc_llm.causes.symbols import OF_MKL

GPU_MISSING = Cause(
    id="gpu_missing",
    title="no such GPU",
    meaning="The program found no GPU, or fewer than it has ranks on the node.",
    remedy=(
        "ask for as many GPUs as there are ranks on a node: --gpus-per-node N\n"
        "see that nothing hides them: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES in the job\n"
        "if the node should have them, leave it out: --sbatch exclude={node}"
    ),
    retry=False,
    precedence=80,
    explains=frozenset(("python_exception", "collective_timeout")),
    signs=(
        sign(
            "invalid device ordinal",
            r"(?:CUDA|HIP|cuda runtime|hip runtime) error(?: \(\d+\) )?: invalid device ordinal|Error: invalid device ordinal",
        ),
        sign(
            ("GPUs are available", "capable device is detected", "rrorNoDevice"),
            r"No (?:CUDA|HIP) GPUs are available|no (?:CUDA|ROCm)-capable device is detected|(?:cuda|hip)ErrorNoDevice",
        ),
        sign("RuntimeError: Found no NVIDIA driver on your system"),
        # torch warns of both, and goes on without GPUs, where it only looks for them.
        sign("RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu"),
        sign(
            "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
            remedy=(
                "CUDA did not start: the program must not change CUDA_VISIBLE_DEVICES after it has begun to use CUDA\n"
                "otherwise it is the node (as where nvidia_uvm is not loaded): leave it out with --sbatch exclude={node}, and tell the site"
            ),
        ),
        sign("couldn't find any HIP devices"),
        sign(
            "sees none",
            r"the plan wants \d+ GPUs? per node, torch (?:\S+ \(built for no GPU support\)|\S+\+cpu \([^)\n]{1,40}\)) sees none",
            remedy=(
                "install a build of torch for this GPU into the job's environment, or load the site's module for it: "
                "the one that ran is built for the CPU alone"
            ),
        ),
        sign(
            "sees none",
            r"the plan wants \d+ GPUs? per node, torch (?!\S+ \(built for no GPU|\S+\+cpu )\S+ \(built for [^)\n]{1,40}\) sees none",
        ),
        # The service that joins the GPUs of a node by NVLink and its switches is not up.
        sign(
            ("system not yet initialized", "rrorSystemNotReady"),
            r"Error 802: system not yet initialized|(?:CUDA error|cudaGetDeviceCount)[^\n]{0,200}system not yet initialized|cudaErrorSystemNotReady",
            retry=True,
            remedy=(
                "the node's GPUs are not ready: NVIDIA's fabric manager does not run there, or is of another version than the driver\n"
                "submit it again without that node: --sbatch exclude={node}, and tell the site"
            ),
        ),
        sign("No devices were found", r"^No devices were found$", confidence=0.8),
        *precisions.WITHOUT_GPU,
        sign(
            "Torch not compiled with CUDA enabled",
            remedy=(
                "the program asks for CUDA of a torch that is built without it: install a build of torch for this GPU, or load the site's module for it\n"
                "where that build is there and the GPU is no NVIDIA or AMD one, the program must ask for its device: 'xpu' instead of 'cuda' on Intel"
            ),
        ),
    ),
)

_REBUILD = (
    "an extension was built for another torch: remove its build folder "
    "(~/.cache/torch_extensions, or TORCH_EXTENSIONS_DIR) so that it is built again\n"
    "give each environment a TORCH_EXTENSIONS_DIR of its own; reinstall packages that bring compiled code"
)

_BITSANDBYTES = (
    "this bitsandbytes has no library for torch's CUDA or ROCm, which `python -m bitsandbytes` shows: a newer release may. One that leaves torch as it is:\n"
    "python -m pip freeze | grep '^torch==' > torch.txt; python -m pip install --upgrade -c torch.txt bitsandbytes"
)

_OTHER_TOOLKIT = (
    "the toolkit whose nvcc is found is not of the CUDA that torch was built with: load the module of that version, "
    "which sets CUDA_HOME and PATH (`nvcc --version` and `python -c 'import torch; print(torch.version.cuda)'` show both)\n"
    "or install a torch that was built with the toolkit's version\n"
    "the driver has no part in it; remove what was half built: rm -r ~/.cache/torch_extensions"
)

_OLD_DRIVER = (
    "the node's driver is older than the CUDA that torch was built with, and only the site can change it: install a torch built for a release that "
    "the driver knows (`srun nvidia-smi` there says the newest), or ask for nodes with a newer driver\n"
    "within one major release of CUDA the module cuda-compat brings a newer libcuda for data-centre GPUs, where the site has it"
)
_OTHER_CUDNN = (
    "another cuDNN is found before the one that torch brings: do not load the modules cudnn and cuda, or take their folders out of LD_LIBRARY_PATH, in the job\n"
    "where it is a package, install the nvidia-cudnn-… that torch asks for (`python -m pip show torch` lists it)"
)
_NO_DRIVER = (
    "that library is a part of NVIDIA's driver, which no module and no package brings: the program ran on a node without a GPU, or in a container "
    "without the host's driver\n"
    "ask for a node with GPUs; start a container with --nv (Apptainer, Singularity) or --gpus all (Docker)"
)

DRIVER_MISMATCH = Cause(
    id="driver_mismatch",
    title="driver, CUDA or compiled code do not match",
    meaning="The driver of the node, the toolkit and the packages that were built against them are of different versions.",
    remedy=(
        "install a torch built for the driver's CUDA or ROCm (`hpc-llm clusters NAME` says which the site has)\n"
        "then what was built against it as well; a toolkit's module changes no driver"
    ),
    retry=False,
    precedence=82,
    explains=frozenset(("gpu_missing", "python_exception", "collective_timeout")),
    signs=(
        sign(
            "driver on your system is too old",
            r"RuntimeError: The NVIDIA driver on your system is too old",
            confidence=0.97,
            remedy=_OLD_DRIVER,
        ),
        sign(
            "driver on your system is too old",
            confidence=0.75,
            precedence=46,
            remedy=_OLD_DRIVER,
            where=needs_a_gpu,
        ),
        sign(
            ("version is insufficient", "InsufficientDriver"),
            r"CUDA driver version is insufficient|cudaErrorInsufficientDriver",
            remedy=_OLD_DRIVER,
        ),
        sign("cuDNN version incompatibility", remedy=_OTHER_CUDNN),
        sign(
            "no kernel image is available",
            remedy=(
                "what ran (torch, jaxlib, an extension) was built without code for this GPU: install a build that has it, or use another GPU"
            ),
        ),
        sign(
            "rocBLAS error: Cannot read ",
            r"rocBLAS error: Cannot read [^\n]{1,400}? for GPU arch ?: ?\w{1,20}",
            remedy=(
                "the rocBLAS of this build holds no code for this GPU: install a torch for ROCm that lists its architecture, or use another GPU"
            ),
        ),
        # NVRTC and Triton's ptxas compile while the program runs, with the toolkit that torch brings.
        sign(
            ("nvrtc: error: invalid value for --gpu-architecture", "ptxas fatal"),
            r"\bnvrtc: error: invalid value for --gpu-architecture|\bptxas fatal +: Value 'sm_\w{1,8}' is not defined for option 'gpu-name'",
            remedy="the CUDA toolkit that this build of torch brings does not know this GPU: install a torch built with a newer CUDA, or use another GPU",
        ),
        sign(
            ("HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION", "HSA_STATUS_ERROR_INVALID_"),
            r"\bwith error ?: HSA_STATUS_ERROR_(?:ILLEGAL_INSTRUCTION|INVALID_(?:ISA|CODE|EXECUTABLE))",
            confidence=0.85,
            remedy="this build holds no code for this GPU: install one that does (PYTORCH_ROCM_ARCH when building)",
        ),
        sign(
            ("invalid device function", "hipErrorNoBinaryForGpu"),
            r"(?:HIP|CUDA) error: invalid device function|hipErrorNoBinaryForGpu|^Error invalid device function at line \d",
            remedy="this build holds no code for this GPU: install one that does (PYTORCH_ROCM_ARCH or TORCH_CUDA_ARCH_LIST when building)",
        ),
        sign(
            ("does not match the version torch was compiled", "CUDAMismatchException"),
            r"CUDAMismatchException: [^\n]{0,300}|RuntimeError: \s*The detected CUDA version \([\d.]+\) mismatches",
            remedy=_OTHER_TOOLKIT,
        ),
        sign("mismatches the version that was used to compile", remedy=_OTHER_TOOLKIT),
        sign(
            ("undefined symbol: ",),
            r"^[^\n]{0,120}?\b(?:Import|OS)Error: (?P<library>[^\n]{1,300}): undefined symbol: ",
        ),
        sign(
            "undefined symbol: ",
            r"(?:^|: symbol lookup error: )(?P<library>(?!\S{1,300}bitsandbytes_cpu\.so)\S{1,300}\.so[\d.]*): undefined symbol: ",
        ),  # bitsandbytes before 0.43 prints that of its library for the CPU at each import, and goes on
        OF_MKL,
        sign(
            "undefined symbol: nvml",
            r"\bRuntimeError: [^\n]{0,300}libnvidia-ml\.so[\d.]*: undefined symbol: nvml",
            remedy="the node's driver is older than this torch needs: take a node with a newer one, or a torch for this one",
        ),
        sign(
            ("Could not load library lib", "failed to open libnvrtc"),
            r"^Could not load library lib(?:cudnn|cublas|nccl|nvrtc)\S{1,60} Error: |\bnvrtc: error: failed to open libnvrtc-builtins\.so",
            confidence=0.9,
            remedy="a part of that library is missing, or is of another release than the rest: install the package anew that torch asks for "
            "(`python -m pip show torch` lists nvidia-cudnn-…, nvidia-cuda-nvrtc-… and their like), and see that no LD_LIBRARY_PATH or module puts another one before it",
        ),
        sign(
            "cannot open shared object file",
            r"Error: [^\n]{0,200}torch_extensions/[^\n]{1,200}\.so: cannot open shared object file",
            remedy="building the extension failed: look above for what ninja or the compiler said\n" + _REBUILD,
        ),
        sign(
            ("libcuda.so", "libnvidia-"),
            libraries.OF_THE_DRIVER,
            confidence=0.96,
            remedy=_NO_DRIVER,
        ),
        *libraries.OF_GPUS,
        sign(
            ("MissingCUDAException", "CUDA_HOME does not exist", "CUDA_HOME environment variable is not set"),
            r"MissingCUDAException: |CUDA_HOME does not exist, unable to compile|OSError: CUDA_HOME environment variable is not set",
            confidence=0.9,
            remedy="load the toolkit's module that torch was built with (prelude.load in the cluster's profile), which sets CUDA_HOME",
        ),
        sign(
            ("GLIBC_", "GLIBCXX_", "CXXABI_"),
            r"version `(?:GLIBC(?:XX)?|CXXABI)_[\d.]+' not found",
            remedy="the package was built on a newer system than the node's: build it there, or take another build\n"
            "where a GLIBCXX or CXXABI is missing, a newer libstdc++ may be at hand: that of a newer gcc's module, or the environment's own "
            "(LD_LIBRARY_PATH=$CONDA_PREFIX/lib)",
        ),
        sign(
            (
                "CUDA Setup failed despite ",
                "CUDA binary not found at ",
                "bitsandbytes native library functionality",
                "'str2optimizer",
                "object has no attribute 'c",
            ),
            r"CUDA Setup failed despite GPU being available|NameError: name 'str2optimizer\w{1,40}' is not defined"
            r"|AttributeError: 'NoneType' object has no attribute 'c(?:d?e?quantize|gemm|adam|lion|ademamix|igemm|get_col_row_stats|transform|percentile)\w{0,60}'"
            r"|Configured \w+ binary not found at \S{1,300}libbitsandbytes"
            r"|RuntimeError: Attempted to use bitsandbytes native library functionality but it's not available",
            survived_after=STARTED,
            remedy=_BITSANDBYTES,
        ),
        # At import it only says so; who needs it finds out later.
        sign(
            ("CUDA binary at ", "bitsandbytes native library", "CUDA Setup failed despite CUDA"),
            r"^[^\n\"']{0,120}?\bCould not (?:find the bitsandbytes \w+ binary at|load bitsandbytes native library(?!: lib[\w.+-]{1,60}: cannot open shared))"
            r"|CUDA Setup failed despite CUDA being available",
            where=libraries.is_not_for_lack_of_one,
            precedence=44,
            survived_after=STARTED,
            confidence=0.7,
            remedy=_BITSANDBYTES,
        ),
        sign(
            "Driver/library version mismatch",
            r"Failed to initialize NVML: Driver/library version mismatch",
            confidence=0.9,
            remedy="the node's driver was updated and not reloaded: leave it out with --sbatch exclude={node} and tell the site",
            retry=True,
        ),
        *drivers.SIGNS,
    ),
)

GPU_HARDWARE = Cause(
    id="gpu_hardware",
    title="a GPU is faulty",
    meaning="The GPU or its link reported a hardware error. The run is not at fault; on the same node it may fail again.",
    remedy="submit it again without that node: --sbatch exclude={node}, and tell the site",
    retry=True,
    precedence=95,
    explains=frozenset(
        (
            "collective_timeout",
            "python_exception",
            "segfault",
            "kernel_failed",
            "gpu_missing",
            "gpu_shared",
            "device_oom",
            "node_fail",
            "cancelled",
        )
    ),
    signs=(
        sign(
            ("uncorrectable ECC error", "ECC_UNCORRECTABLE"),
            r"(?<!\b0 )(?<!\b[Nn]o )uncorrectable ECC error(?!s?\b ?[:=] ?0\b)|ECC_UNCORRECTABLE(?! ?[:=] ?0\b)",
            confidence=0.98,
        ),
        sign(
            "Xid",
            r"NVRM: Xid \((?P<pci>PCI:[\w:.]+)\): (?:45, [^\n]{0,120}?caused by previous Xid )?(?P<xid>(?:48|62|63|64|74|79|94|95|110|119|120|136|140|14[3-9]|15\d)\b)",
            confidence=0.98,
        ),
        sign("fallen off the bus", r"(?<!\b[Nn]o GPU has )fallen off the bus", confidence=0.98),
        sign("GPU is lost", r"GPU is lost\b"),
        sign(
            "Unable to determine the device handle",
            r"Unable to determine the device handle for GPU ?\S{0,20}: Unknown Error",
            confidence=0.85,
        ),
        sign(
            ("NVLink error", "rrorNvlinkUncorrectable", "uncorrectable NVLink error"),
            r"uncorrectable NVLink error|cudaErrorNvlinkUncorrectable",
        ),
        sign(
            ("amdgpu", "RAS"),
            r"amdgpu[^\n]{0,80}(?:uncorrectable hardware error|uncorrectable errors? detected|GPU reset begin|ring \w+ timeout)",
        ),
        sign("HW Exception by GPU", r"HW Exception by GPU node-\d+", confidence=0.85),
        sign(
            "HSA_STATUS_ERROR_HARDWARE",
            r"\bwith error ?: HSA_STATUS_ERROR_HARDWARE",
            precedence=71,
            confidence=0.85,
            remedy=(
                "submit it again without that node: --sbatch exclude={node}; where it fails there again, tell the site\n"
                "if it fails on other nodes as well, it is a kernel: see that torch and its extensions were built for this GPU and ROCm"
            ),
        ),
    ),
)

CAUSES = (GPU_MISSING, DRIVER_MISMATCH, GPU_HARDWARE)
