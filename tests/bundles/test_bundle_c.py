"""Bundles in C: compiled without a warning, they compute what `compile` computes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.base.memory import aligned_bytes
from alpenglow.bundles import bundle, parsed, planned
from alpenglow.bundles.c.source import source
from alpenglow.bundles.plan import BundlePlan, layout
from alpenglow.compiler import Options
from alpenglow.kernel.stmt import Kernel
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Pow
from alpenglow.ops.elementwise.complex import ComplexAbs, ComplexFft, ComplexMul
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Exp, Log, Sin
from alpenglow.render.c.render import Unit
from bundle_cases import tool
from test_bundle import SHAPES, image, network

Array = NDArray[Any]

pytestmark = pytest.mark.cross

TARGET = "x86-64-v3"
TOLERANCE = 1e-6
"""Relative to the largest element: compilers may round in another order."""

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-psabi")
COMPILERS = [c for c in ("gcc", "clang") if shutil.which(c)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def laid_out(path: Path, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> BundlePlan:
    target = parsed(TARGET)
    program = planned(ag.load(path, shapes=shapes), target, Options())
    return layout({"net": program}, target)


def built(folder: Path, compiler: str, *flags: str) -> ctypes.CDLL:
    """Compile net.c in `folder` to a shared library."""
    library = folder / f"{compiler}.so"
    command = [compiler, *WARNINGS, *(flags or ("-O2",)), "-fPIC", "-shared", "-nostdlib"]
    subprocess.run([*command, "-o", str(library), str(folder / "net.c")], check=True)
    return ctypes.CDLL(str(library))


def run(
    library: ctypes.CDLL, found: BundlePlan, feeds: dict[str, Array], *more: Any
) -> dict[str, Array]:
    """Call the entry point; returns the outputs."""
    (routine,) = found.routines
    constants, mutable, scratch = (
        aligned_bytes(n or 1)
        for n in (found.constants_nbytes, routine.mutable_nbytes, routine.scratch_nbytes)
    )
    constants[: found.constants_nbytes] = np.frombuffer(found.weights(), np.uint8)
    for s in routine.inputs:
        mutable[s.offset : s.offset + s.type.nbytes] = feeds[s.name].reshape(-1).view(np.uint8)
    regions = [ctypes.c_void_p(a.ctypes.data) for a in (constants, mutable, scratch)]
    assert library.net(*regions, *more) == 0
    unaligned = ctypes.c_void_p(constants.ctypes.data + 1)
    assert library.net(unaligned, *regions[1:], *more) == 1
    return {
        s.name: mutable[s.offset : s.offset + s.type.nbytes]
        .view(s.type.numpy)
        .reshape(s.type.extents)
        for s in routine.outputs
    }


def assert_near(expected: dict[str, Array], actual: dict[str, Array]) -> None:
    assert list(actual) == list(expected)
    for name, array in expected.items():
        scale = np.abs(array.astype(np.float64)).max(initial=0) or 1.0
        error = np.abs(array.astype(np.float64) - actual[name]).max(initial=0) / scale
        assert error <= TOLERANCE, f"{name}: {error:.1e} of the largest element"


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("portable", [False, True], ids=["vectors", "portable"])
def test_the_source_computes_what_compile_does(path: Path, compiler: str, portable: bool) -> None:
    found = laid_out(path)
    (path.parent / "net.h").write_text("#include <stdint.h>\n")
    (path.parent / "net.c").write_text(source(found, "net", "static", False, portable))
    feeds = image()
    actual = run(built(path.parent, compiler), found, feeds)
    expected = ag.compile(ag.load(path, shapes=SHAPES), threads=1).run(feeds)

    assert_near(expected, actual)


def test_portable_source_has_no_extensions(path: Path) -> None:
    text = source(laid_out(path), "net", "static", False, portable=True)

    assert "vector_size" not in text and "intrin.h" not in text
    assert {line.split()[1] for line in text.splitlines() if line.startswith("#include")} == {
        '"net.h"', "<stddef.h>", "<stdint.h>",
    }  # fmt: skip


def test_the_source_calls_no_library(path: Path) -> None:
    for portable in (False, True):
        (path.parent / "net.h").write_text("#include <stdint.h>\n")
        text = source(laid_out(path), "net", "static", False, portable)
        (path.parent / "net.c").write_text(text)
        object_ = path.parent / "net.o"
        command = ["gcc", *WARNINGS, "-O2", "-c", str(path.parent / "net.c"), "-o", str(object_)]
        subprocess.run(command, check=True)
        listed = subprocess.run(["nm", "-u", object_], check=True, capture_output=True, text=True)

        assert set(listed.stdout.split()) - {"U"} <= {"memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}


def test_kernels_name_their_operators(path: Path) -> None:
    text = source(laid_out(path), "net", "static", False)

    assert "/* conv" in text and "f32[1,3,16,16]" in text


@pytest.mark.parametrize("api", ["static", "dynamic"])
def test_a_bundle_in_c_builds_with_its_example(path: Path, api: Any) -> None:
    folder = path.parent / "out"
    bundle(path, folder, target=TARGET, api=api, entry="net", format="c", shapes=SHAPES)
    program = path.parent / "example"
    sources = [str(folder / "net.c"), str(folder / "main.c")]
    subprocess.run(["gcc", *WARNINGS, "-O1", "-o", str(program), *sources], check=True)
    done = subprocess.run([str(program)], cwd=folder, check=True, capture_output=True, text=True)

    assert "scores:" in done.stdout


def test_parts_may_run_on_several_threads(path: Path) -> None:
    folder = path.parent / "out"
    large = {"image": (1, 3, 64, 64)}
    bundle(path, folder, target=TARGET, api="dynamic", entry="net", format="c", shapes=large)
    task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    extents: list[int] = []

    def parallel_for(pool: Any, part: Any, context: Any, extent: int) -> None:
        extents.append(extent)
        for i in reversed(range(extent)):
            part(context, i, i + 1)

    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, task, ctypes.c_void_p, ctypes.c_int64)
    callback = kind(parallel_for)
    table = (ctypes.c_void_p * 2)(ctypes.cast(callback, ctypes.c_void_p), None)
    feeds = image(large["image"])
    actual = run(built(folder, "gcc"), laid_out(path, large), feeds, table)
    expected = ag.compile(ag.load(path, shapes=large), threads=1).run(feeds)

    assert_near(expected, actual)
    assert extents and min(extents) > 1


def test_what_c_has_no_form_of_is_refused_by_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Unit.add

    def lacking(unit: Unit, kernel: Kernel, name: str, *rest: Any) -> None:
        if name.startswith(("reduce_mean", "unpack")):
            raise UnsupportedError(f"C has no such thing (kernel {name})")
        add(unit, kernel, name, *rest)

    monkeypatch.setattr(Unit, "add", lacking)
    said = r"not written in C: reduce_mean \(C has no .*\); unpack \(C has no .*\)\n  try: format="
    with pytest.raises(UnsupportedError, match=said):
        bundle(path, path.parent / "out", target=TARGET, format="c", shapes=SHAPES)

    assert [p.name for p in path.parent.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize("portable", [False, True], ids=["vectors", "portable"])
def test_functions_of_f64_are_written_in_c(path: Path, portable: bool) -> None:
    g = ag.Graph("wide")
    x = g.input("x", "f64[24]")
    for op in (Exp(), Log(), Sin(), Tanh()):
        g.output(op.name, g(op, x))
    g.output("power", g(Pow(), x, x))
    target = parsed(TARGET)
    found = layout({"net": planned(g, target, Options())}, target)
    (path.parent / "net.h").write_text("#include <stdint.h>\n")
    (path.parent / "net.c").write_text(source(found, "net", "static", False, portable))
    feeds = {"x": np.linspace(0.01, 30, 24)}
    expected = ag.compile(g, TARGET, 1).run(feeds)
    actual = run(built(path.parent, "gcc", "-O2"), found, feeds)

    for name, array in expected.items():
        assert np.allclose(actual[name], array, rtol=1e-15, atol=1e-15), name


@pytest.mark.parametrize("portable", [False, True], ids=["vectors", "portable"])
def test_pairs_and_complex_numbers_are_one_memory_in_c(path: Path, portable: bool) -> None:
    """What kernels of reals write, kernels that move complex numbers read, and the other way."""
    g = ag.Graph("numbers")
    x, first = g.input("x", "c64[5,8]"), g.input("first", "bool[5,8]")
    square = g(ComplexMul(), x, x)
    chosen = g(Where(), first, square, x)
    g.output("chosen", chosen)
    g.output("size", g(ComplexAbs(), g(ComplexFft(1, 8), chosen)))
    target = parsed(TARGET)
    found = layout({"net": planned(g, target, Options())}, target)
    (path.parent / "net.h").write_text("#include <stdint.h>\n")
    (path.parent / "net.c").write_text(source(found, "net", "static", False, portable))
    random = np.random.default_rng(0)
    x_ = np.asarray(random.standard_normal((5, 16)).astype(np.float32)).view(np.complex64)
    feeds = {"x": x_, "first": random.random((5, 8)) < 0.5}
    actual = run(built(path.parent, "gcc", "-O3"), found, feeds)
    expected = np.where(feeds["first"], x_ * x_, x_)

    np.testing.assert_allclose(actual["chosen"], expected, 1e-6)
    np.testing.assert_allclose(actual["size"], np.abs(np.fft.fft(expected)), 1e-5, 1e-5)


def test_stack_that_only_a_compiler_knows_is_not_stated(path: Path) -> None:
    folder = path.parent / "out"
    made = bundle(path, folder, target=TARGET, entry="net", format="c", shapes=SHAPES)
    header = (folder / "net.h").read_text()

    assert not made.needs.compiled
    assert "STACK_NBYTES" not in header and "CODE_NBYTES" not in header
    assert "a compiler adds to it" in header
    assert not any(line.startswith("  code") for line in str(made).splitlines())
    assert "a compiler adds to it" in str(made)


@pytest.mark.parametrize("api", ["static", "dynamic"])
def test_cmake_and_pkg_config_build_the_source(path: Path, api: Any) -> None:
    folder, build = path.parent / "out", path.parent / "build"
    bundle(path, folder, target=TARGET, api=api, entry="net", format="c", shapes=SHAPES)
    strict = "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror"
    for command in (["-S", folder, "-B", build, strict], ["--build", build]):
        subprocess.run([tool("cmake"), *command], check=True, capture_output=True)
    flags = subprocess.run(
        [tool("pkg-config"), "--cflags", "--libs", folder / "net.pc"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    plain = path.parent / "plain"
    command = ["gcc", *WARNINGS, "-O1", str(folder / "main.c"), *flags, "-o", str(plain)]
    subprocess.run(command, check=True)
    said = [
        subprocess.run([program], cwd=folder, check=True, capture_output=True, text=True).stdout
        for program in (build / "net_example", plain)
    ]

    assert all(text.startswith("scores: ") for text in said)
