"""Extents compute as numbers do, and types and extents read back from their text."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from alpenglow.base.errors import ParseError
from alpenglow.ir.dims import (
    Dim,
    Sym,
    bind,
    ceil_div,
    larger,
    names,
    parse,
    product,
    smaller,
    symbol,
)
from alpenglow.ir.types import TensorType
from alpenglow.machines.vector.operators.layout import Blocked

SEEDS = 300
OPERATIONS: dict[str, Callable[..., Dim]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": larger,
    "min": smaller,
}
LETTERS = "MNK"


@dataclass(frozen=True)
class Expression:
    """A tree over symbols and numbers; `value` computes it with what stands for the symbols."""

    operation: str
    left: Expression | str | int
    right: Expression | str | int

    def value(self, leaf: Mapping[str, Dim]) -> Dim:
        a, b = (
            x.value(leaf) if isinstance(x, Expression) else leaf[x] if isinstance(x, str) else x
            for x in (self.left, self.right)
        )
        return OPERATIONS[self.operation](a, b)


def drawn(random: np.random.Generator, depth: int) -> Expression | str | int:
    kind = random.random()
    if depth == 0 or kind < 0.15:
        letter = LETTERS[random.integers(len(LETTERS))]
        return letter if random.random() < 0.6 else int(random.integers(1, 7))
    operation = list(OPERATIONS)[random.integers(len(OPERATIONS))]
    return Expression(operation, drawn(random, depth - 1), drawn(random, depth - 1))


def expression(seed: int) -> tuple[Expression, list[dict[str, int]]]:
    """Return an expression and values of the symbols at which no divisor in it is zero."""
    random = np.random.default_rng(seed)
    while True:
        made = drawn(random, 4)
        values = [{s: int(random.integers(1, 30)) for s in LETTERS} for _ in range(8)]
        kept = [v for v in values if isinstance(made, Expression) and defined(made, v)]
        if isinstance(made, Expression) and len(kept) > 2 and defined(made, symbols()):
            return made, kept


def symbols() -> dict[str, Dim]:
    return {s: symbol(s) for s in LETTERS}


def defined(e: Expression, leaf: Mapping[str, Dim]) -> bool:
    """Whether no divisor is zero, symbolically or at these values."""
    try:
        e.value(leaf)
    except ZeroDivisionError:
        return False
    return True


def test_bound_expressions_equal_python_arithmetic() -> None:
    for seed in range(SEEDS):
        made, values = expression(seed)
        dim = made.value(symbols())
        for given in values:
            expected = made.value(given)
            actual = bind(dim, given)

            assert expected == actual, f"{dim} at {given}"


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.sampled(100)
def test_binding_some_symbols_first_changes_nothing(seed: int) -> None:
    made, values = expression(seed)
    dim = made.value(symbols())
    for given in values:
        half = {"N": given["N"]}
        try:
            partly = bind(dim, half)
        except ZeroDivisionError:
            continue
        expected = made.value(given)
        actual = bind(partly, given)

        assert expected == actual, f"{dim} at {half}, then {given}"
        assert "N" not in names(partly)


def test_extents_read_back_from_their_text() -> None:
    for seed in range(SEEDS):
        expected = expression(seed)[0].value(symbols())
        actual = parse(str(expected))

        assert expected == actual, str(expected)
        assert str(expected) == str(actual)


def test_types_read_back_from_their_text() -> None:
    for seed in range(SEEDS):
        dim = expression(seed)[0].value(symbols())
        expected = TensorType("f32", (2, dim, dim * symbol("P"), 7))
        actual = TensorType.parse(str(expected))

        assert expected == actual, str(expected)


def test_blocked_types_read_back_from_their_text() -> None:
    for seed in range(SEEDS // 3):
        dim = expression(seed)[0].value(symbols())
        expected = TensorType("f32", (1, ceil_div(dim, 16), 5, 16), Blocked(dim))
        actual = TensorType.parse(str(expected))

        assert expected == actual, str(expected)


N, M = symbol("N"), symbol("M")


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (N + N, "2*N"),
        (N - N, "0"),
        (N * 2 // 2, "N"),
        (N * M // M, "N"),
        (N // N, "1"),
        ((96 * N + 96 * N * M) // (N + N * M), "96"),
        ((N * N - M * M) // (N + M), "-M+N"),
        ((N * N * N - 1) // (N - 1), "N*N+N+1"),
        ((N * N - M * M + 1) // (N + M), "((-M*M+N*N+1)//(M+N))"),
        ((3 * N + 3 * M) // (2 * N + 2 * M), "((3*M+3*N)//(2*M+2*N))"),
        (N * 6 % 3, "0"),
        (3 - N, "-N+3"),
        (-N, "-N"),
        ((N + 1) * (N - 1), "N*N-1"),
        ((N + 1) // 2, "((N+1)//2)"),
        (N // (2 * M), "(N//(2*M))"),
        (N % (M * M), "(N%(M*M))"),
        (7 // N, "(7//N)"),
        (7 % N, "(7%N)"),
        (product([N, 3, M]), "3*M*N"),
        (product([]), "1"),
        (ceil_div(N, 16), "((N+15)//16)"),
    ],
)
def test_equal_extents_have_one_text(dim: Dim, expected: str) -> None:
    assert expected == str(dim)
    assert dim == parse(expected)


def test_an_extent_without_symbols_is_a_number() -> None:
    dim = N * 3 - N - N - N + 4

    assert dim == 4
    assert isinstance(dim, int) and not isinstance(N + 0, int)
    assert names(N * (M // 3)) == {"M", "N"}
    assert isinstance(bind(N + M, {"N": 3}), Sym)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("N+", "dimension is 'N+', expected an expression"),
        ("N/2", "dimension is 'N / 2', expected an integer expression"),
        ("N**2", "dimension is 'N ** 2', expected an integer expression"),
        ("1.5", "dimension is '1.5', expected an integer expression"),
        ("f(N)", "dimension is 'f(N)', expected an integer expression"),
        ("True", "dimension is 'True', expected an integer expression"),
        ("3//0", "dimension '3 // 0' divides by 0, expected another divisor"),
        ("N%0", "dimension 'N % 0' divides by 0, expected another divisor"),
        ("N\0M", r"dimension is 'N\x00M', expected an expression"),
        ("\ud800", r"dimension is '\ud800', expected an expression"),
        ("9" * 5000, f"dimension is '{'9' * 80}…', expected an expression"),
        (
            "0x" + "f" * 5000,
            f"dimension '0x{'f' * 78}…' has a number that is too long, expected at most 2000 bits",
        ),
    ],
)
def test_what_is_no_extent_is_refused(text: str, says: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)

    assert says == str(caught.value)


@pytest.mark.parametrize("text", ["{}N", "({}N", "N{}", "f({}", "N[{}"])
@pytest.mark.parametrize("part", ["-", "(", "N+", "+N", "[", "~N", "9", "N if N else "])
@pytest.mark.parametrize("times", [100, 600, 3000, 100_000])
@pytest.mark.sampled(80)
def test_text_of_any_depth_is_an_extent_or_refused(text: str, part: str, times: int) -> None:
    """Python's own parser raises four kinds of error here, each release at depths of its own."""
    text = text.format(part * times)
    with contextlib.suppress(ParseError):
        assert parse(text) == parse(str(parse(text)))


