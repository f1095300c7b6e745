"""Bundles of models with indices: entry points return a code of their own where one is outside."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from alpenglow.base.memory import aligned_bytes
from alpenglow.bundles import Bundle, bundle
from alpenglow.bundles.entry import OUT_OF_RANGE
from bundle_cases import run, tool
from onnx_node import single
from range_cases import floats, zeros

Array = NDArray[Any]

TARGET = "x86-64-v2"


@pytest.fixture(params=["Gather", "GatherElements"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a model that reads [9, 5] by 17 indices, or by one for each element."""
    shape = (17,) if request.param == "Gather" else (17, 5)
    model = single(request.param, [floats(9, 5), zeros(*shape)], 21, axis=0)
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def made(path: Path, format: str, **more: Any) -> Bundle:
    given = {"target": TARGET, "weights": "embedded", **more}
    return bundle(path, path.parent / f"made_{format}", format=format, **given)


def calls(found: Bundle, function: Callable[..., int], *more: Any) -> None:
    """Assert what an entry point returns for indices around both ends."""
    (routine,) = found.routines
    x, at = routine.inputs
    (y,) = routine.outputs
    mutable, scratch, weights = (
        aligned_bytes(n + 1) for n in (routine.mutable_nbytes, routine.scratch_nbytes, 64)
    )
    mutable[x.offset : x.offset + x.type.nbytes] = floats(9, 5).reshape(-1).view(np.uint8)
    indices = mutable[at.offset : at.offset + at.type.nbytes].view(np.int64)
    indices[:] = 3
    regions = [ctypes.c_void_p(a.ctypes.data) for a in (weights, mutable, scratch)]
    for index in (0, 8, 9, -9, -10, 1 << 40, -(1 << 63), 8):
        indices[-1] = index
        status = function(*regions, *more)
        if -9 <= index < 9:
            result = mutable[y.offset : y.offset + y.type.nbytes].view(np.float32)
            assert status == 0 and result[-1] == floats(9, 5)[index, -1]
            continue
        place = routine.stop_word.offset + 8
        assert (status, mutable[place : place + 8].view(np.int64)[0]) == (OUT_OF_RANGE, index)


def test_a_shared_library_returns_a_code(path: Path) -> None:
    found = made(path, "shared")
    calls(found, ctypes.CDLL(str(found.folder / "libnet.so")).net)


def test_with_threads_it_returns_the_same(path: Path) -> None:
    found = made(path, "shared", api="dynamic")
    calls(found, ctypes.CDLL(str(found.folder / "libnet.so")).net, None)


def test_code_that_chooses_returns_the_same(path: Path) -> None:
    found = made(path, "shared", target="x86-64-v2,x86-64-v3")
    calls(found, ctypes.CDLL(str(found.folder / "libnet.so")).net)


@pytest.mark.cross
@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("api", ["static", "dynamic"])
def test_c_returns_the_same(path: Path, api: str, portable: bool) -> None:
    found = made(path, "c", portable=portable, api=api)
    library = found.folder / "net.so"
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-fPIC", "-shared"]
    run(tool("gcc"), *flags, "-o", library, found.folder / "net.c")

    calls(found, ctypes.CDLL(str(library)).net, *([None] if api == "dynamic" else []))


def test_the_header_says_where_the_index_is(path: Path) -> None:
    found = made(path, "c")
    text = (found.folder / "net.h").read_text()

    place = found.routines[0].stop_word.offset + 8
    assert f"#define NET_OUT_OF_RANGE_OFFSET {place}\n" in text
    assert f"Returns {OUT_OF_RANGE} if an index" in text


def test_models_without_indices_have_no_room_for_them(tmp_path: Path) -> None:
    onnx.save(single("Relu", [floats(9, 5)], 21), tmp_path / "net.onnx")
    found = made(tmp_path / "net.onnx", "c")

    assert not found.routines[0].checks
    assert found.routines[0].mutable_nbytes == 2 * 192
    assert "OUT_OF_RANGE" not in (found.folder / "net.h").read_text()


def test_a_wheel_raises_an_index_error(path: Path) -> None:
    found = made(path, "wheel")
    (wheel,) = found.folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(path.parent / "installed")
    shape = found.routines[0].inputs[1].type.extents
    script = f"""
import net, numpy as np
x, at = np.ones((9, 5), np.float32), np.zeros({shape}, np.int64)
for index in (8, 9, -10, -9):
    at.reshape(-1)[-1] = index
    try:
        print(index, net.run(x, at).sum())
    except IndexError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=path.parent / "installed", text=True,
        capture_output=True, check=True,
    )  # fmt: skip

    assert done.stdout.splitlines() == [
        "8 85.0",
        "net: index is 9, expected one within its axis",
        "net: index is -10, expected one within its axis",
        "-9 85.0",
    ]


@pytest.mark.cross
def test_javascript_throws_a_range_error(path: Path) -> None:
    found = made(path, "wasm", target="wasm32")
    count = found.routines[0].inputs[1].type.size
    (found.folder / "run.mjs").write_text(f"""
import {{ load }} from "./net.mjs";
const net = await load();
const x0 = new Float32Array(45).fill(1), x1 = new BigInt64Array({count});
for (const index of [8n, 9n, -10n, -9n]) {{
  x1[{count} - 1] = index;
  try {{
    console.log(`${{index}} ${{net.run({{ x0, x1 }}).y0.data.at(-1)}}`);
  }} catch (error) {{
    console.log(String(error));
  }}
}}
""")
    said = run(tool("node"), found.folder / "run.mjs")

    assert said.splitlines() == [
        "8 1", "RangeError: net: index is 9, expected one within its axis",
        "RangeError: net: index is -10, expected one within its axis", "-9 1",
    ]  # fmt: skip
