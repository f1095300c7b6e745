"""Every message of docs/troubleshooting.md, produced as those produce it who will look for it."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import re
import stat
import subprocess
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import alpenglow as ag
import staged_cases
from alpenglow.base.store import Store
from alpenglow.debug import peer
from alpenglow.ops.elementwise.arithmetic import Add, Neg
from alpenglow.ops.tensor.in_range import InRange
from command import alpenglow
from exported_files import edited
from open_cases import helper, model, weights

PAGE = Path(__file__).resolve().parent.parent / "docs" / "troubleshooting.md"
HEADINGS = re.findall(r"^### `(.+)`$", PAGE.read_text(), re.MULTILINE)
X = np.zeros((2, 8), np.float32)
FIXED = {"x": (2, 8)}
I64 = TensorProto.INT64

Produce = Callable[..., str | None]
"""Raises what is said, or returns it."""

CASES: list[tuple[str, Produce]] = []
"""Headings of the page, and what leads to them."""


def says(heading: str) -> Callable[[Produce], Produce]:
    """Register what produces the message of a heading."""

    def add(produce: Produce) -> Produce:
        CASES.append((heading, produce))
        return produce

    return add


def matches(heading: str, message: str) -> bool:
    """Whether a message is that of a heading, in which … stands for anything."""
    return re.search(".*?".join(map(re.escape, heading.split("…"))), message) is not None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a cache of its own: `model.onnx`, `model.ago`, `sorts.onnx`.

    Passes are not validated: NumPy would need the memory and the time that models here ask for.
    """
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    onnx.save(product(), "model.onnx")
    onnx.save(topmost(), "sorts.onnx")
    compiled().save("model.ago")
    return tmp_path


def product() -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return model([node], {"x": ("batch", 8)}, {"w": weights(8, 4)})


def topmost() -> onnx.ModelProto:
    """Return a model whose graph depends on its data."""
    node = helper.make_node("TopK", ["x", "k"], ["y", "order"])
    return model([node], {"x": (5,), "k": (1,)}, codes={"k": I64})


def compiled() -> ag.Executable:
    return ag.compile(product(), shapes=FIXED)


# ── reading a model ──


