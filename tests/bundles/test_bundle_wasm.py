"""Bundles as WebAssembly: linked without a linker, run by Node.js, as x86-64 of 128 bits computes.

WebAssembly has vectors of four f32 and no instruction that multiplies and adds at once, like
x86-64-v2, so kernels are the same and so are results, bit by bit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import alpenglow as ag
import models
from alpenglow.base import leb128
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.bundles import Bundle
from alpenglow.bundles.wasm.link import PAGE, STACK_POINTER, Area, link
from alpenglow.bundles.wasm.object import EXPORT, IMPORT, WasmObject
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.select import Cast
from bundle_cases import Array, run, same_bits
from test_bundle import SHAPES, image, network

TWIN = "x86-64-v2"
"""The target whose kernels compute what those of wasm32 do."""

RUNNER = """
import fs from "node:fs";
const [script, folder, count] = process.argv.slice(2);
const { load, entries } = await import(script);
const [entry, { inputs, outputs }] = Object.entries(entries)[0];
const net = await load();
const read = (s, path) => new globalThis[s.array](Uint8Array.from(fs.readFileSync(path)).buffer);
for (let n = 0; n < Number(count); n++) {
  const given = {};
  inputs.forEach((s, i) => { given[s.name] = read(s, `${folder}/${n}.${i}.in`); });
  const found = net.run(given, entry);
  outputs.forEach((s, i) => fs.writeFileSync(`${folder}/${n}.${i}.out`, found[s.name].data));
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def node(made: Bundle, feeds: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """Run a bundle's first entry point on inputs."""
    folder, (routine, *_) = made.folder.parent, made.routines
    (folder / "run.mjs").write_text(RUNNER)
    for n, feed in enumerate(feeds):
        for i, s in enumerate(routine.inputs):
            np.ascontiguousarray(feed[s.name]).tofile(folder / f"{n}.{i}.in")
    run("node", folder / "run.mjs", made.folder / f"{made.name}.mjs", folder, str(len(feeds)))
    return [
        {
            s.name: np.fromfile(folder / f"{n}.{i}.out", s.type.numpy).reshape(s.type.extents)
            for i, s in enumerate(routine.outputs)
        }
        for n in range(len(feeds))
    ]


def script(made: Bundle, text: str) -> str:
    """Run lines of JavaScript that know `net`, a loaded bundle; return what they print."""
    head = f'import {{ load, entries }} from "{made.folder / made.name}.mjs";\n'
    (made.folder.parent / "lines.mjs").write_text(f"{head}const net = await load();\n{text}\n")
    return run("node", made.folder.parent / "lines.mjs")


# ── structure, for which nothing but this package is needed ──


@pytest.mark.parametrize("weights", ["separate", "embedded"])
def test_a_module_imports_nothing(path: Path, tmp_path: Path, weights: Any) -> None:
    made = ag.bundle(
        path, tmp_path / "out", target="wasm32", format="wasm", shapes=SHAPES, weights=weights
    )
    module = WasmObject((made.folder / "net.wasm").read_bytes())
    exported = re.findall(rb"[a-z]{3,}", module.contents(EXPORT))

    assert not module.contents(IMPORT)
    assert exported == [b"net", b"memory", b"constants", b"mutable", b"scratch"]
    assert ("net.weights.bin" in made.files) == (weights == "separate")
    assert all((made.folder / file).stat().st_size == size for file, size in made.files.items())


def test_an_object_for_wasm_lists_what_it_defines(path: Path, tmp_path: Path) -> None:
    made = ag.bundle(
        path, tmp_path / "out", target="wasm32", shapes=SHAPES, entry="net", freestanding=True
    )
    image = WasmObject((made.folder / "net.o").read_bytes())

    assert image.defined() == {"net"}
    assert not image.undefined()
    assert set(image.imported(3)) <= {STACK_POINTER}
    assert made.needs.code_nbytes == image.nbytes(executable=True) > 1000


def test_regions_lie_one_after_the_other_above_the_stack(path: Path, tmp_path: Path) -> None:
    made = ag.bundle(
        path, tmp_path / "out", target="wasm32", shapes=SHAPES, entry="net", freestanding=True
    )
    image = WasmObject((made.folder / "net.o").read_bytes())
    linked = link(image, 1000, {"a": Area(100), "b": Area(PAGE, b"xyz"), "c": Area(1)}, ["net"])

    assert linked.places["a"] >= 1024
    assert linked.places["b"] - linked.places["a"] == 128
    assert linked.places["c"] - linked.places["b"] == PAGE
    assert linked.memory_nbytes % PAGE == 0
    assert linked.memory_nbytes - linked.places["c"] in range(1, PAGE + 1)


def test_what_32_bits_cannot_address_is_refused(path: Path, tmp_path: Path) -> None:
    made = ag.bundle(
        path, tmp_path / "out", target="wasm32", shapes=SHAPES, entry="net", freestanding=True
    )
    image = WasmObject((made.folder / "net.o").read_bytes())
    with pytest.raises(UnsupportedError, match=r"addresses 4,294,967,296 bytes"):
        link(image, 64, {"all": Area(1 << 32)}, ["net"])


def test_the_same_model_gives_the_same_module(path: Path, tmp_path: Path) -> None:
    made = [
        ag.bundle(path, tmp_path / n, target="wasm32", format="wasm", shapes=SHAPES) for n in "ab"
    ]
    first, second = ({f: (m.folder / f).read_bytes() for f in m.files} for m in made)

    assert first == second


@pytest.mark.parametrize(
    "value", [0, 1, 63, 64, 127, 128, 300, 8191, 8192, 65535, 1 << 20, (1 << 31) - 1]
)
def test_numbers_of_seven_bits_a_byte_read_back(value: int) -> None:
    unsigned, padded = leb128.unsigned(value), leb128.padded(value)

    assert leb128.read(unsigned, 0) == (value, len(unsigned))
    assert leb128.read(padded, 0) == (value, 5)
    for number in (value, -value, -value - 1):
        signed = leb128.signed(number)
        assert leb128.read(signed, 0, sign=True) == (number, len(signed))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"target": "x86-64-v3"}, r"made for target wasm32, not for x86-64-v3\n  try: target="),
        ({"api": "dynamic"}, "static API, not the dynamic one"),
        ({"entry": "memory"}, "exports 'memory' itself"),
        ({"entry": "scratch"}, "try: entry='scratch_1'"),
    ],
)
def test_what_a_module_cannot_be_is_told(
    path: Path, tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    given = {"target": "wasm32", "format": "wasm", "shapes": SHAPES} | arguments
    with pytest.raises(OptionError, match=said):
        ag.bundle(path, tmp_path / "out", **given)

    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


# ── what Node.js computes ──


@pytest.mark.cross
@pytest.mark.parametrize("weights", ["separate", "embedded"])
def test_node_computes_what_compile_does_bit_by_bit(
    path: Path, tmp_path: Path, weights: Any
) -> None:
    made = ag.bundle(
        path, tmp_path / "out", target="wasm32", format="wasm", shapes=SHAPES, weights=weights
    )
    feeds = [image(), {"image": -image()["image"]}]
    exe = ag.compile(path, TWIN, 1, SHAPES)

    assert all(map(same_bits, node(made, feeds), [exe.run(f) for f in feeds]))


@pytest.mark.cross
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_short_floats_are_rounded_as_elsewhere(tmp_path: Path, dtype: str) -> None:
    g = ag.Graph("short")
    x, y = g.input("x", f"{dtype}[2048]"), g.input("y", f"{dtype}[2048]")
    total = g(Add(), x, y)
    g.output("total", total)
    g.output("wide", g(Cast("f32"), total))
    kind = np.float16 if dtype == "f16" else ml_dtypes.bfloat16
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(2048) * 2.0 ** rng.integers(-28, 16, 2048) for _ in "ab")
    with np.errstate(over="ignore"):
        feed = {"x": a.astype(kind), "y": b.astype(kind)}
    made = ag.bundle(g, tmp_path / "out", target="wasm32", format="wasm")
    (found,) = node(made, [feed])

    assert same_bits(found, ag.compile(g, TWIN, 1).run(feed))


