"""Bundles: their code run in this process, their files, and what they refuse."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.memory import aligned_bytes
from alpenglow.bundles import Bundle
from alpenglow.bundles.elf import object as object_format
from alpenglow.bundles.elf.writer import ElfObject
from alpenglow.bundles.support.support import ALLOWED
from alpenglow.bundles.write import SUMS
from alpenglow.cli import cli
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.targets import LEVELS
from alpenglow.machines.vector import making
from alpenglow.ops.elementwise.arithmetic import Floor, Pow
from alpenglow.ops.elementwise.transcendental import Exp, Log, Sin, Sqrt
from bundle_cases import same_bits

Array = NDArray[Any]

SHAPES = {"image": (1, 3, 16, 16)}
EXTENDED = ("x86-64-v4+avx512vnni", "aarch64+dotprod", "armv7-a+vfp4", "riscv64+v")
ELF_LEVELS = [*(name for name in LEVELS if name != "wasm32"), *EXTENDED]
HERE = [n for n in ("cpu", *LEVELS) if Target.parse(n).is_host_compatible()]


def network() -> onnx.ModelProto:
    """Return a small network from image[n, 3, h, w] to scores[n, 10] and to a mask of image."""
    rng = np.random.default_rng(0)
    weights = {"w": (24, 3, 3, 3), "b": (24,), "v": (24, 10)}
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["scores"]),
        helper.make_node("Greater", ["image", "half"], ["mask/1"]),
    ]
    initial = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
               for n, s in weights.items()]  # fmt: skip
    initial.append(numpy_helper.from_array(np.array(0.5, np.float32), "half"))
    extents = ["n", 3, "h", "w"]
    graph = helper.make_graph(
        nodes,
        "small net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, extents)],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10]),
            helper.make_tensor_value_info("mask/1", TensorProto.BOOL, extents),
        ],
        initial,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def image(shape: tuple[int, ...] = SHAPES["image"]) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    return {"image": rng.random(shape, np.float32)}


class Loaded:
    """A bundle's object linked into this process."""

    def __init__(self, made: Bundle, routine: int = 0) -> None:
        self.made, self.routine = made, made.routines[routine]
        names = [self.routine.entry]
        config = "alpenglow_bundle.h" in made.files
        self.code = Code.install([(made.folder / f"{made.name}.o").read_bytes()], names)
        self.call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * (4 if config else 3))(
            self.code.address(self.routine.entry)
        )
        weights = (made.folder / f"{made.name}.weights.bin").read_bytes()
        self.constants = aligned_bytes(len(weights))
        self.constants[:] = np.frombuffer(weights, np.uint8)
        self.mutable = aligned_bytes(self.routine.mutable_nbytes)
        self.scratch = aligned_bytes(self.routine.scratch_nbytes)
        self.scratch[:] = 0xA5

    def run(self, feeds: dict[str, Array], *more: Any) -> dict[str, Array]:
        for s in self.routine.inputs:
            content = np.frombuffer(np.ascontiguousarray(feeds[s.name]).tobytes(), np.uint8)
            self.mutable[s.offset : s.offset + len(content)] = content
        regions = [a.ctypes.data for a in (self.constants, self.mutable, self.scratch)]

        assert self.call(*regions, *more) == 0
        return {
            s.name: self.mutable[s.offset : s.offset + s.type.nbytes]
            .copy().view(s.type.numpy).reshape(s.type.extents)
            for s in self.routine.outputs
        }  # fmt: skip


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("numerics", ["fast", "strict"])
@pytest.mark.sampled(4)
def test_results_are_those_of_compile_bit_by_bit(
    path: Path, tmp_path: Path, target: str, numerics: Any
) -> None:
    options = ag.Options(numerics=numerics)
    made = ag.bundle(path, tmp_path / "out", target=target, shapes=SHAPES, options=options)
    expected = ag.compile(path, target, 1, SHAPES, options).run(image())
    loaded = Loaded(made)

    assert same_bits(loaded.run(image()), expected)
    assert same_bits(loaded.run(image()), expected)


@pytest.mark.parametrize("target", HERE)
def test_threads_do_not_change_results(path: Path, tmp_path: Path, target: str) -> None:
    shapes = {"image": (1, 3, 96, 96)}
    made = ag.bundle(path, tmp_path / "out", target=target, shapes=shapes, api="dynamic")
    feeds = image(shapes["image"])
    expected = ag.compile(path, target, 1, shapes).run(feeds)
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    seen: list[int] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, task_type, ctypes.c_void_p, ctypes.c_int64)
    def parallel_for(pool: int, task: Any, context: int, extent: int) -> None:
        seen.append(pool)
        for begin in reversed(range(extent)):
            task(context, begin, begin + 1)

    parallel = (ctypes.c_void_p * 2)(ctypes.cast(parallel_for, ctypes.c_void_p), 77)
    loaded = Loaded(made)

    assert same_bits(loaded.run(feeds, None), expected)
    assert not seen
    assert same_bits(loaded.run(feeds, ctypes.addressof(parallel)), expected)
    assert set(seen) == {77}


