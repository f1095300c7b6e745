"""Names in files reach the terminal escaped and cut, whichever command prints them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from alpenglow.base.errors import ModelError, ParseError
from alpenglow.base.words import LONGEST, escaped, shown, told
from alpenglow.cli import cli
from alpenglow.ir.text import parse_graph

NAMES = {
    "title": "\x1b]0;owned\x07",
    "erase": "a\x1b[2J\x9bA\rb",
    "line": "x\nerror: fine\nok",
    "bidi": "\u202egnp.\u2066exe\u200f",
    "tab": "a\tb\x85c\u2028d",
    "long": "n" * 100_000,
    "words": "many words " * 9_000,
}

COMMANDS = [
    "run {}", "run {} --input absent=random", "compile {} -o x.ago", "bundle {} -o x", "show {}",
    "check {}", "verify {}", "reduce {} -o y.onnx --seconds 1", "bench {} --calls 1", "profile {}",
    "profile-ranges {} --data samples.npz -o x.yaml", "run {} --shapes x=9x9x9",
    "quantize {} --data samples.npz -o z.onnx", "show {} --after plan", "run {} --keep none",
]  # fmt: skip

LONGEST_LINE = 5000


def model(name: str, where: str) -> onnx.ModelProto:
    """Return a model with a name that means harm: of its values, or where it makes an error."""
    a, b, w, op, node = "x", "y", "w", "MatMul", "n"
    if where == "values":
        a, b, w, node = name + "a", name + "b", name + "w", name
    if where == "operator":
        op = name
    reads = name if where == "missing" else a
    nodes = [helper.make_node(op, [reads, w], ["h"], name=node),
             helper.make_node("Relu", ["h"], [b], name=node + "r")]  # fmt: skip
    wide = 4 if where != "type" else 3
    inputs = [helper.make_tensor_value_info(a, TensorProto.FLOAT, ["N" if where else name, wide])]
    if where == "type":
        nodes[0].name = name
    if where == "symbol":
        inputs[0].type.tensor_type.shape.dim[0].dim_param = name
    weights = [onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), w)]
    outputs = [helper.make_tensor_value_info(b, TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def folder(tmp_path: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")
    return tmp_path


@pytest.mark.parametrize("where", ["values", "operator", "missing", "type", "symbol"])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.sampled(3)
def test_no_command_prints_a_name_as_it_is(folder: Path, name: str, where: str) -> None:
    made = model(name, where)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    np.savez(folder / "samples.npz", x=np.ones((2, 1, 4), np.float32))
    extent = "" if where == "symbol" else " --dim N=1"
    lines = COMMANDS if where == "values" and len(name) < 20 else COMMANDS[:5]
    for line in lines:
        result = CliRunner().invoke(cli, (line.format("m.onnx") + extent).split())
        assert result.exit_code in (0, 1, 2), (line, result.output[:500])
        check(result.stdout + result.stderr, is_text=line.startswith("show"))


def check(printed: str, is_text: bool = False) -> None:
    for line in printed.split("\n"):
        assert line.isprintable(), repr(line[:300])
        assert not line.startswith(("error: fine", "ok")), line
        assert is_text or len(line) < LONGEST_LINE, len(line)


def test_the_text_of_a_graph_is_echoed_in_part() -> None:
    text = f"graph @f {{\n  {'%x' * 100_000}\n}}"
    with pytest.raises(ParseError) as caught:
        parse_graph(text)

    assert len(str(caught.value)) < 400


def test_whatever_is_said_of_a_file_is_one_line() -> None:
    error = ModelError("input 'a\nb' is \x1b[0m", node="N 'c\nd'", file="e\nf", hint="g\nh")

    assert str(error) == (
        "input 'a\\nb' is \\x1b[0m   (node N 'c\\nd', e\\nf)\n  try: g\\nh"
    )  # fmt: skip


def test_what_prints_stays_as_it_is() -> None:
    for text in ("conv1/weight:0", "Größe 日本語 é", "a 'b' c", "x" * LONGEST):
        assert escaped(text) == shown(text) == told(text) == text


def test_long_names_are_cut() -> None:
    long = "n" * 500

    assert shown(long) == "n" * LONGEST + "…"
    assert told(f"input '{long} {long}' of {long} 3") == (
        f"input '{'n' * LONGEST}…' of {'n' * LONGEST}… 3"
    )
    assert told("/folder" * 40) == "/folder" * 40


@pytest.mark.parametrize("message", [shown, told])
def test_of_a_long_path_the_end_is_kept(message: Callable[[str], str]) -> None:
    path = "/tmp/" + "a folder/" * 20 + "m.onnx"

    cut = message(path if message is shown else f"'{path}'").strip("'")

    assert cut == "…" + path[-LONGEST:]
