"""Checkpoints: training goes on as if it had not stopped; what is not whole or not ours is refused; transformers loads the weights."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rights import needs_root
from tiny_models import save
from tiny_plans import make_plan, prepared
from worlds import Worlds

from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.checkpoints import MANIFEST, OWN_DIGEST, own_digest
from hpc_llm.records.digests import digests_of, share_of
from hpc_llm.records.files import read_json, write_json

pytestmark = pytest.mark.train

ADAMW = {"type": "AdamW", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
SHAPE = {"precision": "fp32", "optimizer": ADAMW, "gradient_accumulation_steps": 2, "micro_batch_size": 2}
LORA = {"kind": "lora", "r": 8, "alpha": 16, "dropout": 0.1, "target_modules": "all-linear"}
ZERO_0 = {"zero_optimization": {"stage": 0}}
OFFLOAD = {"engine": "flat", "offloaded_step": "device"}
EIGHT_BITS = {"precision": "bf16", "optimizer": {**ADAMW, "type": "AdamW8bit"}}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("ddp", {"engine": "plain"}),
    "plain-text": ("lora", {"engine": "plain", "peft": LORA, "deepspeed": ZERO_0}),
    "plain-q": ("q", {"engine": "plain", **EIGHT_BITS}),
    "fsdp2": ("z3", {"engine": "fsdp2", "keeps_parameters": True, "layers_per_unit": 8}),
    "flat": ("z3", {"engine": "flat", "layers_per_unit": 2}),
    "flat-bf16": ("z3", {"engine": "flat", "precision": "bf16", "reduce_precision": "bf16"}),
    "flat-z2o": ("z2o", {**OFFLOAD, "precision": "bf16", "reduce_precision": "bf16", "moments_precision": "bf16"}),
    "flat-z3o": ("z3o", {**OFFLOAD, "precision": "bf16"}),
    "fsdp2-fp8": ("z3", {"engine": "fsdp2", "precision": "bf16", "fp8": True}),
    "fsdp2-fp16": ("z3", {"engine": "fsdp2", "precision": "fp16"}),
    "z0": ("ddp", {}),
    "z2-bf16": ("z2", {"precision": "bf16"}),
    "z2-lora": ("lora", {"peft": LORA}),
    "z3-lora": ("z3lora", {"peft": LORA}),
    "z3o": ("z3o", {}),
    "q": ("q", EIGHT_BITS),
    "z3-qlora": ("z3qlora", {"precision": "bf16"}),
    "z2-8bit": ("z2", EIGHT_BITS),
}
ON_ONE_RANK = ("plain", "plain-text", "fsdp2", "flat", "z3o", "z2-lora")
NO_DROPOUT = {"peft": {**LORA, "dropout": 0.0}}
SAME: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("ddp", {"engine": "plain"}),
    "fsdp2": ("z3", {"engine": "fsdp2"}),
    "flat": ("z3", {"engine": "flat"}),
    "flat-z2o": ("z2o", {**OFFLOAD, "offloaded_step": "host"}),
    "flat-z3o": ("z3o", OFFLOAD),
    "z0": ("ddp", {}),
    "z1": ("z1", {}),
    "z2": ("z2o", {}),
    "z3": ("z3o", {}),
    "lora-plain": ("lora", {"engine": "plain", "deepspeed": ZERO_0, **NO_DROPOUT}),
    "lora-z2": ("lora", NO_DROPOUT),
    "lora-z3": ("z3lora", NO_DROPOUT),
}
"""Each with the losses of the first of its family, on any number of ranks that train on what one alone would."""
PAIRS = (
    *((kind, kind) for kind in SAME),
    ("z2", "z3"), ("z2", "fsdp2"), ("fsdp2", "z1"), ("fsdp2", "z3"), ("plain", "z3"), ("z3", "plain"),
    ("flat", "z3"), ("fsdp2", "flat"), ("flat", "plain"), ("z2", "flat-z2o"), ("flat-z3o", "plain"),
    ("lora-z3", "lora-plain"), ("lora-plain", "lora-z2"), ("lora-z2", "lora-z3"),
)  # fmt: skip
"""Who writes, on one number of ranks, and who goes on, on another."""
HALF = 2
"""Steps before and behind a change of ranks or engine."""
DONE = 4
"""Steps before and behind a stop."""
USED = DONE * 2 * 2 * 2
"""Sequences that two ranks have trained on by then."""
PACKED = ("z2", EIGHT_BITS)
"""Moments in 8 bits, cut among the ranks."""

Session = dict[str, Any]
Run = Callable[[Path, int, dict[str, Session]], None]


def plan_of(kind: str, ranks: int, text: Path) -> Plan:
    method, changes = KINDS[kind]
    data = prepared(text) if kind == "plain-text" else {}
    return make_plan(method, ranks, **{**SHAPE, **changes, **data})


def session(plan: Plan, steps: int, **more: Any) -> Session:
    return {"plan": plan.to_dict(), "steps": steps, "load": None, "save": None, "weights": None, "after": DONE, **more}


def write(folder: Path, wanted: dict[str, Session]) -> Path:
    """Ask for sessions one after another; what comes of each lies in a folder of its name."""
    folder.mkdir(exist_ok=True)
    (folder / "request.json").write_text(json.dumps(wanted), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def run(worlds: Worlds) -> Run:
    """Carries out sessions on so many ranks."""
    return lambda folder, ranks, wanted: worlds.must_run("sessions", write(folder, wanted), ranks)


def found(folder: Path, name: str, rank: int = 0) -> dict[str, Any]:
    return read_json(folder / name / f"found-{rank}.json") or {}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    (folder / "text.txt").write_text("".join(f"line {number} of a text that is long enough\n" for number in range(900)))
    return folder


def at_a_stretch_and_in_two_parts(kinds: Iterable[str], ranks: int, place: Path) -> dict[str, Session]:
    folder = place / f"ranks-{ranks}"
    wanted: dict[str, Session] = {}
    for kind in kinds:
        plan, kept = plan_of(kind, ranks, place / "text.txt"), str(folder / f"kept-{kind}")
        wanted[f"{kind}-whole"] = session(plan, 2 * DONE, save=kept, weights=str(folder / f"weights-{kind}"))
        wanted[f"{kind}-rest"] = session(plan, DONE, load=kept)
    return wanted


def same(kind: str, ranks: int, steps: int, **more: Any) -> Session:
    """A session in which all ranks train on what one alone would: any number of them then gives the same losses."""
    method, changes = SAME[kind]
    return session(make_plan(method, ranks, **{**SHAPE, **changes}), steps, same=True, **more)


def pairs(ranks: int) -> list[tuple[str, str]]:
    """Those that go on on so many ranks: a kind by itself on one and on two, two kinds on one or on two, by turns."""
    return [(old, new) for place, (old, new) in enumerate(PAIRS) if old == new or place % 2 == ranks % 2]


def rests(ranks: int, kept: Path) -> dict[str, Session]:
    """What each pair goes on with, from what was kept by as many ranks as are in the folder's name."""
    return {f"{old}-to-{new}": same(new, ranks, HALF, load=str(kept / f"same-{old}")) for old, new in pairs(ranks)}


