"""What is imported when: who runs an archive waits neither for onnx nor for a compiler's front."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import alpenglow as ag
from alpenglow.ops.elementwise.arithmetic import Add

FACE = ("alpenglow", "alpenglow.base", "alpenglow.cli")
"""What there is of ours before anything is asked for."""

MODELS = ("onnx", "alpenglow.frontends", "alpenglow.bundles", "alpenglow.report",
          "alpenglow.debug", "alpenglow.measure")  # fmt: skip
"""What running an archive does without."""


def modules(code: str, folder: Path) -> set[str]:
    """Return what is imported after some code, in a process of its own, with its packages."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "ALPENGLOW_CACHE": "off"},
    )  # fmt: skip
    return set(json.loads(done.stdout.splitlines()[-1]))


def ours(found: set[str]) -> set[str]:
    return {name for name in found if name.split(".")[0] == "alpenglow"}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    g = ag.Graph("twice")
    x = g.input("x", "f32[4]")
    g.output("y", g(Add(), x, x))
    ag.compile(g).save(tmp_path / "model.ago")
    return tmp_path / "model.ago"


def test_the_package_imports_nothing_before_it_is_asked(tmp_path: Path) -> None:
    found = modules("import alpenglow", tmp_path)

    assert not found & {"numpy", "onnx", "llvmlite", "click"}
    assert {name for name in ours(found) if not name.startswith("alpenglow.base")} == {"alpenglow"}


@pytest.mark.parametrize("arguments", ["--version", "--help"])
def test_the_version_is_told_without_a_compiler(arguments: str, tmp_path: Path) -> None:
    found = modules(
        f"from alpenglow.cli import cli\ncli(['{arguments}'], standalone_mode=False)", tmp_path
    )

    assert not found & {"numpy", "onnx", "llvmlite", "rich"}
    assert all(name.startswith(FACE) for name in ours(found))


def test_an_archive_is_opened_without_what_reads_models(archive: Path) -> None:
    code = "import alpenglow as ag; import numpy as np"
    run = f"{code}\nassert (ag.open('model.ago')(np.ones(4, np.float32)) == 2).all()"
    found = modules(run, archive.parent)

    assert not found & {*MODELS, "alpenglow.compiler", "alpenglow.cli", "alpenglow.quant"}


def test_an_archive_is_run_without_what_reads_models(archive: Path) -> None:
    code = "from alpenglow.cli import cli\ncli(['run', 'model.ago'], standalone_mode=False)"

    assert not modules(code, archive.parent) & {*MODELS, "alpenglow.quant"}


def test_a_graph_of_ones_own_is_compiled_without_onnx(tmp_path: Path) -> None:
    code = """
import alpenglow as ag
from alpenglow.ops.elementwise.activation import Relu
g = ag.Graph("g")
g.output("y", g(Relu(), g.input("x", "f32[4]")))
ag.compile(g)
"""
    assert "onnx" not in modules(code, tmp_path)


def test_a_text_knows_our_operators_whoever_reads_it(tmp_path: Path) -> None:
    text = "graph @g {\n  input %x : f32[4]\n  %y : f32[4] = relu(%x)\n  output y = %y\n}\n"
    code = f"from alpenglow.ir.text import parse_graph\nparse_graph({text!r}, {{}})"

    assert "alpenglow.ops" in modules(code, tmp_path)


def test_every_name_is_where_it_is_looked_for() -> None:
    for name in ag.__all__:
        assert getattr(ag, name) is not None
    assert set(ag.__all__) <= set(dir(ag))
    assert callable(ag.bundle) and callable(ag.compile) and callable(ag.open)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = ag.lode  # type: ignore[attr-defined]


def test_types_are_imported_like_all_else() -> None:
    """A circle of imports hides behind `TYPE_CHECKING`; a face of lazy names needs it."""
    files = Path(ag.__file__).parent.rglob("*.py")
    hiding = [f for f in files if f.name != "__init__.py" and "TYPE_CHECKING" in f.read_text()]

    assert hiding == []


def test_imports_inside_functions_are_those_that_the_architecture_names() -> None:
    root = Path(ag.__file__).parent
    trees = {f.relative_to(root).as_posix(): ast.parse(f.read_text()) for f in root.rglob("*.py")}
    inside = {
        name for name, tree in trees.items() for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(isinstance(x, ast.Import | ast.ImportFrom) for x in ast.walk(node))
    }  # fmt: skip
    calling = {
        name for name, tree in trees.items() for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
    }  # fmt: skip
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    rows = page.partition("### Imports inside functions")[2].partition("\n## ")[0].splitlines()
    named = re.findall(r"`([\w/]+\.py)`", " ".join(row.split("|")[1] for row in rows if "|" in row))

    assert inside == set()
    assert sorted(named) == sorted(calling)


def test_names_stay_functions_after_their_modules_are_imported(tmp_path: Path) -> None:
    code = """
import alpenglow.bundles, alpenglow.cli.bundle, alpenglow.driver.compile, alpenglow.quant
import alpenglow as ag
assert callable(ag.bundle) and callable(ag.compile) and callable(ag.quantize) and callable(ag.open)
"""
    modules(code, tmp_path)
