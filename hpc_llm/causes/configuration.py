"""A setting that cannot be."""

from __future__ import annotations

from hpc_llm.causes import precisions, requests
from hpc_llm.causes.cause import Cause, sign
from hpc_llm.causes.data import BAD_TEXT
from hpc_llm.causes.frames import reads_configuration
from hpc_llm.causes.schedulers import FLUX_LITERALS, UNAVAILABLE, flux, lsf
from hpc_llm.records.run import Outcome

_SHORT_DATA_REMEDY = (
    "more text: --data FILE, several times where it is in several files\n"
    "or shorter sequences, of which each rank needs one: --sequence-length N"
)

_NO_SETTINGS = (
    "correct the file of settings that was read, at the line and column that the message names: "
    "the frames above it in the traceback name the call, and mostly the path"
)

_WRAPPED = r"(?:(?:module|_orig_mod|_fsdp_wrapped_module|base_model\.model|model)\.){0,4}"
"""What wrappers around a model put before the names of its weights."""

CONFIG_ERROR = Cause(
    id="config_error",
    title="a setting is wrong",
    meaning="A flag, a key or a value is not valid, or two of them contradict each other. It will fail again as it is.",
    remedy="correct the setting named in the evidence before submitting again: --set PATH=VALUE, or the method's file",
    retry=False,
    precedence=76,
    explains=frozenset(("python_exception", "collective_timeout", "unreachable")),
    signs=(
        sign(
            " fill no sequence of ",
            r"\bthe data in [^\n]{1,300} fill no sequence of \d+ tokens",
            confidence=0.97,
            remedy=_SHORT_DATA_REMEDY,
        ),
        sign(
            "validation error",
            r"ValidationError: \d+ validation errors? for (?:DeepSpeed|[A-Z]\w*(?:Config|Args|Arguments))\w*"
            r"(?:\n(?:\[\w{1,12}\]: ?)?(?P<setting>[A-Za-z_][\w.]{0,80})$)?",
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: the code in \S{1,300} is (?:not what was submitted|somebody else's)[^\n]{0,80}",
            confidence=0.99,
            remedy="submit again, which writes the code anew; where others write in that folder: --logs DIR, in a folder of your own",
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: the file \S{1,300} cannot be read",
            confidence=0.99,
            remedy="write the file named there, of NAME=VALUE lines, where the compute nodes see it, with mode 600; or leave --env-file out",
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: the file \S{1,300} belongs to somebody else",
            confidence=0.99,
            remedy="name a file of your own, of mode 600: --env-file FILE",
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: others may open the file [^\n]{0,200}",
            confidence=0.99,
            remedy="let nobody else open the file named there: chmod 600 it",
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: the file \S{1,300} (?:cannot be used|ends with an error)[^\n]{0,200}",
            confidence=0.99,
            remedy="correct the line named there: NAME=VALUE, a value with blanks, quotes, $ or a backslash between single quotes, and no name of the script's own",
        ),
        sign("atch related parameters", r"atch related parameters\b[^\n]{0,120}(?: is not | has to be |!=)"),
        sign("Either train_batch_size or ", r"Either train_batch_size or \w*micro_batch\w* needs to be provided"),
        sign("DeepSpeedConfigError", r"^[^\n\"']{0,120}?\bDeepSpeedConfigError: (?!is )"),
        sign(
            "untested ZeRO Optimizer",
            r"You are using an untested ZeRO Optimizer\. Please add",
            remedy="allow it: --set deepspeed.zero_allow_untested_optimizer=true",
        ),
        sign(
            ("is not a supported DeepSpeed Optimizer", "not supported by DeepSpeed"),
            r"(?:Error|Exception): [^\n]{0,200}(?:is not a supported DeepSpeed Optimizer|not supported by DeepSpeed)",
        ),
        sign(
            "zero_force_ds_cpu_optimizer",
            r"ZeRO-Offload [^\n]{0,120}zero_force_ds_cpu_optimizer|ZeRORuntimeException: You are using ZeRO-Offload",
            remedy="use an optimizer that DeepSpeed builds, or --set deepspeed.zero_force_ds_cpu_optimizer=false",
        ),
        sign(
            (
                "is not supported on your device",
                "does not support bf16",
                "is not supported on this device",
                "oes not support bfloat16",
                "loat16 is only supported on GPUs with compute capability",
                "setup doesn't support bf16/",
            ),
            r"ValueError: Type \w+ is not supported on your device|ValueError: [^\n]{0,80}(?:bf16|bfloat16|fp16)[^\n]{0,80}not supported[^\n]{0,40}|Your setup doesn't support bf16/(?!gpu\.(?:$| You need to assign use_cpu))"
            r"|Error: [^\n]{0,80}does not support bfloat16|Bfloat16 is only supported on GPUs with compute capability",
            remedy="choose another precision than the one that is refused: --set precision=bf16, fp16 or fp32",
        ),
        *precisions.OF_OLD_GPUS,
        sign(
            (
                "error: unrecognized arguments",
                "error: argument",
                "error: the following arguments are required",
                "error: invalid choice",
            ),
            r"^[\w./-]{1,80}: error: (?:unrecognized arguments?|argument |the following arguments are required|invalid choice)[^\n]{0,200}",
        ),
        # jsonargparse, of Lightning and LitGPT, then click and absl.
        sign(
            (
                "error: Parser key ",
                "error: Validation failed: ",
                "error: Unrecognized arguments: ",
                "error: Key ",
                "error: Option ",
            ),
            r"^(?:[\w./-]{1,80}: )?error: (?:Parser key [\"']?(?P<setting>[\w.-]+)|Validation failed: |Unrecognized arguments: "
            r"|Key [\"'](?P<setting_2>[\w.-]+)[\"'] is required|Option [\"'][\w.-]+[\"'] )[^\n]{0,200}",
        ),
        sign(
            (
                "Error: No such option",
                "Error: Missing option",
                "Error: Missing argument",
                "Error: Invalid value for",
                "Flags parsing error",
            ),
            r"^Error: (?:No such option:? |Missing (?:option|argument) |Invalid value for )[^\n]{1,200}|^FATAL Flags parsing error:",
            confidence=0.9,
        ),
        # Gloo and NCCL are told by a variable which interface to take, and a node may have none of that name.
        sign(
            "Unable to find address for: ",
            r"Unable to find address for: (?P<interface>[\w.:-]{1,40})",
            confidence=0.9,
            remedy=(
                "the node has no such network interface, or it has no address: unset GLOO_SOCKET_IFNAME, or name one that each node has: `srun ip -br addr`\n"
                "nodes of several kinds may call it otherwise: leave out those that do"
            ),
        ),
        sign("Expected a string path to an existing deepspeed config"),
        sign("mismatch TrainingArguments values", r"DeepSpeed config values that mismatch TrainingArguments values"),
        sign(*BAD_TEXT, where=reads_configuration, confidence=0.85, remedy=_NO_SETTINGS),
        sign(
            ("ConfigAttributeError", "ConfigCompositionException", "ConfigKeyError", "MissingConfigException"),
            r"\b(?:ConfigAttributeError|ConfigCompositionException|ConfigKeyError|MissingConfigException|MissingMandatoryValue)\b",
        ),
        sign(("yaml.scanner", "yaml.parser"), r"yaml\.(?:scanner\.ScannerError|parser\.ParserError)"),
        sign(
            "TypeError: ",
            r"^[^\n\"']{0,120}?\bTypeError: (?:\w+Config|\w+Arguments|\w*Args)\.__init__\(\) got an unexpected keyword argument '\w+'",
        ),
        sign(
            ("srun: error: ", "salloc: error: ", "srun: Job", "salloc: Job"),
            r"^(?:srun|salloc): (?:error: )?(?:Unable to allocate resources|Job submit/allocate failed): "
            rf"(?!{UNAVAILABLE}|Job/step already|Node fail)[^\n]{{1,160}}",
            confidence=0.9,
        ),
        sign(
            "sbatch: error: ",
            rf"^sbatch: error: (?:Batch job submission failed(?!: {UNAVAILABLE})|invalid|Invalid|Unable to open file|[^\n]{{0,60}}(?:not permitted|specification))",
            confidence=0.9,
        ),
        *requests.OF_THE_JOB,
        # The limit that a request passes by itself stands in the line before; those that pass with time are `submit_limit`.
        sign(
            ("sbatch: error: QOS", "sbatch: error: Assoc", "salloc: error: QOS", "salloc: error: Assoc"),
            r"^(?:sbatch|salloc): error: (?P<setting>(?:QOS|Assoc)(?!\w{0,12}Submit)\w{3,60})$",
            confidence=0.9,
            remedy=(
                "the job asks for more than that limit of its QOS or account allows: less time, fewer nodes or GPUs, or another QOS or account\n"
                "the limits: sacctmgr show qos, and sacctmgr show assoc user=$USER"
            ),
        ),
        sign(
            "execve(): ",
            r"slurmstepd: error: execve\(\): (?!\S{1,200}/slurm_script)(?P<program>\S{1,200}): (?:No such file or directory|Permission denied|Exec format error)",
            confidence=0.85,
            remedy=(
                "{program} cannot be started on the compute node: see its name, that it may be executed, and PATH in the job\n"
                "where slurmstepd could not chdir to the job's folder either, that lies on a disk that the node has not: submit from one that it has"
            ),
        ),
        sign(
            ("srun: ", "sbatch: ", "salloc: "),
            r"^(?:srun|sbatch|salloc): (?:unrecognized option|invalid option|option [^\n]{1,60} (?:requires an argument|is ambiguous))[^\n]{0,80}",
            confidence=0.95,
            remedy="this Slurm, or a plugin that it lacks, does not know that option: leave it out, or ask the site for the plugin",
        ),
        sign(
            FLUX_LITERALS,
            f"(?:{flux('alloc|feasibility|validate|depend')})|(?:{flux('exec')})[^\\n]{{0,120}}(?:No such file or directory|Permission denied)",
            confidence=0.9,
            remedy="correct what the evidence names: the resources that were asked for, or the program that was to start",
        ),
        sign(
            "checkpoint being loaded used a DP world size of ",
            r"checkpoint being loaded used a DP world size of \d+ but ",
            remedy=(
                "resume with as many ranks as the checkpoint was written by\n"
                "or turn it into a universal one first: python -m deepspeed.checkpoint.ds_to_universal"
            ),
        ),
        sign(
            "TERM_",
            lsf("THREADLIMIT|PROCESSLIMIT|CWD_NOTEXIST"),
            confidence=0.95,
            remedy="the job passed a limit of its queue, or its folder is not on the node: `bqueues -l QUEUE` shows the limits",
        ),
        sign(
            "WorkerError: ",
            r"\bWorkerError: (?!the plan wants|the plan's model needs|the weights of [^\n]{1,500} in all: nothing was built|[^\n]{1,300}(?: which is missing here| cannot be had from the Hub: )|[^\n]{1,500} cannot be (?:written|read): )[^\n]{1,200}",
            confidence=0.9,
        ),
        sign(
            "hpc_llm.errors.",
            r"\bhpc_llm\.errors\.(?:RequestError|PlanError|ProfileError): (?!there is no model ')[^\n]{1,200}",
            confidence=0.9,
        ),
        sign(
            "RunIsInvalid: ",
            r"\bRunIsInvalid: \d+ ranks were started, the plan is for \d+",
            remedy="see that the launcher starts as many ranks as the plan has: --set launcher=srun, torchrun or mpirun",
        ),
        sign(
            "an't open file '",
            r"^[^\n\"']{1,200}: can't open file '(?P<program>[^'\n]{1,200})': \[Errno \d+\]",
            confidence=0.95,
            remedy="see where the program is: a job begins in the folder from which it was submitted, and the compute node must see it",
        ),
        # Sizes that do not go into each other: parallel degrees, batches, heads, layers.
        sign(
            ("divisible by", "must be multiple of", "must be a multiple of"),
            r"(?:AssertionError|ValueError|RuntimeError|Exception): (?:[^\n]{0,160}must be (?:evenly )?divisible by"
            r"|[^\n]{0,60}\b(?:world[ _]size|batch[ _]size|heads|layers|num_\w{1,40}|\w{1,40}_size|degree|length)\b[^\n]{0,80}(?:is not|isn't|not) (?:evenly )?divisible by"
            r"|[^\n]{0,60}\b(?:batch|size|degree|length)\b[^\n]{0,60}must be an? ?multiple of|[^\n]{0,60}batch size must be multiple of)",
            confidence=0.85,
        ),
        # What the program's own parser of arguments does not know: Transformers' programs, and those that build on it.
        sign(
            ("are not used by the HfArgumentParser", "keys are not used by "),
            r"ValueError: (?:Some specified arguments|Some keys) are not used by [^\n]{1,200}",
        ),
        # The weights that were loaded are this model's, under the names that a wrapper around it gives them.
        sign(
            "Error(s) in loading state_dict for ",
            r"RuntimeError: Error\(s\) in loading state_dict for \w{1,80}:\s{1,20}Missing key\(s\) in state_dict: "
            rf"\"{_WRAPPED}(?P<key>[\w.]{{1,200}})\"[^\n]{{0,8000}}\n[^\n]{{0,12}}?[ \t]*Unexpected key\(s\) in state_dict: \"{_WRAPPED}(?P=key)\"",
            confidence=0.9,
            remedy=(
                "the weights fit, and their names do not: a wrapper around the model (DDP's `module.`, torch.compile's `_orig_mod.`, PEFT's "
                "`base_model.model.`) was there when they were written, or is there now, and not both times\n"
                "write `model.module.state_dict()` of the wrapper's inside, or take the prefix from each key before `load_state_dict`"
            ),
        ),
        # The weights that were loaded are those of another model.
        sign(
            "Error(s) in loading state_dict for ",
            r"RuntimeError: Error\(s\) in loading state_dict for (?P<model>\w{1,80}):(?:\n[^\n]{0,12}?[ \t]+(?P<mismatch>(?:size mismatch for|Missing key|Unexpected key)[^\n]{1,300}))?",
            confidence=0.85,
            remedy=(
                "the checkpoint is of another model than the one that was made: compare the sizes in its config.json with the model's, "
                "and how many ranks it was written by; or its names carry the prefix of a wrapper (module., _orig_mod., base_model.model.)\n"
                "where only the number of tokens differs, one of the two had its embeddings resized: model.resize_token_embeddings"
            ),
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: (?:run folder \S+ is not visible|cannot enter run folder)",
            confidence=0.97,
            remedy="put the runs on a file system that the compute nodes see: --logs DIR",
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: run folder \S{1,300} (?:is not that of|is a link|is that of|belongs to)[^\n]{0,100}",
            confidence=0.97,
            remedy="see who removed or renamed the run's folder; a folder of your own for runs (--logs DIR) is nobody else's to change",
        ),
        sign(
            "FlashAttention only supports Ampere GPUs or newer",
            r"Error: FlashAttention only supports Ampere GPUs or newer",
            remedy="flash-attn has no kernels for this GPU, which is older than Ampere: take torch's own attention, --set attention=sdpa; or a newer GPU",
        ),
    ),
)

SEARCH_UNFINISHED = Cause(
    id="search_unfinished",
    title="the search ended before it knew",
    meaning="The search for the micro batch used up its tries before the largest or the fastest one was known. What it has "
    "tried stays, and the sizes that ran are known to fit.",
    remedy="go on with what it has tried: `hpc-llm submit --resume RUN --set most_tries=N`",
    retry=False,
    precedence=20,
    outcome=Outcome.INVALID,
    signs=(
        sign("hpc-llm: ", r"^hpc-llm: [^\n]{0,400}\bthe search ended after \d{1,9} of its tries\b", confidence=0.99),
    ),
)

CAUSES = (CONFIG_ERROR, SEARCH_UNFINISHED)
