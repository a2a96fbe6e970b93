"""Where a CUDA stream is recorded, attention gets no mask that it could do without, and gets the one that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import save
from torch.nn import functional
from transformers import AutoModelForCausalLM
from transformers.utils import import_utils

from hpc_llm.planning.engines.facts import KNOWN_FAMILIES
from hpc_llm.worker.model.causal import whole_samples

pytestmark = pytest.mark.train


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The masks that attention was given, in what transformers takes for a recording."""
    given: list[Any] = []
    attention = functional.scaled_dot_product_attention

    def noting(*args: Any, **kwargs: Any) -> torch.Tensor:
        given.append(kwargs.get("attn_mask"))
        return attention(*args, **kwargs)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", noting)
    monkeypatch.setattr(import_utils, "is_cuda_stream_capturing", lambda: True)
    yield given


def logits(folder: Path, batch: dict[str, torch.Tensor], **config: Any) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa", **config)
    found: torch.Tensor = model(**batch, use_cache=False).logits
    return found.detach()


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_whole_samples_need_no_mask(family: str, tmp_path: Path, masks: list[Any]) -> None:
    save(tmp_path, family)
    batch = {"input_ids": torch.arange(24).reshape(2, 12)}
    masked = logits(tmp_path, batch)
    assert masks and all(mask is not None for mask in masks), "transformers makes none itself by now"
    masks.clear()
    with whole_samples():
        unmasked = logits(tmp_path, batch)
    assert masks and all(mask is None for mask in masks)
    torch.testing.assert_close(unmasked, masked, rtol=1e-5, atol=1e-6)


def test_a_window_that_is_shorter_than_the_samples_stays_a_mask(tmp_path: Path, masks: list[Any]) -> None:
    save(tmp_path, "mistral")
    with whole_samples():
        seen = logits(tmp_path, {"input_ids": torch.arange(12).reshape(1, 12)}, sliding_window=4)
    assert masks and all(mask is not None for mask in masks)
    assert not torch.allclose(seen, logits(tmp_path, {"input_ids": torch.arange(12).reshape(1, 12)}, sliding_window=99))


def test_padding_stays_a_mask_and_so_does_all_outside(tmp_path: Path, masks: list[Any]) -> None:
    save(tmp_path, "llama")
    batch = {"input_ids": torch.arange(12).reshape(1, 12)}
    with whole_samples():
        logits(tmp_path, {**batch, "attention_mask": torch.tensor([[0] * 3 + [1] * 9])})
    logits(tmp_path, batch)
    assert masks and all(mask is not None for mask in masks)


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_documents_of_a_row_stay_apart_in_a_recording(family: str, tmp_path: Path, masks: list[Any]) -> None:
    """Positions that begin anew are enough, whatever they were while the step was recorded."""
    save(tmp_path, family)
    tokens, border = torch.arange(12).reshape(1, 12), 5
    other = torch.cat([tokens[:, :border] + 100, tokens[:, border:]], dim=1)
    positions = torch.cat([torch.arange(border), torch.arange(12 - border)])[None]
    one, two = (logits(tmp_path, {"input_ids": each, "position_ids": positions}) for each in (tokens, other))
    assert masks and all(mask is not None for mask in masks)
    torch.testing.assert_close(one[:, border:], two[:, border:], rtol=1e-5, atol=1e-6)
    together = logits(tmp_path, {"input_ids": tokens, "position_ids": torch.arange(12)[None]})
    assert not torch.allclose(one[:, border:], together[:, border:], atol=1e-3)
