"""What the prover of inequalities proves is so: beside all numbers, and a few laws."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from alpenglow.ir.dims import symbol
from alpenglow.kernel.inequality import Premises
from alpenglow.kernel.sums import Sum, divided, number, plus, product, scaled

Env = Sequence[int]
Meaning = Callable[[Env], int]


class Known:
    """Premises, and next to every sum the function of the base integers that it stands for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.facts = Premises()
        self.ranges: list[Callable[[Env], range]] = []
        self.pool: list[tuple[Sum, Meaning]] = []
        self.base()

    def base(self) -> None:
        """Draw an extent, indices below it, and a plain number."""
        low, high = sorted(self.random.choices(range(-4, 6), k=2))
        self.add(self.facts.atom(low, high), range(low, high + 1))
        most = self.random.randint(1, 4)
        n = self.facts.atom(1, most)
        self.add(n, range(1, most + 1))
        place = len(self.ranges) - 1
        index = self.facts.atom(0, most - 1)
        self.facts.known(index).uppers.append((1, plus(n, number(-1))))
        self.pool.append((index, lambda env, i=place + 1: env[i]))
        self.ranges.append(lambda env, i=place: range(env[i]))

    def add(self, s: Sum, values: range) -> None:
        place = len(self.ranges)
        self.pool.append((s, lambda env: env[place]))
        self.ranges.append(lambda env: values)

    def environments(self) -> list[list[int]]:
        found: list[list[int]] = [[]]
        for values in self.ranges:
            found = [[*env, v] for env in found for v in values(env)]
        return found

    def some(self) -> tuple[Sum, Meaning]:
        """Draw a sum of a few products of what there is."""
        total: Sum = number(shift := self.random.randint(-6, 6))
        parts: list[tuple[int, list[Meaning]]] = []
        for _ in range(self.random.randint(1, 3)):
            c = self.random.choice((-3, -2, -1, 1, 1, 2, 4))
            factors = self.random.choices(self.pool, k=self.random.choice((1, 1, 1, 2)))
            term = number(c)
            for s, _meaning in factors:
                term = product(term, s)
            total = plus(total, term)
            parts.append((c, [meaning for _, meaning in factors]))

        def meaning(env: Env) -> int:
            value = shift
            for c, factors in parts:
                for factor in factors:
                    c *= factor(env)
                value += c
            return value

        return total, meaning

    def derive(self) -> None:
        """Add a quotient, a remainder, or the least, the largest or either of two sums."""
        (a, f), (b, g) = self.some(), self.some()
        by = self.random.randint(2, 5)
        divisor, d = number(by), lambda env: by
        if self.random.random() < 0.3:
            divisor, d = self.pool[1]
        facts = self.facts
        match self.random.choice(("div", "rem", "floor", "mod", "min", "max", "one")):
            case "div":
                made = facts.quotient(a, divisor), lambda env: _truncated(f(env), d(env))
            case "rem":
                made = (facts.remainder(a, divisor),
                        lambda env: f(env) - _truncated(f(env), d(env)) * d(env))  # fmt: skip
            case "floor":
                made = facts.quotient(a, divisor, down=True), lambda env: f(env) // d(env)
            case "mod":
                made = facts.remainder(a, divisor, down=True), lambda env: f(env) % d(env)
            case "min":
                made = facts.minimum(a, b), lambda env: min(f(env), g(env))
            case "max":
                made = facts.maximum(a, b), lambda env: max(f(env), g(env))
            case _:
                condition, h = self.some()
                opposite = plus(scaled(condition, -1), number(-1))
                made = (facts.one_of([(a, (condition,)), (b, (opposite,))]),
                        lambda env: f(env) if h(env) >= 0 else g(env))  # fmt: skip
        self.pool.append(made)


def _truncated(a: int, b: int) -> int:
    return abs(a) // b * (1 if a >= 0 else -1)


@pytest.mark.parametrize("first", [0, 500, 1000, 1500])
@pytest.mark.sampled(1)
def test_nothing_false_is_proved(first: int, record_property: pytest.RecordProperty) -> None:
    """Thousands of random sums, with and without facts that hold, and all their values."""
    proved = true = 0
    for seed in range(first, first + 500):
        known = Known(seed)
        for _ in range(known.random.randint(0, 3)):
            known.derive()
        held = [known.some() for _ in range(known.random.choice((0, 0, 1, 2)))]
        with known.facts.holding([s for s, _ in held]):
            if held and known.random.random() < 0.5:
                known.derive()
            envs = [e for e in known.environments() if all(f(e) >= 0 for _, f in held)]
            for _ in range(8):
                s, meaning = known.some()
                least = min(map(meaning, envs), default=0)
                low, high = known.facts.hull(s)
                assert not envs or low <= least, f"{seed}: {s} is {least}, not from {low} on"
                assert all(meaning(e) <= high for e in envs), f"{seed}: {s} is above {high}"
                for question in (s, plus(s, number(-least))):
                    certain = known.facts.nonnegative(question)
                    reached = least if question is s else 0
                    assert not certain or reached >= 0, f"{seed}: {question} can be {reached}"
                    true += reached >= 0
                    proved += certain
    record_property("proved", f"{proved} of {true}")

    assert proved > true / 2


def test_a_quotient_and_its_remainder_make_the_whole() -> None:
    facts = Premises()
    i, n = facts.atom(0, 1 << 40), facts.atom(1, 1 << 20)
    for by in (number(7), n):
        q, r = facts.quotient(i, by), facts.remainder(i, by)
        whole = plus(plus(product(q, by), r), i, -1)

        assert facts.nonnegative(whole)
        assert facts.nonnegative(scaled(whole, -1))
        assert facts.nonnegative(plus(plus(by, number(1), -1), r, -1))


