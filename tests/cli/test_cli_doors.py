"""What people type: other ways in, other ways to write shapes, and words with a letter wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.cli import cli
from alpenglow.cli.options import parse_seconds, parse_shapes
from alpenglow.compiler import require_closed
from alpenglow.debug import peer
from alpenglow.ops.product.contraction import MatMul
from command import alpenglow, answer


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, ["N", 3])],
        [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        "model.onnx",
    )
    return tmp_path / "model.onnx"


def test_the_package_is_a_command() -> None:
    made = subprocess.run([sys.executable, "-m", "alpenglow", "--version"], capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert made.stdout.startswith("alpenglow, version ")


@pytest.mark.parametrize(
    ("word", "meant"), [("rnu", "run"), ("Verify", "verify"), ("bnech", "bench")]
)
def test_a_command_with_a_letter_wrong_is_told(word: str, meant: str) -> None:
    assert f"did you mean '{meant}'?" in alpenglow(word, 2).stderr


def test_what_is_like_no_command_is_refused_plainly() -> None:
    told = alpenglow("xyzzy", 2).stderr
    assert "command is 'xyzzy', expected" in told
    assert "mean" not in told


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--json run model.onnx", "follow it: alpenglow run MODEL --json"),
        ("--dim N=1 model.onnx", "follow it: alpenglow COMMAND MODEL --dim"),
        ("--versoin", "did you mean '--version'?"),
        ("show model.onnx --dim N=2 --after fuze", "'fuze'; did you mean 'fuse'?"),
        ("show model.onnx --dim N=2 --after xyzzy", "'xyzzy'\n  try: import, "),
        ("run model.onnx --dim N=2 --target x86-64-v9", "try: 'x86-64-v4'"),
        ("run model.onnx --input foo=x.npy", "--input names foo, expected inputs: x"),
        ("run model.onnx --dim N=2 --input foo=random", "--input names foo, expected inputs: x"),
        ("run model.onnx --input x=x.npy --shapes foo=1", "shapes names 'foo', expected inputs"),
        ("bundle model.onnx --dim N=2 -o out --entry while", "try: --entry model_while"),
        ("run model.onnx", "try: --dim N=1, or --shapes 'x=1x3'; with"),
    ],
)
def test_what_is_wrong_is_told_where_it_was_said(model: Path, line: str, says: str) -> None:
    np.save("x.npy", np.ones((2, 3), np.float32))

    assert says in alpenglow(line, 2).stderr


def test_a_hint_is_for_whoever_reads_it(model: Path) -> None:
    assert "shapes={" not in alpenglow("run model.onnx", 2).stderr
    with pytest.raises(UnsupportedError, match=r"try: shapes={'x': \(1, 3\)}") as caught:
        require_closed(ag.load("model.onnx"))
    assert "--dim" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "run model.onnx --input x=model.onnx",
        "run model.onnx --feeds objects.npz",
        "run model.onnx --dim N=2 --feeds model.onnx",
        "quantize model.onnx --data model.onnx -o q.onnx",
        "profile-ranges model.onnx --data objects.npz -o r.yaml",
    ],
)
def test_nobody_is_advised_to_unpickle(model: Path, line: str) -> None:
    np.savez("objects.npz", x=np.array([{}], object))
    found = alpenglow(line, 2).stderr

    assert "pickle" not in found and "neither .npy nor .npz" in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=1x3", {"x": (1, 3)}),
        ("x=[1,3],y=4", {"x": (1, 3), "y": (4,)}),
        ("x=1,3,y=2x2", {"x": (1, 3), "y": (2, 2)}),
        ("x=1,3,32,32", {"x": (1, 3, 32, 32)}),
        ("a=[5]", {"a": (5,)}),
        ("a=5,b=", {"a": (5,), "b": ()}),
    ],
)
def test_shapes_are_read_as_other_tools_write_them(
    text: str, expected: dict[str, tuple[int, ...]]
) -> None:
    assert parse_shapes((text,)) == expected


def test_a_model_comes_through_standard_input(model: Path) -> None:
    before = set(Path(os.environ.get("TMPDIR", "/tmp")).glob("alpenglow-*/piped.onnx"))
    made = CliRunner().invoke(cli, ["run", "-", "--shapes", "x=2,3"], input=model.read_bytes())
    assert made.exit_code == 0, made.output
    assert "y : f32[2,3]" in made.stdout
    assert set(Path(os.environ.get("TMPDIR", "/tmp")).glob("alpenglow-*/piped.onnx")) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are Unix's")
def test_a_model_comes_through_a_pipe(model: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(model.read_bytes()))
    writer.start()
    found = answer(f"run {pipe} --shapes x=[2,3]")
    writer.join()
    assert found["outputs"][0]["type"] == "f32[2,3]"


def test_verify_says_with_what_it_compared(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = "--shapes x=2x3"
    assert alpenglow(f"verify model.onnx {shapes}").stdout.count(" ok") == 2
    assert "tolerance 0.0001 of" in alpenglow(f"verify model.onnx {shapes}").stdout
    monkeypatch.setattr(peer, "installed", lambda: False)
    assert "not compared with ONNX Runtime: it is not installed" in alpenglow(
        f"verify model.onnx {shapes}").stdout  # fmt: skip
    assert "not installed" in answer(f"verify model.onnx {shapes}")["not_compared"]["ONNX Runtime"]
    refused = alpenglow(f"verify model.onnx {shapes} --against onnxruntime", 2)
    assert "pip install onnxruntime" in refused.stderr


def test_a_folder_and_a_missing_file_are_told_as_before(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    assert "error:" in alpenglow(f"run {tmp_path}", 2).stderr
    assert "error:" in alpenglow(f"run {tmp_path / 'none.onnx'}", 2).stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run", "error: Missing argument 'MODEL'.\n  try: "),
        ("run model.onnx --numerics quick", "error: Invalid value for '--numerics'"),
        ("run model.onnx --nope", "error: No such option"),
        ("--nope", "error: '--nope' is not supported before the command"),
        ("rnu model.onnx", "error: command is 'rnu', expected one that alpenglow --help lists"),
    ],
)
def test_what_click_refuses_is_printed_as_other_errors(model: Path, line: str, says: str) -> None:
    printed = alpenglow(line, 2).stderr
    assert printed.startswith(says)
    assert "Error" not in printed


def test_a_text_without_its_constants_says_where_they_are(model: Path) -> None:
    g = ag.Graph("g")
    x, w = g.input("x", "f32[2,64]"), g.constant(np.ones((64, 3), np.float32))
    g.output("y", g(MatMul(), x, w))
    ag.export_onnx(g, "product.onnx")
    alpenglow("show product.onnx -o product.txt")
    Path("product.txt").rename("renamed.txt")
    assert "try: bring renamed.txt.npz beside it" in alpenglow("run renamed.txt", 2).stderr
    Path("product.txt.npz").rename("renamed.txt.npz")
    alpenglow("run renamed.txt")


@pytest.mark.parametrize("text", ["100us", "100µs", "100μs", "100 µs", "0.1ms"])
def test_a_microsecond_is_written_in_every_way(text: str) -> None:
    assert parse_seconds(text, "--budget") == pytest.approx(1e-4)
