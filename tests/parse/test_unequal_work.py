"""Steps that hold unequal amounts of work: a batch that is ramped up, sequences that grow."""

from __future__ import annotations

import io

import pytest

from hpc_llm.parsing import parse_stream

HEAD = "using world size: 8, data-parallel size: 8\n  global_batch_size ............................... 256\n  seq_length ...................................... 1024\n"


def line(step: int, batch: int, ms: float, length: int | None = None) -> str:
    more = "" if length is None else f" actual seqlen: {length} |"
    return (
        f" iteration {step:8}/    5000 | elapsed time per iteration (ms): {ms} | learning rate: 1.0E-04 |"
        f" global batch size: {batch:5} |{more} lm loss: 9.9E+00 | loss scale: 1.0 | grad norm: 1.2 |\n"
    )


@pytest.mark.parametrize("many", [1, 100])
def test_a_batch_that_changes_is_counted_by_its_tokens(row, many):
    """The first line is left out; the rest has as many steps of 32 samples as of 256."""
    text = HEAD + line(1, 32, 1000.0)
    text += "".join(line(step, 32 if step <= 1 + 10 * many else 256, 1000.0) for step in range(2, 2 + 20 * many))
    found = row(text)
    assert (found.global_batch_size, found.step_time_s_mean) == (None, 1.0)
    assert found.tokens_per_second == pytest.approx(144 * 1024)
    assert found.tokens_per_second_per_gpu == pytest.approx(18 * 1024)


def test_in_pieces_as_in_one(monkeypatch, tmp_path):
    from hpc_llm.parsing.joining import join
    from hpc_llm.parsing.registry import formats_in
    from hpc_llm.parsing.scan import Scanner
    from hpc_llm.parsing.summary import row_of

    lines = [line(step, 32 * (1 + step // 50), 500.0 + step) for step in range(1, 301)]
    whole = parse_stream("job", io.BytesIO((HEAD + "".join(lines)).encode())).rows[0]
    runs = []
    for part in (HEAD + "".join(lines[:130]), "".join(lines[130:])):
        scanner = Scanner(formats_in(HEAD.encode() + lines[0].encode()))
        scanner.feed(part.encode())
        runs = join((runs, scanner.finish()))
    for run in runs:
        run.tail.settle()
    (joined,) = map(row_of, runs)
    assert joined.tokens_per_second == pytest.approx(whole.tokens_per_second)
    assert joined.global_batch_size is whole.global_batch_size is None


def test_sequences_that_grow_and_rates_without_known_tokens(row, read):
    text = HEAD + "".join(line(step, 256, 1000.0, 256 if step < 3 else 512) for step in (1, 2, 3))
    found = row(text)
    assert (found.sequence_length, found.tokens_per_second) == (None, 256 * 384)
    unknown = read("".join(line(step, 256 * step, 1000.0) for step in (1, 2, 3)))
    assert unknown.rows[0].tokens_per_second is None
    assert "global_batch_size" in unknown.left_empty[0]


def test_equal_steps_keep_their_batch(row):
    found = row(HEAD.replace("256", "512") + "".join(line(step, 256, 1000.0) for step in (1, 2, 3)))
    assert (found.global_batch_size, found.tokens_per_second) == (256, 256 * 1024)


@pytest.mark.parametrize(
    "bad",
    [
        "grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   0 |",
        "number of skipped iterations:  10 | number of nan iterations:  10 |",
        "lm loss: NAN | grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   0 |",
    ],
)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_numbers_that_ran_away_are_named_where_they_began(row, tmp_path, bad, precision):
    from hpc_llm.diagnosis.inputs import diagnose_files

    good = "lm loss: 9.9E+00 | grad norm: 1.2 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    text = HEAD + f"  {precision} ............................................ True\n"
    text += (
        "".join(
            f" iteration {step:8}/     500 | consumed samples: 1000 | elapsed time per iteration (ms): 2000.0 | learning rate: 1.0E-04 |"
            f" global batch size:   256 | {good if step < 150 else bad}\n"
            for step in range(10, 501, 10)
        )
        + "[after training is done] datetime: 2025-06-11 12:00:00\n"
    )
    found = row(text)
    assert (found.outcome, found.invalid_reason) == ("INVALID", "the loss is not a finite number at step 150")
    (tmp_path / "a.log").write_text(text)
    made = diagnose_files([tmp_path / "a.log"])
    assert "iteration      150/" in str(made.evidence[0])
    assert ("bf16 instead of fp16" in made.remedy) == (precision == "fp16")


def test_iterations_that_were_skipped_while_the_scale_was_found_are_no_end(row):
    skipped = line(1, 256, 1000.0).replace(
        "lm loss: 9.9E+00 |", "number of skipped iterations:   1 | number of nan iterations:   0 |"
    )
    assert row(HEAD + skipped + "".join(line(step, 256, 1000.0) for step in (2, 3, 4))).outcome == "UNKNOWN"
    assert row(HEAD + line(1, 256, 1000.0) + skipped.replace("       1/", "       2/")).outcome == "UNKNOWN"
