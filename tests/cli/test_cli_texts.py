"""Which commands take texts of graphs and programs, and tables of docs/cli.md that name options."""

from __future__ import annotations

import re
from pathlib import Path

import click
import numpy as np
import pytest

import alpenglow as ag
from alpenglow.cli.quantize import command as quantize
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.quant import QuantOptions
from command import alpenglow

STAGES = ("import", "lower", "plan")
REFUSED = {
    "convert MODEL -o c.onnx": ("plan",),
    "place MODEL --worker a=cpu": ("plan",),
    "tune MODEL --budget 0 -o record.txt": ("plan",),
    "quantize MODEL --data samples.npz -o q.txt": ("lower", "plan"),
    "profile-ranges MODEL --data samples.npz -o ranges.yaml": ("lower", "plan"),
    "train MODEL --data samples.npz": ("lower", "plan"),
    "reduce MODEL -o r.onnx": ("plan",),
    "run MODEL": (),
    "check MODEL": (),
    "verify MODEL": (),
    "show MODEL": (),
}
"""Commands, and the stages after which they refuse a text."""

LISTS = {"keep", "only"}
"""Fields of QuantOptions that hold names, and have no row in that table."""


@pytest.mark.parametrize("line", REFUSED)
def test_a_text_is_a_model_for_some_commands(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    g = ag.Graph("g")
    g.output("y", g(Relu(), g.input("x", "f32[2,3]")))
    ag.export_onnx(g, "m.onnx")
    np.savez("samples.npz", x=np.ones((4, 2, 3), np.float32), labels=np.ones((4, 2, 3), np.float32))
    for stage in STAGES:
        alpenglow(f"show m.onnx --after {stage} -o {stage}.txt")
        if stage in REFUSED[line]:
            assert alpenglow(line.replace("MODEL", f"{stage}.txt"), 2).stderr.startswith("error: ")
        elif not REFUSED[line]:
            alpenglow(line.replace("MODEL", f"{stage}.txt"))


def test_the_page_lists_the_options_of_quantize() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
    rows = re.findall(r"^\| `(--[\w-]+)` \| `(\w+)` \| (.*?) \|", page, re.MULTILINE)
    options = {p.opts[0]: p for p in quantize.params}
    assert {field for _, field, _ in rows} == QuantOptions.__dataclass_fields__.keys() - LISTS
    for option, _, values in rows:
        kind = options[option].type
        if isinstance(kind, click.Choice):
            assert re.findall(r"`(\w+)`", values) == list(kind.choices)
