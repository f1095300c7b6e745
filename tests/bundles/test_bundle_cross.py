"""Bundles of the models built by C compilers and run: here, checked by tools, and in emulators.

Compilers, emulators and valgrind are installed by .ci/run; a test whose tool is missing fails.
"""

from __future__ import annotations

import functools
import gzip
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
import models
from alpenglow.bundles import Bundle
from alpenglow.bundles.elf.writer import ElfObject
from alpenglow.ir.graph import Value
from alpenglow.ir.target import Target
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import Reshape
from bundle_cases import Feeds, drive, driver, run, same_bits, tool

sys.path.insert(0, str(models.ROOT / "tools"))

import model_inputs

pytestmark = [pytest.mark.cross, pytest.mark.models]

SQUEEZENET = {"x": (1, 3, 227, 227)}
LARGEST_CODE = 400_000
TOLERANCE = 2e-6
"""Relative to the largest element: the interpreter adds in another order."""

EMULATED = {
    "aarch64": (["aarch64-linux-gnu-gcc"], ["qemu-aarch64"]),
    "aarch64+dotprod": (["aarch64-linux-gnu-gcc"], ["qemu-aarch64", "-cpu", "max"]),
    "armv7-a": (["arm-linux-gnueabihf-gcc", "-mfpu=neon"], ["qemu-arm"]),
    "riscv64": (["riscv64-linux-gnu-gcc"], ["qemu-riscv64"]),
    "riscv64+v": (["riscv64-linux-gnu-gcc"], ["qemu-riscv64", "-cpu", "rv64,v=true,vlen=128"]),
    "x86-64-v2": (["gcc"], []),
}

BOARDS = {
    "cortex-m4": ("mps2-an386", 0, ["-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"], 100),
    "cortex-m4-soft": ("mps2-an386", 0, ["-mfloat-abi=soft"], 3),
    "cortex-m7": ("mps2-an500", 0, ["-mfloat-abi=softfp", "-mfpu=fpv5-sp-d16"], 100),
    "cortex-m7-soft": ("mps2-an500", 0, ["-mfloat-abi=soft"], 3),
    "cortex-m33": ("mps2-an505", 0x10000000, ["-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"], 100),
    "cortex-m33-soft": ("mps2-an505", 0x10000000, ["-mfloat-abi=soft"], 3),
}
"""Board, where its flash begins, how it is compiled for, and how many digits it reads."""


@functools.cache
def photographs() -> tuple[Feeds, ...]:
    paths = sorted(models.data_path("imagenet").glob("*.jpg"))
    return tuple({"x": model_inputs.squeezenet_input(p.read_bytes())} for p in paths)


def squeezenet(folder: Path, target: str, **options: str) -> Bundle:
    return ag.bundle(
        models.model_path("squeezenet11"), folder / "bundle", target=target, entry="squeezenet",
        shapes=SQUEEZENET, **options,
    )  # fmt: skip


def expected(target: str, feeds: Sequence[Feeds]) -> list[Feeds]:
    exe = ag.compile(models.model_path("squeezenet11"), target, 1, SQUEEZENET)
    return [exe.run(f) for f in feeds]


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_squeezenet_sees_in_photographs_what_compiled_code_sees(
    tmp_path: Path, target: str
) -> None:
    made = squeezenet(tmp_path, target)
    image = ElfObject((made.folder / "squeezenet.o").read_bytes())

    assert made.needs.code_nbytes + made.needs.data_nbytes <= LARGEST_CODE
    assert image.undefined() <= {"memcpy", "memset"}
    if not Target.parse(target).is_host_compatible():
        pytest.skip(f"code for {target} does not run here")
    want = expected(target, photographs())
    for compiler in ("gcc", "clang"):
        found, _ = drive(made, [driver(made, [compiler], tmp_path / compiler)], photographs())
        assert len(found) == 20
        assert all(map(same_bits, found, want))


