"""Symbols that pass for numbers: what is concluded of them holds wherever the guards do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from alpenglow.ir.dims import (
    RELATIONS,
    Assumption,
    Dim,
    Sym,
    assumed,
    assuming,
    bind,
    ceil_div,
    estimate,
    is_open,
    known,
    parse,
    product,
    symbol,
)

N, M = symbol("N"), symbol("M")

Code = Callable[[Dim, Dim], list[Dim]]
"""Something written for numbers: it returns extents, not answers."""


def guards_of(run: Callable[[], object], **values: int) -> list[str]:
    """Return the guards that running something leaves, as text."""
    assumption = Assumption(values)
    with assuming(assumption):
        run()
    return [f"{x} {relation} 0" for x, relation in assumption.guards]


# ── single decisions ──


@pytest.mark.parametrize(
    ("question", "answer", "guards"),
    [
        (lambda: N < 8, True, ["N-8 < 0"]),
        (lambda: N < 5, False, ["N-5 >= 0"]),
        (lambda: N >= 5, True, ["N-5 >= 0"]),
        (lambda: N > 5, False, ["-N+5 >= 0"]),
        (lambda: N <= 5, True, ["-N+5 >= 0"]),
        (lambda: N < M, True, ["-M+N < 0"]),
        (lambda: N == 5, True, ["N-5 == 0"]),
        (lambda: N == M - 2, True, ["-M+N+2 == 0"]),
        (lambda: N != 5, False, ["N-5 == 0"]),
        (lambda: bool(N), True, ["N != 0"]),
        (lambda: bool(N - 5), False, ["N-5 == 0"]),
        (lambda: N % 2 == 1, True, ["(N%2)-1 == 0"]),
    ],
)
def test_an_answer_leaves_a_guard(
    question: Callable[[], bool], answer: bool, guards: list[str]
) -> None:
    assumption = Assumption({"N": 5, "M": 7})
    with assuming(assumption):
        actual = question()

    assert answer is actual
    assert guards == [f"{x} {relation} 0" for x, relation in assumption.guards]


@pytest.mark.parametrize(
    "question",
    [
        lambda: N == 6,  # code for extents that differ is right where they do not
        lambda: N == M,
        lambda: N != M + 1,
        lambda: N == N + 0,  # the same expression
        lambda: N * 2 - N == N,
        lambda: N - N == 0,  # a number
        lambda: (N * 6) % 3 == 0,
        lambda: N // N == 1,
        lambda: estimate(N) > 3,
        lambda: is_open(N),
        lambda: known(N * M),
        lambda: N in {M: 1, 3: 2},
    ],
)
def test_what_holds_anyway_leaves_no_guard(question: Callable[[], bool]) -> None:
    assert guards_of(question, N=5, M=7) == []


@pytest.mark.parametrize("special", [0, 1])
def test_that_an_extent_is_not_0_or_1_is_a_guard(special: int) -> None:
    assert guards_of(lambda: special == N, N=5) == [f"{N - special} != 0"]
    assert guards_of(lambda: special != N, N=special) == [f"{N - special} == 0"]


def test_counting_to_a_symbol_binds_it() -> None:
    assert guards_of(lambda: list(range(N)), N=3) == ["N-3 == 0"]
    assert guards_of(lambda: [0, 1, 2, 3][N], N=3) == ["N-3 == 0"]
    assert guards_of(lambda: int(N + 1), N=3) == ["N-3 == 0"]
    assert guards_of(lambda: N / 2, N=3) == ["N-3 == 0"]


def test_a_guard_is_kept_once() -> None:
    assert guards_of(lambda: [N < 8 for _ in range(5)], N=3) == ["N-8 < 0"]


def test_quotients_stay_expressions() -> None:
    with assuming(Assumption({"N": 50})) as assumption:
        quotient, rest = divmod(N, 16)

    assert assumption is not None and not assumption.guards
    assert [str(quotient), str(rest)] == ["(N//16)", "(N%16)"]
    assert [bind(d, {"N": 37}) for d in (quotient, rest)] == [2, 5]


@pytest.mark.parametrize("extent", range(40))
def test_ceil_div_rounds_up(extent: int) -> None:
    for by in (1, 2, 3, 16):
        expected = -(-extent // by)

        assert expected == ceil_div(extent, by)
        assert expected == bind(ceil_div(N, by), {"N": extent})


# ── what is known ──


def test_known_and_open_and_estimates() -> None:
    assert known(3) and not known(N) and not known("N")
    assert is_open(N) and not is_open(3)
    with assuming(Assumption({"N": 5})):
        assert known(N) and known(N * N // 3)
        assert not known(M) and not known(N + M)
        assert is_open(N)
        assert estimate(N * 2 + 1) == 11 and estimate(4) == 4
    assert not known(N)


def test_reading_an_expression_asks_nothing() -> None:
    with assuming(Assumption({"N": 5, "M": 2})) as assumption:
        assert str(parse("(N//M)")) == "(N//M)"
    assert assumption is not None and not assumption.guards


def test_symbols_without_a_value_cannot_be_asked() -> None:
    with assuming(Assumption({"N": 5})):
        with pytest.raises(AssertionError, match="M is open"):
            estimate(M)
        with pytest.raises(AssertionError, match="is open under"):
            _ = M < 3
    with pytest.raises(AssertionError, match="N is open"):
        estimate(N)
    with pytest.raises(TypeError, match="cannot decide N-3 < 0"):
        _ = N < 3


def test_without_an_assumption_expressions_are_objects() -> None:
    assert N and N - N + 1
    assert N != 5 and N != M and symbol("N") == N
    assert len({N, symbol("N"), N + 0, M}) == 2


def test_assumptions_nest_and_end() -> None:
    outer, inner = Assumption({"N": 5}), Assumption({"N": 7})
    with assuming(outer):
        with assuming(inner):
            assert int(N) == 7
        with assuming(None):
            assert assumed() is None and not known(N)
        assert int(N) == 5
    assert assumed() is None
    assert [list(a.guards) for a in (outer, inner)] == [[(N - 5, "==")], [(N - 7, "==")]]


def test_assumptions_end_where_something_is_raised() -> None:
    with pytest.raises(KeyError), assuming(Assumption({"N": 5})):
        raise KeyError
    assert assumed() is None


def test_threads_assume_on_their_own() -> None:
    seen: list[object] = []
    with assuming(Assumption({"N": 5})):
        thread = threading.Thread(target=lambda: seen.append(assumed()))
        thread.start()
        thread.join()

    assert seen == [None]


def test_an_assumption_holds_where_all_guards_do() -> None:
    assumption = Assumption({"N": 5, "M": 7})
    with assuming(assumption):
        _ = N < M, N % 5 == 0, N == 1
    served = [(n, m) for n in range(12) for m in range(12) if assumption.holds({"N": n, "M": m})]

    expected = [(n, m) for n in range(12) for m in range(12) if n < m and n % 5 == 0]
    assert expected == served
    assert not assumption.holds({"N": 5}), "M is not known"


# ── code for numbers, run on symbols ──


def tiles(n: Dim, m: Dim) -> list[Dim]:
    """Split n in blocks, the last one smaller, as templates do."""
    width = 16 if n >= 16 else 8 if n >= 8 else 1
    full, rest = divmod(n, width)
    return [full, rest, ceil_div(n, width), width * m]


def pooled(n: Dim, m: Dim) -> list[Dim]:
    """The extents of a pooling with padding that keeps sizes."""
    out = ceil_div(n, 2)
    total = max((out - 1) * 2 + 3 - n, 0)
    return [out, total // 2, total - total // 2, m]


def sliced(n: Dim, m: Dim) -> list[Dim]:
    """The clamping of slice bounds, one counted from the end."""
    start, stop = min(3, n), n - 2
    if stop < start:
        stop = start
    return [start, stop, stop - start, abs(m - n)]


def shaped(n: Dim, m: Dim) -> list[Dim]:
    """Strides of a shape, and where the largest extent stands."""
    shape = [n, m, n * m, 4]
    strides = [product(shape[i + 1 :]) for i in range(len(shape))]
    return [*strides, shape.index(max(shape)), *sorted([n, m])]


def unrolled(n: Dim, m: Dim) -> list[Dim]:
    """Loops that are unrolled: their count is no expression any more."""
    found: list[Dim] = []
    for i in range(min(n, 3)):
        found.append(m * i + n)
    return [len(found), *found]


def stretched(n: Dim, m: Dim) -> list[Dim]:
    """Broadcasting by the rule for extents of 1."""
    if n == 1:
        return [m]
    return [n] if m == 1 else [n, m]


def nested(n: Dim, m: Dim) -> list[Dim]:
    """Quotients of quotients and remainders."""
    if n > m:
        n, m = m, n
    return [n % 7 // 2, (n * m + 1) // 3 % 5, (m - n) // 4, (n + 1) * (m + 1) // (m + 1)]


CODES: tuple[Code, ...] = (tiles, pooled, sliced, shaped, unrolled, stretched, nested)


@pytest.mark.parametrize("code", CODES, ids=lambda c: c.__name__)
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.sampled(60)
def test_code_for_numbers_is_right_wherever_its_guards_hold(code: Code, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = {s: int(random.integers(0, 24)) for s in ("N", "M")}
    assumption = Assumption(values)
    with assuming(assumption):
        made = code(N, M)
    served = 0
    for n in range(24):
        for m in range(24):
            if assumption.holds({"N": n, "M": m}):
                served += 1
                expected = code(n, m)
                actual = [bind(d, {"N": n, "M": m}) for d in made]

                assert expected == actual, f"made for {values}, used for N={n}, M={m}"
    assert assumption.holds(values) and served > 0


@pytest.mark.parametrize("code", CODES, ids=lambda c: c.__name__)
def test_a_few_assumptions_cover_all_values(code: Code) -> None:
    made: list[Assumption] = []
    for n in range(40):
        for m in range(4, 9):
            if not any(a.holds({"N": n, "M": m}) for a in made):
                made.append(Assumption({"N": n, "M": m}))
                with assuming(made[-1]):
                    code(N, M)

    assert len(made) <= 20, "decisions bind more than they need"


# ── random programs ──


def walk(random: np.random.Generator, leaf: Mapping[str, Dim]) -> list[Dim]:
    """Compute and branch at random, the same way for the same answers."""
    pool: list[Dim] = [leaf["N"], leaf["M"], 2, 3]
    for _ in range(12):
        kind, i, j, c = (int(random.integers(k)) for k in (8, len(pool), len(pool), 9))
        x, y = pool[i], pool[j]
        match kind:
            case 0:
                pool.append(x + y)
            case 1:
                pool.append(x - y)
            case 2:
                pool.append(x * (c + 1))
            case 3:
                pool.append(x // (c + 1))
            case 4:
                pool.append(x % (c + 1))
            case 5:
                pool.append(x if x < y + c else y)
            case 6:
                pool.append(max(x, y))
            case 7:
                pool.append(abs(x - c))
    return pool[4:]


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.sampled(25)
def test_random_code_is_right_wherever_its_guards_hold(seed: int) -> None:
    values = {"N": 5 + seed % 11, "M": 3 + seed % 7}
    assumption = Assumption(values)
    with assuming(assumption):
        made = walk(np.random.default_rng(seed), {"N": N, "M": M})
    for n in range(0, 30, 2):
        for m in range(0, 30, 3):
            given = {"N": n, "M": m}
            if assumption.holds(given):
                expected = walk(np.random.default_rng(seed), given)
                actual = [bind(d, given) for d in made]

                assert expected == actual, f"made for {values}, used for {given}"
    assert assumption.holds(values)
    assert all(isinstance(x, Sym) and relation in RELATIONS for x, relation in assumption.guards)
