"""Bundles for OpenCL: C99 built by gcc without a warning, on devices the bits of `compile`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
import models
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.bundles import Bundle
from alpenglow.extras.linalg.reflections import Qr
from alpenglow.machines.opencl.device import device_of
from alpenglow.machines.opencl.devices import find
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.layer_norm import LayerNorm
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Transpose
from bundle_cases import run as build

Array = NDArray[Any]

WARNINGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1")
TARGETS = ("opencl:intel", "opencl:pocl", "opencl-gpu:intel", "opencl-gpu:pocl")
RNG = np.random.default_rng(0)


def transformer() -> ag.Graph:
    """Embeddings of four tokens, attention among them, a layer of two products, norms."""
    g = ag.Graph("transformer")

    def weight(*shape: int) -> ag.Value:
        return g.constant(RNG.standard_normal(shape, np.float32) / 4)

    def norm(x: ag.Value) -> ag.Value:
        return g(LayerNorm(axis=-1), x, weight(16), weight(16))

    tokens = g(InRange(0, 31, "token"), g.input("tokens", "i64[4]"))
    x = g(Gather(axis=0), weight(32, 16), tokens)
    q, k, v = (g(MatMul(), norm(x), weight(16, 16)) for _ in range(3))
    shares = g(Softmax(axis=1), g(MatMul(), q, g(Transpose((1, 0)), k)))
    x = g(Add(), x, g(MatMul(), shares, v))
    hidden = g(Relu(), g(MatMul(), norm(x), weight(16, 64)))
    g.output("scores", g(Add(), x, g(MatMul(), hidden, weight(64, 16))))
    g.output("shares", shares)
    return g


def library(bundle: Bundle) -> ctypes.CDLL:
    """Build a bundle as a shared library; the loader is the one of this process."""
    name = f"{bundle.name}.so"
    source = f"{bundle.name}.c"
    build("gcc", *WARNINGS, "-fPIC", "-shared", source, "-o", name, "-l:libOpenCL.so.1",
          cwd=bundle.folder)  # fmt: skip
    loaded = ctypes.CDLL(str(bundle.folder / name))
    getattr(loaded, f"{bundle.name}_message").restype = ctypes.c_char_p
    return loaded


class Model:
    """A model of a bundle on a device."""

    def __init__(self, bundle: Bundle, device: int | None, weights: bytes | None = None) -> None:
        self.bundle, self.library = bundle, library(bundle)
        self.handle = ctypes.c_void_p()
        content = weights or (bundle.folder / f"{bundle.name}.weights.bin").read_bytes()
        self.code = self._create(content, device)

    def _create(self, weights: bytes, device: int | None) -> int:
        create: Any = self.function("create" if device is not None else "create_on")
        if device is not None:
            return int(create(ctypes.byref(self.handle), weights, device))
        opened = device_of(find("pocl"))
        handles = (opened.context, opened.device, opened.kernels.queue)
        taken = (h if isinstance(h, ctypes.c_void_p) else ctypes.c_void_p(h) for h in handles)
        return int(create(ctypes.byref(self.handle), weights, *taken))

    def function(self, what: str) -> Any:
        return getattr(self.library, f"{self.bundle.name}_{what}")

    @property
    def message(self) -> str:
        text: bytes = self.function("message")(self.handle)
        return text.decode()

    def run(self, feeds: Mapping[str, Array]) -> tuple[int, dict[str, Array]]:
        """Call the entry point; returns its code and the outputs."""
        (routine,) = self.bundle.routines
        inputs = [np.ascontiguousarray(feeds[s.name]) for s in routine.inputs]
        outputs = {s.name: np.zeros(s.type.extents, s.type.numpy) for s in routine.outputs}
        places = [ctypes.c_void_p(a.ctypes.data) for a in (*inputs, *outputs.values())]
        code = getattr(self.library, routine.entry)(self.handle, *places)
        return code, outputs

    def destroy(self) -> None:
        self.function("destroy")(self.handle)


def assert_same(
    model: Any, feeds: Mapping[str, Array], target: str, folder: Path, **options: Any
) -> None:
    """Assert that a bundle leaves the bits of the Executable, twice."""
    bundle = ag.bundle(model, folder / "made", target=target, entry="net", **options)
    shapes = options.get("shapes")
    expected = ag.compile(model, target, shapes=shapes).run(dict(feeds))
    made = Model(bundle, find(target.partition(":")[2]).index)
    assert made.code == 0, made.message
    for _ in range(2):
        code, outputs = made.run(feeds)
        assert code == 0, made.message
        for name, y in outputs.items():
            assert y.tobytes() == expected[name].tobytes(), name
    made.destroy()


@pytest.mark.opencl
@pytest.mark.models
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["mnist8", "silero_vad_openvino_16k"])
def test_models_leave_the_bits_of_the_executable(name: str, target: str, tmp_path: Path) -> None:
    feeds = models.inputs(name)
    shapes = {k: x.shape for k, x in feeds.items()}

    assert_same(models.model_path(name), feeds, target, tmp_path, shapes=shapes)


@pytest.mark.opencl
@pytest.mark.parametrize("target", TARGETS)
def test_a_transformer_leaves_the_bits_of_the_executable(target: str, tmp_path: Path) -> None:
    assert_same(transformer(), {"tokens": np.array([3, 0, 31, 7])}, target, tmp_path)


@pytest.mark.opencl
def test_an_index_out_of_range_is_told_and_forgotten(tmp_path: Path) -> None:
    bundle = ag.bundle(transformer(), tmp_path / "made", target="opencl-cpu", entry="net")
    made = Model(bundle, find("pocl").index)
    wrong, _ = made.run({"tokens": np.array([3, 32, 0, 0])})
    message = made.message
    right, _ = made.run({"tokens": np.array([3, 31, 0, 0])})
    made.destroy()

    assert (wrong, right) == (3, 0)
    assert message == "an index is out of range: 32"


@pytest.mark.opencl
def test_a_model_lives_on_a_queue_of_the_caller(tmp_path: Path) -> None:
    g, feeds = transformer(), {"tokens": np.array([1, 2, 3, 4])}
    bundle = ag.bundle(g, tmp_path / "made", target="opencl:pocl", entry="net")
    made = Model(bundle, None)
    code, outputs = made.run(feeds)
    made.destroy()

    assert (made.code, code) == (0, 0)
    expected = ag.compile(g, "opencl:pocl").run(feeds)
    assert outputs["scores"].tobytes() == expected["scores"].tobytes()


@pytest.mark.opencl
def test_what_fails_has_a_code_and_words(tmp_path: Path) -> None:
    bundle, other = (
        ag.bundle(transformer(), tmp_path / name, target="opencl-gpu", entry="net")
        for name in ("made", "other")
    )
    absent = Model(bundle, 99)
    source = other.folder / "net.c"
    source.write_text(source.read_text().replace('"__kernel', '"__colonel', 1))
    broken = Model(other, find("pocl").index)
    words = absent.message, broken.message
    absent.destroy()
    broken.destroy()

    assert (absent.code, broken.code) == (2, 7)
    assert words[0] == "there is no OpenCL device of this number"
    assert words[1].startswith("the device refuses kernel ") and "__colonel" in words[1]


@pytest.mark.opencl
@pytest.mark.parametrize(("weights", "entry"), [("separate", "model"), ("embedded", "net")])
def test_the_example_runs(weights: Any, entry: str, tmp_path: Path) -> None:
    g = ag.Graph("product")
    x = g.input("x", "f32[2,3]")
    g.output("y", g(MatMul(), x, g.constant(np.ones((3, 2), np.float32))))
    bundle = ag.bundle(g, tmp_path / "made", target="opencl-gpu", entry=entry, weights=weights)
    np.arange(6, dtype=np.float32).tofile(bundle.folder / "x.bin")
    build("gcc", *WARNINGS, "main.c", f"{entry}.c", "-o", "example", "-l:libOpenCL.so.1",
          cwd=bundle.folder)  # fmt: skip

    assert build(bundle.folder / "example", "x.bin", cwd=bundle.folder) == "y: 3 3 12 12\n"


@pytest.mark.opencl
def test_entry_points_share_weights_and_memory(tmp_path: Path) -> None:
    g = ag.Graph("open")
    w = g.constant(RNG.standard_normal((8, 4), np.float32))
    g.output("y", g(MatMul(), g.input("x", "f32[n,8]"), w))
    variants = {"one": {"x": (1, 8)}, "many": {"x": (5, 8)}}
    bundle = ag.bundle(g, tmp_path / "made", target="opencl-gpu:pocl", entry="net",
                       variants=variants)  # fmt: skip
    made = Model(bundle, find("pocl").index)
    for entry, shapes in variants.items():
        x = RNG.standard_normal(shapes["x"], np.float32)
        y = np.zeros((x.shape[0], 4), np.float32)
        places = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]

        assert getattr(made.library, entry)(made.handle, *places) == 0
        np.testing.assert_allclose(y, x @ w.array, rtol=1e-5, atol=1e-5)
    made.destroy()


def test_the_same_model_gives_the_same_files(tmp_path: Path) -> None:
    g = transformer()
    folders = [ag.bundle(g, tmp_path / name, target="opencl-gpu", entry="net").folder
               for name in ("a", "b")]  # fmt: skip
    files = [{p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders]

    assert files[0] == files[1]
    assert set(files[0]) == {"net.c", "net.h", "net.weights.bin", "main.c", "CMakeLists.txt",
                             "net.pc", ".bundle.sha256"}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"format": "object"}, "code for opencl-gpu is OpenCL C, not object"),
        ({"target": "cpu", "format": "opencl"}, "is made for its devices, not for cpu"),
        ({"api": "dynamic"}, "have one API, not the dynamic one"),
        ({"freestanding": True}, "freestanding and portable are not supported"),
        ({"system": "linux"}, "has no machine code"),
        ({"entry": "run"}, "'run' is a name in the source of the bundle"),
        ({"variants": {"net_create": {}, "other": {}}}, "'net_create' is a name in the source"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    wanted = {"target": "opencl-gpu", "entry": "net", **options}
    with pytest.raises(OptionError, match=says):
        ag.bundle(transformer(), tmp_path / "made", **wanted)

    assert not (tmp_path / "made").exists()


def test_what_has_no_kernel_is_named(tmp_path: Path) -> None:
    g = ag.Graph("factors")
    q, r = g.add(Qr(), [g.input("x", "f32[4,4]")]).results
    g.output("q", q)
    g.output("r", r)
    with pytest.raises(UnsupportedError, match=r"these operators would need: qr \(1\)"):
        ag.bundle(g, tmp_path / "made", target="opencl-gpu")


def test_state_is_refused(tmp_path: Path) -> None:
    g = ag.Graph("counter")
    total = g.variable("total", np.zeros(2, np.float32))
    after = g(Add(), total, g.input("x", "f32[2]"))
    g.assign("total", after)
    g.output("y", after)
    with pytest.raises(UnsupportedError, match="keeps no state"):
        ag.bundle(g, tmp_path / "made", target="opencl-cpu")