@pytest.mark.parametrize("api", ["static", "dynamic"])
def test_sanitizers_find_nothing(tmp_path: Path, api: str) -> None:
    made = squeezenet(tmp_path, "x86-64-v3", api=api)
    want = expected("x86-64-v3", photographs()[:2])
    flags = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = driver(made, ["gcc"], tmp_path / "driver", flags)
    found, _ = drive(made, [program], photographs()[:2], 2 if api == "dynamic" else None)

    assert all(map(same_bits, found, want))


def test_valgrind_finds_nothing(tmp_path: Path) -> None:
    made = squeezenet(tmp_path, "x86-64-v3")
    program = driver(made, ["gcc"], tmp_path / "driver", ["-g"])
    valgrind = [tool("valgrind"), "--error-exitcode=9", "--leak-check=full"]
    found, text = drive(made, [*valgrind, program], photographs()[:1])

    assert all(map(same_bits, found, expected("x86-64-v3", photographs()[:1])))
    assert "ERROR SUMMARY: 0 errors" in text


def test_a_team_of_threads_changes_no_bit_and_races_nowhere(tmp_path: Path) -> None:
    made = squeezenet(tmp_path, "x86-64-v3", api="dynamic")
    want = expected("x86-64-v3", photographs())
    for threads, flags in ((3, []), (2, ["-g", "-fsanitize=thread"])):
        program = driver(made, ["gcc"], tmp_path / "driver", flags)
        found, _ = drive(made, [program], photographs(), threads)
        assert all(map(same_bits, found, want))


@pytest.mark.parametrize("target", EMULATED)
@pytest.mark.parametrize("name", ["squeezenet11", "silero_vad_openvino_16k", "mnist8"])
def test_emulated_machines_agree_with_the_interpreter(
    tmp_path: Path, name: str, target: str
) -> None:
    compiler, emulator = EMULATED[target]
    feeds = models.inputs(name)
    shapes = {k: v.shape for k, v in feeds.items()}
    path = models.model_path(name)
    made = ag.bundle(
        path, tmp_path / "bundle", target=target, entry="net", shapes=shapes, freestanding=True
    )
    program = driver(made, compiler, tmp_path / "driver", ["-static", "-DSTACK"])
    (found,), text = drive(made, [*emulator, program], [feeds])
    want = ag.compile(path, "interpreter", 1, shapes).run(feeds)
    errors = [np.abs(found[k] - want[k]).max() / np.abs(want[k]).max() for k in want]
    touched = re.search(r"stack (\d+)", text)

    assert touched is not None
    assert max(errors) <= TOLERANCE
    assert int(touched[1]) <= made.needs.stack_nbytes


@pytest.mark.parametrize("target", ["aarch64", "aarch64+dotprod", "aarch64+i8mm"])
def test_emulated_machines_multiply_bytes_exactly(tmp_path: Path, target: str) -> None:
    g = ag.Graph("bytes")
    x = g.input("x", "u8[1,36,9,11]")
    made = [
        g(Conv((), (1, 1, 1, 1)), x, weights(g, 24, 36, 3, 3)),
        g(Conv((2, 2), (1, 1, 1, 1), group=36), x, weights(g, 36, 1, 3, 3)),
        g(Conv(), x, weights(g, 2, 36, 3, 3)),
        g(MatMul(), g(Reshape((36, 99)), x), weights(g, 99, 21)),
        g(MatMul(), *(g(Reshape(shape), x) for shape in ((36, 99), (99, 36)))),
    ]
    for i, y in enumerate(made):
        g.output(f"y{i}", y)
    bundle = ag.bundle(g, tmp_path / "bundle", target=target, entry="net", freestanding=True)
    compiler, _ = EMULATED["aarch64"]
    program = driver(bundle, compiler, tmp_path / "driver", ["-static", "-DSTACK"])
    bits = np.random.default_rng(0).integers(0, 256, (1, 36, 9, 11)).astype(np.uint8)
    bits[0, 0, 0, :2] = 0, 255
    ((found,), _) = drive(bundle, ["qemu-aarch64", "-cpu", "max", program], [{"x": bits}])

    assert same_bits(found, ag.compile(g, "interpreter").run({"x": bits}))


def weights(g: ag.Graph, *shape: int) -> Value:
    """Return constant bytes of all values."""
    drawn = np.random.default_rng(len(shape)).integers(-128, 128, shape)
    drawn.reshape(-1)[:2] = -128, 127
    return g.constant(drawn.astype(np.int8))


