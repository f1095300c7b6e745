"""Bundles of loops and branches: in each format and API they compute what `compile` computes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.memory import aligned_bytes
from alpenglow.bundles import Bundle
from alpenglow.bundles.entry import OUT_OF_RANGE
from alpenglow.bundles.plan import Goto, KernelCall
from alpenglow.machines.opencl.devices import find
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import While
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Neg
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.reduction.reduction import ReduceSum
from bundle_cases import Array, same_bits
from control_cases import Feeds, cases, chain, doubling, nested
from growing_cases import decoder, rows
from test_bundle_opencl import Model, assert_same
from test_bundle_state import STEP, Host, made_of
from test_bundle_wasm import TWIN, node
from test_bundle_wheel import imported, only

CASES = cases()
APIS = ("static", "dynamic")
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-O1")
TOLERANCE = 1e-6
"""Relative: C compilers round in another order."""


def shared(graph: ag.Graph, folder: Path, api: Any = "static", **options: Any) -> Bundle:
    return ag.bundle(graph, folder / "out", entry="net", format="shared", api=api, **options)


def expected(name: str, **options: Any) -> list[Feeds]:
    exe = ag.compile(CASES[name].graph, threads=1, **options)
    return [exe.run(feeds) for feeds in CASES[name].feeds]


TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, TASK, ctypes.c_void_p, ctypes.c_int64)


class Parallel(ctypes.Structure):
    """What callers hand to the dynamic API."""

    _fields_ = (("run", FOR), ("pool", ctypes.c_void_p))


@FOR
def in_halves(pool: int, task: Any, context: int, extent: int) -> None:
    task(context, extent // 2, extent)
    task(context, 0, extent // 2)


def called(made: Bundle, library: Path, feeds: Sequence[Feeds], api: str) -> list[Feeds]:
    """Call the entry point of a library in this process; `code` is what a call returned."""
    (routine,) = made.routines
    entry = ctypes.CDLL(str(library))[routine.entry]
    constants, mutable, scratch = (
        aligned_bytes(n or 1)
        for n in (made.constants_nbytes, routine.mutable_nbytes, routine.scratch_nbytes)
    )
    weights = (made.folder / "net.weights.bin").read_bytes()
    constants[: made.constants_nbytes] = np.frombuffer(weights, np.uint8)
    regions: list[Any] = [ctypes.c_void_p(a.ctypes.data) for a in (constants, mutable, scratch)]
    if api == "dynamic":
        regions.append(ctypes.byref(Parallel(in_halves, None)))
    outputs = []
    for feed in feeds:
        for s in routine.inputs:
            content = np.ascontiguousarray(feed[s.name]).reshape(-1).view(np.uint8)
            mutable[s.offset : s.offset + s.type.nbytes] = content
        outputs.append({"code": np.array(entry(*regions))})
        for s in routine.outputs:
            flat: Array = mutable[s.offset : s.offset + s.type.nbytes].copy()
            outputs[-1][s.name] = flat.view(s.type.numpy).reshape(s.type.extents)
    return outputs


def results(outputs: Sequence[Feeds]) -> list[Feeds]:
    """Return outputs of calls that all succeeded."""
    assert not any(each.pop("code") for each in outputs)
    return list(outputs)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", CASES)
def test_a_library_computes_what_compile_does(name: str, api: str, tmp_path: Path) -> None:
    made = shared(CASES[name].graph, tmp_path, api)
    found = results(called(made, made.folder / "libnet.so", CASES[name].feeds, api))

    assert all(map(same_bits, found, expected(name)))


@pytest.mark.cross
@pytest.mark.parametrize("portable", [False, True], ids=["vectors", "portable"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", CASES)
def test_c_computes_what_compile_does(
    name: str, api: Any, portable: bool, tmp_path: Path
) -> None:
    made = ag.bundle(
        CASES[name].graph, tmp_path / "out", entry="net", format="c", api=api, portable=portable
    )
    library = made.folder / "net.so"
    command = ["gcc", *WARNINGS, "-march=native", "-fPIC", "-shared", "-o", str(library)]
    subprocess.run([*command, str(made.folder / "net.c")], check=True)

    for found, want in zip(
        results(called(made, library, CASES[name].feeds, api)), expected(name), strict=True
    ):
        for output, array in want.items():
            np.testing.assert_allclose(found[output], array, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.cross
@pytest.mark.parametrize("name", CASES)
def test_node_computes_what_the_twin_does(name: str, tmp_path: Path) -> None:
    made = ag.bundle(
        CASES[name].graph, tmp_path / "out", target="wasm32", format="wasm", entry="net"
    )
    found = node(made, CASES[name].feeds)

    assert all(map(same_bits, found, expected(name, target=TWIN)))


@pytest.mark.parametrize("name", CASES)
def test_a_wheel_computes_what_compile_does(name: str, tmp_path: Path) -> None:
    made = ag.bundle(CASES[name].graph, tmp_path / "out", entry="net", format="wheel")
    net = imported(only(made))
    found = [net.run(**feeds) for feeds in CASES[name].feeds]

    for outputs, want in zip(found, expected(name), strict=True):
        arrays = outputs if isinstance(outputs, tuple) else (outputs,)
        assert same_bits(dict(zip(want, arrays, strict=True)), want)


@pytest.mark.opencl
@pytest.mark.parametrize("target", ["opencl:intel", "opencl-gpu:intel"])
@pytest.mark.parametrize("name", CASES)
def test_opencl_leaves_the_bits_of_the_executable(
    name: str, target: str, tmp_path: Path
) -> None:
    for number, feeds in enumerate(CASES[name].feeds):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert_same(CASES[name].graph, feeds, target, folder)


@pytest.mark.opencl
def test_opencl_leaves_a_loop_in_which_an_index_is_out_of_range(tmp_path: Path) -> None:
    made = ag.bundle(chain(), tmp_path / "out", target="opencl-cpu", entry="net")
    model = Model(made, find("intel").index)
    wrong, _ = model.run({"start": np.array(6)})
    right, outputs = model.run({"start": np.array(1)})
    model.destroy()

    assert (wrong, right, int(outputs["steps"])) == (OUT_OF_RANGE, 0, 5)


@pytest.mark.parametrize("api", APIS)
def test_a_loop_ends_in_which_an_index_is_out_of_range(api: str, tmp_path: Path) -> None:
    made = shared(chain(), tmp_path, api)
    feeds = [{"start": np.array(n)} for n in (6, 1)]
    wrong, right = called(made, made.folder / "libnet.so", feeds, api)

    assert (int(wrong["code"]), int(right["code"]), int(right["steps"])) == (OUT_OF_RANGE, 0, 5)


def test_several_machines_have_their_own_jumps(tmp_path: Path) -> None:
    case = CASES["nested"]
    made = shared(nested(), tmp_path, target="x86-64-v2,x86-64-v3")
    (found,) = results(called(made, made.folder / "libnet.so", case.feeds, "static"))

    assert len(made.routines[0].choices) == 2
    assert same_bits(found, expected("nested", target="x86-64-v3")[0])


def test_jumps_count_calls(tmp_path: Path) -> None:
    made = shared(doubling(), tmp_path)
    (branch,) = made.routines[0].branches
    jumps = {n: c for n, c in enumerate(branch.calls) if isinstance(c, Goto)}
    # Of two turns in a row the first may be the last: what it made is copied behind the loop.
    (before, first), (_, odd), (last, back), (_, past) = jumps.items()

    assert all(isinstance(c, KernelCall) for n, c in enumerate(branch.calls) if n not in jumps)
    assert (first.when, first.to) == (False, past.to)
    assert (odd.when, odd.to) == (False, last + 2)
    assert (back.when, back.to) == (True, before + 1)
    assert past.flag is None and past.to > last + 2


def empty_inside() -> ag.Graph:
    """Return a loop that carries a value without elements, and a branch that it is computed in."""
    g = ag.Graph("empty")
    x, e, limit = g.input("x", "f32[6]"), g.input("e", "f32[0,3]"), g.input("limit", "f32[]")
    body = ag.Graph("double")
    bx, be, bl = (body.input(n, v.type) for n, v in g.inputs.items())
    body.output("going", body(Less(), body(ReduceSum((0,), keepdims=False), bx), bl))
    body.output("x", body(Add(), bx, bx))
    body.output("e", body(Tanh(), be))
    node = g.add(While(2), [g.constant(np.array(True)), x, e, limit], [body])
    g.output("y", node.results[0])
    g.output("e1", node.results[1])
    return g


@pytest.mark.parametrize("api", APIS)
def test_jumps_leave_out_what_computes_nothing(api: str, tmp_path: Path) -> None:
    made = shared(empty_inside(), tmp_path, api)
    x, e = np.full(6, 0.5, np.float32), np.zeros((0, 3), np.float32)
    feeds = {"x": x, "e": e, "limit": np.array(30, np.float32)}
    (found,) = results(called(made, made.folder / "libnet.so", [feeds], api))

    assert same_bits(found, ag.compile(empty_inside(), threads=1).run(feeds))


@pytest.mark.parametrize("api", APIS)
def test_a_branch_reads_state_that_grows(api: Any, tmp_path: Path) -> None:
    host = Host(made_of(deciding(), tmp_path, length=20, api=api))
    session = ag.compile(deciding(), threads=1, shapes=STEP, state=True).session(length=20)
    host.reset()
    for step in range(20):
        feeds = {"x": rows(1, 1, step), "go": np.array(step % 3 == 0)}

        assert same_bits(host.answer(feeds), session.run(feeds))


def deciding() -> ag.Graph:
    """Return a decoder that computes one of two functions of its result, as an input says."""
    g = decoder()
    y = g.outputs["y"]
    ways = []
    for name, op in (("then", Tanh()), ("else", Neg())):
        way = ag.Graph(name)
        way.output("y", way(op, way.input("y", y.type)))
        ways.append(way)
    g.output("decided", g.add(If(), [g.input("go", "bool[]"), y], ways).output)
    return g
