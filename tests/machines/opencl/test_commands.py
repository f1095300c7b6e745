"""The commands that take a model, on OpenCL devices."""

from __future__ import annotations

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