def read_page(name: str) -> str:
    """Return a file that docs/bundles.md shows."""
    page = (models.ROOT / "docs" / "bundles.md").read_text()
    found = re.search(rf"^`{re.escape(name)}`:\n\n```\w*\n(.*?)^```$", page, re.M | re.S)
    assert found, f"the page shows no {name}"
    return found[1]


@functools.cache
def digits() -> tuple[np.ndarray, list[int]]:
    """Return 100 digits as bytes, and what the interpreter reads."""
    with gzip.open(models.data_path("mnist_5k.csv.gz"), "rt") as file:
        rows = np.loadtxt(file, np.uint8, delimiter=",")[::50, :-1]
    exe = ag.compile(models.model_path("mnist8"), "interpreter")
    scores = [exe(row.astype(np.float32).reshape(1, 1, 28, 28)) for row in rows]
    return rows, [int(np.argmax(s)) for s in scores]


@pytest.mark.parametrize("target", BOARDS)
def test_a_board_without_a_system_reads_digits(tmp_path: Path, target: str) -> None:
    board, flash, flags, count = BOARDS[target]
    rows, want = digits()
    made = ag.bundle(
        models.model_path("mnist8"), tmp_path / "digits", target=target, entry="digits",
        freestanding=True,
    )  # fmt: skip
    images = ",\n".join("{" + ",".join(map(str, row)) + "}" for row in rows[:count])
    (tmp_path / "images.h").write_text(
        f"#define COUNT {count}\nstatic const unsigned char images[COUNT][28 * 28] = {{{images}}};"
    )
    (tmp_path / "board.c").write_text(read_page("board.c"))
    script = read_page("board.ld")
    if flash:
        script = script.replace("0x00000000", hex(flash)).replace("0x20000000", "0x38000000")
    (tmp_path / "board.ld").write_text(script)
    run(
        "arm-none-eabi-gcc", f"-mcpu={target.removesuffix('-soft')}", "-mthumb", *flags,
        "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-nostdlib", "-Idigits",
        "board.c", "digits/digits.o", "-T", "board.ld", "-z", "noexecstack",
        "-Wl,-Map=board.map", "-o", "board.elf", "-lgcc", cwd=tmp_path,
    )  # fmt: skip
    said = run(
        "qemu-system-arm", "-M", board, "-kernel", "board.elf", "-nographic",
        "-semihosting-config", "enable=on,target=native", cwd=tmp_path, timeout=120,
    )  # fmt: skip
    linked = mapped((tmp_path / "board.map").read_text())
    (routine,) = made.routines

    assert said.strip() == "".join(map(str, want[:count]))
    assert linked["code"] <= made.needs.code_nbytes + made.needs.data_nbytes
    assert linked["memory"] == routine.mutable_nbytes + routine.scratch_nbytes
    assert routine.scratch_nbytes == 33_152


def mapped(text: str) -> dict[str, int]:
    """Return the bytes that a linker's map gives to the bundle's object, and to its memory."""
    pieces = re.findall(r"^ (\.[\w.]+)\s+0x\w+\s+0x(\w+) (\S+)$", text, re.MULTILINE)
    allocated = (".text", ".rodata", ".ARM.exidx")
    code = [int(n, 16) for s, n, f in pieces if f == "digits/digits.o" and s.startswith(allocated)]
    memory = [int(n, 16) for s, n, f in pieces if s.startswith(".bss") and f.endswith(".o")]
    assert code and any(memory)
    return {"code": sum(code), "memory": sum(memory)}