@pytest.mark.parametrize("target", ELF_LEVELS)
@pytest.mark.parametrize("api", ["static", "dynamic"])
@pytest.mark.sampled(3)
def test_objects_for_every_target_need_nothing(
    path: Path, tmp_path: Path, target: str, api: Any
) -> None:
    made = ag.bundle(path, tmp_path / "a", target=target, shapes=SHAPES, entry="net", api=api)
    alone = ag.bundle(
        path, tmp_path / "b", target=target, shapes=SHAPES, entry="net", api=api, freestanding=True
    )
    objects = [ElfObject((b.folder / "net.o").read_bytes()) for b in (made, alone)]
    wanted = {"net"} | ({"net_config"} if api == "dynamic" else set())

    assert objects[0].undefined() <= ALLOWED
    assert not objects[1].undefined()
    assert [o.defined() for o in objects] == [wanted, wanted]
    assert 0 < made.needs.stack_nbytes < 4096


MAGIC = {"linux": b"\x7fELF", "macos": b"\xcf\xfa\xed\xfe"}


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
@pytest.mark.parametrize("system", ["linux", "macos", "windows"])
@pytest.mark.parametrize("api", ["static", "dynamic"])
@pytest.mark.sampled(3)
def test_each_system_has_its_format(
    path: Path, tmp_path: Path, target: str, system: str, api: Any
) -> None:
    made = ag.bundle(path, tmp_path / "out", target=target, shapes=SHAPES, system=system, api=api)
    machine = {"x86-64-v3": b"\x64\x86", "aarch64": b"\x64\xaa"}[target]
    content = (made.folder / "net.o").read_bytes()

    assert content.startswith(MAGIC.get(system, machine))
    assert made.needs.code_nbytes > 0 and made.needs.stack_nbytes > 0


def test_the_config_says_what_there_is(path: Path, tmp_path: Path) -> None:
    made = ag.bundle(path, tmp_path / "out", shapes=SHAPES, api="dynamic")
    code = Code.install([(made.folder / "net.o").read_bytes()], ["net_config"])
    address = code.address("net_config")
    version, nbytes = struct.unpack("<II", ctypes.string_at(address, 8))
    config = ctypes.string_at(address, nbytes)
    (routine,) = made.routines
    found = []
    for i in range(len(routine.symbols)):
        name, type_, shape, rank, offset, size, output, _ = struct.unpack_from(
            "<IIIIQQII", config, 48 + 40 * i
        )
        texts = [config[at : config.index(b"\0", at)].decode() for at in (name, type_)]
        extents = struct.unpack_from(f"<{rank}Q", config, shape)
        found.append((*texts, extents, offset, size, bool(output)))

    assert version == 1
    assert struct.unpack_from("<QQQQII", config, 8) == (
        made.constants_nbytes, routine.mutable_nbytes, routine.scratch_nbytes,
        made.needs.stack_nbytes, 64, 3,
    )  # fmt: skip
    assert found == [
        ("image", "f32", (1, 3, 16, 16), 0, 3072, False),
        ("scores", "f32", (1, 10), 3072, 40, True),
        ("mask/1", "bool", (1, 3, 16, 16), 3136, 768, True),
    ]


def test_the_header_says_what_there_is(path: Path, tmp_path: Path) -> None:
    made = ag.bundle(path, tmp_path / "out", shapes=SHAPES, entry="net")
    text = (made.folder / "net.h").read_text()
    found = dict(re.findall(r"^#define (\w+) (.+)$", text, re.MULTILINE))
    (routine,) = made.routines

    assert found["NET_ALIGNMENT"] == "64"
    assert int(found["NET_CONSTANTS_NBYTES"]) == made.constants_nbytes
    assert int(found["NET_SCRATCH_NBYTES"]) == routine.scratch_nbytes
    assert int(found["NET_MUTABLE_NBYTES"]) == routine.mutable_nbytes == 3904
    assert int(found["NET_STACK_NBYTES"]) == made.needs.stack_nbytes
    assert found["NET_INPUT_IMAGE_SHAPE"] == "{1, 3, 16, 16}"
    assert found["NET_OUTPUT_MASK_1_TYPE"] == "uint8_t"
    assert found["NET_OUTPUT_MASK_1_OFFSET"] == "3136"
    assert (made.folder / "net.weights.bin").stat().st_size == made.constants_nbytes


