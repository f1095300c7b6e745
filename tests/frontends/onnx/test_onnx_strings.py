"""Operators that only move or compare strings work on ranks in a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, FeedError, ModelError
from alpenglow.frontends.onnx.hosted import find_hosted
from alpenglow.frontends.onnx.ranked import MOVERS
from alpenglow.frontends.onnx.table import find
from alpenglow.ops.host.demand import text
from alpenglow.runtime.staged.stages import Record
from onnx_host import LETTERS, assert_equal
from strings_drawn import DRAWS, Array, Case, Random, words

NEWEST = 25


def model_of(
    op_type: str, operands: Sequence[Array | None], outputs: int, constants: Collection[int] = (),
    opset: int = 21, domain: str = "", **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """Return a model of one node, of whose operands some are constants."""
    arrays = {f"x{i}": x for i, x in enumerate(operands) if x is not None}
    names = ["" if x is None else f"x{i}" for i, x in enumerate(operands)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, made, name="it", domain=domain, **attributes)
    fixed = [tensor_of(f"x{i}", arrays.pop(f"x{i}")) for i in constants if f"x{i}" in arrays]
    infos = [helper.make_tensor_value_info(n, kind(x), declared(x)) for n, x in arrays.items()]
    results = [helper.make_empty_tensor_value_info(y) for y in made]
    graph = helper.make_graph([node], "one", infos, results, fixed)
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 3)] if domain else []
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def declared(x: Array) -> list[int | None]:
    """Return a shape with open extents, but for how many indices spell a position."""
    shape: list[int | None] = [None] * x.ndim
    return [*shape[:-1], x.shape[-1]] if x.ndim == 2 and x.dtype != object else shape


def kind(x: Array) -> int:
    return TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)


def tensor_of(name: str, x: Array) -> onnx.TensorProto:
    if x.dtype != object:
        return numpy_helper.from_array(x, name)
    tensor = onnx.TensorProto(name=name, data_type=TensorProto.STRING, dims=x.shape)
    tensor.string_data.extend(s.encode() for s in x.flat)  # NumPy would drop NUL at the end
    return tensor


def is_storable(x: Array | None) -> bool:
    return x is not None and not any("\udc80" in s for s in x.flat if isinstance(s, str))


def run(
    op_type: str, operands: Sequence[Array | None], *, outputs: int = 1,
    constants: Collection[int] = (), target: str = "interpreter", **attributes: Any,
) -> list[Any]:  # fmt: skip
    """Return what a model of one node makes."""
    model = model_of(op_type, operands, outputs, constants, **attributes)
    fed = enumerate(operands)
    feeds = {f"x{i}": x for i, x in fed if x is not None and i not in constants}
    return list(ag.compile(model, target=target).run(feeds).values())


# ── each of them ──


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.__name__)
@pytest.mark.sampled(48)
def test_numpy_does_the_same_to_objects(draw: Callable[[Random], Case], seed: int) -> None:
    random = np.random.default_rng(seed)
    case = draw(random)
    storable = [i for i, x in enumerate(case.operands) if is_storable(x)]
    constants = [i for i in storable if random.random() < 0.4]
    actual = run(
        case.op_type, case.operands, outputs=len(case.results), constants=constants,
        domain=case.domain, target="cpu" if seed < 2 else "interpreter", **case.attributes,
    )  # fmt: skip

    assert_equal(list(case.results), actual)
    assert all(type(s) is str for y in actual if y.dtype == object for s in y.flat)


def test_all_of_them_are_drawn() -> None:
    random = np.random.default_rng(0)
    drawn = {(case.domain, case.op_type) for case in (draw(random) for draw in DRAWS)}

    # Identity copies whatever it is given; Scatter is ScatterElements by its old name.
    assert drawn == MOVERS - {("", "Identity"), ("", "Scatter")}


def test_each_has_a_converter_for_numbers_and_none_for_strings() -> None:
    for domain, op_type in MOVERS:
        opset = 10 if op_type == "Scatter" else NEWEST

        assert find(domain, op_type, opset), op_type
        assert op_type == "Identity" or not find_hosted(domain, op_type, opset), op_type


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "expected"),
    [
        ("Pad", (text("ab"), np.array([1, 2]), text("x", ())), {}, text("xabxx")),
        ("Pad", (text("abc"), np.array([2, -1])), {"mode": "reflect"}, text("abab")),
        ("Pad", (text("abc"), np.array([-1, 1])), {}, text(["b", "c", ""])),
        ("CenterCropPad", (text("abc"), np.array([6])), {}, text(["", "a", "b", "c", "", ""])),
        ("CenterCropPad", (text("abcde"), np.array([2])), {}, text("bc")),
        ("Slice", (LETTERS,), {"opset": 9, "starts": [1], "ends": [-1], "axes": [1]},
         text("be", (2, 1))),
        ("Slice", (LETTERS,), {"opset": 1, "starts": [1], "ends": [9]}, text("def", (1, 3))),
        ("Concat", (text("a"), text("b")), {"opset": 1, "axis": 0}, text("ab")),
        ("Reshape", (text("ab"),), {"opset": 1, "shape": [2, 1]}, text("ab", (2, 1))),
        ("Flatten", (LETTERS,), {"opset": 1, "axis": 0}, text("abcdef", (1, 6))),
        ("Split", (text("ab"),), {"opset": 1, "split": [2]}, text("ab")),
        ("Scatter", (LETTERS, np.array([[0, -1]]), text("xy", (1, 2))), {"opset": 9, "axis": 1},
         text("xbydef", (2, 3))),
        ("GatherND", (LETTERS, np.array([[1], [0]])), {"batch_dims": 1}, text("bd")),
        ("Gather", (text("ab"), np.array(-1)), {}, text("b", ())),
        ("Gather", (text([], (0, 2)), np.zeros(0, np.int64)), {}, text([], (0, 2))),
        ("Trilu", (LETTERS,), {}, text(["a", "b", "c", "", "e", "f"], (2, 3))),
        ("NonZero", (text(["", "a"]),), {}, np.array([[1]])),
        ("NonZero", (text([]),), {}, np.zeros((1, 0), np.int64)),
        ("Unique", (text([]),), {}, text([])),
        ("Shape", (text([], (0, 2)),), {"start": -1}, np.array([2])),
        ("ArrayFeatureExtractor", (text("abc"), np.array([1])), {"domain": "ai.onnx.ml"},
         text("b", (1, 1))),
        ("OneHot", (np.array([1]), np.array([0]), text("ab")), {}, text([], (1, 0))),
    ],
)  # fmt: skip
def test_value(
    op_type: str, operands: tuple[Array, ...], attributes: dict[str, Any], expected: Array
) -> None:
    constants = range(1, len(operands))

    assert_equal([expected], run(op_type, operands, **attributes))
    assert_equal([expected], run(op_type, operands, constants=constants, **attributes))


def test_bytes_are_moved_as_bytes() -> None:
    raw = np.array([b"b", b"", b"a"])
    padded = np.array([b"b", b"", b"a", b""], object)

    assert_equal([padded], run("Pad", [raw.astype(object), np.array([0, 1])]))
    with pytest.raises(FeedError, match=r"'x1' holds a bytes, expected str   \(node Concat 'it'"):
        run("Concat", [text("a"), raw.astype(object)], axis=0)


# ── models of several ──


def compiled(body: str) -> ag.Executable:
    header = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>'
    return ag.compile(onnx.parser.parse_model(f"{header} f {body}"), target="interpreter")


def hosts(exe: ag.Executable) -> list[str]:
    """Return the host operators of the last run."""
    return [r.host for r in exe.report() if isinstance(r, Record) and r.host]


def test_a_chain_is_encoded_once_and_decoded_once() -> None:
    exe = compiled("""(string[N, M] x, string[K] y) => (string[A, B] z) <string[1] c = {"?"}> {
        t = Transpose<perm = [1, 0]>(x)
        u = Concat<axis = -1>(t, t)
        v = Identity(u)
        e = Equal(v, y)
        z = Where(e, c, v) }""")
    for x in (LETTERS, text(["b", "é", "b", "é"], (2, 2))):
        y = text("b")
        twice = np.concatenate([x.T, x.T], -1)

        assert_equal(np.where(twice == "b", "?", twice), exe(x, y))
        assert hosts(exe) == ["encode_strings", "decode_strings"]


def test_constants_are_encoded_when_the_model_is_read() -> None:
    exe = compiled("""(int64[N] i) => (string[N] z) <string[3] c = {"b", "", "a"}> {
        z = Gather(c, i) }""")

    assert_equal(text(["a", "b", ""]), exe(np.array([2, 0, 1])))
    assert hosts(exe) == ["decode_strings"]


def test_constants_that_a_loop_captures_are_encoded_when_the_model_is_read() -> None:
    exe = compiled("""(int64[N] i, int64 count) => (string[K, N] rows)
        <string[3] c = {"b", "", "a"}> {
        on = Constant<value = bool {1}>()
        last, rows = Loop (count, on, i) <
            body = more (int64 turn, bool go, int64[N] at)
                => (bool go2, int64[N] at2, string[N] row)
                <int64 one = {1}, int64 three = {3}> {
                go2 = Identity(go)
                row = Gather(c, at)
                next = Add(at, one)
                at2 = Mod(next, three) }> }""")

    assert_equal(text(["b", "a", "", "b", "a", ""], (3, 2)), exe(np.array([0, 2]), np.array(3)))
    assert set(hosts(exe)) <= {"decode_strings"}


def test_a_run_with_other_words_takes_the_same_steps() -> None:
    exe = compiled("(string[N] x) => (string[M] y) { y = Concat<axis = 0>(x, x) }")
    for letters in ("aa", "ab", "zx"):
        assert_equal(text(letters * 2), exe(text(letters)))
    (first,) = exe._runner._starts.values()

    assert len(first.following) == 1


def test_strings_that_nobody_reads_are_not_decoded() -> None:
    exe = compiled("""(string[N] x) => (int64[1] n) <int64[1] start = {1}, int64[1] end = {9}> {
        t = Slice(x, start, end)
        n = Shape(t) }""")

    assert exe(text("abc")) == [2]
    assert hosts(exe) == ["encode_strings"]


def test_what_works_on_characters_is_given_strings() -> None:
    exe = compiled(
        """(string[N] x) => (string[A, N] z, string[N] u) <string[1] c = {"-"}> {
        t = Concat<axis = 0>(x, c)
        u, first = Unique(t)
        s = StringConcat(u, c)
        v = Unsqueeze(s, first)
        w = Shape(first)
        o = Sub(w, w)
        p = Unsqueeze(s, o)
        z = Concat<axis = 0>(p, p) }""".replace("v = Unsqueeze(s, first)", "")
    )
    z, u = exe(text("ba"))

    assert_equal(text("-ab"), u)
    assert_equal(text(["--", "a-", "b-"] * 2, (2, 3)), z)


def test_strings_go_through_branches_and_loops() -> None:
    exe = compiled("""(string[N] x, bool flip, int64 count) => (string[M] z, string[K, N] rows)
        <string[1] c = {"end"}> {
        true = Constant<value = bool {1}>()
        y = If (flip) <
            then_branch = reversed () => (string[N] a) {
                start = Constant<value_ints = [-1]>()
                stop = Constant<value_ints = [-99]>()
                zero = Constant<value_ints = [0]>()
                a = Slice(x, start, stop, zero, start) },
            else_branch = kept () => (string[N] b) { b = Identity(x) }>
        z, rows = Loop (count, true, y) <
            body = more (int64 i, bool on, string[M] seen)
                => (bool on2, string[L] longer, string[N] row) {
                on2 = Identity(on)
                longer = Concat<axis = 0>(seen, c)
                row = Where(flip, x, y) }> }""")
    for flip, order in ((True, "ba"), (False, "ab")):
        z, rows = exe(text("ab"), np.array(flip), np.array(2))

        assert_equal(text([*order, "end", "end"]), z)
        assert_equal(text("abab", (2, 2)), rows)


def test_ranks_are_the_right_ones_wherever_the_import_is_cut() -> None:
    exe = compiled("""(string[N] x, string[K] y, bool flag) =>
        (string[A] z, string[B] w, string[C] v, string[D] k)
        <string[2] c = {"q", ""}, int64 zero = {0}, int64 one = {1}> {
        u, first, inverse = Unique(x)
        z = Gather(u, inverse)
        longer = Concat<axis = 0>(z, c)
        s = StringConcat(longer, nothing)
        nothing = Gather(c, one)
        start = Gather(y, zero)
        same = Equal(longer, start)
        w = Compress<axis = 0>(longer, same)
        all = Concat<axis = 0>(w, s, y)
        v, places = Unique<sorted = 0>(all)
        k = If (flag) <
            then_branch = joined () => (string[P] p) { p = Concat<axis = 0>(w, v) },
            else_branch = kept () => (string[P] p) { p = Identity(u) }> }""")
    random = np.random.default_rng(0)
    for _ in range(40):
        x, y = (words(random, random.integers(1, 6, 1)) for _ in range(2))
        flag = bool(random.integers(2))
        longer = [*x, "q", ""]
        same = [word for word in longer if word == y[0]]
        different = list(dict.fromkeys([*same, *longer, *y]))
        z, w, v, k = exe(x, y, np.array(flag))

        assert_equal(x, z)
        assert_equal(text(same), w)
        assert_equal(text(different), v)
        assert_equal(text([*same, *different] if flag else sorted(set(x))), k)


def test_a_sequence_may_hold_strings_that_are_moved() -> None:
    exe = compiled(
        """(string[N] x, int64 i) => (string[M] z) {
        t = Concat<axis = 0>(x, x)
        s = SequenceConstruct(x, t)
        e = SequenceAt(s, i)
        z = Tile(e, one) }""".replace("(string[M] z) {", "(string[M] z) <int64[1] one = {1}> {")
    )

    assert_equal(text("abab"), exe(text("ab"), np.array(1)))
    assert_equal(text("ab"), exe(text("ab"), np.array(0)))


def test_other_strings_are_encoded_anew() -> None:
    exe = compiled("""(string[N] x, string[N] y) => (bool[N] e, string[N] z) {
        e = Equal(x, y)
        z = Where(e, x, y) }""")
    for x, y in (("ab", "ac"), ("zz", "az"), ("", ""), ("abc", "cba")):
        e, z = exe(text(x), text(y))

        assert e.tolist() == [a == b for a, b in zip(x, y, strict=True)]
        assert_equal(text(y), z)


# ── what is refused ──


TWO = np.array([0, 0])


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "why"),
    [
        ("Reshape", (LETTERS, np.array([4, -1])), {}, r"the new shape is \(.*4, .*-1\), expected"),
        ("Reshape", (LETTERS, np.array([1, 1, 0])), {}, "expected no 0 at 2"),
        ("Squeeze", (LETTERS, np.array([0])), {}, "axis 0 of .*=2, expected 1"),
        ("Transpose", (LETTERS,), {"perm": [0, 0]}, "expected each axis of"),
        ("Expand", (LETTERS, np.array([4])), {}, "do not broadcast"),
        ("Tile", (LETTERS, np.array([1])), {}, "repeats has 1 entries"),
        ("Concat", (LETTERS, text("ab")), {"axis": 0}, "expected .* except on axis 0"),
        ("Concat", (LETTERS, LETTERS), {"axis": 2}, "axis is 2, expected -2 to 1"),
        ("Slice", (LETTERS, np.array([0]), TWO), {}, "expected equal numbers"),
        ("Pad", (LETTERS, np.array([0])), {}, "1 pads given"),
        ("Gather", (LETTERS, np.array(2)), {}, "Gather 'it': an index on axis 0 is 2, .* -2 to 1"),
        ("Gather", (LETTERS, np.array([0, -3])), {}, "an index on axis 0 is -3"),
        ("Gather", (text([]), np.array(0)), {}, "expected an element on axis 0"),
        ("Gather", (LETTERS, np.zeros(1)), {}, "expected an element type among"),
        ("GatherElements", (LETTERS, np.array([0])), {}, "expected rank 2"),
        ("GatherND", (LETTERS, np.array([[0, 0, 0]])), {}, "expected a last axis of 1 to 2"),
        ("ScatterND", (LETTERS, np.array([[0, 0]]), text("ab")), {}, "updates are"),
        ("ReverseSequence", (LETTERS, np.array([1, 4])), {"batch_axis": 0, "time_axis": 1},
         "a sequence length is 4"),
        ("Where", (np.array(1), LETTERS, LETTERS), {}, "condition is i64"),
        ("Where", (np.array(True), LETTERS, TWO), {}, "'x2' holds numbers, expected strings"),
        ("Concat", (LETTERS, np.ones((2, 3))), {"axis": 0}, "'x1' holds numbers, expected str"),
        ("OneHot", (TWO, np.array(2), text("abc")), {}, "expected two: off and on"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_at_its_node(
    op_type: str, operands: tuple[Array, ...], attributes: dict[str, Any], why: str
) -> None:
    with pytest.raises(FeedError, match=why) as caught:
        run(op_type, operands, **attributes)

    assert f"{op_type} 'it'" in str(caught.value)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "error", "why"),
    [
        ("ScatterND", (LETTERS, TWO[None], text("a")), {"reduction": "add"}, ModelError,
         "reduction is 'add', expected none for strings"),
        ("ScatterElements", (LETTERS, TWO[None], text("ab", (1, 2))), {"reduction": "max"},
         ModelError, "reduction is 'max'"),
        ("Slice", (LETTERS,), {"opset": 1, "starts": [0], "ends": [1, 2]}, ModelError,
         "expected equal numbers"),
        ("SpaceToDepth", (text("a", (1, 1, 1, 1)),), {"blocksize": 0}, FeedError, "is 0 for"),
        ("ReverseSequence", (LETTERS, TWO), {"batch_axis": 0}, FeedError, "both axis 0"),
        ("Pad", (text("a"), TWO), {"opset": 12}, ModelError, "holds no numbers, expected"),
        ("Equal", (text("a"), text("a")), {"opset": 18}, ModelError, "holds no numbers, expected"),
        ("Gather", (LETTERS, LETTERS), {}, ModelError, "'x1' holds no numbers, expected"),
        ("Add", (LETTERS, LETTERS), {}, ModelError, "'x0' holds no numbers, expected"),
    ],
)  # fmt: skip
def test_a_wrong_node_is_refused(
    op_type: str, operands: tuple[Array, ...], attributes: dict[str, Any],
    error: type[AlpenglowError], why: str,
) -> None:  # fmt: skip
    with pytest.raises(error, match=why):
        run(op_type, operands, **attributes)


def test_what_is_no_tensor_is_refused_by_its_name() -> None:
    exe = compiled("""(seq(string[N]) x, string[N] y) => (string[M] z) {
        z = Concat<axis = 0>(y, x) }""")

    with pytest.raises(FeedError, match=r"'x' is a sequence of 1.*\n?.*Concat 'z'"):
        exe([text("a")], text("b"))
