"""The run options that render, submit and later estimate share, declared once."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional, get_type_hints

import typer
from typer.core import TyperCommand

from hpc_llm.cli import output
from hpc_llm.errors import RequestError
from hpc_llm.immutable import dataclass
from hpc_llm.text.homes import from_home
from hpc_llm.text.pasted import refuse_address, refuse_file


def _folder(path: Path) -> Path:
    """Refuse a file where the folder of the runs is wanted: what looks into it would name a place inside."""
    refuse_address("--logs", str(path))
    refuse_file("--logs", path)
    output.name_logs(path)
    return path


def output_file(path: Path | None) -> Path | None:
    """Refuse, before anything is done, a place at which no file can be written."""
    refuse_address("-o", str(path or ""))
    path = path and from_home(path)
    if path is not None and path.is_dir():
        raise RequestError(f"-o {path}: it is a folder, the name of a file is needed.")
    if path is not None and not path.parent.is_dir():
        raise RequestError(f"-o {path}: there is no folder {path.parent}. Make it, or name another place.")
    return path


def _path(text: str) -> Path:
    """As it was typed; what is empty would be the working directory."""
    if not str(text):
        raise RequestError("--logs is empty: a variable of the shell may not be set. Leave it out, or name a folder.")
    return from_home(text)  # a shell expands no `~` behind a `=`, nor in a variable


LogsOption = Annotated[
    Path,
    typer.Option(
        "--logs",
        envvar="HPC_LLM_LOGS",
        metavar="DIR",
        help="Where runs live.",
        show_default="./logs",
        parser=_path,
        callback=_folder,
    ),
]
OutputFolder = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write to.", parser=from_home)
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The flags as typed; None or empty means not given."""

    experiment: Annotated[
        Optional[Path],
        typer.Argument(metavar="EXPERIMENT.yaml", help="File that holds any of these options; flags win."),
    ] = None
    cluster: Annotated[Optional[str], typer.Option(metavar="NAME[,…]", help="Cluster; several are a sweep.")] = None
    method: Annotated[
        Optional[str],
        typer.Option(metavar="NAME[,…]", help="Method (z2o, z3, z3o, q, … or letters, z3+o+r); several are a sweep."),
    ] = None
    task: Annotated[
        Optional[str], typer.Option(metavar="NAME", help="What to run: pretrain, finetune, prepare, infer, tune.")
    ] = None
    model: Annotated[Optional[str], typer.Option(metavar="PRESET|PATH", help="Preset name or checkpoint folder.")] = (
        None
    )
    nodes: Annotated[Optional[int], typer.Option(metavar="N", help="Nodes.")] = None
    gpus_per_node: Annotated[Optional[int], typer.Option(metavar="N", help="GPUs per node, one rank each.")] = None
    tensor_parallel: Annotated[
        Optional[int], typer.Option(metavar="N", help="Ranks of a node that share each layer; default: 1.")
    ] = None
    micro_batch_size: Annotated[
        Optional[int], typer.Option(metavar="N", help="Sequences per rank and forward pass.")
    ] = None
    gradient_accumulation_steps: Annotated[
        Optional[int], typer.Option(metavar="N", help="Micro batches per optimizer step.")
    ] = None
    sequence_length: Annotated[Optional[int], typer.Option(metavar="N", help="Tokens per sequence.")] = None
    steps: Annotated[Optional[int], typer.Option(metavar="N", help="Optimizer steps in all, warm-up included.")] = None
    epochs: Annotated[
        Optional[float], typer.Option(metavar="X", help="How often all data are trained on, in place of --steps.")
    ] = None
    warmup_steps: Annotated[
        Optional[int], typer.Option(metavar="N", help="First steps left out of the measurement.")
    ] = None
    seed: Annotated[Optional[int], typer.Option(metavar="N", help="Seed of weights and data.")] = None
    data: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="SOURCE",
            help="Files, folder, known set or prepared data to train on (repeatable); default: synthetic tokens.",
        ),
    ] = None
    save_every: Annotated[
        Optional[int],
        typer.Option(metavar="N", help="Keep a checkpoint every N steps and at the end, and the model; else nothing."),
    ] = None
    over: Annotated[
        Optional[str],
        typer.Option(metavar="sequence-length[=N,…]", help="With --task tune: search at each of these lengths."),
    ] = None
    resume: Annotated[
        Optional[str],
        typer.Option(
            metavar="RUN|DIR",
            help="Go on from the newest checkpoint of a run, from that checkpoint, or with what a search has tried.",
        ),
    ] = None
    profile: Annotated[
        Optional[str],
        typer.Option(
            metavar="NAME",
            help="Look into a few steps behind the measured ones: torch (torch.profiler), or nsys, ncu or rocprof around each rank.",
        ),
    ] = None
    partition: Annotated[Optional[str], typer.Option(metavar="NAME", help="Partition.")] = None
    account: Annotated[Optional[str], typer.Option(metavar="NAME", help="Account that is charged.")] = None
    time: Annotated[Optional[str], typer.Option(metavar="HH:MM:SS", help="Wall time limit.")] = None
    name: Annotated[Optional[str], typer.Option(metavar="TEXT", help="Job name.")] = None
    sbatch: Annotated[
        Optional[list[str]], typer.Option(metavar="KEY=VALUE", help="Further sbatch option (repeatable).")
    ] = None
    env_file: Annotated[
        Optional[str],
        typer.Option(
            metavar="FILE", help="File of your own variables (tokens); mode 600; the job reads it, nothing keeps it."
        ),
    ] = None
    set: Annotated[
        Optional[list[str]],
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Change any field of the plan, e.g. optimizer.lr=1e-4 (repeatable)."
        ),
    ] = None
    templates: Annotated[
        Optional[Path],
        typer.Option(
            metavar="DIR", help="Folder of templates that win over the bundled ones; no other is looked into."
        ),
    ] = None
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="Small runs that show that a study works: with the smoke values of its file."),
    ] = False
    only: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="KEY=VALUE",
            help="Of a study the runs of a cluster, method, model, task or name alone; * stands for anything (repeatable).",
        ),
    ] = None
    max_parallel: Annotated[Optional[int], typer.Option(metavar="N", help="Most runs of the request at a time.")] = None
    run_id: Annotated[Optional[str], typer.Option(metavar="ID", help="Run id instead of a new one.")] = None
    logs: LogsOption = Path("logs")


class ManyOptions(TyperCommand):
    """A command of many options, of which few are given: typer makes a validator for each, given or not, and each takes its time."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        for option in self.params:
            if not option.required and option.callback is None:
                option.process_value = _where_given(option.process_value)  # type: ignore[assignment, method-assign]


def _where_given(process: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda context, value: None if value is None else process(context, value)


def with_run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command(options, ...)` all fields of RunOptions as options of its own, collected into its first argument."""
    hints = RunOptions.__annotations__
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(RunOptions, name), annotation=hint)
        for name, hint in hints.items()
    ]
    own_hints = get_type_hints(command, include_extras=True)
    own = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own_hints[p.name])
        for p in list(inspect.signature(command).parameters.values())[1:]
    ]

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        options = RunOptions(**{name: values.pop(name) for name in hints})
        return command(options, **values)

    wrapper.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in (*shared, *own)}
    return wrapper