def test_a_sum_of_many_terms_reads_back() -> None:
    expected = sum((symbol(f"n{i}") for i in range(400)), start=symbol("n"))

    assert expected == parse(str(expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[]", TensorType("f32", ())),
        ("f32", TensorType("f32", ())),
        (" bool[2, 3] ", TensorType("bool", (2, 3))),
        ("i64[0]", TensorType("i64", (0,))),
        ("f16[N,3,(N//2)]", TensorType("f16", (N, 3, N // 2))),
        ("f32[1,50/16,56,56,16]", TensorType("f32", (1, 4, 56, 56, 16), Blocked(50))),
        ("f32[1,5/8,8]", TensorType("f32", (1, 1, 8), Blocked(5))),
        ("bf16[N,M/8,8]", TensorType("bf16", (N, ceil_div(M, 8), 8), Blocked(M))),
        ("f32[1,(N//2)/8,8]", TensorType("f32", (1, ceil_div(N // 2, 8), 8), Blocked(N // 2))),
    ],
)
def test_types_in_text(text: str, expected: TensorType) -> None:
    assert expected == TensorType.parse(text)
    assert expected == TensorType.parse(str(expected))


@pytest.mark.parametrize("text", ["f31[2]", "[2]", "f32[2", "f32(2)", "f32[2][3]", "", "f32[N+]"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        TensorType.parse(text)


def test_binding_a_blocked_type_binds_its_channels() -> None:
    t = TensorType.parse("f32[1,C/16,H,16]")
    expected = TensorType("f32", (1, 3, 5, 16), Blocked(40))
    actual = t.bind({"C": 40, "H": 5})

    assert expected == actual
    assert t.symbols() == {"C", "H"}
    assert actual.static and actual.size == 240 and actual.nbytes == 960


def test_sizes_are_exact_however_large() -> None:
    t = TensorType("f32", (2**40, 2**40))

    assert t.size == 2**80
    assert t.nbytes == 2**82
