"""Objects for several levels of x86-64: which code they choose where, and what it computes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import alpenglow as ag
import models
from alpenglow.base.errors import OptionError
from alpenglow.bundles.elf.fat import require_fat
from alpenglow.bundles.elf.writer import ElfObject
from alpenglow.ir.target import Target
from alpenglow.ops.elementwise.arithmetic import Add
from bundle_cases import drive, driver, run, same_bits, tool
from test_bundle import SHAPES, Loaded, image, network

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
FAT = ",".join(LEVELS)
HERE = [name for name in LEVELS if Target.parse(name).is_host_compatible()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def chosen(loaded: Loaded) -> str:
    """Return the level that an object chooses in this process, by the address that it gives."""
    image = ElfObject((loaded.made.folder / "net.o").read_bytes())
    values = {s.name: s.value for s in image.symbols}
    code = loaded.code
    address = ctypes.CFUNCTYPE(ctypes.c_void_p)(code.address("net_choose"))()
    at = address - code.address("net") + values["net"]
    names = {values[f"net.level{k}"]: level for k, level in enumerate(LEVELS)}
    return names[at]


@pytest.mark.skipif(not HERE, reason="levels of x86-64 do not run here")
@pytest.mark.parametrize("api", ["static", "dynamic"])
def test_the_best_level_that_is_here_is_chosen(
    path: Path, tmp_path: Path, api: Any, pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("--processor"):
        pytest.skip("the object asks the real processor")
    made = ag.bundle(path, tmp_path / "out", target=FAT, shapes=SHAPES, entry="net", api=api)
    loaded = Loaded(made)
    expected = ag.compile(path, HERE[-1], 1, SHAPES).run(image())

    assert chosen(loaded) == HERE[-1]
    assert same_bits(loaded.run(image(), *([None] if api == "dynamic" else [])), expected)


@pytest.mark.parametrize("api", ["static", "dynamic"])
@pytest.mark.parametrize("system", ["linux", "macos", "windows"])
@pytest.mark.sampled(1)
def test_one_object_holds_all_levels(path: Path, tmp_path: Path, system: str, api: Any) -> None:
    made = ag.bundle(
        path, tmp_path / "out", target=FAT, shapes=SHAPES, entry="net", api=api, system=system,
        freestanding=True,
    )  # fmt: skip
    alone = [
        ag.bundle(
            path, tmp_path / level, target=level, shapes=SHAPES, entry="net", api=api,
            system=system, freestanding=True,
        )
        for level in LEVELS
    ]  # fmt: skip
    header = (made.folder / "net.h").read_text()

    assert str(made.target) == FAT
    assert made.needs.stack_nbytes >= max(b.needs.stack_nbytes for b in alone)
    assert "net_function net_choose(void);" in header
    assert made.routines[0].scratch_nbytes == max(b.routines[0].scratch_nbytes for b in alone)
    assert made.needs.code_nbytes > sum(b.needs.code_nbytes for b in alone)
    if system == "linux":
        image = ElfObject((made.folder / "net.o").read_bytes())
        wanted = {"net", "net_choose"} | ({"net_config"} if api == "dynamic" else set())
        assert image.defined() == wanted
        assert not image.undefined()
        data = {s.name for s in image.sections if s.flags & 3 == 3 and s.nbytes}
        assert not data, "there is no state that is written"


def test_weights_in_the_same_order_are_kept_once(tmp_path: Path) -> None:
    g = ag.Graph("same")
    rng = np.random.default_rng(0)
    table = g.constant(rng.standard_normal((64, 64)).astype(np.float32))
    g.output("y", g(Add(), g.input("x", "f32[64,64]"), table))
    sizes = [ag.bundle(g, tmp_path / t, target=t).constants_nbytes for t in ("x86-64-v3", FAT)]

    assert sizes == [64 * 64 * 4] * 2


def test_the_same_model_gives_the_same_object(path: Path, tmp_path: Path) -> None:
    made = [ag.bundle(path, tmp_path / n, target=FAT, shapes=SHAPES) for n in "ab"]
    first, second = ({f: (m.folder / f).read_bytes() for f in m.files} for m in made)

    assert first == second


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x86-64-v3,x86-64-v2", "'x86-64-v2' has no more than 'x86-64-v3' before it"),
        ("x86-64-v3,x86-64-v3", "has no more than"),
        ("x86-64-v2,aarch64", "'aarch64' is not supported there"),
        ("x86-64-v2,cpu", "'cpu' is not supported there"),
        ("x86-64-v2,x86-64-v4+amx-int8", r"'x86-64-v4\+amx-int8' is not supported"),
        ("x86-64-v2,", "'' is not a known target"),
    ],
)
def test_levels_that_cannot_be_chosen_from_are_refused(
    path: Path, tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        ag.bundle(path, tmp_path / "out", target=text, shapes=SHAPES)

    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_c_is_for_one_machine(path: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="compiled for one machine"):
        ag.bundle(path, tmp_path / "out", target=FAT, shapes=SHAPES, format="c")

    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_every_level_can_be_told() -> None:
    require_fat([Target.parse(t) for t in ("x86-64", *LEVELS, "x86-64-v4+avx512vnni+avx512bf16")])


# ── on other processors ──

PROCESSORS = {"Nehalem": 0, "SandyBridge": 0, "Haswell": 1, "max": 1, "Haswell,avx2=off": 0}
"""Processors of the emulator, which knows nothing beyond AVX2, and the level that each has."""


@pytest.mark.cross
@pytest.mark.parametrize("processor", PROCESSORS)
def test_an_emulated_processor_gets_its_level(path: Path, tmp_path: Path, processor: str) -> None:
    made = ag.bundle(path, tmp_path / "out", target=FAT, shapes=SHAPES, entry="net")
    program = driver(made, ["gcc"], tmp_path / "driver")
    (found,), _ = drive(made, [tool("qemu-x86_64"), "-cpu", processor, program], [image()])
    level = LEVELS[PROCESSORS[processor]]

    assert same_bits(found, ag.compile(path, level, 1, SHAPES).run(image()))


@pytest.mark.cross
def test_a_processor_without_any_level_is_told_apart(path: Path, tmp_path: Path) -> None:
    made = ag.bundle(path, tmp_path / "out", target=FAT, shapes=SHAPES, entry="net")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net.h"\n#include "net.weights.h"\n'
        "static _Alignas(64) uint8_t data[NET_MUTABLE_NBYTES], scratch[NET_SCRATCH_NBYTES];\n"
        'int main(void) { printf("%d %d\\n", net_choose() == 0, net(net_weights, data, scratch)); }'
    )
    run("gcc", "-Wall", "-Werror", f"-I{made.folder}", tmp_path / "main.c",
        made.folder / "net.o", "-o", tmp_path / "main")  # fmt: skip

    assert run("qemu-x86_64", "-cpu", "qemu64", tmp_path / "main") == "1 2\n"
    assert run("qemu-x86_64", "-cpu", "Nehalem", tmp_path / "main") == "0 0\n"


@pytest.mark.cross
@pytest.mark.models
@pytest.mark.parametrize(("processor", "level"), [("Nehalem", "x86-64-v2"), ("max", "x86-64-v3")])
def test_squeezenet_computes_what_the_level_does(
    tmp_path: Path, processor: str, level: str
) -> None:
    feeds = models.inputs("squeezenet11")
    shapes = {k: v.shape for k, v in feeds.items()}
    file = models.model_path("squeezenet11")
    made = ag.bundle(file, tmp_path / "out", target=FAT, entry="net", shapes=shapes)
    program = driver(made, ["gcc"], tmp_path / "driver")
    (found,), _ = drive(made, [tool("qemu-x86_64"), "-cpu", processor, program], [feeds])

    assert same_bits(found, ag.compile(file, level, 1, shapes).run(feeds))
