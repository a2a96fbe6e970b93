"""The causes of failure, as data. A new cause or a new text of a known one is an entry here and nothing else.

Patterns run over blocks of bytes with `^` and `$` at lines; they must not cross a line. A named group becomes a detail
of the diagnosis. `literals` are the texts one of which every match contains.
"""

from __future__ import annotations

from hpc_llm.diagnose.cause import STARTED, Cause, Role, sign

_SIZE = r"[\d.]+ (?:bytes|[KMGT]i?B)"
_AT = r"(?: AT \S{8,30})?"
_EXCEPTION = r"^[^\n]{0,120}?\b"
# Slurm's own messages stand at the beginning of a line, behind a rank's prefix, or behind an unfinished progress bar.
_SLURM = r"(?:^[^\n\"']{0,60}|slurmstepd: error: )"

DEVICE_OOM = Cause(
    id="device_oom",
    title="out of GPU memory",
    meaning="The GPU's memory ran out: parameters, gradients, optimizer states and activations together do not fit.",
    remedy=(
        "halve --micro-batch-size and double --gradient-accumulation-steps: the global batch stays the same\n"
        "recompute activations: add +r to --method, as in z3+r\n"
        "partition more: --method z3, then --method z3o, which moves optimizer states and parameters to the host\n"
        "shorter --sequence-length, or more GPUs with --gpus-per-node or --nodes"
    ),
    retry=False,
    precedence=90,
    explains=frozenset(("collective_timeout", "python_exception", "segfault")),
    signs=(
        sign(
            "out of memory. Tried to allocate",
            rf"(?P<vendor>CUDA|HIP|XPU|NPU) out of memory\. Tried to allocate (?P<asked>{_SIZE})"
            rf"(?:[^\n]{{0,40}}?GPU (?P<gpu>\d+))?"
            rf"(?:[^\n]{{0,40}}?total capac(?:i?ty) of (?P<capacity>{_SIZE}) of which (?P<free>{_SIZE}) is free"
            rf"|; (?P<capacity_old>{_SIZE}) total capacity; (?P<allocated_old>{_SIZE}) already allocated"
            rf"; (?P<free_old>{_SIZE}) free; (?P<reserved_old>{_SIZE}) reserved)?"
            rf"(?:[^\n]{{0,200}}?(?P<allocated>{_SIZE}) is allocated by PyTorch)?"
            rf"(?:[^\n]{{0,60}}?(?P<reserved>{_SIZE}) is reserved by PyTorch but unallocated)?",
            confidence=0.98,
        ),
        sign(
            ("OutOfMemoryError: CUDA", "OutOfMemoryError: HIP", "OutOfMemoryError: XPU"),
            r"OutOfMemoryError: (?:CUDA|HIP|XPU) out of memory",
        ),
        sign(
            ("STATUS_ALLOC_FAILED", "STATUS_NOT_INITIALIZED when calling `cublasCreate"),
            r"(?:CU|HIP|ROC)(?:BLAS|DNN|BLASLT|SPARSE)_STATUS_ALLOC_FAILED"
            r"|CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
            confidence=0.85,
        ),
        sign(
            (" error: out of memory", "rrorOutOfMemory", "rrorMemoryAllocation", "_ERROR_OUT_OF_MEMORY"),
            r"(?:CUDA|HIP) error: out of memory|hipErrorOutOfMemory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY",
        ),
        sign("Cuda failure", r"NCCL WARN (?:Cuda|HIP) failure (?:\d+ )?'out of memory'", confidence=0.9),
    ),
)

_HOST_REMEDY = (
    "ask for more: --sbatch mem=…, or mem=0 for all of the node\n"
    "fewer ranks per node: each loads the model and pins buffers of its own\n"
    "keep parameters on the GPU: --method z2o or z3 instead of z3o (drop offload_param)"
)