@pytest.mark.parametrize("api", ["static", "dynamic"])
@pytest.mark.parametrize("weights", ["separate", "embedded"])
def test_the_example_builds_with_cmake_and_pkg_config(
    tmp_path: Path, api: str, weights: str
) -> None:
    feeds = models.inputs("mnist8")
    path = models.model_path("mnist8")
    made = ag.bundle(
        path, tmp_path / "bundle", target="x86-64-v2", entry="digits", api=api, weights=weights
    )
    want = next(iter(ag.compile(path, "x86-64-v2", 1).run(feeds).values())).reshape(-1)
    next(iter(feeds.values())).tofile(tmp_path / "input.bin")
    run("cmake", "-S", made.folder, "-B", tmp_path / "build", "-DCMAKE_C_FLAGS=-Wall -Werror")
    run("cmake", "--build", tmp_path / "build")
    flags = run("pkg-config", "--cflags", "--libs", made.folder / "digits.pc").split()
    include = ["-DWEIGHTS_IN_PROGRAM"] if weights == "separate" else []
    run("gcc", *include, made.folder / "main.c", *flags, "-o", tmp_path / "plain")
    texts = [
        run(program, tmp_path / "input.bin", cwd=tmp_path)
        for program in (tmp_path / "build" / "digits_example", tmp_path / "plain")
    ]
    shown = [np.float32(t) for t in texts[0].split()[1:9]]

    assert texts[0] == texts[1]
    assert shown == want[:8].tolist()
    assert texts[0].strip().endswith(f"largest at {np.argmax(want)}")


def test_the_header_is_one_of_cpp_too(tmp_path: Path) -> None:
    made = squeezenet(tmp_path, "x86-64-v2", api="dynamic")
    (tmp_path / "main.cpp").write_text(
        '#include "squeezenet.h"\n#include "squeezenet.weights.h"\n#include "alpenglow_threads.h"\n'
        "#include <cstring>\nint main() { auto *c = &squeezenet_config;\n"
        ' return std::strcmp(alpenglow_name(c, alpenglow_symbols(c)), "x") == 0\n'
        "     && alpenglow_shape(c, alpenglow_symbols(c))[3] == 227 ? 0 : 1; }\n"
    )
    run(
        "g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{made.folder}",
        tmp_path / "main.cpp", made.folder / "squeezenet.o", "-o", tmp_path / "main",
    )  # fmt: skip
    run(tmp_path / "main")


def test_the_page_can_be_followed(tmp_path: Path) -> None:
    rows, want = digits()
    (tmp_path / "mnist8.onnx").write_bytes(models.model_path("mnist8").read_bytes())
    np.savetxt(tmp_path / "pictures.csv", rows, "%d", ",")
    for name in ("load.c", "board.c", "board.ld", "images.py"):
        (tmp_path / name).write_text(read_page(name))
    page = (models.ROOT / "docs" / "bundles.md").read_text()
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = [c for b in blocks for c in re.findall(r"^\$ ((?:.*\\\n)*.*)$", b, re.MULTILINE)]
    script = "\n".join(f"( {command} )" for command in commands)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = run("env", f"PATH={path}", "bash", "-e", "-c", script, cwd=tmp_path)

    assert said.splitlines()[-1] == "".join(map(str, want))
    for line in re.findall(r"^    (?:code|constants|entry|mutable|scratch|stack|input|output) .*$",
                           page, re.MULTILINE):  # fmt: skip
        assert line.split() in [s.split() for s in said.splitlines()]
    for number in re.findall(r"\b\d{1,2},\d{3}\b", page):
        assert number in said


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
@pytest.mark.parametrize(("system", "form"), [("macos", "Mach-O"), ("windows", "COFF")])
def test_tools_read_the_objects_of_other_systems(
    tmp_path: Path, target: str, system: str, form: str
) -> None:
    made = squeezenet(tmp_path, target, system=system, api="dynamic")
    text = run("llvm-readobj", "--file-headers", "--sections", "--symbols", "--relocations",
               made.folder / "squeezenet.o")  # fmt: skip
    listed = run("llvm-nm", made.folder / "squeezenet.o")
    undefined = set(re.findall(r"^\s+U (\w+)$", listed, re.MULTILINE))

    assert re.search(rf"^Format: {form}", text, re.MULTILINE)
    assert {u.lstrip("_") for u in undefined} <= {"memcpy", "memset", "fltused"}
    assert re.search(r" [TR] _?squeezenet$", listed, re.MULTILINE)
    assert re.search(r" [SR] _?squeezenet_config$", listed, re.MULTILINE)
