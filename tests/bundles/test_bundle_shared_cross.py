"""Shared libraries read by other tools, linked, and loaded: here and in emulators.

Compilers and emulators are installed by .ci/run; a test whose tool is missing fails.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
import models
from alpenglow.bundles import Bundle
from alpenglow.bundles.elf.library import shared_library
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.assemble import assemble_all
from bundle_cases import LINKED, drive, driver, run, same_bits, tool
from test_bundle_cross import SQUEEZENET, expected, photographs, read_page

pytestmark = [pytest.mark.cross, pytest.mark.models]

MACHINES = {
    "x86-64-v2": (["gcc"], []),
    "aarch64": (["aarch64-linux-gnu-gcc"], ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]),
    "armv7-a": (["arm-linux-gnueabihf-gcc"], ["qemu-arm", "-L", "/usr/arm-linux-gnueabihf"]),
    "riscv64": (["riscv64-linux-gnu-gcc"], ["qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"]),
}
STRICT = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror")


def shared(folder: Path, target: str, model: str = "mnist8", **options: str) -> Bundle:
    shapes = {k: v.shape for k, v in models.inputs(model).items()}
    return ag.bundle(
        models.model_path(model), folder, target=target, entry="net", shapes=shapes,
        format="shared", **options,
    )  # fmt: skip


def complaints(*command: str | Path) -> str:
    """Return what a tool has to say besides what it was asked."""
    program, *rest = map(str, command)
    done = subprocess.run([tool(program), *rest], capture_output=True, text=True, check=True)
    warnings = re.findall(r"^.*\b(?:warning|error)\b.*$", done.stdout, re.MULTILINE | re.IGNORECASE)
    return done.stderr + "\n".join(warnings)


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("weights", ["separate", "embedded"])
def test_tools_read_libraries_without_complaint(tmp_path: Path, target: str, weights: str) -> None:
    made = shared(tmp_path / "out", target, weights=weights, api="dynamic")
    library = made.folder / "libnet.so"
    compiler, _ = MACHINES[target]
    objdump = compiler[0].removesuffix("gcc") + "objdump"
    readelf = run("readelf", "--wide", "--all", library)

    assert not complaints("readelf", "--wide", "--all", library)
    assert not complaints("llvm-readobj", "--all", library)
    assert not complaints(objdump, "--all-headers", "--disassemble", library)
    assert "There are no relocations in this file." in readelf
    assert "Library soname: [libnet.so]" in readelf


@pytest.mark.parametrize("target", MACHINES)
def test_programs_load_libraries_when_they_run(tmp_path: Path, target: str) -> None:
    compiler, emulator = MACHINES[target]
    (feed,) = models.inputs("mnist8").values()
    feed.tofile(tmp_path / "input.bin")
    made = shared(tmp_path / "out", target, weights="embedded", api="dynamic")
    (tmp_path / "load.c").write_text(read_page("load.c"))
    run(*compiler, *STRICT, f"-I{made.folder}", tmp_path / "load.c", "-ldl", "-o",
        tmp_path / "load")  # fmt: skip
    said = run(
        *emulator, tmp_path / "load", made.folder / "libnet.so", "net", tmp_path / "input.bin"
    )
    found = [float(line) for line in said.splitlines() if line.startswith(" ")]
    (want,) = ag.compile(models.model_path("mnist8"), "interpreter").run({"Input3": feed}).values()

    assert said.startswith("Input3: f32, 3136 bytes at 0\n")
    assert np.abs(np.float32(found) - want.reshape(-1)).max() <= 2e-6 * np.abs(want).max()


@pytest.mark.parametrize("target", MACHINES)
def test_all_distances_are_right_on_every_machine(tmp_path: Path, target: str) -> None:
    compiler, emulator = MACHINES[target]
    found = {}
    for name in (target, "x86-64-v2"):
        image = assemble_all([LINKED], Target.parse(name), pic=True)
        library = shared_library(image, "liblinked.so", ["linked"], {}, 64)
        (tmp_path / f"{name}.so").write_bytes(library)
    (tmp_path / "main.c").write_text(
        "#include <stdio.h>\nlong long linked(long long, double);\n"
        "int main(void) { for (int k = 0; k < 6; k++) "
        'printf("%lld\\n", linked(k, k / 3.0)); return 0; }\n'
    )
    (tmp_path / "liblinked.so").write_bytes((tmp_path / f"{target}.so").read_bytes())
    run(*compiler, *STRICT, tmp_path / "main.c", tmp_path / "liblinked.so",
        f"-Wl,-rpath,{tmp_path}", "-o", tmp_path / "main")  # fmt: skip
    found = [int(line) for line in run(*emulator, tmp_path / "main").splitlines()]
    here = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_double)(
        ("linked", ctypes.CDLL(str(tmp_path / "x86-64-v2.so")))
    )

    assert found == [here(k, k / 3) for k in range(6)]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_programs_link_with_libraries(tmp_path: Path, compiler: str) -> None:
    made = ag.bundle(
        models.model_path("squeezenet11"), tmp_path / "out", target="x86-64-v3", entry="net",
        shapes=SQUEEZENET, format="shared",
    )  # fmt: skip
    program = driver(made, [compiler], tmp_path / "driver", [f"-Wl,-rpath,{made.folder}"])
    found, _ = drive(made, [program], photographs()[:5])

    assert all(map(same_bits, found, expected("x86-64-v3", photographs()[:5])))


def test_a_stripped_library_is_still_one(tmp_path: Path) -> None:
    made = shared(tmp_path / "out", "x86-64-v2", weights="embedded", api="dynamic")
    run("strip", made.folder / "libnet.so", "-o", tmp_path / "stripped.so")
    (tmp_path / "load.c").write_text(read_page("load.c"))
    run("gcc", *STRICT, f"-I{made.folder}", tmp_path / "load.c", "-ldl", "-o", tmp_path / "load")
    texts = [run(tmp_path / "load", library, "net")
             for library in (made.folder / "libnet.so", tmp_path / "stripped.so")]  # fmt: skip

    assert texts[0] == texts[1]


def test_the_example_builds_with_cmake_and_pkg_config(tmp_path: Path) -> None:
    made = shared(tmp_path / "out", "x86-64-v2")
    run("cmake", "-S", made.folder, "-B", tmp_path / "build", "-DCMAKE_C_FLAGS=-Wall -Werror")
    run("cmake", "--build", tmp_path / "build")
    flags = run("pkg-config", "--cflags", "--libs", made.folder / "net.pc").split()
    run("gcc", "-DWEIGHTS_IN_PROGRAM", made.folder / "main.c", *flags, "-o", tmp_path / "plain")
    texts = [run(tmp_path / "build" / "net_example"), run(tmp_path / "plain")]

    assert texts[0] == texts[1] != ""


def test_memory_is_used_as_stated_under_valgrind(tmp_path: Path) -> None:
    made = shared(tmp_path / "out", "x86-64-v3")
    program = driver(made, ["gcc"], tmp_path / "driver", ["-g", f"-Wl,-rpath,{made.folder}"])
    _, text = drive(
        made, [tool("valgrind"), "--error-exitcode=9", "--leak-check=full", program],
        [models.inputs("mnist8")],
    )  # fmt: skip

    assert "ERROR SUMMARY: 0 errors" in text


def test_ctypes_loads_a_library_without_alpenglow(tmp_path: Path) -> None:
    made = shared(tmp_path / "out", "x86-64-v2")
    script = (
        "import ctypes, sys\n"
        f"library = ctypes.CDLL({str(made.folder / 'libnet.so')!r})\n"
        "print(library.net(ctypes.c_void_p(1), ctypes.c_void_p(0), ctypes.c_void_p(0)))"
    )

    assert run(sys.executable, "-I", "-c", script) == "1\n"  # a region is not aligned