HOST_OOM = Cause(
    id="host_oom",
    title="out of host memory",
    meaning="The memory of the node, or what the job asked of it, ran out, and the system killed a process.",
    remedy=_HOST_REMEDY,
    retry=False,
    precedence=86,
    explains=frozenset(("collective_timeout", "python_exception", "cancelled", "segfault")),
    signs=(
        sign(
            ("oom_kill event", "oom-kill event"),
            r"Detected \d+ oom[-_]kill event(?:\(s\)|s)? in (?P<step>(?:StepId=|step )?[\w.+]+)",
            confidence=0.98,
        ),
        sign("killed by the cgroup out-of-memory", confidence=0.97),
        sign(
            ("exceeded memory limit", "emory limit at some point", "Exceeded job memory limit"),
            r"(?:[Ss]tep \S{1,30}|[Jj]ob \S{1,30}|StepId=\S{1,30})[^\n]{0,40}? exceeded memory limit"
            r"(?: \((?P<used>\d+) > (?P<limit>\d+)\))?|Exceeded (?:job|step) memory limit",
            confidence=0.97,
        ),
        sign(": Out Of Memory", r"^[^\n]{0,12}srun: error: [^\n]{1,80}: Out Of Memory", confidence=0.97),
        sign(
            ("oom-kill:", "out of memory: Kill", "Out of memory: Kill", "invoked oom-killer", "oom_reaper:"),
            r"(?:Out of memory|[Mm]emory cgroup out of memory): Kill(?:ed)? process (?P<pid>\d+)"
            r"|\binvoked oom-killer|\boom-kill:constraint=|\boom_reaper: reaped process",
            confidence=0.97,
        ),
        sign(
            ("an't allocate memory", "annot allocate memory", "not enough memory: you tried"),
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory(?::[^\n]{0,40}allocate (?P<asked>\d+) bytes)?"
            r"|\[Errno 12\] Cannot allocate memory|[Ff]ork: Cannot allocate memory|mmap[^\n]{0,60}Cannot allocate memory",
        ),
        sign("bad_alloc", r"\bstd::bad_alloc\b"),
        sign(
            "Error: Unable to allocate",
            rf"MemoryError: Unable to allocate (?P<asked>{_SIZE})",
        ),
        sign("MemoryError", r"^[^\n]{0,80}?(?<![\w.])MemoryError$", confidence=0.9),
        sign(
            ("cudaHostAlloc", "hipHostMalloc", "pin_memory", "CachingHostAllocator"),
            r"(?:cudaHostAlloc|hipHostMalloc|CachingHostAllocator|pin_memory)[^\n]{0,200}"
            r"(?:out of memory|invalid argument|failed|resource exhausted)",
            precedence=91,
            confidence=0.85,
            remedy=(
                "page-locked host memory ran out: turn it off with "
                "--set deepspeed.zero_optimization.offload_optimizer.pin_memory=false\n" + _HOST_REMEDY
            ),
        ),
        sign(
            "(pid",
            r"DataLoader worker \(pid\(?s?\)? [\d, ]+\)? is killed by signal: Killed",
            confidence=0.85,
        ),
        sign(
            (" Killed ", " Killed\n"),
            r"^[^\n\"]{1,160}: line \d+: +\d+ Killed(?: |$)",
            precedence=42,
            confidence=0.7,
        ),
        sign(
            (": Killed", "tasks "),
            r"^[^\n]{0,12}srun: error: \S{1,80}: tasks? [\d,-]+: Killed",
            role=Role.CONFIRMATION,
        ),
        # The launcher's verdict on the rank that died first; survivors are killed with SIGTERM.
        sign(
            ("exitcode: -9)", "(SIGKILL)", "return code = -9", "return code = 247", "exit code 137", "code 137"),
            r"failed \(exitcode: -9\)(?: local_rank: (?P<local_rank>\d+))?|exits with return code = (?:-9|247)\b"
            # A survivor that lost its peer within the same second may be named as the first failure in its stead.
            r"|Signal 9 \(SIGKILL\) received by PID"
            r"|[Ee]xited with exit code 137\b|exit(?:ed with)? code 137\b",
            precedence=41,
            confidence=0.6,
        ),
    ),
)

WALLTIME = Cause(
    id="walltime",
    title="time limit reached",
    meaning="The job was still running when its time limit was over, and the scheduler ended it.",
    remedy=(
        "ask for more: --time HH:MM:SS, up to the partition's limit (`hpc-llm clusters NAME`)\n"
        "or fewer --steps: a comparison needs tens of measured steps, not thousands\n"
        "if it made no progress at all, look for a hang before asking for more time"
    ),
    retry=False,
    precedence=58,
    explains=frozenset(("cancelled",)),
    signs=(
        sign("DUE TO TIME LIMIT", rf"{_SLURM}\*\*\* [^\n]{{1,80}}CANCELLED{_AT} DUE TO TIME LIMIT", confidence=0.99),
        sign("walltime", r"PBS: job killed: walltime \d+ exceeded limit \d+", confidence=0.99),
        sign("TERM_RUNLIMIT", r"TERM_RUNLIMIT: job killed", confidence=0.99),
        sign("timed-out and not checkpointable", confidence=0.9),
    ),
)

PREEMPTED = Cause(
    id="preempted",
    title="preempted",
    meaning="A job of higher priority took the nodes. Nothing is wrong with the run.",
    remedy="submit it again, or on a partition that is not preempted: --partition NAME",
    retry=True,
    precedence=59,
    explains=frozenset(("cancelled",)),
    signs=(
        sign("DUE TO PREEMPTION", rf"{_SLURM}CANCELLED{_AT} DUE TO PREEMPTION", confidence=0.99),
        sign("TERM_PREEMPT", r"TERM_PREEMPT: job killed", confidence=0.97),
        sign("DUE TO JOB REQUEUE", rf"{_SLURM}CANCELLED{_AT} DUE TO JOB REQUEUE", precedence=50, confidence=0.7),
    ),
)

CANCELLED = Cause(
    id="cancelled",
    title="cancelled",
    meaning="Somebody ended the job: a user, an administrator, or another program.",
    remedy="nothing to repair: submit it again if it was not meant",
    retry=True,
    precedence=50,
    signs=(
        sign(
            " CANCELLED",
            rf"{_SLURM}\*\*\* JOB \S{{1,40}}(?: ON \S{{1,80}})? CANCELLED{_AT}(?! DUE TO)",
        ),
        sign("KeyboardInterrupt", r"^[^\n\"']{0,60}?\bKeyboardInterrupt$", precedence=46, confidence=0.8),
        sign(
            ("forcing job termination", "Force Terminated job"),
            r"^[^\n]{0,12}srun: (?:error: )?(?:forcing job termination|Force Terminated job)",
            role=Role.CONFIRMATION,
        ),
        # srun writes this when a task failed, too, and torchrun passes on whatever signal came.
        sign(
            " CANCELLED",
            rf"{_SLURM}\*\*\* STEP \S{{1,40}}(?: ON \S{{1,80}})? CANCELLED{_AT}(?! DUE TO)",
            precedence=20,
            confidence=0.6,
        ),
        sign(
            ("got signal: ", "death signal"),
            r"SignalException: Process \d+ got signal: (?:1|2|15)\b|Received (?:1|2|15|Signals\.SIG(?:TERM|HUP|INT)) death signal",
            precedence=18,
            confidence=0.5,
        ),
        sign(
            ("SIGTERM",),
            r"Main process received SIGTERM, exiting|^[^\n]{0,60}\bSIGTERM: stopped by SIGTERM",
            precedence=17,
            confidence=0.5,
        ),
        sign(": Terminated", r"^[^\n]{0,12}srun: error: \S{1,80}: tasks? [\d,-]+: Terminated", role=Role.CONFIRMATION),
    ),
)