@pytest.mark.cross
def test_entry_points_share_a_module(path: Path, tmp_path: Path) -> None:
    sizes = {"small": (1, 3, 16, 16), "large": (2, 3, 24, 20)}
    made = ag.bundle(
        path, tmp_path / "out", entry="both", target="wasm32", format="wasm",
        variants={k: {"image": s} for k, s in sizes.items()},
    )  # fmt: skip
    said = script(
        made,
        "const shape = (entry) => { const s = entries[entry].inputs[0];\n"
        "  return net.run({ image: new Float32Array(s.count) }, entry).scores.shape; };\n"
        "console.log(JSON.stringify([shape('small'), shape('large')]));",
    )

    assert json.loads(said) == [[1, 10], [2, 10]]


@pytest.mark.cross
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{}", "TypeError: net: input 'image', f32[1,3,16,16] is missing"),
        ("{ image: null }", "is missing"),
        ("{ picture: 1 }", "TypeError: net: no input 'picture', expected one of: image"),
        ("{ image: new Float64Array(768) }", "expected a Float32Array, found Float64Array"),
        ("{ image: [1, 2] }", "expected a Float32Array, found undefined"),
        ("{ image: new Float32Array(767) }", "RangeError: net: input 'image', f32[1,3,16,16]: "
         "expected 768 elements, found 767"),
        ("{ image: { data: new Float32Array(768), shape: [768] } }",
         "expected shape [1,3,16,16], found [768]"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_told(path: Path, tmp_path: Path, given: str, said: str) -> None:
    made = ag.bundle(path, tmp_path / "out", target="wasm32", format="wasm", shapes=SHAPES)
    text = script(made, f"try {{ net.run({given}); }} catch (e) {{ console.log(String(e)); }}")

    assert said in text


@pytest.mark.cross
def test_wrong_weights_and_entry_points_are_told(path: Path, tmp_path: Path) -> None:
    made = ag.bundle(path, tmp_path / "out", target="wasm32", format="wasm", shapes=SHAPES)
    text = script(
        made,
        "const say = (e) => console.log(String(e));\n"
        "await load({ weights: new Uint8Array(3) }).catch(say);\n"
        "try { net.run({}, 'other'); } catch (e) { say(e); }",
    )

    assert text.splitlines() == [
        f"RangeError: net: the weights are {made.constants_nbytes} bytes, these are 3",
        "TypeError: net: no entry point 'other', expected one of: net",
    ]


@pytest.mark.cross
@pytest.mark.models
@pytest.mark.parametrize(
    "name", ["mnist8", "squeezenet11", "squeezenet11_qdq", "silero_vad_openvino_16k"]
)
def test_models_compute_in_node_what_they_do_here(tmp_path: Path, name: str) -> None:
    feeds = models.inputs(name)
    shapes = {k: v.shape for k, v in feeds.items()}
    file = models.model_path(name)
    made = ag.bundle(
        file, tmp_path / "out", target="wasm32", format="wasm", entry="net", shapes=shapes
    )
    (found,) = node(made, [feeds])

    assert same_bits(found, ag.compile(file, TWIN, 1, shapes).run(feeds))


@pytest.mark.cross
@pytest.mark.models
def test_the_example_reads_a_digit(tmp_path: Path) -> None:
    feeds = models.inputs("mnist8")
    file = models.model_path("mnist8")
    made = ag.bundle(file, tmp_path / "out", target="wasm32", format="wasm", entry="digits")
    next(iter(feeds.values())).tofile(tmp_path / "input.bin")
    want = next(iter(ag.compile(file, TWIN, 1).run(feeds).values())).reshape(-1)
    text = run("node", made.folder / "main.mjs", tmp_path / "input.bin")

    assert [np.float32(t) for t in text.split()[1:9]] == want[:8].tolist()
    assert text.strip().endswith(f"largest at {np.argmax(want)}")
