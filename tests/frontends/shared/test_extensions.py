"""What other distributions bring is found, and what is wrong with it is said with their name."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from alpenglow.base.errors import ModelError
from alpenglow.frontends import load

PACKAGE = Path(__file__).resolve().parents[2] / "external_package"
SRC = PACKAGE.parent.parent / "src"


def install(site: Path, name: str, version: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write into `site` what an installer would: a distribution and what it brings."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines: list[str] = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines))


def python(*args: str, path: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with `path` before all else."""
    paths = os.pathsep.join(map(str, [*path, SRC]))
    return subprocess.run(
        [sys.executable, *args],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_package_extends_alpenglow_in_every_way(tmp_path: Path) -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    install(tmp_path, project["name"], project["version"], project["entry-points"])
    checks = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(PACKAGE / "checks.py")]
    done = python(*checks, path=[tmp_path, PACKAGE])

    assert done.returncode == 0, done.stdout + done.stderr


TRY = "\n  try: the path of a model file that you may read"


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            b"junk",
            "the model, 4 bytes, is of no known format; "
            "supported: onnx, stablehlo, tflite, torch",
        ),
        (
            3,
            "the model is of type int, expected a path, the bytes of a file, or an object that a "
            "front end reads; supported: onnx, stablehlo, tflite, torch",
        ),
        ("missing.txt", f"cannot read the model: there is no such file   (missing.txt){TRY}"),
        ("missing.onnx", f"cannot read the model: No such file or directory   (missing.onnx){TRY}"),
        (
            "missing.pt2",
            "cannot read the model: No such file or directory, expected a readable file   "
            "(missing.pt2)",
        ),
        (
            __file__,
            "the model is of no known format; supported: onnx, stablehlo, tflite, torch   "
            f"({__file__})",
        ),
    ],
)
def test_what_no_front_end_reads_is_refused(model: object, says: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(model)

    assert str(caught.value) == says


def test_an_extension_that_fails_is_named(tmp_path: Path) -> None:
    install(tmp_path, "half-done", "0.1", {"alpenglow.extensions": {"half": "half_done.ops"}})
    (tmp_path / "half_done").mkdir()
    (tmp_path / "half_done" / "ops.py").write_text("1 / 0")
    done = python("-c", "import alpenglow", path=[tmp_path])

    expected = (
        "'half' (half_done.ops) of distribution half-done 0.1 cannot be loaded: "
        "ZeroDivisionError: division by zero"
    )
    assert done.returncode == 1
    assert expected in done.stderr


def test_two_distributions_may_not_bring_one_name(tmp_path: Path) -> None:
    for name in ("first", "second"):
        install(tmp_path, name, "1", {"alpenglow.machines": {"npu": f"{name}:Npu"}})
    done = python("-c", "import alpenglow; alpenglow.Target.parse('npu')", path=[tmp_path])

    assert done.returncode == 1
    assert "both distribution first 1 and distribution second 1 bring 'npu'" in done.stderr


def test_importing_the_package_brings_no_more_than_compiling_needs() -> None:
    code = "import alpenglow, sys; print(*sys.modules); alpenglow.quantize"
    done = python("-c", code, path=[])
    later = {f"alpenglow.{name}" for name in ("calibration", "debug", "measure", "quant", "report")}

    assert done.returncode == 0, done.stderr
    assert not later & set(done.stdout.split())
