"""Random numbers of exported programs are those that eager draws from the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.generator import HEAD, TAIL, state_of
from alpenglow.ir.types import Array
from alpenglow.ops.random.mersenne import WORDS


class Draws(nn.Module):
    """A function that draws random numbers in the shape of a tensor, as a module."""

    def __init__(self, f: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: torch.Tensor) -> Any:
        return self.f(x)


def torch_state(state: Array, raw: bytes) -> bytes:
    """Return a state of ours as torch's, where `raw` was its state before: of the same seed."""
    made = bytearray(raw)
    seed, _, seeded, _ = HEAD.unpack_from(raw)
    position = int(state[WORDS])
    HEAD.pack_into(made, 0, seed, WORDS - position + 1, seeded, position % WORDS)
    words = state[:WORDS].astype(np.uint64).tobytes()
    made[HEAD.size : HEAD.size + len(words)] = words
    number = float(state[WORDS + 2 :].copy().view(np.float64)[0])
    TAIL.pack_into(made, HEAD.size + 8 * WORDS, 0.0, number, 0.0, int(state[WORDS + 1]))
    return bytes(made)


def many(x: torch.Tensor) -> torch.Tensor:
    """Draw few and many numbers of several kinds, so that each begins where another ended."""
    few = torch.randn(3) + torch.randn(1)
    y = torch.rand_like(x) + torch.randn(x.shape[0], 5) + torch.randperm(5)
    y = y + torch.randint(-3, 3, (5,)) + torch.bernoulli(torch.full((5,), 0.3))
    return nn.functional.dropout(y, 0.4) + few.sum() + torch.rand(5, dtype=torch.float64).sum()


KINDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "many": many,
    "odd": lambda x: torch.randn(37) * x.sum(),
    "double": lambda x: torch.randn(20, dtype=torch.float64) + torch.rand(20, dtype=torch.float64),
    "half": lambda x: torch.rand(20, dtype=torch.float16) + torch.randn(20, dtype=torch.float16),
    "ends": lambda x: torch.empty(200000).uniform_(1000, 1001),
    "wide": lambda x: torch.randint(-(1 << 40), 1 << 40, (9,)),
    "choice": lambda x: torch.multinomial(torch.rand(10), 4),
    "choice again": lambda x: torch.multinomial(torch.rand(3, 10), 7, replacement=True),
    "exponential": lambda x: torch.empty(9).exponential_(2.0),
    "slopes": lambda x: nn.functional.rrelu(x, 0.1, 0.9, training=True) + torch.rand(5),
    "slope": lambda x: nn.functional.rrelu(x, 0.1, 0.9),
    "shares": lambda x: torch.bernoulli(torch.rand(50, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", KINDS)
def test_numbers_equal_those_of_eager(name: str) -> None:
    module, x = Draws(KINDS[name]), torch.randn(7, 5)
    program = torch.export.export(module, (x,))
    torch.manual_seed(11)
    torch.randn(5)  # a number of a pair is left, and some words are drawn
    session = ag.compile(program).session()

    for _ in range(3):  # more words than one turn of the twister makes, together
        torch.testing.assert_close(torch.from_numpy(np.array(session(x.numpy()))), module(x))


def test_a_call_of_the_executable_begins_with_the_state_of_loading() -> None:
    exe = ag.compile(torch.export.export(Draws(lambda x: torch.rand(4) + x), (torch.zeros(4),)))
    x = np.zeros(4, np.float32)

    np.testing.assert_array_equal(exe(x), exe(x))


def test_states_go_to_torch_and_back() -> None:
    for count in (0, 1, 311, 624):
        torch.manual_seed(count)
        torch.randn(count // 8)
        torch.rand(count)
        before = torch.get_rng_state().numpy().tobytes()
        again = torch_state(state_of(before), before)
        expected = torch.randn(700)
        torch.set_rng_state(torch.frombuffer(bytearray(again), dtype=torch.uint8))

        torch.testing.assert_close(torch.randn(700), expected, rtol=0, atol=0)


def test_numbers_that_are_drawn_in_another_order_are_refused() -> None:
    def drawn(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x.t()).uniform_() + x.t()

    with pytest.raises(UnsupportedError, match="not contiguous"):
        ag.load(torch.export.export(Draws(drawn), (torch.zeros(2, 3),)))
