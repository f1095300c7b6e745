"""Bundles as shared libraries: loaded here, read as a loader reads them, and what is refused."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import OptionError
from alpenglow.base.memory import aligned_bytes
from alpenglow.bundles import Bundle
from alpenglow.bundles.elf.library import shared_library
from alpenglow.bundles.elf.writer import ElfObject
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.assemble import assemble_all
from alpenglow.machines.cpu.jit import Code
from bundle_cases import LINKED, same_bits
from test_bundle import HERE, SHAPES, image, invoke, network

Array = NDArray[Any]

LOADING = ["x86-64-v3", "aarch64", "armv7-a", "riscv64"]
LOAD, DYNAMIC, STACK, RELRO = 1, 2, 0x6474E551, 0x6474E552
EXECUTE, WRITE = 1, 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@dataclass
class Segment:
    """A line of the program headers."""

    type: int
    rights: int
    offset: int
    address: int
    nbytes: int
    memory: int
    alignment: int


class Loaded:
    """A library as a loader sees it: by its program headers, never by its sections."""

    def __init__(self, content: bytes) -> None:
        self.content, self.wide = content, content[4] == 2
        at, size, count = (32, 54, 56) if self.wide else (28, 42, 44)
        (start,) = struct.unpack_from("<Q" if self.wide else "<I", content, at)
        (size,) = struct.unpack_from("<H", content, size)
        (count,) = struct.unpack_from("<H", content, count)
        self.segments = [self.segment(start + i * size) for i in range(count)]
        line = struct.Struct("<QQ" if self.wide else "<II")
        (dynamic,) = (s for s in self.segments if s.type == DYNAMIC)
        self.dynamic = dict(line.iter_unpack(content[dynamic.offset :][: dynamic.nbytes]))

    def segment(self, at: int) -> Segment:
        if self.wide:
            type_, rights, *rest = struct.unpack_from("<IIQQQQQQ", self.content, at)
        else:
            type_, *rest, rights, alignment = struct.unpack_from("<IIIIIIII", self.content, at)
            rest.append(alignment)
        offset, address, _, nbytes, memory, alignment = rest
        return Segment(type_, rights, offset, address, nbytes, memory, alignment)

    @property
    def loads(self) -> list[Segment]:
        return [s for s in self.segments if s.type == LOAD]

    def at(self, address: int) -> int:
        """Return where in the file lies what is loaded at an address."""
        (s,) = (s for s in self.loads if 0 <= address - s.address < s.nbytes)
        return address - s.address + s.offset

    def text(self, offset: int) -> str:
        at = self.at(self.dynamic[5]) + offset
        return self.content[at : self.content.index(b"\0", at)].decode()

    def symbol(self, number: int) -> tuple[str, int, int]:
        """Return name, value and bytes of a symbol."""
        at = self.at(self.dynamic[6]) + number * self.dynamic[11]
        if self.wide:
            name, _, _, _, value, nbytes = struct.unpack_from("<IBBHQQ", self.content, at)
        else:
            name, value, nbytes, *_ = struct.unpack_from("<IIIBBH", self.content, at)
        return self.text(name), value, nbytes

    def words(self, address: int, count: int) -> Iterator[int]:
        yield from struct.unpack_from(f"<{count}I", self.content, self.at(address))

    @property
    def names(self) -> set[str]:
        _, count = self.words(self.dynamic[4], 2)
        return {self.symbol(n)[0] for n in range(1, count)}

    def find(self, name: str) -> tuple[int, int]:
        """Look a symbol up by the hash table, as the System V ABI says."""
        hashed = 0
        for byte in name.encode():
            hashed = (hashed << 4) + byte
            hashed = (hashed ^ (hashed & 0xF0000000) >> 24) & 0x0FFFFFFF
        buckets, count = self.words(self.dynamic[4], 2)
        table = list(self.words(self.dynamic[4] + 8, buckets + count))
        number = table[hashed % buckets]
        while number and self.symbol(number)[0] != name:
            number = table[buckets + number]
        assert number, f"{name} is not found"
        return self.symbol(number)[1:]


def shared(path: Path, folder: Path, target: str = "cpu", **options: Any) -> Bundle:
    return ag.bundle(
        path, folder, target=target, format="shared", entry="net", shapes=SHAPES, **options
    )


def call(made: Bundle, constants: int | None = None) -> dict[str, Array]:
    """Load a bundle's library and run its function."""
    (routine,) = made.routines
    loaded = ctypes.CDLL(str(made.folder / f"lib{made.name}.so"))
    weights = np.zeros(0, np.uint8)
    if constants is None:
        content = (made.folder / f"{made.name}.weights.bin").read_bytes()
        weights = aligned_bytes(len(content))
        weights[:] = np.frombuffer(content, np.uint8)
    mutable = aligned_bytes(routine.mutable_nbytes)
    scratch = aligned_bytes(routine.scratch_nbytes)
    scratch[:] = 0xA5
    for s in routine.inputs:
        mutable[s.offset : s.offset + s.type.nbytes] = image()[s.name].reshape(-1).view(np.uint8)
    regions = [weights.ctypes.data if constants is None else constants]
    regions += [mutable.ctypes.data, scratch.ctypes.data]
    dynamic = [None] if "alpenglow_bundle.h" in made.files else []
    arguments = [ctypes.c_void_p(r) for r in (*regions, *dynamic)]

    assert loaded[routine.entry](*arguments) == 0
    return {
        s.name: mutable[s.offset : s.offset + s.type.nbytes]
        .copy().view(s.type.numpy).reshape(s.type.extents)
        for s in routine.outputs
    }  # fmt: skip


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("api", ["static", "dynamic"])
@pytest.mark.sampled(4)
def test_results_are_those_of_compile_bit_by_bit(
    path: Path, tmp_path: Path, target: str, api: str
) -> None:
    made = shared(path, tmp_path / "out", target, api=api)
    expected = ag.compile(path, target, 1, SHAPES).run(image())

    assert same_bits(call(made), expected)