def test_memory_is_what_was_planned_and_nothing_beyond_is_touched(
    path: Path, tmp_path: Path
) -> None:
    made = ag.bundle(path, tmp_path / "out", shapes=SHAPES)
    program = ag.compile(path, "cpu", 1, SHAPES).artifact.program
    loaded = Loaded(made)
    guards = []
    for region in ("mutable", "scratch"):
        size = len(getattr(loaded, region))
        wide = aligned_bytes(size + 4096)
        wide[:] = 0xC3
        setattr(loaded, region, wide)
        guards.append(wide[size:])
    loaded.run(image())

    assert made.routines[0].scratch_nbytes == -(-program.arena // 64) * 64
    assert all((guard == 0xC3).all() for guard in guards)
    assert loaded.mutable[:3072].tobytes() == image()["image"].tobytes()


@pytest.mark.parametrize("api", ["static", "dynamic"])
def test_memory_that_is_not_aligned_is_refused(path: Path, tmp_path: Path, api: Any) -> None:
    made = ag.bundle(path, tmp_path / "out", shapes=SHAPES, api=api)
    loaded = Loaded(made)
    regions = [a.ctypes.data for a in (loaded.constants, loaded.mutable, loaded.scratch)]
    rest = [None] if api == "dynamic" else []
    codes = [loaded.call(*(a + 32 * (i == k) for i, a in enumerate(regions)), *rest)
             for k in range(3)]  # fmt: skip

    assert codes == [1, 1, 1]


def test_entry_points_share_weights(path: Path, tmp_path: Path) -> None:
    sizes = {"net_small": (1, 3, 16, 16), "net_large": (2, 3, 24, 20)}
    made = ag.bundle(
        path, tmp_path / "out", entry="net", variants={k: {"image": s} for k, s in sizes.items()}
    )
    alone = ag.bundle(path, tmp_path / "alone", shapes=SHAPES)
    defined = ElfObject((made.folder / "net.o").read_bytes()).defined()

    assert defined == {"net_small", "net_large"}
    assert made.constants_nbytes == alone.constants_nbytes
    for number, shape in enumerate(sizes.values()):
        expected = ag.compile(path, "cpu", 1, {"image": shape}).run(image(shape))
        assert same_bits(Loaded(made, number).run(image(shape)), expected)


def test_embedded_weights_are_part_of_the_object(path: Path, tmp_path: Path) -> None:
    made = ag.bundle(path, tmp_path / "out", shapes=SHAPES, weights="embedded")
    separate = ag.bundle(path, tmp_path / "separate", shapes=SHAPES)
    content = (made.folder / "net.o").read_bytes()
    weights = (separate.folder / "net.weights.bin").read_bytes()

    assert ElfObject(content).defined() == {"net", "net_constants"}
    assert weights in content
    assert not any("weights" in file for file in made.files)
    assert 0 <= made.needs.data_nbytes - separate.needs.data_nbytes < 64  # padding


@pytest.mark.rest
def test_the_same_input_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    script = (
        "import sys, alpenglow as ag\n"
        "ag.bundle(sys.argv[1], sys.argv[2], target='aarch64', api='dynamic',"
        " shapes={'image': (1, 3, 16, 16)})"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", script, path, tmp_path / seed],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
    first, second = (
        {f.name: f.read_bytes() for f in (tmp_path / seed).iterdir()} for seed in ("1", "2")
    )

    assert first == second


# ── what is refused ──


def test_open_extents_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"shapes={'image': \(1, 3, 1, 1\)}"):
        ag.bundle(path, tmp_path / "out")

    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_operators_without_code_are_named_all_at_once(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "compiles", lambda op: op.name not in ("sigmoid", "greater"))
    with pytest.raises(UnsupportedError, match=r"would need: greater \(1\), sigmoid \(1\)\n  try:"):
        ag.bundle(path, tmp_path / "out", shapes=SHAPES)

    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_functions_of_a_library_are_named_with_the_operators_that_call_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = ag.Graph("lacking")
    x = g.input("x", "f64[8]")
    g.output("y", g(Floor(), x))
    g.output("z", g(Sin(), g(Sqrt(), x)))
    monkeypatch.setattr(object_format, "support", lambda name, target: None)
    said = r"cortex-m4-soft these .* bring: floor \(.*floor\), sqrt \+ sin \(.*sqrt.*\)"
    with pytest.raises(UnsupportedError, match=said):
        ag.bundle(g, tmp_path / "out", target="cortex-m4-soft")

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["x86-64-v2", "cortex-m4", "riscv64", "wasm32"])
@pytest.mark.sampled(2)
def test_functions_of_f64_need_no_library(tmp_path: Path, target: str) -> None:
    g = ag.Graph("wide")
    x = g.input("x", "f64[8]")
    for op in (Exp(), Log(), Sin()):
        g.output(op.name, g(op, x))
    g.output("power", g(Pow(), x, x))
    made = ag.bundle(g, tmp_path / "out", target=target, entry="wide", freestanding=True)
    image = object_format.opened((made.folder / "wide.o").read_bytes())

    assert image.defined() == {"wide"}
    assert not image.undefined()