def packed(ranks: int) -> Plan:
    method, changes = PACKED
    return make_plan(method, ranks, **{**SHAPE, **changes})


@pytest.fixture(scope="module")
def on_two(place: Path, run: Run) -> Path:
    folder = place / "ranks-2"
    wanted = at_a_stretch_and_in_two_parts(KINDS, 2, place)
    wanted |= {f"{kind}-same": same(kind, 2, HALF, save=str(folder / f"same-{kind}"), after=HALF) for kind in SAME}
    wanted["packed"] = session(packed(2), 1, after=1, save=str(folder / "kept-packed"))
    run(folder, 2, wanted)
    return folder


@pytest.fixture(scope="module")
def on_one(place: Path, on_two: Path, run: Run) -> Path:
    folder = place / "ranks-1"
    wanted = at_a_stretch_and_in_two_parts(ON_ONE_RANK, 1, place)
    for kind in SAME:
        steps = 2 * HALF if kind in ("plain", "lora-plain") else HALF
        wanted[f"{kind}-same-whole"] = same(kind, 1, steps, save=str(folder / f"same-{kind}"), after=HALF)
    run(folder, 1, wanted)
    return folder


@pytest.fixture(scope="module")
def after_two(place: Path, on_two: Path, run: Run) -> Path:
    refused = {"refused": session(packed(1), 1, load=str(on_two / "kept-packed"))}
    run(place / "after-two", 1, rests(1, on_two) | refused)
    return place / "after-two"