def test_embedded_weights_are_found_by_name(path: Path, tmp_path: Path) -> None:
    made = shared(path, tmp_path / "out", weights="embedded")
    library = ctypes.CDLL(str(made.folder / "libnet.so"))
    constants = ctypes.addressof(ctypes.c_char.in_dll(library, "net_constants"))
    expected = ag.compile(path, "cpu", 1, SHAPES).run(image())

    assert not any("weights" in file for file in made.files)
    assert constants % 64 == 0
    assert same_bits(call(made, constants), expected)


@pytest.mark.parametrize("target", LOADING)
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, {"net"}),
        ({"api": "dynamic"}, {"net", "net_config"}),
        ({"weights": "embedded"}, {"net", "net_constants"}),
    ],
)
@pytest.mark.sampled(4)
def test_only_what_the_header_declares_is_found(
    path: Path, tmp_path: Path, target: str, options: dict[str, Any], names: set[str]
) -> None:
    made = shared(path, tmp_path / "out", target, **options)
    found = Loaded((made.folder / "libnet.so").read_bytes())
    header = (made.folder / "net.h").read_text()

    assert found.names == names
    assert all(name in header for name in names)
    assert found.text(found.dynamic[14]) == "libnet.so"
    for name in names:
        address, nbytes = found.find(name)
        assert found.at(address) and nbytes > 0


