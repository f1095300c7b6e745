"""Guards as proofs take them: fewer, and true of the same extents."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.dims import RELATIONS, Dim, Sym, holds, symbol
from alpenglow.kernel.bounds import Access
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines import proof
from alpenglow.machines.choice import signature
from alpenglow.machines.guards import Guard, strongest
from alpenglow.program import Instr
from open_cases import chain, feeds, weights

N, M = symbol("N"), symbol("M")
ATOMS: tuple[Dim, ...] = (N, M, (N + 3) // 4, M // 2, ((N + 1) // 2 + M) // 3)


def drawn(draw: random.Random) -> tuple[Sym, str]:
    """Return a guard that may be any."""
    while True:
        x: Dim = draw.randint(-6, 6)
        for _ in range(draw.randint(1, 3)):
            x = x + draw.choice(ATOMS) * draw.choice([1, draw.choice(ATOMS)]) * draw.randint(-4, 4)
        if isinstance(x, Sym):
            return x, draw.choice(list(RELATIONS))


@pytest.mark.parametrize("seed", range(100))
def test_the_strongest_guards_hold_of_the_same_extents(seed: int) -> None:
    draw = random.Random(seed)
    guards = [drawn(draw) for _ in range(3)]
    for x, relation in list(guards):
        more = x * draw.randint(1, 3) + draw.randint(-2, 2)
        guards += [(more, relation)] if isinstance(more, Sym) else []
    possible = [dict(zip("NM", nm, strict=True)) for nm in product(range(9), repeat=2)]
    # Guards are true of the extents that they were written for.
    true = [g for g in guards if holds([g], {"N": 5, "M": 4})]
    fewer = strongest(true)

    assert len(fewer) <= len(true)
    assert [holds(fewer, v) for v in possible] == [holds(true, v) for v in possible]


def test_multiples_weaker_guards_and_what_no_extents_break_are_left_out() -> None:
    guards: list[tuple[Dim, str]] = [
        (N * 64 - 64, ">="), (N * -3 + 2, "<"), (N - 2, ">="), (N * 2 - 5, ">="), (N - 1, "!="),
        (N * M + N + 1, "!="), (M // 2, ">="), (N * 2 - 7, "!="), (M * 3 - 12, "=="),
        (-M + 4, "=="),
    ]  # fmt: skip

    assert strongest((x, r) for x, r in guards if isinstance(x, Sym)) == [
        (M - 4, "=="),
        (N - 3, ">="),
    ]


def deep() -> ag.Graph:
    """Return an image halved six times, and doubled twice beside what it was before."""
    nodes: list[tuple[object, ...]] = []
    constants = {}
    at = "x"
    for k, channels in enumerate((8, 8, 16, 16, 16, 32)):
        before = (3, 8, 8, 16, 16, 16)[k]
        constants[f"w{k}"] = weights(channels, before, 3, 3, seed=k)
        halving = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
        nodes.append(("Conv", f"{at} w{k}", f"h{k}", halving))
        at = f"h{k}"
    for k in (4, 3):
        constants[f"v{k}"] = weights(32 if k == 4 else 16, 16, 4, 4, seed=k)
        doubling = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
        nodes.append(("ConvTranspose", f"{at} v{k}", f"u{k}", doubling))
        nodes.append(("Add", f"u{k} h{k}", f"s{k}"))
        at = f"s{k}"
    return chain("deep", nodes, {"x": (1, 3, "H", "W")}, constants).make()


@pytest.mark.rest
@pytest.mark.usefixtures("own_cache")
def test_a_deep_network_is_proved_by_few_guards_for_images_of_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []
    prove = proof._proved

    def counting(kernel: Kernel, instr: Instr, guards: Sequence[Guard], *more: Any) -> list[Access]:
        counts.append(len(guards))
        return prove(kernel, instr, guards, *more)

    monkeypatch.setattr(proof, "_proved", counting)
    exe, peer = ag.compile(deep()), ag.compile(deep(), target="interpreter")
    for h, w in ((128, 192), (192, 128), (384, 320), (256, 448)):
        given = feeds(deep(), {"H": h, "W": w})
        expected = peer.run(given)
        for name, got in exe.run(given).items():
            largest = float(np.abs(expected[name]).max())
            np.testing.assert_allclose(got / largest, expected[name] / largest, 0, 1e-5)

    (artifact,) = exe.artifacts
    assert max(counts) <= len(artifact.guards) / 4
    different = set(map(signature, artifact.program.instrs()))
    assert len(counts) == len(different)  # each at the first attempt