def test_a_model_whose_shapes_depend_on_its_data_is_refused(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k"])
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Shape", ["n"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)]
    )
    with pytest.raises(UnsupportedError):
        ag.bundle(model, tmp_path / "out")
    onnx.save(model, tmp_path / "net.onnx")
    result = invoke(tmp_path / "net.onnx", "-o", tmp_path / "out")

    assert result.exit_code == 2 and "depends on its data" in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"target": "vax"}, "'vax' is not a known target"),
        ({"target": "interpreter"}, "no machine code"),
        ({"target": "riscv64", "system": "windows"}, "no machine of target 'riscv64' runs windows"),
        ({"target": "cortex-m4", "system": "linux"}, "runs linux"),
        ({"entry": "2net"}, "cannot be the name of a function in C\n  try: entry='model_2net'"),
        ({"entry": "net-1"}, "entry='net_1'"),
        ({"entry": "while"}, "entry='model_while'"),
        ({"entry": "memcpy"}, "cannot be the name"),
        ({"format": "exe"}, "format is 'exe'"),
        ({"api": "slow"}, "API is 'slow'"),
        ({"variants": {"a": SHAPES, "A": SHAPES}}, "expected other names, not case"),
    ],
)
def test_mistakes_are_told(
    path: Path, tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionError) as raised:
        ag.bundle(path, tmp_path / "out", **({"shapes": SHAPES} | arguments))

    assert said in str(raised.value)
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_a_folder_that_is_there_is_left_alone(path: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(OptionError, match="is there already"):
        ag.bundle(path, tmp_path / "out", shapes=SHAPES)
    with pytest.raises(OptionError, match="is missing, expected one for"):
        ag.bundle(path, tmp_path / "away" / "out", shapes=SHAPES)

    assert not list((tmp_path / "out").iterdir())


def test_a_full_disk_leaves_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    write_bytes = Path.write_bytes

    def fill(self: Path, content: bytes) -> int:
        written.append(self)
        if len(written) == 3:
            write_bytes(self, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(self, content)

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(OSError, match="No space left"):
        ag.bundle(path, tmp_path / "out", shapes=SHAPES)

    assert len(written) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


LIMITED = """
import resource, signal, sys
from alpenglow.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits files as Linux does")
@pytest.mark.parametrize("format", ["object", "c", "wasm"])
@pytest.mark.rest
def test_a_file_that_may_not_grow_leaves_nothing(path: Path, tmp_path: Path, format: str) -> None:
    target = "wasm32" if format == "wasm" else "x86-64-v2"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "bundle", path, "-o", tmp_path / "out", "--format", format,
         "--target", target, "--shapes", "image=1x3x16x16"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert re.search(r"^error: .*File too large \(of [\d,]+ bytes; nothing is written\)",
                     done.stderr)  # fmt: skip
    assert str(tmp_path / "out" / "net") in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


# ── the command ──


def invoke(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, ["bundle", *map(str, args)])


def test_the_command_prints_what_memory_is_needed(path: Path, tmp_path: Path) -> None:
    result = invoke(
        path, "-o", tmp_path / "out", "--shapes", "image=1x3x16x16", "--target", "aarch64"
    )
    lines = [line.split() for line in result.stdout.splitlines()]

    assert result.exit_code == 0, result.output
    assert [line[0] for line in lines[1:8]] == [
        "code", "constants", "entry", "mutable", "scratch", "stack", "work",
    ]  # fmt: skip
    assert lines[8] == ["input", "0", "image:", "f32[1,3,16,16]"]
    assert [line[0] for line in lines[-3:]] == ["sum", "flash", "RAM"]


def test_the_command_makes_several_entry_points(path: Path, tmp_path: Path) -> None:
    result = invoke(
        path, "-o", tmp_path / "out", "--json", "--api", "dynamic", "--entry", "both",
        "--variant", "one:image=1x3x8x8", "--variant", "two:image=2x3x8x8",
    )  # fmt: skip
    found = json.loads(result.stdout)

    assert [e["name"] for e in found["entries"]] == ["one", "two"]
    assert {*found["files"], SUMS} == {p.name for p in (tmp_path / "out").iterdir()}
    assert invoke(path, "-o", tmp_path / "x", "--variant", "one").exit_code == 2
