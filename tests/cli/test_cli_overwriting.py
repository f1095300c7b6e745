"""Commands refuse to write over a file that they read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import alpenglow as ag
from alpenglow import cli
from alpenglow.cli.files import Written
from alpenglow.ops.elementwise.activation import Relu
from command import alpenglow
from tiny_models import info, made

COMMANDS = {
    "compile MODEL -o OUT": ".onnx",
    "show MODEL -o OUT": ".onnx",
    "convert MODEL -o OUT": ".onnx",
    "reduce MODEL -o OUT": ".onnx",
    "quantize MODEL --data samples.npz -o OUT": ".onnx",
    "quantize MODEL --data samples.npz -o q.onnx --report OUT": ".onnx",
    "profile-ranges MODEL --data samples.npz -o OUT": ".onnx",
    "place MODEL --worker a=cpu -o OUT": ".onnx",
    "tune MODEL -o OUT": ".onnx",
    "train MODEL --data samples.npz -o OUT": ".onnx",
    "train MODEL --data samples.npz --curve OUT": ".onnx",
    "train MODEL --data samples.npz --checkpoint OUT": ".onnx",
    "profile MODEL --trace OUT": ".onnx",
    "show other.onnx --key MODEL -o OUT": ".pem",
    "sign a.ago --key MODEL -o OUT": ".pem",
    "profile-ranges other.onnx --data MODEL -o OUT": ".npz",
    "reduce other.onnx --input x=MODEL -o OUT": ".npy",
    "show other.onnx --constants x=MODEL -o OUT": ".npy",
    "reduce other.onnx --feeds MODEL -o OUT": ".npz",
    "quantize other.onnx --data samples.npz --ranges MODEL -o OUT": ".yaml",
}
"""Commands with a file that they read and one that they write, and how its name ends."""

WAYS: dict[str, Callable[[Path, Path], object]] = {
    "by a symbolic link": lambda model, out: out.symlink_to(model),
    "by a hard link": lambda model, out: os.link(model, out),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    w = numpy_helper.from_array(np.ones((3, 400), np.float32), "w")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    onnx.save(made([node], [info("x")], [w]), "other.onnx")
    x = np.ones((2, 3), np.float32)
    np.savez("samples.npz", x=x)
    np.save("x.npy", x)
    return tmp_path


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("way", [None, *WAYS])
def test_a_file_that_is_read_is_not_written(folder: Path, line: str, way: str | None) -> None:
    ending = COMMANDS[line]
    model = folder / f"model{ending}"
    sources = {".onnx": "other.onnx", ".npz": "samples.npz", ".npy": "x.npy"}
    content = Path(sources.get(ending, "other.onnx")).read_bytes()
    model.write_bytes(content)
    out = model if way is None else folder / f"out{ending}"
    if way is not None:
        WAYS[way](model, out)

    told = alpenglow(line.replace("MODEL", model.name).replace("OUT", str(out)), 2).stderr

    assert "expected another file" in told
    assert model.read_bytes() == content


def test_what_belongs_to_a_model_is_not_written(folder: Path) -> None:
    onnx.save(onnx.load("other.onnx"), "large.onnx", save_as_external_data=True,
              location="weights.bin", size_threshold=0)  # fmt: skip
    weights = Path("weights.bin").read_bytes()
    alpenglow("show large.onnx -o t.txt")
    constants = Path("t.txt.npz").read_bytes()

    for line in ("compile large.onnx -o weights.bin", "show large.onnx -o ./weights.bin",
                 "compile t.txt -o t.txt.npz"):  # fmt: skip
        assert "a part of what MODEL names" in alpenglow(line, 2).stderr
    # What stands beside an output counts, too.
    Path("u.txt.npz").symlink_to(folder / "weights.bin")
    assert "-o: u.txt.npz is a part" in alpenglow("show large.onnx -o u.txt", 2).stderr
    assert Path("weights.bin").read_bytes() == weights
    assert Path("t.txt.npz").read_bytes() == constants


def test_two_outputs_are_two_files(folder: Path) -> None:
    line = "quantize other.onnx --data samples.npz -o small.md"
    assert "--report: small.md is the file that -o writes" in alpenglow(line, 2).stderr


def test_arrays_that_are_read_are_not_written_by_run(folder: Path) -> None:
    Path("results").mkdir()
    np.save("results/y.npy", np.ones((2, 3), np.float32))
    before = Path("results/y.npy").read_bytes()

    told = alpenglow("run other.onnx --input x=results/y.npy --output results", 2).stderr

    assert "--output: results/y.npy is the file that --input names" in told
    assert Path("results/y.npy").read_bytes() == before


def test_an_archive_may_be_compiled_anew_beside_its_model(folder: Path) -> None:
    g = ag.Graph("g")
    g.output("y", g(Relu(), g.input("x", "f32[2]")))
    ag.export_onnx(g, folder / "model.onnx")
    for _ in range(2):
        alpenglow("compile model.onnx -o model.ago")
        alpenglow("show model.onnx -o model.txt")


def test_the_table_has_every_option_that_writes() -> None:
    written = {
        (name, p.opts[0])
        for name in cli.COMMANDS
        for p in cli.cli.get_command(click.Context(cli.cli), name).params  # type: ignore[union-attr]
        if isinstance(p.type, Written)
    }
    listed = {(line.split()[0], option) for line in COMMANDS for option in _before_out(line)}
    assert written == listed


def _before_out(line: str) -> list[str]:
    words = line.split()
    return [words[words.index("OUT") - 1]]