@pytest.mark.parametrize("target", LOADING)
def test_pages_have_one_right_each_and_nothing_is_changed_when_loading(
    path: Path, tmp_path: Path, target: str
) -> None:
    made = shared(path, tmp_path / "out", target, weights="embedded")
    found = Loaded((made.folder / "libnet.so").read_bytes())
    pages: set[int] = set()
    for s in found.loads:
        mine = set(range(s.address // s.alignment, -(-(s.address + s.memory) // s.alignment)))
        assert (s.address - s.offset) % s.alignment == 0
        assert not pages & mine
        pages |= mine
    (stack,) = (s for s in found.segments if s.type == STACK)
    (relro,) = (s for s in found.segments if s.type == RELRO)
    (writable,) = (s for s in found.loads if s.rights & WRITE)
    (code,) = (s for s in found.loads if s.rights & EXECUTE)
    address, _ = found.find("net")

    assert not stack.rights & EXECUTE and not code.rights & WRITE
    assert 0 <= address - code.address < code.nbytes
    assert (relro.address, relro.memory) == (writable.address, writable.memory)
    assert (relro.address + relro.memory) % writable.alignment == 0
    assert found.dynamic.keys() == {0, 4, 5, 6, 10, 11, 14}  # no needed, no relocations, no init


def test_the_weights_come_last_and_are_the_file_of_their_own(path: Path, tmp_path: Path) -> None:
    apart = shared(path, tmp_path / "apart")
    weights = (apart.folder / "net.weights.bin").read_bytes()
    made = shared(path, tmp_path / "out", weights="embedded")
    content = (made.folder / "libnet.so").read_bytes()
    found = Loaded(content)
    address, nbytes = found.find("net_constants")
    at = found.at(address)

    assert content[at : at + nbytes] == weights
    assert address > max(s.address for s in found.loads if s.rights & EXECUTE)
    assert made.needs == apart.needs


def test_entry_points_share_a_library(path: Path, tmp_path: Path) -> None:
    variants = {"small": SHAPES, "large": {"image": (2, 3, 24, 20)}}
    made = ag.bundle(
        path, tmp_path / "out", format="shared", entry="net", variants=variants, api="dynamic"
    )
    found = Loaded((made.folder / "libnet.so").read_bytes())

    assert found.names == {"small", "large", "small_config", "large_config"}


def test_the_same_input_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    first, second = (
        shared(path, tmp_path / name, "riscv64", weights="embedded", api="dynamic")
        for name in ("a", "b")
    )

    for file in first.files:
        assert (first.folder / file).read_bytes() == (second.folder / file).read_bytes()


# ── linking ──


@pytest.mark.parametrize("target", [n for n in HERE if n != "cpu"])
def test_a_linked_object_does_what_it_does_in_this_process(tmp_path: Path, target: str) -> None:
    image_ = assemble_all([LINKED], Target.parse(target), pic=True)
    installed = Code.install([image_], ["linked"])
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_double)
    expected = function(installed.address("linked"))
    (tmp_path / "linked.so").write_bytes(shared_library(image_, "linked.so", ["linked"], {}, 64))
    actual = function(("linked", ctypes.CDLL(str(tmp_path / "linked.so"))))

    assert [actual(k, k / 3) for k in range(6)] == [expected(k, k / 3) for k in range(6)]
    assert ElfObject(image_).relocations


def test_addresses_are_no_part_of_a_library() -> None:
    text = """
@table = constant [2 x ptr] [ptr @f, ptr @linked]
define internal i64 @f(i64 %x) { ret i64 %x }
define i64 @linked(i64 %x) { ret i64 %x }
"""
    image_ = assemble_all([text], Target.parse("x86-64"), pic=True)
    with pytest.raises(AssertionError, match=r"code keeps no state"):
        shared_library(image_, "linked.so", ["linked"], {}, 64)


def test_an_object_that_refers_to_another_makes_no_library() -> None:
    text = (
        "declare i64 @g(i64)\ndefine i64 @linked(i64 %x) { %y = call i64 @g(i64 %x)\nret i64 %y }"
    )
    image_ = assemble_all([text], Target.parse("aarch64"), pic=True)
    with pytest.raises(AssertionError, match=r"refers to nothing else, but this object to g"):
        shared_library(image_, "linked.so", ["linked"], {}, 64)


# ── what is refused ──


@pytest.mark.parametrize(
    ("target", "system", "said"),
    [
        ("x86-64-v3", "macos", "macOS has another format\n  try: format='object'"),
        ("aarch64", "windows", "Windows has another format\n  try: format='object'"),
        ("cortex-m4", None, "nothing loads shared libraries on cortex-m4\n  try: format='object'"),
        ("wasm32", None, "nothing loads shared libraries on wasm32"),
    ],
)
def test_other_systems_are_refused_by_name(
    path: Path, tmp_path: Path, target: str, system: str | None, said: str
) -> None:
    with pytest.raises(OptionError) as raised:
        shared(path, tmp_path / "out", target, system=system)

    assert said in str(raised.value)
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_the_command_writes_libraries(path: Path, tmp_path: Path) -> None:
    result = invoke(
        path, "-o", tmp_path / "out", "--shapes", "image=1x3x16x16", "--format", "shared",
        "--entry", "net",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "libnet.so").read_bytes().startswith(b"\x7fELF")