NODE_FAIL = Cause(
    id="node_fail",
    title="a node failed",
    meaning="The scheduler lost a node of the job. The hardware or its network is at fault, not the run.",
    remedy="submit it again without that node: --sbatch exclude={node}",
    retry=True,
    precedence=93,
    explains=frozenset(("collective_timeout", "cancelled", "host_oom", "python_exception", "segfault")),
    signs=(
        sign(
            "DUE TO NODE FAILURE",
            rf"{_SLURM}(?:JOB|STEP) \S{{1,40}}(?: ON (?P<node>[\w.-]{{1,60}}))?[^\n]{{0,40}} CANCELLED{_AT} DUE TO NODE FAILURE",
            confidence=0.99,
        ),
        sign("DUE TO NODE FAILURE", rf"^\*\*\* [^\n]{{1,60}}CANCELLED{_AT} DUE TO NODE FAILURE", confidence=0.97),
        sign("ode failure on", r"^[^\n]{0,12}srun: error: Node failure on (?P<node>[\w.,\[\]-]+)", confidence=0.98),
    ),
)

COLLECTIVE_TIMEOUT = Cause(
    id="collective_timeout",
    title="a collective timed out",
    meaning=(
        "Some ranks waited for another one in a collective operation until the time-out. The rank that fell silent "
        "first is the one to look at; the others only say that they waited."
    ),
    remedy=(
        "look at the output of the silent rank: it may have died, hung in its data, or be on a slow node\n"
        "if every run stops at the same step, the ranks disagree on the collective: compare their data and control flow\n"
        "if it is the first step, check the network interface: --set env.NCCL_SOCKET_IFNAME=… (see the cluster's profile)\n"
        "otherwise submit it again, without the silent node: --sbatch exclude=NODE"
    ),
    retry=True,
    precedence=55,
    explains=frozenset(("segfault", "python_exception")),
    signs=(
        sign(
            "Watchdog caught collective operation timeout",
            r"(?:\[Rank (?P<rank>\d+)\] )?Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?"
            r"OpType=(?P<collective>\w+)(?:[^\n)]{0,80}Timeout\(ms\)=(?P<timeout_ms>\d+))?",
        ),
        sign("lagging/dead/mismatched ranks", confidence=0.9),
        sign(
            ("but didn't join collective", "but didn't join"),
            r"\[(?P<silent_rank>\d+)\] finished collective #(?P<seq>\d+), but didn't join collective",
        ),
        sign(
            "Timed out waiting",
            r"Timed out waiting (?P<timeout_ms>\d+)ms for (?:recv|send) operation to complete",
        ),
        sign(
            "monitoredBarrier", r"Rank (?P<silent_rank>\d+) failed to pass monitoredBarrier in (?P<timeout_ms>\d+) ms"
        ),
        sign(
            "monitoredBarrier",
            r"but rank (?P<silent_rank>\d+) failed to|Ranks (?P<silent_rank_2>[\d, ]+) failed to pass monitoredBarrier",
        ),
        sign(
            ("waiting for clients", "Timed out after", "wait timeout after"),
            r"Timed out after \d+ seconds waiting for clients\. (?P<joined>\d+)/(?P<expected>\d+) clients joined"
            r"|wait timeout after \d+ms, keys: \S+|DistStoreError: Timed out after \d+ seconds",
        ),
        sign(
            ("RendezvousTimeoutError", "client socket has timed out after", "Socket Timeout"),
            _EXCEPTION
            + r"RendezvousTimeoutError|client socket has timed out after \d+ ?m?s while trying to connect to \((?P<address>[^)]{1,80})\)"
            r"|RuntimeError: Socket Timeout",
            confidence=0.85,
        ),
        sign("watchdog got stuck", r"ProcessGroupNCCL's watchdog got stuck for \d+ seconds", confidence=0.85),
        sign("eartbeat monitor", r"Heartbeat monitor timed out!", confidence=0.85),
    ),
)

PORT_IN_USE = Cause(
    id="port_in_use",
    title="the rendezvous port is in use",
    meaning="Another program on the first node already listens on the port at which the ranks meet.",
    remedy=(
        "submit it again: each run picks a port of its own\n"
        "in a script of your own take a port from the job id, or torchrun --standalone on one node"
    ),
    retry=True,
    precedence=85,
    explains=frozenset(("collective_timeout", "python_exception")),
    signs=(
        sign(
            ("ddress already in use", "EADDRINUSE", "another process is utilizing it"),
            r"(?:bind|listen)[^\n]{0,80}?(?:\[::\]|0\.0\.0\.0|\?UNKNOWN\?)?:?(?P<port>\d{2,5})?[^\n]{0,40}errno: 98"
            r"|EADDRINUSE|distributed communication on port `(?P<port_2>\d+)`, but another process is utilizing it"
            r"|Error(?:: \[Errno 98\]|:)[^\n]{0,60} ?[Aa]ddress already in use",
        ),
    ),
)

