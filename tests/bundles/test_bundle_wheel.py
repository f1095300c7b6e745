"""Bundles as wheels: installed by pip, imported without Alpenglow, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import sys
import threading
import venv
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import alpenglow as ag
import models
from alpenglow.base.errors import OptionError
from alpenglow.bundles import Bundle
from alpenglow.bundles.elf.linux_flags import needed_flags
from alpenglow.bundles.wheel import runtime as wheel_runtime
from alpenglow.bundles.wheel.package import RUNTIME
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.targets import EXTRAS
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.random.random import RandomUniform
from bundle_cases import same_bits
from test_bundle import HERE, SHAPES, image, invoke, network

Array = NDArray[Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def wheel(model: Any, folder: Path, **options: Any) -> Path:
    made = ag.bundle(model, folder, format="wheel", **({"entry": "net"} | options))
    return only(made)


def only(made: Bundle) -> Path:
    """Return the one file of a bundle."""
    (file,) = made.files
    return made.folder / file


def imported(file: Path, name: str = "net") -> ModuleType:
    """Import the package of a wheel, which is unpacked beside it."""
    with zipfile.ZipFile(file) as archive:
        archive.extractall(file.parent)
    folder = file.parent / name
    known = f"{name}_{abs(hash(file))}"
    spec = spec_from_file_location(
        known, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = sys.modules[known] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def net(path: Path, tmp_path: Path) -> ModuleType:
    return imported(wheel(path, tmp_path / "out", shapes=SHAPES))


@pytest.mark.parametrize("target", HERE)
@pytest.mark.sampled(2)
def test_results_are_those_of_compile_bit_by_bit(path: Path, tmp_path: Path, target: str) -> None:
    net = imported(wheel(path, tmp_path / "out", target=target, shapes=SHAPES))
    expected = ag.compile(path, target, 1, SHAPES)(image()["image"])

    for actual in (net.run(image()["image"]), net.run(**image())):
        assert [(a.dtype, a.shape, a.tobytes()) for a in actual] == [
            (e.dtype, e.shape, e.tobytes()) for e in expected
        ]


@pytest.mark.skipif("x86-64-v2" not in HERE, reason="levels are told apart on x86-64 only")
def test_a_package_for_several_levels_takes_the_best(path: Path, tmp_path: Path) -> None:
    levels = [n for n in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4") if n in HERE]
    net = imported(wheel(path, tmp_path / "out", target=",".join(levels), shapes=SHAPES))
    expected = ag.compile(path, levels[-1], 1, SHAPES)(image()["image"])

    for actual, want in zip(net.run(image()["image"]), expected, strict=True):
        assert actual.tobytes() == want.tobytes()


def test_arrays_of_any_strides_will_do(net: ModuleType) -> None:
    x = image()["image"]
    wide = np.zeros((1, 3, 16, 32), np.float32)
    wide[..., ::2] = x
    scores, mask = net.run(x)
    strided = net.run(wide[..., ::2])
    swapped = net.run(x.astype(">f4").astype("<f4"))

    assert strided[0].tobytes() == swapped[0].tobytes() == scores.tobytes()
    assert strided[1].tobytes() == swapped[1].tobytes() == mask.tobytes()


def test_results_are_the_callers_own(net: ModuleType) -> None:
    x = image()["image"]
    first, _ = net.run(x)
    kept = first.copy()
    net.run(x + 1)
    first += 0

    assert first.tobytes() == kept.tobytes()


@pytest.mark.parametrize(
    ("arrays", "named", "error", "said"),
    [
        (
            [np.zeros((3, 16, 16), np.float32)], {}, ValueError,
            "net: input 'image' has shape (3, 16, 16), expected (1, 3, 16, 16)",
        ),
        (
            [np.zeros((1, 3, 16, 16))], {}, TypeError,
            "net: input 'image' has elements float64, expected float32",
        ),
        ([], {}, TypeError, "net: given 0 arrays, expected image"),
        ([1, 2], {}, TypeError, "net: given 2 arrays, expected image"),
        ([], {"x": 1}, TypeError, "net: given 0 arrays and x, expected image"),
        ([1], {"image": 1}, TypeError, "net: given 1 array and image, expected image"),
    ],
)  # fmt: skip
@pytest.mark.sampled(3)
def test_other_arrays_are_refused(
    net: ModuleType, arrays: list[Any], named: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        net.run(*arrays, **named)

    assert str(raised.value) == said


def test_a_package_says_what_it_takes_and_returns(net: ModuleType) -> None:
    assert repr(net.run) == (
        "net(image: float32[1,3,16,16]) -> scores: float32[1,10], mask/1: bool[1,3,16,16]"
    )
    assert [t.name for t in net.run.outputs] == ["scores", "mask/1"]
    assert net.__doc__ and "image: f32[1,3,16,16]" in net.__doc__
    assert (net.__all__, net.__version__) == (["run"], "1.0")


def test_threads_may_call_at_once(net: ModuleType) -> None:
    inputs = [image()["image"] * k for k in range(8)]
    expected = [net.run(x)[0].tobytes() for x in inputs]
    wrong: list[int] = []
    start = threading.Barrier(len(inputs))

    def work(k: int) -> None:
        start.wait()
        for _ in range(50):
            if net.run(inputs[k])[0].tobytes() != expected[k]:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_run_calls_the_function_that_fits(path: Path, tmp_path: Path) -> None:
    sizes = {"small": (1, 3, 16, 16), "large": (2, 3, 24, 20)}
    file = wheel(path, tmp_path / "out", variants={k: {"image": s} for k, s in sizes.items()})
    net = imported(file)
    for name, shape in sizes.items():
        x = image(shape)["image"]
        expected, _ = ag.compile(path, "cpu", 1, {"image": shape})(x)
        assert net.run(x)[0].tobytes() == expected.tobytes()
        assert getattr(net, name)(x)[0].tobytes() == expected.tobytes()

    assert net.__all__ == ["run", "small", "large"]
    with pytest.raises(
        ValueError, match=r"shapes are \[\(1, 3, 8, 8\)\], expected the shapes of\n  small\(image"
    ):
        net.run(image((1, 3, 8, 8))["image"])


def test_elements_that_numpy_lacks_are_their_bits(tmp_path: Path) -> None:
    g = ag.Graph("short")
    x = g.input("x", "bf16[4]")
    g.output("y", g(Cast("f32"), x))
    g.output("z", x)
    net = imported(wheel(g, tmp_path / "out"))
    bits = np.array([0x3F80, 0x4000, 0xC040, 0], np.uint16)
    y, z = net.run(bits)
    (bfloat16,) = (t.numpy for t in ag.compile(g).inputs.values())

    assert y.tolist() == [1.0, 2.0, -3.0, 0.0]
    assert (z.dtype, z.tolist()) == (np.uint16, bits.tolist())
    assert net.run(bits.view(bfloat16))[0].tolist() == y.tolist()
    with pytest.raises(TypeError, match="expected uint16 that hold the bits of bfloat16"):
        net.run(np.zeros(4, np.float16))


def test_random_numbers_are_new_ones_in_each_call(tmp_path: Path) -> None:
    g = ag.Graph("noise")
    g.output("y", g(RandomUniform((64,)), g.random_key()))
    net = imported(wheel(g, tmp_path / "out"))
    first, second = net.run(), net.run()

    assert repr(net.run) == "net() -> y: float32[64]"
    assert (first != second).any()
    assert ((first >= 0) & (first < 1)).all()


@pytest.mark.models
@pytest.mark.parametrize("name", ["mnist8", "silero_vad_openvino_16k", "squeezenet11_qdq"])
@pytest.mark.sampled(1)
def test_packages_of_models_compute_what_compile_does(tmp_path: Path, name: str) -> None:
    feeds = models.inputs(name)
    shapes = {k: v.shape for k, v in feeds.items()}
    net = imported(wheel(models.model_path(name), tmp_path / "out", shapes=shapes))
    expected = ag.compile(models.model_path(name), "cpu", 1, shapes).run(feeds)
    found = net.run(**feeds)
    outputs = found if isinstance(found, tuple) else (found,)

    assert same_bits(dict(zip(expected, outputs, strict=True)), expected)


@pytest.mark.models
def test_the_page_shows_what_a_package_prints(tmp_path: Path) -> None:
    file = wheel(models.model_path("mnist8"), tmp_path / "out", entry="digits")
    digits = imported(file, "digits")
    page = (models.ROOT / "docs" / "bundles.md").read_text()

    assert f"    {digits.run!r}\n" in page


# ── the file ──


def test_the_record_tells_every_file(path: Path, tmp_path: Path) -> None:
    file = wheel(path, tmp_path / "out", shapes=SHAPES, release="2.3")
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    record = content["net-2.3.dist-info/RECORD"].decode().splitlines()
    told = dict(line.split(",", 1) for line in record)

    assert told.keys() == content.keys()
    assert told.pop("net-2.3.dist-info/RECORD") == ","
    for name, line in told.items():
        digest, nbytes = line.removeprefix("sha256=").split(",")
        assert int(nbytes) == len(content[name])
        decoded = base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4))
        assert decoded == hashlib.sha256(content[name]).digest()


@pytest.mark.parametrize(
    ("target", "tags"),
    [
        ("x86-64", "manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64"),
        ("aarch64", "manylinux2014_aarch64.manylinux_2_17_aarch64.musllinux_1_1_aarch64"),
        ("armv7-a", "manylinux2014_armv7l.manylinux_2_17_armv7l.musllinux_1_1_armv7l"),
        ("riscv64", "manylinux_2_31_riscv64.musllinux_1_2_riscv64"),
    ],
)
def test_a_wheel_is_tagged_for_its_platform(
    path: Path, tmp_path: Path, target: str, tags: str
) -> None:
    file = wheel(path, tmp_path / "out", shapes=SHAPES, target=target, entry="My_Net")
    with zipfile.ZipFile(file) as archive:
        about = archive.read("my_net-1.0.dist-info/WHEEL").decode().splitlines()
        metadata = archive.read("my_net-1.0.dist-info/METADATA").decode().splitlines()
        names = archive.namelist()

    assert file.name == f"my_net-1.0-py3-none-{tags}.whl"
    assert [line for line in about if line.startswith("Tag")] == [
        f"Tag: py3-none-{tag}" for tag in tags.split(".")
    ]
    assert "Root-Is-Purelib: false" in about
    assert metadata[1:3] == ["Name: my_net", "Version: 1.0"]
    assert "My_Net/libMy_Net.so" in names


def test_the_same_input_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    first, second = (
        wheel(path, tmp_path / name, shapes=SHAPES, target="aarch64").read_bytes() for name in "ab"
    )
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        times = {entry.date_time for entry in archive.infolist()}

    assert first == second
    assert times == {(1980, 1, 1, 0, 0, 0)}


def test_a_package_imports_nothing_of_alpenglow(path: Path, tmp_path: Path) -> None:
    file = wheel(path, tmp_path / "out", shapes=SHAPES)
    imported(file)
    script = (
        "import sys; sys.modules['alpenglow'] = None; sys.path.insert(0, sys.argv[1])\n"
        "import numpy, net; print(net.run(numpy.zeros((1, 3, 16, 16), 'f'))[0].shape)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, file.parent], capture_output=True, text=True, check=True
    )

    assert said.stdout == "(1, 10)\n"


@pytest.mark.slow
def test_pip_installs_a_wheel_where_there_is_only_numpy(path: Path, tmp_path: Path) -> None:
    file = wheel(path, tmp_path / "out", shapes=SHAPES)
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for found in Path(np.__file__).parent.parent.glob("numpy*"):
        os.symlink(found, site / found.name)
    python = tmp_path / "venv" / "bin" / "python"
    np.save(tmp_path / "x.npy", image()["image"])
    script = (
        "import importlib.util, numpy, net\n"
        "assert importlib.util.find_spec('alpenglow') is None\n"
        "scores, mask = net.run(numpy.load('x.npy'))\n"
        "numpy.savez('y.npz', scores=scores, mask=mask)\n"
    )
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", file], check=True)
    subprocess.run([python, "-I", "-B", "-c", script], cwd=tmp_path, check=True)
    expected = ag.compile(path, "cpu", 1, SHAPES)(image()["image"])
    with np.load(tmp_path / "y.npz") as found:
        assert found["scores"].tobytes() == expected[0].tobytes()
        assert found["mask"].tobytes() == expected[1].tobytes()


# ── what is refused ──


def test_processors_that_lack_something_are_told(path: Path, tmp_path: Path) -> None:
    file = wheel(path, tmp_path / "out", shapes=SHAPES)
    imported(file)
    library = file.parent / "net" / "libnet.so"
    with pytest.raises(ImportError, match="not supported by this processor, which lacks avx1024"):
        wheel_runtime.SharedLibrary(library, "net_constants", ["avx1024"])

    assert (file.parent / "net" / "_runtime.py").read_bytes() == (
        Path(wheel_runtime.__file__).with_name(RUNTIME).read_bytes()
    )


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("processor\t: 0\nflags\t\t: fpu sse4_2 avx2\nbugs\t: x\n", {"fpu", "sse4_2", "avx2"}),
        ("Features\t: fp asimd asimddp\n\nprocessor: 1\n", {"fp", "asimd", "asimddp"}),
        ("hart: 0\nisa\t\t: rv64imafdcv_zicsr_zba\n", {*"imafdcv", "zicsr", "zba"}),
        ("nothing\n", set()),
    ],
)
def test_linux_tells_what_a_processor_has(text: str, flags: set[str]) -> None:
    assert wheel_runtime.flags_in(text) == flags


def test_what_a_target_has_beyond_its_tag_is_looked_up() -> None:
    assert needed_flags(Target.parse("x86-64")) == []
    assert needed_flags(Target.parse("aarch64+dotprod")) == ["asimddp"]
    assert needed_flags(Target.parse("riscv64+v")) == ["v"]
    assert {"avx512_vnni", "avx512f", "fma", "sse4_2"} <= set(
        needed_flags(Target.parse("x86-64+avx512vnni"))
    )
    for level in ("x86-64", "aarch64", "armv7-a", "riscv64"):
        for extra in EXTRAS[Target.parse(level).architecture]:
            assert needed_flags(Target.parse(f"{level}+{extra}")), extra


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"target": "aarch64", "system": "macos"}, "aarch64 is not for Linux"),
        ({"target": "cortex-m4"}, "cortex-m4 is not for Linux"),
        ({"api": "dynamic"}, "api is 'dynamic', which is not supported"),
        ({"entry": "numpy"}, "a package called 'numpy' would hide another\n  try: entry='numpy_m"),
        ({"entry": "json"}, "a package called 'json' would hide another"),
        ({"entry": "lambda"}, "'lambda' cannot be a name in Python\n  try: entry='lambda_model'"),
        ({"entry": "_"}, "'_' cannot be a name in Python"),
        ({"release": "new"}, "'new' is no version of a wheel\n  try: release='1.0'"),
        ({"shapes": None, "variants": {"run": SHAPES, "b": SHAPES}}, "function is 'run', expected"),
    ],
)
def test_mistakes_are_told(
    path: Path, tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionError) as raised:
        wheel(path, tmp_path / "out", **({"shapes": SHAPES} | arguments))

    assert said in str(raised.value)
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_the_command_writes_wheels(path: Path, tmp_path: Path) -> None:
    result = invoke(
        path, "-o", tmp_path / "out", "--shapes", "image=1x3x16x16", "--format", "wheel",
        "--entry", "net", "--target", "aarch64", "--release", "1.1",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    assert [p.name[:19] for p in (tmp_path / "out").glob("*.whl")] == ["net-1.1-py3-none-ma"]
    assert result.stdout.startswith(str(tmp_path / "out" / "net-1.1-py3-none-ma"))