def check_goes_on(folder: Path, kind: str, ranks: int) -> None:
    whole, rest = (found(folder, f"{kind}-{part}") for part in ("whole", "rest"))
    assert not {"error"} & (whole.keys() | rest.keys()), (whole, rest)
    assert rest["progress"] == [DONE, DONE * 2 * 2 * ranks]
    assert len(whole["losses"]) == 2 * DONE and whole["losses"][DONE] != pytest.approx(whole["losses"][0], rel=1e-3)
    assert rest["losses"] == pytest.approx(whole["losses"][DONE:], rel=1e-6)


@pytest.mark.parametrize("kind", ON_ONE_RANK)
def test_one_rank_goes_on_as_if_it_had_not_stopped(on_one: Path, kind: str) -> None:
    check_goes_on(on_one, kind, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_go_on_as_if_they_had_not_stopped(on_two: Path, kind: str) -> None:
    check_goes_on(on_two, kind, 2)


def test_what_is_frozen_is_not_written(on_two: Path) -> None:
    def size(kind: str) -> int:
        return sum(path.stat().st_size for path in (on_two / f"kept-{kind}").rglob("*") if path.is_file())

    assert size("plain-text") < 0.4 * size("plain") and size("z3-lora") < 0.4 * size("z3o")


def test_a_checkpoint_can_be_read_by_whom_the_umask_lets_and_written_by_its_owner(on_two: Path) -> None:
    mask = os.umask(0o022)
    os.umask(mask)
    for kind in ("kept-z2-bf16", "kept-fsdp2", "weights-plain"):
        for path in (on_two / kind, *(on_two / kind).rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644) & ~mask, path


@pytest.fixture(scope="module")
def after_one(place: Path, on_one: Path, run: Run) -> Path:
    run(place / "after-one", 2, rests(2, on_one))
    return place / "after-one"


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_any_engine_on_any_number_of_ranks_goes_on_as_if_nothing_had_changed(
    on_one: Path, after_one: Path, after_two: Path, old: str, new: str
) -> None:
    """From two ranks to one, and from one to two: the losses of a run that was never interrupted."""
    whole = found(on_one, f"{'lora-plain' if old.startswith('lora') else 'plain'}-same-whole")["losses"]
    goes_on = [there for there, ranks in ((after_two, 1), (after_one, 2)) if (old, new) in pairs(ranks)]
    assert goes_on
    for there in goes_on:
        rest = found(there, f"{old}-to-{new}")
        assert "error" not in rest, rest
        assert rest["losses"] == pytest.approx(whole[HALF:], rel=1e-5)


def test_moments_in_8_bits_go_on_in_the_shares_in_which_they_were_written(after_two: Path) -> None:
    refused = found(after_two, "refused")["error"]
    assert (
        "moments in 8 bits, whose scales are those of the shares of ZeRO 2 on 2 ranks, here is ZeRO 2 on 1 ranks"
        in refused
    )


# --- weights for transformers ---------------------------------------------------------------------------------------


def first_loss(folder: Path, plan: Plan, used: int) -> float:
    """transformers' own loss, in fp32, on the micro batches of all ranks behind `used` sequences."""
    import itertools

    import torch
    from transformers import AutoModelForCausalLM

    from hpc_llm.worker.data import batches
    from hpc_llm.worker.ranks import Ranks

    model: Any
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    cpu, count = torch.device("cpu"), plan.parallel.world_size
    drawn = [
        batch["input_ids"]
        for rank in range(count)
        for batch in itertools.islice(
            batches(plan, model.config.vocab_size, Ranks(rank, count, rank, count, "", 0, ""), cpu, used=used), 2
        )
    ]
    tokens = torch.cat(drawn)
    with torch.no_grad():
        return float(model(input_ids=tokens, labels=tokens).loss)


@pytest.mark.parametrize("kind", ["plain", "fsdp2", "z0", "z3o"])
def test_transformers_loads_the_weights_and_gives_the_loss_of_the_next_step(
    on_two: Path, place: Path, kind: str
) -> None:
    plan = plan_of(kind, 2, place / "text.txt")
    assert first_loss(on_two / f"weights-{kind}", plan, USED) == pytest.approx(
        found(on_two, f"{kind}-rest")["losses"][0], rel=1e-6
    )


@pytest.mark.parametrize(
    "kind", ["plain-text", "z2-lora", "z3-lora", "plain-q", "q", "z3-qlora", "z2-bf16", "flat-z3o"]
)
def test_weights_with_adapters_or_from_low_precision_are_one_plain_model(on_two: Path, place: Path, kind: str) -> None:
    """Dropout and rounding apart: the step's loss is that of low precision, or with dropout."""
    plan, losses = plan_of(kind, 2, place / "text.txt"), found(on_two, f"{kind}-whole")["losses"]
    assert losses[DONE] < losses[0] - 0.01
    own = first_loss(on_two / f"weights-{kind}", plan, USED)
    assert own == pytest.approx(losses[DONE], abs=0.02)
    assert abs(own - losses[DONE]) < 0.5 * abs(first_loss(on_two / f"weights-{kind}", plan, 0) - losses[0])


def test_every_engine_starts_from_the_weights_of_another(on_two: Path, place: Path, run: Run) -> None:
    starts = {"plain": "weights-fsdp2", "fsdp2": "weights-z3o", "z0": "weights-plain", "z3o": "weights-fsdp2"}
    wanted = {}
    for kind, source in starts.items():
        method, changes = KINDS[kind]
        plan = make_plan(method, 1, model=str(on_two / source), **{**SHAPE, **changes})
        wanted[kind] = session(plan, 1, used=USED)
    run(place / "from-weights", 1, wanted)
    for kind, source in starts.items():
        expected = first_loss(on_two / source, make_plan("ddp", 1, **SHAPE), USED)
        assert found(place / "from-weights", kind)["losses"][0] == pytest.approx(expected, rel=1e-6)


def test_the_tokenizer_goes_with_the_weights(engine_of: Callable[..., Any], tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from hpc_llm.worker.engines.weights import save_weights

    source = save(tmp_path / "model", "qwen2")
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(source)
    engine, plan = engine_of("ddp", model=str(source), precision="fp32", engine="plain")
    save_weights(engine, plan, tmp_path / "out")
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("b")["input_ids"] == [1]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert first_loss(tmp_path / "out", plan, 0) == pytest.approx(first_loss(source, plan, 0), rel=1e-6)  # tied weights


# --- whole or not at all --------------------------------------------------------------------------------------------


@pytest.fixture
def engine_of(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Builds engines on the one rank that is this process."""
    import torch

    from hpc_llm.worker import engines
    from hpc_llm.worker.device import choose_device
    from hpc_llm.worker.ranks import apply, find_ranks

    before = dict(os.environ)
    apply(find_ranks({}), os.environ)
    device = choose_device(0, 0)

    def build(method: str, **changes: Any) -> tuple[Any, Plan]:
        plan = make_plan(method, **changes)
        kind = engines.find(plan.engine.name)
        if not torch.distributed.is_initialized():
            kind.join(device)
        torch.manual_seed(plan.workload.seed)
        return kind.build(plan, device).engine, plan

    yield build
    torch.distributed.destroy_process_group()
    os.environ.clear()
    os.environ.update(before)


def progress() -> Any:
    from hpc_llm.worker.engines.checkpoint import TrainingProgress

    return TrainingProgress(step=3, sequences=12)


def test_when_one_rank_cannot_write_nothing_is_left_and_all_say_why(place: Path, run: Run) -> None:
    folder, plan = place / "no-space", make_plan("ddp", 2, engine="plain", **SHAPE)
    kept = folder / "kept"
    wanted = {
        "first": session(plan, 1, after=1, save=str(kept), fails_on=1),
        "second": session(plan, 1, after=1, save=str(kept), fails_on=0),
        "third": session(plan, 1, after=1, save=str(kept)),
    }
    run(folder, 2, wanted)
    for name in ("first", "second"):
        for rank in (0, 1):
            assert (
                found(folder, name, rank)["error"] == f"the folder {kept} cannot be written: no space left on device."
            )
    assert "error" not in found(folder, "third") and (kept / "checkpoint.json").is_file()
    assert not list(folder.glob(".*"))


def test_a_program_that_is_killed_while_it_saves_leaves_no_checkpoint(tmp_path: Path, worlds: Worlds) -> None:
    """What it began has another name; the next save clears it away."""
    plan = make_plan("ddp", engine="plain", **SHAPE)
    killed = {"killed": session(plan, 1, after=1, save=str(tmp_path / "kept"), dies_on=0)}
    assert worlds.run("sessions", write(tmp_path / "one", killed), 1) == [-signal.SIGKILL]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".kept.part", "one"]
    saved = {"one": session(plan, 1, after=1, save=str(tmp_path / "kept"))}
    worlds.must_run("sessions", write(tmp_path / "one", saved), 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "one"]


def test_nothing_is_written_over_what_is_there(engine_of: Callable[..., Any], tmp_path: Path) -> None:
    engine, _ = engine_of("ddp", engine="plain")
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("kept", "link"):
        with pytest.raises(WorkerError, match=f"{name} is there already"):
            engine.save(tmp_path / name, progress())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "link"]


def truncate(kept: Path) -> None:
    path = kept / "engine" / "shard-0.bin"
    path.write_bytes(path.read_bytes()[:-1])


def remove(kept: Path) -> None:
    (kept / "random-0.pt").unlink()


def link(kept: Path) -> None:
    path = kept / "random-0.pt"
    shutil.move(path, kept.parent / "elsewhere.pt")
    path.symlink_to(kept.parent / "elsewhere.pt")


def open_to_others(kept: Path) -> None:
    (kept / "engine" / "shard-0.bin").chmod(0o666)


def open_folder(kept: Path) -> None:
    (kept / "engine").chmod(0o777)


def give_away(kept: Path) -> None:
    needs_root("give a file to somebody else")
    os.chown(kept / "engine" / "shard-0.bin", 12345, -1)


def scramble(name: str) -> Callable[[Path], None]:
    """Other bytes in the midst of a file, which keeps its size."""

    def change(kept: Path) -> None:
        path = kept / name
        data = bytearray(path.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 50] = bytes(byte ^ 0x55 for byte in data[middle : middle + 50])
        path.write_bytes(data)

    return change


def say(**fields: Any) -> Callable[[Path], None]:
    """Other values in the manifest, as if it had been written so."""

    def change(kept: Path) -> None:
        manifest = {**(read_json(kept / MANIFEST) or {}), **fields}
        write_json(kept / MANIFEST, {**manifest, OWN_DIGEST: own_digest(manifest)})

    return change


def edit(kept: Path) -> None:
    path = kept / MANIFEST
    path.write_text(path.read_text().replace('"step": 3', '"step": 2'))


def forget(kept: Path) -> None:
    manifest = read_json(kept / MANIFEST) or {}
    write_json(kept / MANIFEST, {name: manifest[name] for name in ("schema", "step", "files")})


def pickled(kept: Path) -> None:
    """Code in place of the random states, with all sizes and checksums in order."""
    path = kept / "random-0.pt"
    path.write_bytes(pickle.dumps(Path("/")))
    put_in_order(kept, path)


def other_states(kept: Path) -> None:
    import torch

    torch.save({"torch": 3}, kept / "random-0.pt")
    put_in_order(kept, kept / "random-0.pt")


def put_in_order(kept: Path, path: Path) -> None:
    manifest = read_json(kept / MANIFEST) or {}
    files, digests = ({**manifest[name]} for name in ("files", "digests"))
    name = path.relative_to(kept).as_posix()
    files[name], digests[name] = path.stat().st_size, digests_of(path)
    say(files=files, digests=digests)(kept)


def plant(kept: Path) -> None:
    (kept / "engine" / "more.pt").symlink_to("/dev/zero")


def newer(kept: Path) -> None:
    path = kept / "checkpoint.json"
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 3'))


def no_json(kept: Path) -> None:
    (kept / "checkpoint.json").write_text("{")


def no_manifest(kept: Path) -> None:
    (kept / "checkpoint.json").unlink()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (truncate, r"is not whole: engine/shard-0.bin has \d+ of \d+ bytes"),
        (remove, "is not whole: random-0.pt: No such file"),
        (link, "is not whole: random-0.pt has"),
        (open_to_others, "shard-0.bin belongs to somebody else, or others may write it"),
        (open_folder, "engine belongs to somebody else, or others may write it"),
        (give_away, "shard-0.bin belongs to somebody else, or others may write it"),
        (plant, "more.pt belongs to somebody else, or others may write it"),
        (newer, "has schema 3, 2 is known here"),
        (no_json, "checkpoint.json cannot be read: it is no JSON"),
        (no_manifest, "is no checkpoint of hpc-llm"),
        (
            scramble("engine/shard-0.bin"),
            "is damaged: engine/shard-0.bin does not hold what was written, by its checksum",
        ),
        (scramble("engine/shard-0.json"), "is damaged: engine/shard-0.json does not hold what was written"),
        (scramble("random-0.pt"), "is damaged: random-0.pt does not hold what was written"),
        (say(step=-3), "cannot be read: step must be a number of steps, from 1 on"),
        (say(step=True), "step must be a number"),
        (say(sequences=-(10**9)), "sequences must be a whole number, not below 0"),
        (say(sequences=12.5), "sequences must be a whole number"),
        (say(sequences=10**30), "sequences must be a whole number"),
        (say(world_size="2"), "world_size must be a number of ranks"),
        (say(trained_tokens=[1]), "trained_tokens must be a whole number"),
        (say(steering=3), "steering must be an object"),
        (say(data="text"), "data must be an object"),
        (say(files={"../elsewhere": 3}), "files must be names in the folder and their sizes"),
        (say(files=[1, 2]), "files must be names in the folder"),
        (say(digests={"random-0.pt": "x"}), "digests must be names in the folder and their checksums"),
        (edit, "it was changed after it was written"),
        (forget, "it lacks world_size, trained"),
        (pickled, "random-0.pt is damaged, or holds more than tensors, and code from a file is never run"),
        (other_states, "is damaged: random-0.pt holds no random states"),
        (shutil.rmtree, "is no checkpoint of hpc-llm"),
    ],
)
def test_what_is_not_whole_or_not_ours_is_not_loaded(
    engine_of: Callable[..., Any], tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    engine, _ = engine_of("ddp", engine="plain")
    engine.save(tmp_path / "kept", progress())
    assert engine.load(tmp_path / "kept") == progress()
    damage(tmp_path / "kept")
    with pytest.raises(WorkerError, match=why) as caught:
        engine.load(tmp_path / "kept")
    assert "weights_only" not in str(caught.value) and str(caught.value).count("\n") == 0


def test_moments_in_8_bits_are_looked_at_as_all_else(engine_of: Callable[..., Any], tmp_path: Path) -> None:
    engine, _ = engine_of("ddp", engine="plain", **EIGHT_BITS)
    engine.save(tmp_path / "kept", progress())
    path = tmp_path / "kept" / "engine" / "moments-0.pt"
    assert (read_json(tmp_path / "kept" / MANIFEST) or {})["digests"]["engine/moments-0.pt"] == digests_of(path)
    assert engine.load(tmp_path / "kept") == progress()
    path.write_bytes(pickle.dumps(Path("/")))
    put_in_order(tmp_path / "kept", path)
    with pytest.raises(
        WorkerError, match=r"moments-0\.pt is damaged, or holds more than tensors, and code from a file"
    ):
        engine.load(tmp_path / "kept")
    path.write_bytes(b"PK")
    with pytest.raises(WorkerError, match=r"is not whole: engine/moments-0\.pt has 2 of"):
        engine.load(tmp_path / "kept")


def test_of_an_older_checkpoint_names_and_sizes_are_looked_at(engine_of: Callable[..., Any], tmp_path: Path) -> None:
    engine, _ = engine_of("ddp", engine="plain")
    engine.save(tmp_path / "kept", progress())
    manifest = read_json(tmp_path / "kept" / MANIFEST) or {}
    write_json(tmp_path / "kept" / MANIFEST, {k: v for k, v in manifest.items() if k not in ("digests", OWN_DIGEST)})
    assert engine.load(tmp_path / "kept") == progress()


def test_checksums_are_those_of_the_files_whoever_wrote_them(
    engine_of: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpc_llm.records.digests.PIECE", 1000)
    engine, _ = engine_of("ddp", engine="plain")
    write = engine.write_state
    engine.write_state = lambda folder: (write(folder), (folder / "more").write_bytes(b"own"))[
        0
    ]  # as one of another package
    engine.save(tmp_path / "kept", progress())
    found = read_json(tmp_path / "kept" / MANIFEST) or {}
    paths = {name: tmp_path / "kept" / name for name in found["files"]}
    assert found["digests"] == {name: digests_of(path) for name, path in paths.items()}
    assert len(found["digests"]["engine/shard-0.bin"]) > 100 and "engine/more" in paths
    assert {path for path in (tmp_path / "kept").rglob("*") if path.is_file()} == {
        *paths.values(),
        tmp_path / "kept" / MANIFEST,
    }
    every = [piece for part in range(3) for piece in share_of(found["digests"], part, 3)]
    assert len(every) == len(set(every)) == sum(map(len, found["digests"].values()))


@pytest.mark.parametrize(
    ("saved", "loaded", "why"),
    [
        ({}, {"recompute": True, "seed": 9}, None),
        ({}, {"optimizer": {**ADAMW, "type": "AdamW8bit"}}, "moments of the optimizer AdamW, here it is AdamW8bit"),
        ({"optimizer": {**ADAMW, "type": "Adam"}}, {"optimizer": ADAMW}, None),
        ({}, {"precision": "fp16"}, None),
        ({}, {"engine": "fsdp2", "deepspeed": {"zero_optimization": {"stage": 3}}}, None),
        ({}, {"peft": LORA}, "of another model, or trains other parameters"),
        ({"peft": LORA}, {"peft": {**LORA, "r": 4}}, "of another model, or trains other parameters"),
        ({"peft": LORA}, {"peft": LORA, "seed": 8}, "trained on other frozen weights"),
        ({"peft": LORA}, {"peft": LORA, "precision": "bf16"}, "trained on other frozen weights"),
    ],
)  # fmt: skip
def test_what_is_of_something_else_is_not_loaded(
    engine_of: Callable[..., Any], tmp_path: Path, saved: dict[str, Any], loaded: dict[str, Any], why: str | None
) -> None:
    shape = {"engine": "plain", "precision": "fp32"}
    engine, _ = engine_of("ddp", **{**shape, **saved})
    engine.save(tmp_path / "kept", progress())
    other, _ = engine_of("ddp", **{**shape, **loaded})
    if why is None:
        assert other.load(tmp_path / "kept") == progress()
        return
    with pytest.raises(WorkerError, match=why):
        other.load(tmp_path / "kept")


# --- what an engine holds ---------------------------------------------------------------------------------------------


def test_what_is_held_follows_from_the_sizes(on_two: Path) -> None:
    """fp32: 4 bytes a parameter, 4 a gradient, 8 for the two moments; ranks of FSDP2 and ZeRO hold their share."""
    whole = found(on_two, "plain-whole")["held"]
    count = whole["parameters"]["host"] // 4
    assert {size["device"] for size in whole.values()} == {0}
    assert whole["gradients"]["host"] == 8 * count  # DDP's memory for them, and the sum of two micro batches
    assert whole["optimizer"]["host"] == pytest.approx(8 * count, rel=1e-3)
    split = found(on_two, "fsdp2-whole")["held"]
    for what, bytes_each in (("parameters", 4), ("gradients", 4), ("optimizer", 8)):
        assert split[what]["host"] == pytest.approx(bytes_each * count / 2, rel=1e-3)
    zero_2, zero_3 = (found(on_two, f"{kind}-whole")["held"] for kind in ("z2-bf16", "z3o"))
    assert zero_2["parameters"]["host"] == 2 * count and "gradients" not in zero_2
    assert zero_2["optimizer"]["host"] == pytest.approx(12 * count / 2, rel=1e-3)  # moments and the fp32 copy
    assert zero_3["parameters"]["host"] == pytest.approx(4 * count / 2, rel=1e-3)
    quantized = found(on_two, "q-whole")["held"]
    assert quantized["parameters"]["host"] < 0.5 * zero_2["parameters"]["host"]
