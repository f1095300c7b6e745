"""Structures of calls: taken apart, put together, written and read."""

from __future__ import annotations

import json

import pytest

from alpenglow.ir.structure import Fixed, Keyed, Leaf, Several, Structure, of_plain, without

TREE = Keyed("dict", (("a", Several("list", (Leaf("p"), Fixed(None)))), (3, Leaf("q"))))
STRUCTURE = Structure((("x", Leaf("x")), ("d", TREE)), 1, Several("tuple", (Leaf("y"), Fixed(2))))


def test_what_is_written_is_read() -> None:
    assert of_plain(json.loads(json.dumps(STRUCTURE.plain()))) == STRUCTURE


def test_a_call_is_taken_apart_and_results_are_put_together() -> None:
    feeds = STRUCTURE.feeds((1,), {"d": {"a": [2, None], 3: 4}})

    assert feeds == {"x": 1, "p": 2, "q": 4}
    assert STRUCTURE.results({"y": 5}) == (5, 2)


def test_tensors_in_order_are_plain() -> None:
    flat = (("x", Leaf("x")), ("y", Leaf("y")))

    assert Structure(flat, 2, Leaf("z")).is_plain
    assert Structure(flat, 2, Several("tuple", (Leaf("a"), Leaf("b")))).is_plain
    assert not Structure(flat, 2, Several("tuple", (Leaf("a"),))).is_plain
    assert not Structure(flat, 2, Several("tuple", (Leaf("a"), Leaf("a")))).is_plain
    assert not STRUCTURE.is_plain


DEEP: object = "x"
for _ in range(100):
    DEEP = ["list", DEEP]


@pytest.mark.parametrize(
    "wrong",
    [3, [], [[], -1, "y"], [[], 1, "y"], [[["x", 3]], 0, "y"], [[[1, "x"]], 0, "y"],
     [[], 0, ["set", "y"]], [[], 0, ["is", []]], [[], 0, ["dict", [1.5, "y"]]], [[], 0, DEEP]],
)  # fmt: skip
def test_what_is_no_structure_is_refused(wrong: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        of_plain(wrong)


def test_parameters_and_results_are_left_out_whole_or_not_at_all() -> None:
    state = Several("tuple", (Leaf("k"), Keyed("dict", (("v", Leaf("v")),))))
    structure = Structure(
        (*STRUCTURE.parameters, ("past", state)), 3, Several("tuple", (Leaf("y"), state))
    )

    assert without(structure, {"k", "v"}, {"k", "v"}) == Structure(
        STRUCTURE.parameters, 2, Leaf("y")
    )
    assert without(structure, {"k"}) is None
    assert without(structure, (), {"y", "k", "v"}) is None
    assert without(structure, {"x"}, {"v"}) == Structure(
        structure.parameters[1:], 2, Several("tuple", (Leaf("y"), Several("tuple", (Leaf("k"),))))
    )