GPU_MISSING = Cause(
    id="gpu_missing",
    title="no such GPU",
    meaning="The program found no GPU, or fewer than it has ranks on the node.",
    remedy=(
        "ask for as many GPUs as there are ranks on a node: --gpus-per-node N\n"
        "see that nothing hides them: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES in the job\n"
        "if the node should have them, leave it out: --sbatch exclude=NODE"
    ),
    retry=False,
    precedence=80,
    explains=frozenset(("python_exception", "collective_timeout")),
    signs=(
        sign("invalid device ordinal", r"(?:CUDA|HIP) error: invalid device ordinal|Error: invalid device ordinal"),
        sign(
            ("GPUs are available", "capable device is detected", "rrorNoDevice"),
            r"No (?:CUDA|HIP) GPUs are available|no (?:CUDA|ROCm)-capable device is detected|(?:cuda|hip)ErrorNoDevice",
        ),
        sign("RuntimeError: Found no NVIDIA driver on your system"),
        sign(
            "GPUs per node, torch", r"the plan wants \d+ GPUs per node, torch \S+ \(built for [^)\n]{1,40}\) sees none"
        ),
        sign("No devices were found", r"^No devices were found$", confidence=0.8),
        sign("setup doesn't support bf16/gpu", confidence=0.85),
        sign(
            "Duplicate GPU detected", r"Duplicate GPU detected *: rank (?P<rank>\d+) and rank \d+ both on [^\n]{1,60}"
        ),
        sign(
            "Torch not compiled with CUDA enabled",
            remedy="install a build of torch for this GPU, or load the site's module for it",
        ),
    ),
)

_REBUILD = (
    "an extension was built for another torch: remove its build folder "
    "(~/.cache/torch_extensions, or TORCH_EXTENSIONS_DIR) so that it is built again\n"
    "give each environment a TORCH_EXTENSIONS_DIR of its own; reinstall packages that bring compiled code"
)

DRIVER_MISMATCH = Cause(
    id="driver_mismatch",
    title="driver, CUDA or compiled code do not match",
    meaning="The driver of the node, the toolkit and the packages that were built against them are of different versions.",
    remedy=(
        "install a torch built for the driver's CUDA or ROCm (`hpc-llm clusters NAME` says which the site has)\n"
        "or load the toolkit's module that torch was built with"
    ),
    retry=False,
    precedence=82,
    explains=frozenset(("gpu_missing", "python_exception", "collective_timeout")),
    signs=(
        sign(
            "driver on your system is too old",
            r"RuntimeError: The NVIDIA driver on your system is too old",
            confidence=0.97,
        ),
        sign("driver on your system is too old", confidence=0.75, precedence=46),
        sign(
            ("version is insufficient", "InsufficientDriver"),
            r"CUDA driver version is insufficient|cudaErrorInsufficientDriver",
        ),
        sign(
            "no kernel image is available",
            remedy="this build of torch holds no code for this GPU: install one that does, or use another GPU",
        ),
        sign(
            ("invalid device function", "hipErrorNoBinaryForGpu"),
            r"HIP error: invalid device function|hipErrorNoBinaryForGpu",
            remedy="this build holds no code for this GPU: install one that does (PYTORCH_ROCM_ARCH when building)",
        ),
        sign(
            ("does not match the version torch was compiled", "CUDAMismatchException"),
            r"CUDAMismatchException: |RuntimeError: \s*The detected CUDA version \([\d.]+\) mismatches",
        ),
        sign("mismatches the version that was used to compile"),
        sign(
            ("undefined symbol: ",),
            r"^[^\n]{0,60}?\b(?:Import|OS)Error: [^\n]{1,300}: undefined symbol: ",
            remedy=_REBUILD,
        ),
        sign(
            "cannot open shared object file",
            r"(?:Import|OS)Error: lib(?:cuda|cudart|cudnn|cublas|nccl|nvrtc|cufft|cusparse|cupti|amdhip64|rocblas|rccl|hipblas|MIOpen)[\w.+-]*: cannot open shared object file",
            remedy="a CUDA or ROCm library is missing: load its module, or install the package that brings it\nthen see LD_LIBRARY_PATH in the job",
        ),
        sign(
            ("GLIBC_", "GLIBCXX_"),
            r"version `GLIBC(?:XX)?_[\d.]+' not found",
            remedy="the package was built on a newer system than the node's: build it there, or take another build",
        ),
        sign(
            "Driver/library version mismatch",
            r"Failed to initialize NVML: Driver/library version mismatch",
            confidence=0.9,
            remedy="the node's driver was updated and not reloaded: leave it out with --sbatch exclude=NODE and tell the site",
            retry=True,
        ),
    ),
)

GPU_HARDWARE = Cause(
    id="gpu_hardware",
    title="a GPU is faulty",
    meaning="The GPU or its link reported a hardware error. The same node will fail again.",
    remedy="submit it again without that node: --sbatch exclude={node}, and tell the site",
    retry=True,
    precedence=95,
    explains=frozenset(
        ("collective_timeout", "python_exception", "segfault", "gpu_missing", "device_oom", "node_fail", "cancelled")
    ),
    signs=(
        sign(("uncorrectable ECC error", "ECC_UNCORRECTABLE"), confidence=0.98),
        sign(
            "Xid",
            r"NVRM: Xid \((?P<pci>PCI:[\w:.]+)\): (?P<xid>(?:48|62|63|64|74|79|94|95|110|119|120|136|140|14[3-9]|15\d)\b)",
            confidence=0.98,
        ),
        sign("fallen off the bus", confidence=0.98),
        sign("GPU is lost", r"GPU is lost\b"),
        sign(
            ("NVLink error", "rrorNvlinkUncorrectable", "uncorrectable NVLink error"),
            r"uncorrectable NVLink error|cudaErrorNvlinkUncorrectable",
        ),
        sign(
            ("amdgpu", "RAS"),
            r"amdgpu[^\n]{0,80}(?:uncorrectable hardware error|uncorrectable errors? detected|GPU reset begin|ring \w+ timeout)",
        ),
        sign("HW Exception by GPU", r"HW Exception by GPU node-\d+", confidence=0.85),
    ),
)

