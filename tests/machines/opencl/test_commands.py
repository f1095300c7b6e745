"""The commands that take a model, on OpenCL devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import helper

from command import alpenglow, answer
from open_cases import model, weights

pytestmark = pytest.mark.opencl

FACTORS = """# after: import
graph @factors {
  input %x : f32[4,4]
  %0 : f32[4,4] = mat_mul(%x, %x)
  %1 : f32[4,4], %2 : f32[4,4] = qr(%0)
  output q = %1
  output r = %2
}
"""

TARGETS = ("opencl:intel", "opencl:pocl", "opencl-gpu:pocl")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two models, and a cache of its own.

    One is a product and its shares, the other a product and its factors, for which there is no
    kernel.
    """
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"], axis=1),
    ]
    onnx.save(model(nodes, {"x": ("N", 8)}, {"w": weights(8, 4)}), tmp_path / "model.onnx")
    (tmp_path / "factors.txt").write_text(FACTORS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("target", TARGETS)
def test_profile_tells_kernels_and_copies(target: str) -> None:
    told = answer(f"profile model.onnx --dim N=2 --target {target} --rounds 2")
    text = alpenglow(f"profile model.onnx --dim N=2 --target {target} --rounds 2").stdout

    assert all(k["compiled"] and k["seconds"] > 0 for k in told["kernels"])
    assert [(c["to"], c["count"], c["bytes"]) for c in told["copies"]] == [
        ("device", 1, 2 * 8 * 4), ("host", 1, 2 * 4 * 4),
    ]  # fmt: skip
    assert all(c["seconds"] > 0 for c in told["copies"])
    assert "1 buffer copied to the device, 64 bytes: " in text


def test_profile_tells_what_ran_on_the_host() -> None:
    told = answer("profile factors.txt --target opencl:pocl --rounds 2")
    text = alpenglow("profile factors.txt --target opencl:pocl --rounds 2").stdout

    (here,) = (k for k in told["kernels"] if not k["compiled"])
    assert here["kernel"] == "qr" and here["seconds"] > 0
    assert "1 of the kernels are interpreted on the host: " in text


@pytest.mark.parametrize("target", TARGETS)
def test_bench_measures_the_device(target: str) -> None:
    bench = f"bench model.onnx --dim N=2 --calls 3 --target {target}"
    told = answer(bench)

    assert (told["threads"], told["target"]) == (None, target)
    assert 0 < told["share_of_peak"] < 1.5
    assert f"1 stream, on {target}" in alpenglow(bench).stdout


@pytest.mark.parametrize("target", TARGETS)
def test_check_counts_the_copies_of_a_call(target: str) -> None:
    told = answer(f"check model.onnx --dim N=2 --target {target}")
    split = answer(f"check factors.txt --target {target}")
    lines = alpenglow(f"check factors.txt --target {target}").stdout.splitlines()

    assert told["copies"] == [
        {"to": "device", "count": 1, "bytes": 64}, {"to": "host", "count": 1, "bytes": 32},
    ]  # fmt: skip
    assert split["operators"][0]["how"] == "interpreted"
    assert split["copies"] == [
        {"to": "device", "count": 1, "bytes": 64}, {"to": "host", "count": 1, "bytes": 64},
    ]  # fmt: skip
    assert lines[-1].startswith("copied in a call: 1 buffer to the device (64 bytes), ")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", ["model.onnx --dim N=2", "factors.txt"])
def test_commands_agree_on_what_a_model_computes(target: str, model: str) -> None:
    alpenglow(f"verify {model} --target {target}")
    alpenglow(f"verify {model} --target {target} --bisect")
    here = answer(f"run {model} --target interpreter")["outputs"]
    there = answer(f"run {model} --target {target}")["outputs"]

    assert [y["name"] for y in here] == [y["name"] for y in there]
    assert [y["mean"] for y in here] == pytest.approx([y["mean"] for y in there], rel=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_an_archive_is_run_by_every_command_for_its_device(target: str) -> None:
    alpenglow(f"compile model.onnx --dim N=2 --target {target} -o model.ago")
    alpenglow("run model.ago")
    alpenglow("verify model.ago")

    assert answer("bench model.ago --calls 2")["target"] == target
    assert len(answer("profile model.ago --rounds 2")["copies"]) == 2
    assert len(answer("check model.ago")["copies"]) == 2
    assert "kernel" in alpenglow("show model.ago --after emit").stdout


def test_an_archive_is_opened_without_compiling_the_model() -> None:
    alpenglow("compile model.onnx --dim N=2 --target opencl:pocl -o model.ago")
    watch = (
        "import sys\nfrom alpenglow.cli import cli\n"
        "cli(['run', 'model.ago'], standalone_mode=False)\n"
        "print('alpenglow.machines.opencl.emit' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, timeout=120)

    assert run.stdout.splitlines()[-1] == "False", run.stderr


NOWHERE = {"OCL_ICD_VENDORS": "/nowhere"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run model.ago", "code for target 'opencl:pocl', which does not run here: OpenCL is here"),
        ("run model.onnx --dim N=2 --target opencl-cpu", "OpenCL is here, but no driver"),
        ("bench model.onnx --dim N=2 --target opencl-gpu", "OpenCL is here, but no driver"),
        ("show model.onnx --target opencl", "OpenCL is here, but no driver"),
    ],
)
def test_without_a_device_commands_say_what_is_missing(line: str, says: str) -> None:
    alpenglow("compile model.onnx --dim N=2 --target opencl:pocl -o model.ago")
    run = subprocess.run(
        [sys.executable, "-m", "alpenglow", *line.split()], capture_output=True, text=True,
        timeout=120, env={**os.environ, **NOWHERE},
    )  # fmt: skip

    assert run.returncode == 2
    assert says in run.stderr and "pip install intel-opencl-rt" in run.stderr


def test_tune_says_that_there_is_nothing_to_choose() -> None:
    told = alpenglow("tune model.onnx --dim N=2 --target opencl-gpu:pocl --budget 0 -o record.txt")

    assert "nothing to tune: for target opencl-gpu:pocl there is one way" in told.stdout