def test_a_split_index_stays_below_the_product_of_its_extents() -> None:
    facts = Premises()
    n, c = facts.atom(0, 1 << 20), facts.atom(1, 1 << 20)
    most = plus(product(n, c), number(1), -1)
    i = facts.atom(0, 1 << 40)
    with facts.holding([most, plus(most, i, -1)]):
        row, column = facts.quotient(i, c), facts.remainder(i, c)
        address = plus(product(row, c), column)

        assert facts.nonnegative(plus(most, address, -1))
        assert facts.nonnegative(plus(plus(n, number(1), -1), row, -1))
        assert not facts.nonnegative(plus(plus(n, number(2), -1), row, -1))


def test_what_is_clamped_is_in_range() -> None:
    facts = Premises()
    x, n = facts.atom(-(1 << 63), (1 << 63) - 1), facts.atom(1, 1 << 46)
    last = plus(n, number(1), -1)
    clamped = facts.minimum(facts.maximum(x, {}), last)

    assert facts.nonnegative(clamped)
    assert facts.nonnegative(plus(last, clamped, -1))
    assert not facts.nonnegative(plus(plus(last, clamped, -1), number(1), -1))


def test_a_case_that_facts_exclude_is_not_asked_for() -> None:
    """i < max(a - b, 0): there is such an i only if the maximum is a - b."""
    facts = Premises()
    a, b = facts.atom(0, 9), facts.atom(0, 9)
    extent = facts.maximum(plus(a, b, -1), {})
    most = plus(extent, number(1), -1)
    i = facts.atom(0, 8)
    facts.known(i).uppers.append((1, most))
    with facts.holding([most]):
        assert facts.nonnegative(plus(plus(a, number(1), -1), plus(b, i), -1))


def test_facts_end_where_they_hold() -> None:
    facts = Premises()
    x = facts.atom(0, 100)
    with facts.holding([plus(number(9), x, -1)]):
        inside = facts.quotient(x, number(10))
        assert facts.nonnegative(plus(number(9), x, -1))
    outside = facts.quotient(x, number(10))

    assert inside == {}
    assert not facts.nonnegative(plus(number(9), x, -1))
    assert not facts.nonnegative(scaled(outside, -1))


def test_facts_that_exclude_each_other_prove_anything() -> None:
    facts = Premises()
    x = facts.atom(0, 100)
    with facts.holding([plus(x, number(50), -1), plus(number(20), x, -1)]):
        assert facts.nonnegative(number(-1))
    assert not facts.nonnegative(number(-1))


def test_a_factor_of_a_positive_product_is_positive() -> None:
    facts = Premises()
    a, b, c = (facts.atom(0, 1 << 20) for _ in range(3))
    tiles = plus(a, b)
    assert not facts.positive(tiles)
    with facts.holding([plus(product(tiles, c), number(1), -1)]):
        assert facts.positive(tiles)


@pytest.mark.parametrize("seed", range(50))
def test_division_of_sums_leaves_a_rest(seed: int) -> None:
    draw = random.Random(seed)
    monomials = [m for k in range(3) for m in itertools.combinations_with_replacement(range(3), k)]

    def some() -> Sum:
        return {m: draw.choice((-3, -1, 1, 2)) for m in draw.sample(monomials, draw.randint(1, 4))}

    a, b = some(), some()
    q, rest = divided(a, b)

    assert plus(product(q, b), rest) == a


def test_what_holds_of_a_product_bounds_what_is_counted_by_it() -> None:
    facts = Premises()
    m, n = (facts.atom(0, 1 << 40) for _ in range(2))
    size = scaled(product(m, n), 8)
    blocks = facts.quotient(size, number(32))
    last = plus(scaled(plus(blocks, number(1), -1), 32), number(31))

    assert not facts.nonnegative(plus(number(4095), last, -1))
    with facts.holding([plus(number(4096), size, -1)]):
        assert facts.nonnegative(plus(number(4095), last, -1))


def test_a_quotient_that_is_positive_was_rounded_down() -> None:
    facts = Premises()
    x = facts.atom(0, 9)
    half = facts.quotient(plus(number(6), x, -1), number(2))  # towards 0: 0 for x = 7, too

    assert not facts.nonnegative(plus(number(4), x, -1))
    with facts.holding([plus(half, number(1), -1)]):
        assert facts.nonnegative(plus(number(4), x, -1))
        assert facts.nonnegative(plus(plus(number(6), x, -1), scaled(half, 2), -1))


def test_a_polynomial_that_grows_is_least_where_its_atom_is() -> None:
    facts = Premises()
    p, s = facts.atom(1, 1 << 40), facts.atom(2, 1 << 40)
    rows = product(s, plus(p, s))

    assert facts.nonnegative(plus(rows, plus(p, s), -2))
    assert not facts.nonnegative(plus(rows, plus(p, s), -3))
    assert not facts.nonnegative(plus(scaled(plus(p, s), 1 << 40), rows, -1))


@pytest.mark.parametrize("order", list(itertools.permutations(["k//8", "k//16", "k%16"])))
def test_a_remainder_is_told_by_the_quotient_that_others_use(order: Sequence[str]) -> None:
    """k//16 is (k//8)//2 where there is k//8, also in what k%16 is."""
    k = symbol("k")
    dims = {"k//8": k // 8, "k//16": k // 16, "k%16": k % 16}
    facts = Premises()
    sums = {name: facts.extent(dims[name]) for name in order}
    whole = plus(product(number(16), sums["k//16"]), sums["k%16"])

    assert facts.nonnegative(plus(facts.extent(k), whole, -1))
    assert facts.nonnegative(plus(whole, facts.extent(k), -1))