MODULE_MISSING = Cause(
    id="module_missing",
    title="a module did not load",
    meaning="The module system is missing on the node, or has no module of that name and version.",
    remedy=(
        "see what there is: `module avail NAME`, `module spider NAME` on a login node\n"
        "then correct prelude.load in the cluster's profile (`hpc-llm clusters NAME`)"
    ),
    retry=False,
    precedence=84,
    explains=frozenset(
        (
            "package_missing",
            "gpu_missing",
            "driver_mismatch",
            "conda_not_initialised",
            "python_exception",
            "config_error",
        )
    ),
    signs=(
        sign(
            "following module(s) are unknown",
            r"module\(s\) are unknown:(?: \"(?P<module>[^\"\n]{1,80})\")?",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "nable to locate a modulefile",
            r"[Uu]nable to locate a modulefile for '(?P<module>[^'\n]{1,80})'",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "cannot be loaded as requested",
            r"These module\(s\) or extension\(s\) exist but cannot be loaded as requested:[^\n]{0,80}",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "command not found",
            r"\bmodule: command not found|: module: not found",
            survived_after=STARTED,
            confidence=0.85,
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: (?:module (?P<module>\S{1,80}) failed to load|module folder \S+ does not exist|the module system is missing)",
            confidence=0.99,
        ),
        sign(
            "conflicts with the currently loaded module",
            r"module cannot be loaded due to a conflict|conflicts with the currently loaded module",
            survived_after=STARTED,
            confidence=0.8,
        ),
        sign("Module ERROR", r"^[^\n]{0,40}Module ERROR: ", survived_after=STARTED, confidence=0.8),
        sign("hpc-llm: mpirun is not on PATH", confidence=0.97),
    ),
)

