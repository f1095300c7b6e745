"""Inputs that are constants: of ONNX models, of graphs, of programs of other formats, by the
command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.ir.constant_inputs import fix
from alpenglow.ir.graph import Graph
from alpenglow.ir.metadata import Metadata
from alpenglow.ir.structure import Keyed, Leaf, Structure
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.tensor.movement import Broadcast
from command import alpenglow
from encoder_decoder_cases import ENCODER, feeds, merged

Array = NDArray[Any]
BRANCH = "use_cache_branch"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def scaled() -> Graph:
    """Return x times s, plus b."""
    g = ag.Graph("scaled")
    x, s, b = g.input("x", "f32[N,3]"), g.input("s", "f32[1]"), g.input("b", "f32[N,3]")
    g.output("y", g(Add(), g(Mul(), x, g(Broadcast(x.type.shape), s)), b))
    return g


def onnx_model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


AXES = """m (float[N,3] x, int64[K] axes, float s) => (float[M,P] y)
{t = ReduceSum(x, axes) y = Mul(t, s)}"""


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_a_graph_with_constants_computes_what_it_computes_when_they_are_fed(target: str) -> None:
    g = scaled()
    expected = ag.compile(g, target=target)(X, np.array([3], np.float32), 2 * X)
    for constants in ({"s": 3.0, "b": 2 * X}, {"s": [3.0], "b": (2 * X).tolist()}):
        exe = ag.compile(g, target=target, constants=constants)

        assert {n: str(t) for n, t in exe.inputs.items()} == {"x": "f32[2,3]"}
        np.testing.assert_array_equal(exe(X), expected)
    assert list(g.inputs) == ["x", "s", "b"]


def test_a_constant_is_a_copy() -> None:
    b = 2 * X
    exe = ag.compile(scaled(), constants={"b": b}, target="interpreter")
    b[:] = 0

    np.testing.assert_array_equal(exe(X, np.zeros(1, np.float32)), 2 * X)


def test_a_model_that_depends_on_its_data_does_so_no_more() -> None:
    model = onnx_model(AXES)
    staged = ag.compile(model)
    for axes in ([0], [1], [0, 1]):
        exe = ag.compile(model, constants={"axes": axes, "s": 2.0})

        assert list(exe.inputs) == ["x"]
        np.testing.assert_array_equal(exe(X), staged(X, axes, np.float32(2)))
    partly = ag.compile(model, constants={"s": 2.0})
    np.testing.assert_array_equal(partly(X, [1]), staged(X, [1], np.float32(2)))


def test_strings_and_inputs_of_no_rank_can_be_constants() -> None:
    model = onnx_model("m (string[N] s, float[3] x) => (int64[N] y, float[3] z)"
                       "{y = LabelEncoder<keys_strings=[\"a\",\"b\"], values_int64s=[5,6]>(s)"
                       " z = Neg(x)}")  # fmt: skip
    model.opset_import.add(domain="ai.onnx.ml", version=2)
    model.graph.node[0].domain = "ai.onnx.ml"
    open_rank = onnx_model("m (float[3] x, float[1] s) => (float[3] y) {y = Mul(x, s)}")
    open_rank.graph.input[1].type.tensor_type.ClearField("shape")

    results = ag.compile(model, constants={"s": ["b", "a", "c"]}).run({"x": X[0]})
    np.testing.assert_array_equal(results["y"], [6, 5, -1])
    s = np.array([2], np.float32)
    np.testing.assert_array_equal(ag.compile(open_rank, constants={"s": s})(X[0]), 2 * X[0])
    with pytest.raises(OptionError, match="not all elements are strings"):
        ag.load(model, constants={"s": ["a", 3]})


def test_what_only_other_branches_read_is_no_input() -> None:
    begins, goes_on = (ag.load(merged(), constants={BRANCH: x}) for x in (False, True))
    assert isinstance(begins, Graph) and isinstance(goes_on, Graph)

    assert list(begins.inputs) == list(feeds(1))
    assert list(goes_on.inputs)[:2] == ["input_ids", "encoder_attention_mask"]
    assert "encoder_hidden_states" not in goes_on.inputs
    assert {f"past_key_values.{n}" for n in ENCODER} < goes_on.inputs.keys()


def test_state_of_two_decoders_in_one_file_wants_to_know_which() -> None:
    with pytest.raises(UnsupportedError, match="run in parts") as refusal:
        ag.compile(merged(), state=True)
    assert refusal.value.hint == "where an input decides, tell it: constants={'NAME': value}"


def test_an_input_whose_extent_others_need_stays() -> None:
    then = "then_branch = t () => (float[K] a) {a = Identity(x)}"
    other = "else_branch = e () => (float[M] b) {b = Neg(w)}"
    model = onnx_model("m (bool c, float[K] x, float[M] w, float[3] unread)"
                       f" => (float[L] y) {{y = If(c)<{then}, {other}>}}")  # fmt: skip
    model.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "K * K"

    inputs = {c: list(ag.load(model, constants={"c": c}).inputs) for c in (True, False)}
    assert inputs == {True: ["x", "unread"], False: ["x", "w", "unread"]}
    w = np.arange(4, dtype=np.float32)
    exe = ag.compile(model, constants={"c": False})
    np.testing.assert_array_equal(exe.run({"w": w, "x": w[:2], "unread": w[:3]})["y"], -w)


@pytest.mark.parametrize(
    ("constants", "why"),
    [
        ({"nothing": 1}, "constants names nothing, expected inputs: x, s, b"),
        ({"s": np.zeros(1)}, r"constant 's' is float64, expected f32\[1\]"),
        ({"s": True}, r"constant 's' is bool, expected f32\[1\]"),
        ({"s": np.zeros(2, np.float32)}, r"constant 's' has shape \(2,\), expected f32\[1\]"),
        ({"s": np.zeros((), np.float32)}, r"constant 's' has shape \(\), expected f32\[1\]"),
        ({"b": 1.0}, r"constant 'b' has shape \(\), expected f32\[N(_2)?,3\]"),
        ({"b": np.zeros((2, 4), np.float32)}, r"has shape \(2, 4\), expected f32\[N(_2)?,3\]"),
        ({"s": "one"}, "constant 's' is <U3"),
        ({"s": [[1.0], [2.0, 3.0]]}, "cannot be read, expected"),
        ({"s": np.ma.masked_array([1.0])}, "masked array"),
        ({"s": None}, "constant 's' is object"),
        ([1.0], "expected a dict from names of inputs to values"),
    ],
)
def test_what_is_no_constant_is_refused(constants: Any, why: str) -> None:
    text = "scaled (float[N,3] x, float[1] s, float[N,3] b) => (float[N,3] y)"
    model = onnx_model(f"{text} {{t = Mul(x, s) y = Add(t, b)}}")

    for source in (scaled(), model):
        with pytest.raises(OptionError, match=why):
            ag.compile(source, constants=constants)


def test_constants_of_shapes_that_contradict_each_other_are_refused() -> None:
    g = scaled()
    constants = {"x": X, "b": X[:1]}

    with pytest.raises(ag.errors.ModelError, match=r"is \(1, 3\), expected f32\[N,3\]"):
        ag.compile(g, constants=constants)
    with pytest.raises(OptionError, match="imported in parts"):
        ag.compile(ag.load(onnx_model(AXES)), constants={"s": 1.0})


def test_variables_are_no_inputs() -> None:
    g = ag.Graph("counter")
    before = g.variable("count", np.zeros(1, np.float32))
    after = g(Add(), before, g.input("x", "f32[1]"))
    g.assign("count", after)
    g.output("y", after)

    with pytest.raises(OptionError, match="names count, expected inputs: x"):
        ag.compile(g, constants={"count": 1.0})
    session = ag.compile(g, constants={"x": 2.0}).session()
    assert [float(session()[0]) for _ in range(3)] == [2, 4, 6]


def test_kept_compilations_are_those_of_the_same_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "store"))
    path = tmp_path / "model.onnx"
    onnx.save(onnx_model("m (float[2,3] x, float[1] s) => (float[2,3] y) {y = Mul(x, s)}"), path)
    for _ in range(2):
        for s in (2.0, 3.0, [4.0], np.array([5], np.float32), None):
            exe = ag.compile(path, constants={} if s is None else {"s": s})
            fed = (X, np.ones(1, np.float32)) if s is None else (X,)

            np.testing.assert_array_equal(exe(*fed), X * np.float32(np.squeeze(s or 1)))
    with pytest.raises(OptionError, match="has shape"):
        ag.compile(path, constants={"s": np.array(2, np.float32)})


def test_parameters_that_are_constants_are_left_out_of_calls() -> None:
    g = scaled()
    tree = Keyed("dict", (("scale", Leaf("s")), ("bias", Leaf("b"))))
    whole = Structure((("x", Leaf("x")), ("rest", tree)), 2, Keyed("dict", (("y", Leaf("y")),)))
    g.metadata = Metadata(structure=whole)
    ones = {"scale": np.ones(1, np.float32), "bias": X}

    assert list(ag.compile(fix(g, {"x": X}))(ones)) == ["y"]
    np.testing.assert_array_equal(ag.compile(fix(g, {"x": X}))(rest=ones)["y"], 2 * X)
    assert fix(g, {"s": 1.0}).metadata.structure is None
    np.testing.assert_array_equal(ag.compile(g, constants={"s": 1.0})(X, X), 2 * X)


def test_the_command_line_takes_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx_model("m (float[2,3] x, bool[1] c) => (float[2,3] y)"
                         "{s = Squeeze(c) y = If(s)<then_branch = t () => (float[2,3] a)"
                         "{a = Identity(x)}, else_branch = e () => (float[2,3] b) {b = Neg(x)}>}"),
              "model.onnx")  # fmt: skip
    np.save("c.npy", np.array([False]))
    np.save("x.npy", X)
    for value, expected in (("true", X), ("True", X), ("[true]", X), ("c.npy", -X)):
        alpenglow(f"compile model.onnx --constants c={value} -o model.ago")
        alpenglow("run model.ago --input x=x.npy --output out")

        np.testing.assert_array_equal(np.load("out/y.npy"), expected)
    assert "1 input" not in alpenglow("check model.onnx --constants c=true").output
    for line, why in (
        ("run model.onnx --constants c", "expected NAME=VALUE"),
        ("run model.onnx --constants c=yes", "expected true, false, a number"),
        ("run model.onnx --constants c=no.npy", "expected true, false, a number"),
        ("run model.onnx --constants c=1", "constant 'c' is int64, expected bool"),
        ("run model.onnx --constants d=1", "constants names d"),
        ("run model.onnx --constants c=true --constants c=true", "twice"),
        ("run model.ago --constants c=true", "is not supported here: MODEL has been imported"),
        ("reduce model.onnx --constants c=true -o small.onnx", "with all its inputs"),
    ):
        assert why in alpenglow(line, code=2).output


def test_a_bundle_of_one_of_two_decoders_is_written(tmp_path: Path) -> None:
    bundle = ag.bundle(merged(), tmp_path / "later", format="c", constants={BRANCH: True},
                       shapes={"input_ids": (1, 1), "encoder_attention_mask": (1, 5)},
                       state=True, length=8)  # fmt: skip

    assert "past_key_values.0.decoder.key" in str(bundle)
    with pytest.raises(UnsupportedError, match="depends on its data"):
        ag.bundle(merged(), tmp_path / "both")
