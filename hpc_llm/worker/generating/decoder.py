"""Answers batches of one size: a pass over the prompts, then one pass for each token, which is recorded as a CUDA graph where it can be.

All that a pass reads and writes lies at one place from the beginning to the end, so that the host sends the next pass without
knowing what the last one chose. Whether all answers have ended it learns one pass late, and waits for nothing meanwhile.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hpc_llm.errors import WorkerError
from hpc_llm.worker.device import count_hidden, free_in_pools
from hpc_llm.worker.generating.cache import FixedCache
from hpc_llm.worker.generating.choosing import Choice
from hpc_llm.worker.generating.masks import Mask, Masks
from hpc_llm.worker.measure.window import clock_of

_UNRECORDED = 3
"""Passes before one is recorded: libraries choose their kernels and take their memory in them."""


@dataclass(frozen=True)
class Answered:
    """What came of one batch."""

    tokens: torch.Tensor
    """(batch, most new tokens), on the host; behind an end anything may stand."""
    counts: list[int]
    """Tokens of each answer, its end included."""
    times: list[float]
    """Seconds from the handing over of the batch to each token."""


class Decoder:
    """A model that answers `batch` prompts at a time, in at most `size` tokens a prompt with its answer."""

    def __init__(
        self,
        model: Any,
        *,
        batch: int,
        size: int,
        new_tokens: int,
        choice: Choice,
        ends: tuple[int, ...],
        attention: str,
    ) -> None:
        parameter = next(model.parameters())
        self.device: torch.device = parameter.device
        self.sentences: list[str] = []
        """Why nothing is recorded, where it should be."""
        self._model, self._choice = model, choice
        self._inputs = _inputs_of(model)
        self._masks = Masks(model.config, attention, model.dtype)
        self._clock = clock_of(self.device)
        self._new_tokens, self._batch = new_tokens, batch
        self._graph: Any = None
        self._late = int(self.device.type == "cuda")
        self.cache = FixedCache(size, self.device)
        self._tokens = self._room(batch, 1)
        self._positions = self._room(batch, 1)
        self._seen = self._room(batch, size, dtype=torch.bool)
        self._written = self._room(batch, new_tokens)
        self._step = self._room(1)
        self._counts = self._room(batch)
        self._over = self._room(batch, dtype=torch.bool)
        self._draws = self._room(batch, new_tokens, dtype=torch.float32)
        self._ends = torch.tensor(ends, dtype=torch.int64, device=self.device)
        self._flags = torch.zeros(new_tokens, dtype=torch.bool, pin_memory=self.device.type == "cuda")

    def _room(self, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.zeros(*shape, dtype=dtype, device=self.device)

    @property
    def is_recorded(self) -> bool:
        return self._graph is not None

    def answer(self, tokens: torch.Tensor, real: torch.Tensor, draws: torch.Tensor) -> Answered:
        """Answer prompts that lie on the host; `draws` (batch, new tokens) are in [0, 1) and matter only where tokens are drawn."""
        with torch.inference_mode():
            return self._answer(tokens, real, draws)

    def _answer(self, tokens: torch.Tensor, real: torch.Tensor, draws: torch.Tensor) -> Answered:
        began = self._clock.mark()
        self._read(tokens, real, draws)
        marks = [self._end_of_pass(0)]
        for number in range(1, self._new_tokens):
            self._pass()
            marks.append(self._end_of_pass(number))
            if self._all_over(number - self._late, marks):
                break
        self._clock.wait(marks[-1])
        counts = self._counts.tolist()
        times = [self._clock.seconds(began, mark) for mark in marks[: max(counts)]]
        return Answered(self._written.cpu(), counts, times)

    def _end_of_pass(self, number: int) -> Any:
        if len(self._ends):
            self._flags[number : number + 1].copy_(self._over.all().reshape(1), non_blocking=True)
        return self._clock.mark()

    def _all_over(self, number: int, marks: list[Any]) -> bool:
        """Whether all answers had ended with that pass; it waits for that pass and not for the one behind it."""
        if not len(self._ends):
            return False
        self._clock.wait(marks[number])
        return bool(self._flags[number])

    def _read(self, tokens: torch.Tensor, real: torch.Tensor, draws: torch.Tensor) -> None:
        """The pass over the prompts, from which the first tokens come."""
        length = tokens.shape[1]
        self.cache.begin(length)
        for state in (self._seen, self._over, self._counts, self._step, self._written):
            state.zero_()
        self._draws.copy_(draws)
        tokens, real = tokens.to(self.device), real.to(self.device)
        self._seen[:, :length] = real
        positions = (real.cumsum(dim=1) - 1).clamp_(min=0)
        self._positions.copy_(positions[:, -1:])
        scores = self._forward(tokens, positions, self._masks.of_prompt(real))
        self.cache.reads_prompt = False
        self._take(scores)

    def _forward(self, tokens: torch.Tensor, positions: torch.Tensor, mask: Mask) -> torch.Tensor:
        """The scores of what follows the last token of each sequence."""
        given = {"input_ids": tokens, "position_ids": positions, "attention_mask": mask}
        scores: torch.Tensor = self._model(**given, **self._inputs(positions, self.cache), use_cache=True).logits
        return scores[:, -1]

    def _take(self, scores: torch.Tensor) -> None:
        """Choose the next tokens, and put all in place for the pass that follows."""
        chosen = self._choice(scores, lambda: self._draws.index_select(1, self._step))
        self._tokens.copy_(chosen[:, None])
        self._written.index_copy_(1, self._step, chosen[:, None])
        self._counts.add_(~self._over)
        if len(self._ends):
            self._over.logical_or_((chosen[:, None] == self._ends).any(dim=1))
        self._positions.add_(1)
        self._step.add_(1)

    def _advance(self) -> None:
        """The pass for one more token. It takes nothing from the host, and gives it nothing."""
        self._seen.index_fill_(1, self.cache.place, True)
        mask = self._masks.of_token(self._seen, self.cache.place)
        self._take(self._forward(self._tokens, self._positions, mask))
        self.cache.place.add_(1)

    def _pass(self) -> None:
        if self._graph is not None:
            self._graph.replay()
        else:
            self._advance()

    def record(self, tokens: torch.Tensor, real: torch.Tensor) -> None:
        """Record the pass of one token, beside prompts that are answered for nothing. On a GPU alone.

        Where the model cannot be recorded the passes stay as they are, and `sentences` says why.
        """
        if self.device.type != "cuda" or self._new_tokens <= _UNRECORDED + 1:
            return
        with torch.inference_mode():
            self._read(tokens, real, self._draws)
            try:
                self._graph = self._recorded()
                count_hidden(self.device, free_in_pools([self._graph]))
            except torch.cuda.OutOfMemoryError:
                raise
            except RuntimeError as error:
                torch.cuda.synchronize()
                why = next(iter(str(error).strip().splitlines()), type(error).__name__)
                self.sentences.append(f"The pass of a token is not recorded as a CUDA graph: {why}")

    def _recorded(self) -> Any:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_UNRECORDED):
                self._advance()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph, stream=stream):
            self._advance()
        return graph


_CACHE = ("cache", "past_key_values")
"""As forward calls it: since transformers 5.24, and before."""


def _inputs_of(model: Any) -> Callable[[torch.Tensor, FixedCache], dict[str, Any]]:
    """What forward takes besides, as this release calls it. Raises WorkerError where it knows no positions or no cache."""
    known = inspect.signature(model.forward).parameters
    keeps = next((name for name in _CACHE if name in known), None)
    lacks = [name for name in ("position_ids", "attention_mask") if name not in known]
    if lacks or keeps is None:
        raise WorkerError(
            f"models of the class {type(model).__name__} take no {(lacks or _CACHE)[0]}: answers cannot be timed with them."
        )
    last = {name: 1 for name in ("logits_to_keep", "num_logits_to_keep") if name in known}
    if "cache_position" not in known:
        return lambda positions, cache: {**last, keeps: cache}

    def with_places(positions: torch.Tensor, cache: FixedCache) -> dict[str, Any]:
        count = positions.shape[1]
        places = torch.arange(count, device=positions.device) if cache.reads_prompt else cache.place
        return {**last, keeps: cache, "cache_position": places}

    return with_places
