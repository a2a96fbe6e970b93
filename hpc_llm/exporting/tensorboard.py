"""TensorBoard: a folder a run with one file of events, its figures as scalars, its plan as hyperparameters."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hpc_llm.exporting.finished import FinishedRun
from hpc_llm.exporting.folders import is_there, put, room_in, sent
from hpc_llm.exporting.history import is_figure
from hpc_llm.exporting.tracker import Send, Sent, Target, Tracker
from hpc_llm.records.run import Outcome

_RESULT = "result/"
"""Stands before figures of the whole run, which have no step."""
_LARGEST = 3e38
"""Scalars are single precision."""


@contextmanager
def connect(target: Target) -> Iterator[Send]:
    """Writes into a folder of the run's name in the target's folder."""
    with room_in(target.folder) as room:
        yield partial(_send, target, room)


def _send(target: Target, room: Path, run: FinishedRun) -> Sent:
    place = target.folder / run.run_id
    if is_there(run, place, ""):
        return sent(run, place)
    made = room / run.key
    made.mkdir()
    _write(run, made / f"events.out.tfevents.{int(run.started_at):010d}.{run.key}")
    return put(run, made, place, "", room)


def _write(run: FinishedRun, path: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    with path.open("xb") as file:
        writer = RecordWriter(file)
        for event in _events(run, Event):
            writer.write(event.SerializeToString())
        writer.flush()


def _events(run: FinishedRun, event: Any) -> Iterator[Any]:
    yield event(wall_time=run.started_at, file_version="brain.Event:2")
    for summary in _hyperparameters(run):
        yield event(wall_time=run.started_at, summary=summary)
    time, last = run.started_at, 0
    for point in run.history():
        time, last = point.time or time, point.step
        yield event(wall_time=time, step=point.step, summary=_scalars(point.figures))
    figures = {f"{_RESULT}{name}": value for name, value in run.summary.items() if is_figure(name, value)}
    yield event(wall_time=run.ended_at, step=last, summary=_scalars(figures))
    texts = {name: value for name, value in run.summary.items() if isinstance(value, str)}
    yield event(wall_time=run.ended_at, step=last, summary=_text(f"{_RESULT}words", texts))


def _scalars(figures: Mapping[str, float]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    drawn = {name: float(value) for name, value in figures.items() if abs(value) < _LARGEST}
    return Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in drawn.items()])


def _text(tag: str, texts: Mapping[str, str]) -> Any:
    """Words in TensorBoard's page of texts, a line each."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    lines = "\n".join(f"    {name}: {text}" for name, text in texts.items())
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, tensor_shape=shape, string_val=[lines.encode()])
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])


def _hyperparameters(run: FinishedRun) -> Iterator[Any]:
    """For TensorBoard's page that compares runs by their settings. Its own maker of these needs TensorFlow."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

    start = SessionStartInfo(group_name=run.run_id, start_time_secs=run.started_at)
    for name, value in run.flat_config().items():
        setattr(start.hparams[name], *_kind_of_value(value))
    end = SessionEndInfo(
        status=STATUS_SUCCESS if run.outcome is Outcome.COMPLETED else STATUS_FAILURE, end_time_secs=run.ended_at
    )
    data = {
        metadata.SESSION_START_INFO_TAG: HParamsPluginData(session_start_info=start),
        metadata.SESSION_END_INFO_TAG: HParamsPluginData(session_end_info=end),
    }
    for tag, one in data.items():
        described = metadata.create_summary_metadata(one)
        yield Summary(value=[Summary.Value(tag=tag, metadata=described, tensor=metadata.NULL_TENSOR)])


def _kind_of_value(value: object) -> tuple[str, object]:
    """The field of the page's record for a value of that kind, and the value in it."""
    if isinstance(value, bool):
        return "bool_value", value
    if isinstance(value, (int, float)):
        return "number_value", float(value)
    return "string_value", str(value)


def _next_step(runs: list[Sent], target: Target) -> str:
    return f"`tensorboard --logdir {shlex.quote(str(target.folder))}` shows them."


TRACKER = Tracker(
    name="tensorboard",
    title="TensorBoard",
    modules=("tensorboard",),
    install="tensorboard numpy",
    connect=connect,
    next_step=_next_step,
    has_projects=False,
)
