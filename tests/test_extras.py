"""Extras are imported when a table lacks a name, and then give what the core would have given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow import extras
from alpenglow.base.errors import ParseError
from alpenglow.base.extensions import bring_extras, is_extra
from alpenglow.extras.ml.probability import Couple
from alpenglow.frontends.onnx import converters, hosted, table
from alpenglow.ir.op import find_operator
from alpenglow.ir.text import parse_graph

PARTS = ("", "onnx", "stablehlo", "torch", "writers")
FOLDER = Path(extras.__file__).parent

PRODUCT = """
import numpy as np
import alpenglow as ag
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.product.contraction import MatMul
g = ag.Graph("product")
x, w = g.input("x", "f32[2,3]"), g.constant(np.ones((3, 4), np.float32))
g.output("y", g(Relu(), g(MatMul(), x, w)))
ag.compile(g)(np.ones((2, 3), np.float32))
"""


def imported(code: str, folder: Path) -> list[str]:
    """Return the modules of extras that some code imports, in a process of its own."""
    done = python(f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))", folder)
    assert done.returncode == 0, done.stderr
    return [m for m in json.loads(done.stdout.splitlines()[-1]) if m.startswith(extras.__name__)]


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300,
        check=False, env={**os.environ, "ALPENGLOW_CACHE": "off"},
    )  # fmt: skip


# ── what needs no extra ──


def test_compiling_a_graph_imports_no_extra(tmp_path: Path) -> None:
    assert imported(PRODUCT, tmp_path) == []


def test_loading_common_operators_of_onnx_imports_no_extra(tmp_path: Path) -> None:
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Constant", [], ["one"], value=one),
        helper.make_node("Cast", ["one"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Add", ["same", "number"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    onnx.save(model(nodes), tmp_path / "model.onnx")

    assert imported("import alpenglow as ag; ag.load('model.onnx')", tmp_path) == []


def test_operators_and_loop_forms_of_extras_know_no_format(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom alpenglow.base.extensions import bring_extras\nbring_extras()\n"
        "known = ('onnx', 'alpenglow.frontends', 'alpenglow.exporters', 'alpenglow.compiler')\n"
        "assert not [m for m in sys.modules if m.startswith(known)]"
    )
    done = python(code, tmp_path)

    assert done.returncode == 0, done.stderr


# ── what asks for one ──


def test_an_archive_of_an_operator_of_an_extra_is_opened(tmp_path: Path) -> None:
    g = ag.Graph("coupled")
    g.output("y", g(Couple(), g.input("x", "f32[4,3,3]")))
    exe = ag.compile(g)
    exe.save(tmp_path / "model.ago")
    expected = exe(np.full((4, 3, 3), 0.5, np.float32)).tobytes().hex()
    run = (
        "import alpenglow as ag, numpy as np\n"
        "y = ag.open('model.ago')(np.full((4, 3, 3), 0.5, np.float32))\n"
        f"assert y.tobytes().hex() == '{expected}'\n"
    )

    assert imported(run, tmp_path)


def test_a_loop_form_comes_with_its_operator(tmp_path: Path) -> None:
    code = (
        "from alpenglow.extras.ml.grams import CountGrams\n"
        "from alpenglow.loops.form import PUSHES\n"
        "assert CountGrams in PUSHES\n"
    )
    done = python(code, tmp_path)

    assert done.returncode == 0, done.stderr


def test_a_name_that_no_extra_has_is_unknown() -> None:
    assert find_operator("no_such_operator") is None
    assert converters.find("com.microsoft", "NoSuchOperator", 1) is None
    assert hosted.find_hosted("", "NoSuchOperator", 1) is None
    with pytest.raises(ParseError, match="expected an operator, not 'no_such_operator'"):
        parse_graph("graph @g {\n  %y : f32[] = no_such_operator()\n  output y = %y\n}\n")


# ── what holds of all ──


def test_every_module_of_an_extra_is_brought() -> None:
    for part in PARTS:
        bring_extras(part)
    modules = {
        ".".join([extras.__name__, *path.relative_to(FOLDER).with_suffix("").parts])
        for path in FOLDER.rglob("*.py")
    }

    assert {m.removesuffix(".__init__") for m in modules} <= sys.modules.keys()
    assert all((f / "__init__.py").exists() for f in FOLDER.rglob("*")
               if f.is_dir() and f.name != "__pycache__")  # fmt: skip


@pytest.mark.parametrize("versions", [table._TABLE, hosted._TABLE], ids=["converters", "hosted"])
def test_the_core_and_extras_have_no_name_in_common(versions: table.Versions[object]) -> None:
    """Otherwise the version of an operator would depend on what has been imported."""
    bring_extras("onnx")
    for name, entries in versions._entries.items():
        assert len({is_extra(entry) for entry in entries.values()}) == 1, name


def test_two_converters_for_one_name_meet_in_any_order(tmp_path: Path) -> None:
    code = (
        "from alpenglow.frontends.onnx.table import find, on\n"
        "@on('SVMRegressor', domain='ai.onnx.ml')\n"
        "def convert(s): return s.input(0)\n"
        "find('ai.onnx.ml', 'SVMRegressor', 1)\n"
    )
    done = python(code, tmp_path)

    assert "AssertionError: two converters for ai.onnx.ml:SVMRegressor since 1" in done.stderr


def model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Return a model of x and y, both f32[3]."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    graph = helper.make_graph(nodes, "page", [x], [y])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