CONDA = Cause(
    id="conda_not_initialised",
    title="the Python environment did not activate",
    meaning="conda's shell hook was not sourced, or the environment is not there: the script goes on with another Python.",
    remedy=(
        "let the job source conda's hook: prelude.python {kind: conda, hook: auto, env: /path} in the cluster's profile\n"
        'in a script of your own: source "$(conda info --base)/etc/profile.d/conda.sh" before conda activate\n'
        "see that the environment exists on the compute node: `conda env list`"
    ),
    retry=False,
    precedence=83,
    explains=frozenset(("package_missing", "python_exception")),
    signs=(
        sign(
            "Run 'conda init'",
            r"CondaError: Run 'conda init' before 'conda (?P<command>\w+)'",
            survived_after=STARTED,
            confidence=0.85,
        ),
        sign("has not been properly configured to use 'conda activate'", survived_after=STARTED, confidence=0.9),
        sign(
            ("EnvironmentLocationNotFound", "EnvironmentNameNotFound"),
            r"(?:EnvironmentLocationNotFound|EnvironmentNameNotFound|NotWritableError): [^\n]{0,200}",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: (?:conda is not on PATH|'conda info --base' failed|conda's shell hook|(?:conda|virtual) environment |python is not on PATH)",
            confidence=0.99,
        ),
        sign(
            "command not found",
            r"\bconda: command not found|: conda: not found",
            survived_after=STARTED,
            confidence=0.85,
        ),
        sign(
            ("etc/profile.d/conda.sh", "bin/activate"),
            r"(?:etc/profile\.d/conda\.sh|bin/activate): No such file or directory",
            survived_after=STARTED,
            confidence=0.85,
        ),
        sign(
            "hell not initialized",
            r"'(?:micro)?mamba' is running as a subprocess|[Ss]hell not initialized",
            survived_after=STARTED,
            confidence=0.8,
        ),
    ),
)

PACKAGE_MISSING = Cause(
    id="package_missing",
    title="a Python package is missing",
    meaning="The Python that ran has no such package, or not in the version needed. It may be the wrong Python.",
    remedy=(
        "install it into the environment that the cluster's profile names: pip install {package}\n"
        "if it is there, the job runs another Python: see the environment in the first lines of the output"
    ),
    retry=False,
    precedence=78,
    explains=frozenset(("python_exception", "collective_timeout")),
    signs=(
        sign(
            "No module named",
            r"^[^\n\"']{0,60}?\bModuleNotFoundError: No module named '?(?P<package>[\w.]+)'?",
            survived_after=STARTED,
        ),
        sign(
            "No module named",
            r"^(?:\S{0,80}/)?python[\d.]*: (?:Error while finding module specification|No module named )'?(?P<package>[\w.]+)?",
        ),
        sign(
            ("ImportError: ",),
            r"^[^\n\"']{0,60}?\bImportError: (?!cannot import name)[^\n]{0,200}?(?:requires?|needs?|not installed|pip install|not been found|not found in your environment|could not be found|can ?not be used)[^\n]{0,40}",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "cannot import name",
            r"^[^\n\"']{0,60}?\bImportError: cannot import name '(?P<name>\w+)' from '(?P<package>[\w.]+)'",
            survived_after=STARTED,
            confidence=0.85,
            remedy="{package} is there in another version than the program needs: install the one that it asks for",
        ),
        sign(
            "PackageNotFoundError",
            r"^[^\n\"']{0,60}?\bPackageNotFoundError: (?:No package metadata was found for )?(?P<package>[\w.-]+)",
            survived_after=STARTED,
        ),
        sign(
            "lacks ",
            r"^hpc-llm: (?:the Python environment lacks (?P<package>[\w, ]+)|python [\d.]+ is too old)",
            confidence=0.99,
        ),
        sign("hpc-llm: ", r"^hpc-llm: (?:srun|torchrun) is not on PATH", confidence=0.9),
        sign(
            "command not found",
            r"line \d+: (?P<package>deepspeed|torchrun|accelerate): command not found",
            survived_after=STARTED,
            confidence=0.85,
        ),
        sign(
            "No such file or directory: 'numactl'",
            confidence=0.85,
            remedy="the launcher wants the program numactl: install it, or drop --bind_cores_to_rank",
        ),
        sign(
            ("FlashAttention2 has been toggled on", "package flash_attn seems to be not installed"),
            remedy="flash_attn is not installed here: --set attention=sdpa, or pip install flash-attn",
        ),
        sign(
            "model needs a package that is missing",
            r"the plan's model needs a package that is missing here: [^\n]{1,160}",
        ),
        sign(
            "Ninja is required to load C++ extensions",
            remedy="put ninja on PATH: pip install ninja, and run with the environment's bin folder on PATH",
        ),
    ),
)

MODEL_MISSING = Cause(
    id="model_missing",
    title="the model could not be loaded",
    meaning="The checkpoint or tokenizer is not there: wrong name or folder, no permission, or no network on the compute node.",
    remedy=(
        "download it on a login node first: huggingface-cli download NAME --local-dir DIR, then --model DIR\n"
        "for a gated model accept its licence on its page and log in: huggingface-cli login\n"
        "to measure speed and memory only, use a preset initialised at random: `hpc-llm models`"
    ),
    retry=False,
    precedence=77,
    explains=frozenset(("python_exception", "collective_timeout")),
    signs=(
        sign(
            ("gated repo", "GatedRepoError"), r"trying to access a gated repo|Cannot access gated repo|GatedRepoError"
        ),
        sign(
            ("LocalEntryNotFoundError", "OfflineModeIsEnabled"),
            r"LocalEntryNotFoundError|OfflineModeIsEnabled",
            survived_after=STARTED,
        ),
        sign(
            ("connect to 'https://huggingface.co'", "connect to 'https://hf"),
            r"We couldn't connect to 'https://[^'\n]{1,80}' to load (?:the|this) (?:files|file|model)",
            survived_after=STARTED,
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
            r"(?P<model>\S{1,120}) does not appear to have a file named \S+|OSError: Error no file named [^\n]{1,160}",
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
        sign(
            "SafetensorError",
            r"SafetensorError: Error while deserializing header",
            remedy="the checkpoint is damaged or a Git LFS pointer: download it again",
        ),
    ),
)

CONFIG_ERROR = Cause(
    id="config_error",
    title="a setting is wrong",
    meaning="A flag, a key or a value is not valid, or two of them contradict each other. It will fail again as it is.",
    remedy="correct the setting named in the evidence before submitting again: --set PATH=VALUE, or the method's file",
    retry=False,
    precedence=76,
    explains=frozenset(("python_exception", "collective_timeout")),
    signs=(
        sign(
            "validation error",
            r"ValidationError: \d+ validation errors? for (?:DeepSpeed|[A-Z]\w*(?:Config|Args|Arguments))\w*",
        ),
        sign(("Check batch related parameters", "atch related parameters")),
        sign("DeepSpeedConfigError", r"DeepSpeedConfigError: "),
        sign("untested ZeRO Optimizer", remedy="allow it: --set deepspeed.zero_allow_untested_optimizer=true"),
        sign(("is not a supported DeepSpeed Optimizer", "not supported by DeepSpeed")),
        sign(
            "zero_force_ds_cpu_optimizer",
            r"ZeRO-Offload [^\n]{0,120}zero_force_ds_cpu_optimizer|ZeRORuntimeException: You are using ZeRO-Offload",
            remedy="use an optimizer that DeepSpeed builds, or --set deepspeed.zero_force_ds_cpu_optimizer=false",
        ),
        sign(
            ("is not supported on your device", "does not support bf16", "is not supported on this device"),
            r"ValueError: Type \w+ is not supported on your device|ValueError: [^\n]{0,80}(?:bf16|bfloat16|fp16)[^\n]{0,80}not supported[^\n]{0,40}|Your setup doesn't support bf16/(?!gpu)",
            remedy="choose a precision that the device has: --set precision=bf16, fp16 or fp32",
        ),
        sign(
            (
                "error: unrecognized arguments",
                "error: argument",
                "error: the following arguments are required",
                "error: invalid choice",
            ),
            r"^[\w./-]{1,80}: error: (?:unrecognized arguments?|argument |the following arguments are required|invalid choice)[^\n]{0,200}",
        ),
        sign(("Expected a string path to an existing deepspeed config", "DeepSpeed config")),
        sign("mismatch TrainingArguments values", r"DeepSpeed config values that mismatch TrainingArguments values"),
        sign("JSONDecodeError", r"JSONDecodeError: [^\n]{1,120}", confidence=0.75),
        sign(
            ("ConfigAttributeError", "ConfigCompositionException", "ConfigKeyError", "MissingConfigException"),
            r"\b(?:ConfigAttributeError|ConfigCompositionException|ConfigKeyError|MissingConfigException|MissingMandatoryValue)\b",
        ),
        sign(("yaml.scanner", "yaml.parser"), r"yaml\.(?:scanner\.ScannerError|parser\.ParserError)"),
        sign(
            "TypeError: ",
            r"^[^\n\"']{0,60}?\bTypeError: (?:\w+Config|\w+Arguments|\w*Args)\.__init__\(\) got an unexpected keyword argument '\w+'",
        ),
        sign(
            "sbatch: error: ",
            r"^sbatch: error: (?:Batch job submission failed|invalid|Invalid|Unable to open file|[^\n]{0,60}(?:not permitted|specification))",
            confidence=0.9,
        ),
        sign(
            "srun: error: ",
            r"^srun: error: (?:Unable to create step for job \S+: (?:More processors|Requested node|Invalid|Memory required)|[^\n]{0,60}Invalid \w+ specification)",
            confidence=0.85,
        ),
        sign(
            "WorkerError: ",
            r"\bWorkerError: (?!the plan wants|the plan's model needs)[^\n]{1,200}",
            confidence=0.9,
        ),
        sign(
            "RunIsInvalid: ",
            r"\bRunIsInvalid: \d+ ranks were started, the plan is for \d+",
            remedy="see that the launcher starts as many ranks as the plan has: --set launcher=srun, torchrun or mpirun",
        ),
        sign(
            "must be divisible by", r"(?:AssertionError|ValueError): [^\n]{0,120}must be divisible by", confidence=0.85
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: (?:run folder \S+ is not visible|cannot enter run folder)",
            confidence=0.97,
            remedy="put the runs on a file system that the compute nodes see: --logs DIR",
        ),
        sign(
            "FlashAttention only supports Ampere GPUs or newer", remedy="this GPU cannot run it: --set attention=sdpa"
        ),
    ),
)

NAN_LOSS = Cause(
    id="nan_loss",
    title="the loss is not a number",
    meaning="The loss became NaN or infinite and stayed so: the run has diverged and its numbers mean nothing.",
    remedy=(
        "a smaller learning rate: --set optimizer.lr=…, with gradient clipping: --set deepspeed.gradient_clipping=1.0\n"
        "bf16 instead of fp16 where the GPU has it: --set precision=bf16\n"
        "if it is so from the first step, look at the data and the checkpoint"
    ),
    retry=False,
    precedence=60,
    undone_by_end=False,
    explains=frozenset(("python_exception",)),
    signs=(
        # Begins with fixed text: every line of a training log has a loss.
        sign("oss", r"oss[ \t:=|'\"]{1,8}(?:nan|NaN|NAN|-?inf|-?Infinity)\b"),
        sign("OSS", r"OSS[ \t:=|'\"]{1,8}(?i:nan|-?inf)\b"),
        sign(("grad_norm': nan", "grad_norm': 'nan"), r"'grad_norm': '?nan\b", confidence=0.85),
        sign(
            ("NaN in", "nan in", "oss is "),
            r"(?:found|detected) NaN in [^\n]{0,60}(?:loss|forward|gradient|grad)|(?:loss|Loss) is (?:nan|NaN|inf)\b",
            confidence=0.97,
        ),
        sign(
            ("returned nan values", "non-finite", "Non-finite", "not finite", "NaN loss"),
            r"Function '\w+Backward\d*' returned nan values|(?:Error|Exception): [^\n]{0,80}(?:[Nn]on-finite|not finite|NaN loss|is NaN)[^\n]{0,40}",
            confidence=0.9,
        ),
        sign(
            "probability tensor contains",
            r"probability tensor contains either `inf`, `nan` or element < 0",
            confidence=0.85,
        ),
    ),
)

LOSS_SCALE = Cause(
    id="loss_scale_collapse",
    title="the loss scale collapsed",
    meaning="With fp16 the gradients overflowed at every loss scale down to the smallest: the run has diverged.",
    remedy=(
        "bf16 instead of fp16 where the GPU has it: --set precision=bf16\n"
        "a smaller learning rate: --set optimizer.lr=…, more warm-up, gradient clipping\n"
        "a checkpoint that was trained in bf16 may not fit into fp16's range at all"
    ),
    retry=False,
    precedence=75,
    undone_by_end=False,
    explains=frozenset(("nan_loss", "python_exception", "collective_timeout")),
    signs=(
        sign("Current loss scale already at minimum", confidence=0.99),
        sign("Minimum loss scale reached", r"Minimum loss scale reached \(", confidence=0.99),
        sign(
            "oss scale",
            r"(?:Error|Exception): [^\n]{0,60}[Ll]oss scale[^\n]{0,40}(?:minimum|too small|underflow|zero)",
            confidence=0.9,
        ),
    ),
)

DISK_FULL = Cause(
    id="disk_full",
    title="no space left",
    meaning="The file system, or the quota on it, is full.",
    remedy=(
        "see which: `df -h DIR`, and the site's quota command (quota, lfs quota -u $USER DIR)\n"
        "put runs and caches where there is room: --logs DIR, --set env.HF_HOME=…, --set env.TMPDIR=…, --set env.TORCH_EXTENSIONS_DIR=…"
    ),
    retry=False,
    precedence=88,
    explains=frozenset(("python_exception", "collective_timeout", "cancelled", "package_missing")),
    signs=(
        sign("No space left on device"),
        sign(("isk quota exceeded", "uota exceeded"), r"[Dd]isk quota exceeded|\[Errno 122\]|[Qq]uota exceeded"),
        # What torch.save says of a file that ends too soon.
        sign(
            "unexpected pos ", r"enforce fail at inline_container[^\n]{0,40} unexpected pos \d+ vs \d+", confidence=0.85
        ),
        sign("failed writing file", r"PytorchStreamWriter failed writing file", confidence=0.8),
        sign("No space left", r"ENOSPC|No space left", confidence=0.9),
        sign(
            "ot enough free disk space",
            r"[Nn]ot enough free disk space to download",
            survived_after=STARTED,
            confidence=0.8,
        ),
    ),
)

BUS_ERROR = Cause(
    id="bus_error",
    title="bus error: shared memory",
    meaning="A process was killed by SIGBUS: most often /dev/shm is full or too small, else a file under mmap was cut.",
    remedy=(
        "fewer data loader workers, or none; in a container more shared memory: --shm-size=16g or --ipc=host\n"
        "see `df -h /dev/shm` on the node: what an earlier job left there counts\n"
        "if /dev/shm is empty, a mapped file became shorter while it was read: give each job a cache folder of its own"
    ),
    retry=False,
    precedence=89,
    explains=frozenset(("python_exception", "collective_timeout", "segfault", "disk_full")),
    signs=(
        sign("nexpected bus error encountered in worker", confidence=0.97),
        sign(
            "us error",
            r"is killed by signal: Bus error|Signal: Bus error \(7\)|Fatal Python error: Bus error|^[^\n\"]{0,200}\b[Bb]us error(?: +\(core dumped\)|$| {2,}\S)",
            confidence=0.95,
        ),
        sign(
            ("exitcode: -7)", "return code = -7", "exit code 135", "code 135", "(SIGBUS)"),
            r"failed \(exitcode: -7\)|return code = -7\b|exit(?:ed with)?(?: exit)? code 135\b|Signal 7 \(SIGBUS\)",
            confidence=0.9,
        ),
        sign(
            "/dev/shm",
            r"(?:creating|allocating|[Ff]ailed to (?:create|open|extend)) [^\n]{0,40}shared memory segment /dev/shm|No space left on device[^\n]{0,80}/dev/shm|/dev/shm[^\n]{0,80}No space left on device",
            confidence=0.95,
        ),
        sign("posix_fallocate failed", r"posix_fallocate failed : No space left on device", confidence=0.9),
        sign(
            "unable to write to file </torch",
            r"unable to write to file </torch_\w+>: No space left on device",
            confidence=0.95,
        ),
        sign("shared memory", r"insufficient shared memory \(shm\)|out of shared memory", confidence=0.9),
    ),
)

SEGFAULT = Cause(
    id="segfault",
    title="crashed in native code",
    meaning="A process was ended by SIGSEGV or SIGABRT: a crash in compiled code, not in Python.",
    remedy=(
        "run it once with PYTHONFAULTHANDLER=1 (--set env.PYTHONFAULTHANDLER=1) to see where\n"
        "mixed builds are the usual reason: one CUDA or ROCm, one MPI, extensions built for this torch\n"
        "if it happens on one node only, leave that node out: --sbatch exclude=NODE"
    ),
    retry=False,
    precedence=70,
    explains=frozenset(("collective_timeout",)),
    signs=(
        sign("egmentation fault", r"^[^\n\"]{0,200}?\b[Ss]egmentation fault\b"),
        sign(
            ("exitcode: -11)", "return code = -11", "exit code 139", "code 139", "(SIGSEGV)"),
            r"failed \(exitcode: -11\)|return code = -11\b|exit(?:ed with)?(?: exit)? code 139\b|Signal 11 \(SIGSEGV\)",
            confidence=0.9,
        ),
        sign(
            (
                "exitcode: -6)",
                "return code = -6",
                "exit code 134",
                "Aborted",
                "exitcode: -4)",
                "exitcode: -8)",
                "exit code 132",
                "exit code 136",
            ),
            r"failed \(exitcode: -[468]\)|return code = -[468]\b|[Ee]xited with exit code 13[246]\b|^[^\n\"]{1,200}: line \d+: +\d+ Aborted|Fatal Python error: Aborted|: Aborted \(core dumped\)",
            precedence=40,
            confidence=0.7,
        ),
        sign(
            "llegal instruction",
            r"^[^\n\"]{0,200}\b[Ii]llegal instruction\b(?: +\(core dumped\)|$)",
            confidence=0.85,
            remedy="the program was built for another processor than the node's: build it there, or ask for another node type: --sbatch constraint=…",
        ),
    ),
)

PYTHON_EXCEPTION = Cause(
    id="python_exception",
    title="a Python exception",
    meaning="The program raised an error that hpc-llm does not know by name.",
    remedy="read the last lines of the traceback: the fault is in the program or in what it was given",
    retry=False,
    precedence=45,
    signs=(
        # What a rank says when another one has died; `tracebacks` finds the exceptions themselves.
        sign("onnection closed by peer", role=Role.CASCADE),
        sign("onnection reset by peer", role=Role.CASCADE),
        sign(("remote process exited or there was a network error", "ncclRemoteError"), role=Role.CASCADE),
        sign("NCCL communicator was aborted", role=Role.CASCADE),
        sign("is killed by signal: Terminated", role=Role.CASCADE),
        sign("Broken pipe", r"BrokenPipeError|: Broken pipe", role=Role.CASCADE),
        sign(
            ("SyntaxError: ", "IndentationError: "),
            r"^(?:\[\w+\]: )?(?P<exception>SyntaxError|IndentationError): (?P<message>[^\n]{1,200})",
            confidence=0.85,
        ),
        sign("ChildFailedError", role=Role.CONFIRMATION),
        sign("exits with return code = ", r"exits with return code = -?\d+", role=Role.CONFIRMATION),
        sign(
            "Exited with exit code",
            r"^[^\n]{0,12}srun: error: [^\n]{1,120}: Exited with exit code \d+",
            role=Role.CONFIRMATION,
        ),
    ),
)

UNKNOWN = Cause(
    id="unknown",
    title="not recognised",
    meaning="Nothing in the output says why it ended. It may still be running, or it was killed without a word.",
    remedy=(
        "ask the scheduler: sacct -j JOB -o JobID,State,ExitCode,MaxRSS,Elapsed,NodeList\n"
        "look at the other output: standard error and the logs of the other ranks"
    ),
    retry=False,
    precedence=0,
)

NONE = Cause(
    id="none",
    title="nothing failed",
    meaning="The run came to its end.",
    remedy="nothing to do",
    retry=False,
    precedence=0,
)

CAUSES: tuple[Cause, ...] = (
    DEVICE_OOM, HOST_OOM, WALLTIME, PREEMPTED, CANCELLED, NODE_FAIL, COLLECTIVE_TIMEOUT, PORT_IN_USE, GPU_MISSING,
    DRIVER_MISMATCH, GPU_HARDWARE, MODULE_MISSING, CONDA, PACKAGE_MISSING, MODEL_MISSING, CONFIG_ERROR, NAN_LOSS,
    LOSS_SCALE, DISK_FULL, BUS_ERROR, SEGFAULT, PYTHON_EXCEPTION, UNKNOWN, NONE,
)  # fmt: skip

BY_ID = {cause.id: cause for cause in CAUSES}