@says("the file is not ONNX or truncated, expected a ModelProto")
def a_pointer_of_git_lfs(folder: Path) -> None:
    Path("pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    ag.compile("pointer.onnx")


@says("the file is not ONNX or truncated, expected a ModelProto")
def a_model_that_is_cut_off(folder: Path) -> None:
    ag.compile(product().SerializeToString()[:-20])


@says("the model is of no known format; supported: …")
def a_model_of_another_format(folder: Path) -> None:
    Path("model.tflite").write_bytes(b"\x1c\0\0\0TFL3")
    ag.compile("model.tflite")


@says("this is a pickle (TorchScript, or a dict of weights), which is never loaded")
def weights_of_pytorch(folder: Path) -> None:
    with zipfile.ZipFile("model.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"")
    ag.compile("model.pt")


@says("… cannot be converted: …")
def a_program_of_pytorch_that_changes_its_operands(folder: Path) -> None:
    def edit(whole: Any) -> None:
        for node, name in zip(whole["graph_module"]["graph"]["nodes"], ("a_", "b_"), strict=False):
            node["target"] = f"torch.ops.aten.{name}.default"

    ag.compile(edited("images", edit))


@says("this is not a .pt2 file, expected what torch.export.save writes: …")
def a_file_that_is_called_like_a_program(folder: Path) -> None:
    Path("model.pt2").write_bytes(b"PK\3\4")
    ag.compile("model.pt2")


@says("this is an archive of what has been compiled, no model")
def compile_of_an_archive(folder: Path) -> None:
    ag.compile("model.ago")


@says("…: external data file '…' is missing")
def weights_that_were_left_behind(folder: Path) -> None:
    onnx.save(product(), "large.onnx", save_as_external_data=True, location="w", size_threshold=0)
    Path("w").unlink()
    ag.compile("large.onnx")


@says("… cannot be converted: …")
def an_operator_of_nobody(folder: Path) -> None:
    ag.compile(model([helper.make_node("Frobnicate", ["x"], ["y"])], {"x": (2,)}))


@says("the opset of domain '…' is missing in opset_import")
def a_domain_without_a_version(folder: Path) -> None:
    ag.compile(model([helper.make_node("Thing", ["x"], ["y"], domain="com.acme")], {"x": (2,)}))


@says("…: operands are … and …, expected …")
def a_product_of_other_sizes(folder: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    ag.compile(model([node], {"x": (2, 7)}, {"w": weights(8, 4)}))


@says("the result of … is …, expected at most … bytes")
def a_tensor_beyond_all_memory(folder: Path) -> None:
    node = helper.make_node("Expand", ["x", "size"], ["y"])
    ag.compile(model([node], {"x": (1,)}, {"size": np.array([1 << 44])}))


# ── shapes and options ──


@says("shapes names '…', expected inputs: …")
def shapes_by_another_name(folder: Path) -> None:
    ag.compile("model.onnx", shapes={"batch": (2, 8)})


@says("constant '…' is …, expected …")
def a_constant_of_float64(folder: Path) -> None:
    ag.compile("model.onnx", constants={"x": np.zeros((2, 8))})


@says("shape of input '…' is …, expected …")
def a_shape_that_the_model_cannot_have(folder: Path) -> None:
    ag.compile("model.onnx", shapes={"x": (2, 9)})


@says("dimensions … are dynamic in …")
def a_run_without_shapes(folder: Path) -> str:
    return alpenglow("run model.onnx", 2).stderr


@says("'…' is not a known target; known are: …")
def a_gpu(folder: Path) -> None:
    ag.compile("model.onnx", "cuda")


@says("threads is …, expected 1 to 1024")
def too_many_threads(folder: Path) -> None:
    ag.compile("model.onnx", threads=100_000)


@says("timeout: compilation has taken more than … s, before …")
def too_little_time(folder: Path) -> None:
    ag.compile("model.onnx", shapes=FIXED, options=ag.Options(timeout=1e-9))


@says("… is the file that … names, expected another file")
def output_over_model(folder: Path) -> str:
    return alpenglow("compile model.onnx -o model.onnx", 2).stderr


# ── calling ──


@says("feeds lack … and hold … that is no input; the inputs are …")
def feeds_by_another_name(folder: Path) -> None:
    compiled().run({"input": X})


@says("got … arrays, expected …: …")
def too_few_arrays(folder: Path) -> None:
    ag.compile("sorts.onnx")(np.zeros(5, np.float32))


@says("input '…' is float64, expected float32 (…)")
def an_array_of_float64(folder: Path) -> None:
    compiled()(np.zeros((2, 8)))


@says("input '…' has shape …, expected …")
def an_array_of_another_shape(folder: Path) -> None:
    compiled()(X[:1])


@says("out['…'] is …, expected a writeable …")
def a_place_of_another_type(folder: Path) -> None:
    compiled()(X, out=np.zeros((2, 4)))


@says("outputs names …; the outputs are …")
def a_value_that_is_no_output(folder: Path) -> None:
    compiled().run({"x": X}, outputs=["logits"])


@says("…: an index on axis … is …, expected … to …")
def a_token_that_the_vocabulary_lacks(folder: Path) -> None:
    node = helper.make_node("Gather", ["vocabulary", "tokens"], ["y"])
    exe = ag.compile(model([node], {"tokens": (3,)}, {"vocabulary": weights(5, 4)},
                           codes={"tokens": I64}))  # fmt: skip
    exe(np.array([0, 9, 1]))


@says("…: k is …, expected …; the inputs are …")
def more_than_there_is(folder: Path) -> None:
    ag.compile("sorts.onnx")(np.zeros(5, np.float32), np.array([9]))


@says("the call took longer than its timeout")
def a_call_that_takes_too_long(folder: Path) -> None:
    endless().run({"x": np.ones(4, np.float32)}, timeout=0.1)


@says("the call was cancelled")
def a_call_that_somebody_ends(folder: Path) -> None:
    exe = endless()
    timer = threading.Timer(0.2, exe.cancel)
    timer.start()
    try:
        exe.run({"x": np.ones(4, np.float32)}, timeout=30)
    finally:
        timer.join()


@says("the deadline passed while the request …")
def a_request_that_is_late(folder: Path) -> None:
    exe = endless()
    exe.submit({"x": np.ones(4, np.float32)}, deadline=time.monotonic() + 0.1).result(30)


@says("… is busy: … requests wait, and no more may")
def more_requests_than_may_wait(folder: Path) -> None:
    exe = endless()
    with ag.Host([ag.Worker("a", exe.target)], waiting=1) as host:
        host.add(exe)
        for _ in range(3):
            host.submit(exe.name, {"x": np.ones(4, np.float32)})


@says("another call of this session is running, …")
def two_calls_of_a_session(folder: Path) -> None:
    session = last_index().session()
    with session.owned():
        session([1])


@says("the variables of this session hold nothing any more: …")
def a_call_after_one_that_was_ended_in_place(folder: Path) -> None:
    session = last_index().session()
    with contextlib.suppress(ag.errors.FeedError):
        session([7])
    session([1])


def last_index() -> ag.Executable:
    """Return what adds up indices up to 3."""
    g = ag.Graph("indices")
    index = g(InRange(0, 3), g.input("index", "i64[1]"))
    g.assign("total", g(Add(), g.variable("total", np.zeros(1, np.int64)), index))
    g.output("y", g(Neg(), index))
    return ag.compile(g)


def endless() -> ag.Executable:
    """Return what takes minutes, but no memory."""
    nodes = [
        helper.make_node("Expand", ["x", "size"], ["large"]),
        helper.make_node("ReduceSum", ["large", "axes"], ["y"], keepdims=0),
    ]
    constants = {"size": np.array([1 << 34, 4]), "axes": np.array([0])}
    return ag.compile(model(nodes, {"x": (4,)}, constants), threads=1)


@says("code for target '…' does not run on this machine")
def a_call_of_code_for_another_machine(folder: Path) -> None:
    ag.compile("model.onnx", elsewhere(), shapes=FIXED)(X)


def elsewhere() -> str:
    return "aarch64" if ag.Target.parse("cpu").architecture != "aarch64" else "x86-64"


@says("Unable to allocate …")
def a_call_beyond_the_memory_there_is(folder: Path) -> str:
    if sys.platform != "linux":
        pytest.skip("only Linux limits address space")
    node = helper.make_node("Expand", ["x", "size"], ["y"])
    onnx.save(model([node], {"x": (1,)}, {"size": np.array([1 << 34])}), "huge.onnx")
    return ended(
        "import resource, numpy, alpenglow; resource.setrlimit(resource.RLIMIT_AS, (8 << 30,) * 2);"
        "alpenglow.compile('huge.onnx', threads=1)(numpy.ones(1, numpy.float32))"
    ).stderr


def ended(code: str) -> subprocess.CompletedProcess[str]:
    """Return how a Python process of its own ended."""
    return subprocess.run(
        [sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False
    )


# ── archives ──


@says("this is no Alpenglow archive")
def open_of_a_model(folder: Path) -> None:
    ag.open("model.onnx")


@says("the archive is damaged: …")
def an_archive_that_is_cut_off(folder: Path) -> None:
    ag.open(Path("model.ago").read_bytes()[:2000])


@says("the archive is damaged: …")
def an_archive_with_another_weight(folder: Path) -> None:
    content = bytearray(Path("model.ago").read_bytes())
    content[-1] ^= 1
    ag.open(bytes(content))


@says("the file was written into while its weights were mapped: …")
def an_archive_that_is_written_into(folder: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows refuses to write into what is mapped")
    exe = ag.open("model.ago", mmap=True)
    os.truncate("model.ago", 0)
    exe(np.zeros((2, 8), np.float32))


@says("the archive holds code for target '…', which …; this machine is …")
def an_archive_for_another_machine(folder: Path) -> None:
    ag.compile("model.onnx", elsewhere(), shapes=FIXED).save("other.ago")
    ag.open("other.ago")


@says("the archive has format version …, this Alpenglow (…) expects …")
def an_archive_of_another_version(folder: Path) -> None:
    content = bytearray(Path("model.ago").read_bytes())
    content[8] = 99
    ag.open(bytes(content))


@says("a model compiled with passes=… cannot be …")
def saving_with_passes_of_ones_own(folder: Path) -> None:
    mine = ag.Pass("mine", lambda g, target: g, "does nothing", after="fuse")
    ag.compile("model.onnx", options=ag.Options(passes=(mine,))).save("open.ago")


@says("the graph of this model depends on its data, and it has not been called: …")
def saving_what_depends_on_data(folder: Path) -> None:
    ag.compile("sorts.onnx").save("sorts.ago")


@says("these data lead to a part of the model that is not in the archive, which holds those that "
      "calls had led to when it was saved")  # fmt: skip
def data_that_lead_elsewhere(folder: Path) -> None:
    branches = staged_cases.CASES["branches"]
    positive, negative, *_ = branches.calls()
    exe = ag.compile(branches.model())
    exe.run(positive)
    copy.copy(exe).run(negative)


@says("… holds machine code, expected a name that ends in .ago")
def an_archive_that_is_called_a_model(folder: Path) -> str:
    Path("model.ago").rename("renamed.onnx")
    return alpenglow("run renamed.onnx", 2).stderr


@says("the archive is not signed, and a key is demanded")
def an_archive_that_nobody_signed(folder: Path) -> None:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    public = ed25519.Ed25519PrivateKey.generate().public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    ag.open("model.ago", key=pem)


# ── the cache ──


@says("nothing more is kept in '…': …")
def a_cache_that_is_a_file(folder: Path) -> str:
    Path("taken").touch()
    return warned(lambda: Store(Path("taken")).put("key", b"content"))


@says("the folder '…' is not used: it …")
def a_cache_that_others_write_into(folder: Path) -> str:
    if sys.platform == "win32":
        pytest.skip("Windows has no modes")
    Store(Path("shared")).put("key", b"content")
    Path("shared").chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    return warned(lambda: Store(Path("shared")).get("key"))


@says("'…' is damaged; it is ignored and made again")
def an_entry_that_was_cut_off(folder: Path) -> str:
    Store(Path("kept")).put("key", b"content")
    for entry in Path("kept").rglob("*"):
        if entry.is_file():
            entry.write_bytes(entry.read_bytes()[:-1])
    return warned(lambda: Store(Path("kept")).get("key"))


def warned(action: Callable[[], object]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return "\n".join(str(w.message) for w in caught)


# ── other tools ──


@says("comparing with ONNX Runtime is not supported: it is not installed")
def verify_without_onnx_runtime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(peer, "installed", lambda: False)
    return alpenglow("verify model.onnx --dim batch=2 --against onnxruntime", 2).stderr


@says("ONNX Runtime is not installed")
def bench_without_onnx_runtime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(peer, "installed", lambda: False)
    return alpenglow("bench model.onnx --dim batch=2 --calls 1 --vs onnxruntime", 2).stderr


@says("… is there already, and a bundle replaces nothing")
def a_bundle_into_a_folder_that_is_there(folder: Path) -> None:
    (folder / "bundle").mkdir()
    ag.bundle("model.onnx", "bundle", shapes=FIXED)


@says("the graph of this model depends on its data, so it cannot be …")
def a_bundle_of_what_depends_on_data(folder: Path) -> None:
    ag.bundle("sorts.onnx", "bundle")


@says("the profile is of another graph: …")
def a_profile_of_another_model(folder: Path) -> None:
    shapes: dict[str, Any] = {"shapes": FIXED}
    profile = ag.profile_ranges(ag.load("model.onnx", **shapes), [X])
    other = product()
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * weights(8, 4), "w"))
    ag.quantize(ag.load(other, **shapes), profile)


@says("This is a mistake in Alpenglow, not yours: please report it.")
def a_mistake_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def mistaken(*_: Any) -> None:
        raise AssertionError("this cannot be")

    monkeypatch.setattr("alpenglow.cli.run.executable", mistaken)
    return alpenglow("run model.onnx", 3).stderr


# ── the page ──


def test_each_heading_has_a_case() -> None:
    assert {heading for heading, _ in CASES} == set(HEADINGS)


@pytest.mark.parametrize(
    ("heading", "produce"), CASES, ids=[produce.__name__ for _, produce in CASES]
)
def test_what_is_said_is_on_the_page(
    heading: str, produce: Produce, request: pytest.FixtureRequest
) -> None:
    wanted = inspect.signature(produce).parameters
    try:
        said = produce(**{name: request.getfixturevalue(name) for name in wanted})
    except ag.errors.AlpenglowError as error:
        said = str(error)

    assert [h for h in HEADINGS if matches(h, said or "")] == [heading], said
