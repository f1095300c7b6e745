"""Archives: they hold all of an Executable, damage is found, and nothing is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import IncompatibleError, ModelError, OptionError, UnsupportedError
from alpenglow.base.extensions import bring_extras
from alpenglow.base.mapped import Mapped
from alpenglow.machines.api import Artifact
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.ops.tensor.order import TopK
from alpenglow.runtime.archive import archive
from fuzz import damage

Array = NDArray[Any]
FOREIGN = "x86-64" if ag.Target.parse("cpu").architecture == "aarch64" else "aarch64"

pytestmark = pytest.mark.usefixtures("no_cache")


def small(target: str = "cpu", seed: int = 0, width: int = 24) -> ag.Executable:
    """Return a product and a sum with constants of their own, compiled."""
    rng = np.random.default_rng(seed)
    g = ag.Graph("a model")
    x = g.input("an input", "f32[3,32]")
    w = g.constant(rng.standard_normal((32, width), np.float32), "w")
    b = g.constant(rng.standard_normal((1, width), np.float32), "b")
    y = g(MatMul(), x, w)
    g.output("y", g(Add(), y, g(Broadcast((3, width)), b)))
    return ag.compile(g, target, threads=1)


def elementwise(factor: float) -> ag.Executable:
    """Return a model that is quick to compile, and differs for each factor."""
    g = ag.Graph("scaled")
    x = g.input("x", "f32[8]")
    g.output("y", g(Mul(), x, g.constant(np.full(8, factor, np.float32))))
    return ag.compile(g, threads=1)


def given(seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal((3, 32), np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.ago"


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_what_is_opened_computes_what_was_saved(path: Path, target: str) -> None:
    exe = small(target)
    exe.save(path)
    opened = ag.open(path, threads=1)

    assert (exe.inputs, exe.outputs) == (opened.inputs, opened.outputs)
    assert exe.artifact.target == opened.artifact.target
    np.testing.assert_array_equal(exe(given()), opened(given()))


def test_interpreted_instructions_are_saved_with_the_compiled(path: Path) -> None:
    g = ag.Graph("mixed")
    x = g.input("x", "f32[4,9]")
    values, places = g.add(TopK(k=3, axis=1), [g(Add(), x, x)]).results
    g.output("values", values)
    g.output("places", places)
    exe = ag.compile(g)
    exe.save(path)
    feeds = {"x": np.random.default_rng(2).standard_normal((4, 9), np.float32)}

    for expected, actual in zip(
        exe.run(feeds).values(), ag.open(path).run(feeds).values(), strict=True
    ):
        np.testing.assert_array_equal(expected, actual)


def test_saving_what_was_opened_gives_the_same_file(path: Path) -> None:
    small().save(path)
    again = path.with_name("again.ago")
    ag.open(path).save(again)

    assert path.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("mmap", [True, False])
def test_weights_are_views_of_the_file_or_of_a_copy(path: Path, mmap: bool) -> None:
    small().save(path)
    opened = ag.open(path, mmap=mmap)
    weights = [b.array for b in opened.artifact.program.buffers.values() if b.array is not None]

    assert weights
    for array in weights:
        assert array.ctypes.data % 64 == 0 and not array.flags.writeable
        base: Any = array
        while not isinstance(base, memoryview):
            base = base.base
        assert base.readonly and isinstance(base.obj, Mapped if mmap else np.ndarray)


@pytest.mark.parametrize("change", ["smaller", "empty", "other bytes", "deleted"])
@pytest.mark.rest
def test_a_small_archive_may_be_overwritten_while_it_is_open(path: Path, change: str) -> None:
    """In a process of its own: one that maps the file dies of a signal."""
    small(width=4096).save(path)
    other = path.with_name("other.ago")
    small(width=8).save(other)
    source = f"""
import pathlib, shutil, sys
import numpy as np
import alpenglow as ag
path, other = map(pathlib.Path, sys.argv[1:3])
exe = ag.open(path, threads=1)
x = np.load(sys.argv[3])
match {change!r}:
    case "smaller": shutil.copyfile(other, path)
    case "empty": path.write_bytes(b"")
    case "other bytes": path.write_bytes(bytes(path.stat().st_size))
    case "deleted": path.unlink()
np.save(other, exe(x))
"""
    fed = path.with_name("x.npy")
    np.save(fed, given())
    expected = ag.open(path)(given())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", source, str(path), str(other), str(fed)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    np.testing.assert_array_equal(np.load(f"{other}.npy"), expected)


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_grows_as_it_is_opened_is_refused(
    path: Path, mmap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small().save(path)
    unpack = archive.unpack

    def unpack_slowly(view: memoryview, **how: bool) -> Artifact:
        with path.open("ab") as file:
            file.write(b"more")
        return unpack(view, **how)

    monkeypatch.setattr(archive, "unpack", unpack_slowly)
    with pytest.raises(ModelError, match="is being written"):
        ag.open(path, mmap=mmap)


def test_a_large_archive_is_mapped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small().save(path)
    asked: list[int] = []

    class Noted(Mapped):
        def __init__(self, descriptor: int, path: str) -> None:
            super().__init__(descriptor, path)
            asked.append(len(self))

    monkeypatch.setattr(archive, "Mapped", Noted)
    ag.open(path)
    monkeypatch.setattr(archive, "COPIED_NBYTES", path.stat().st_size - 1)
    ag.open(path)

    assert asked == [path.stat().st_size]


def test_whether_to_map_is_yes_or_no(path: Path) -> None:
    small().save(path)
    with pytest.raises(OptionError, match="mmap is 'yes'"):
        ag.open(path, mmap="yes")  # type: ignore[arg-type]


def test_a_file_is_opened_without_a_compiler(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small().save(path)

    def refuse(*args: Any, **named: Any) -> bytes:
        raise AssertionError("something is compiled")

    monkeypatch.setattr("alpenglow.machines.cpu.emit.assemble", refuse)
    opened = ag.open(path)

    assert opened(given()).shape == (3, 24)


def test_code_for_another_machine_is_saved_and_refused(path: Path) -> None:
    exe = small(FOREIGN)
    exe.save(path)
    with pytest.raises(UnsupportedError, match=f"'{FOREIGN}' does not run on this machine"):
        exe(given())
    with pytest.raises(IncompatibleError, match=f"code for target '{FOREIGN}', which is for"):
        ag.open(path)


def test_features_that_the_machine_lacks_are_named(path: Path) -> None:
    artifact = small().artifact
    features = (*artifact.target.features, "+wings")
    target = dataclasses.replace(artifact.target, features=features, name="bird")
    archive.write(dataclasses.replace(artifact, target=target), path)

    with pytest.raises(IncompatibleError, match=r"target 'bird', which needs \+wings"):
        ag.open(path)


@pytest.mark.parametrize(
    ("offset", "what"), [(8, "format version"), (12, "kernel calling convention")]
)
def test_another_version_is_refused(path: Path, offset: int, what: str) -> None:
    small().save(path)
    content = bytearray(path.read_bytes())
    content[offset : offset + 4] = (77).to_bytes(4, "little")
    path.write_bytes(content)

    with pytest.raises(IncompatibleError, match=rf"has {what} 77, .* expects \d") as raised:
        ag.open(path)
    assert str(path) in str(raised.value)


def test_a_program_that_this_version_does_not_know_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small().save(path)
    bring_extras()  # what is imported later would be registered in vain
    monkeypatch.setattr("alpenglow.ir.op.Op.registry", {})

    with pytest.raises(
        IncompatibleError, match=r"written by Alpenglow 0\..*expected an operator, not"
    ):
        ag.open(path)


def test_any_damage_is_found(path: Path) -> None:
    """A changed bit is found, or lies in padding and changes nothing."""
    exe = small()
    exe.save(path)
    content = path.read_bytes()
    expected = exe(given())
    rng = random.Random(0)
    found = 0
    for _ in range(300):
        position = rng.randrange(len(content))
        damaged = bytearray(content)
        damaged[position] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            np.testing.assert_array_equal(expected, ag.open(path, threads=1)(given()))
        except (ModelError, IncompatibleError) as error:
            found += 1
            assert str(path) in str(error)

    assert found > 250


def test_damaged_weights_are_found(path: Path) -> None:
    small().save(path)
    content = bytearray(path.read_bytes())
    content[-70] ^= 1  # the last constant's 96 bytes end 32 before the end
    path.write_bytes(content)

    with pytest.raises(ModelError, match="weights have another checksum"):
        ag.open(path)


def test_truncated_files_are_refused(path: Path) -> None:
    small().save(path)
    content = path.read_bytes()
    for length in (*range(0, 200, 7), *range(200, len(content), 199), len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"model\.ago"):
            ag.open(path)


@pytest.mark.parametrize("head", [b"", b"ALPENGO\n", b"ALPENGO\n\1\0\0\0\1\0\0\0"])
def test_random_files_are_refused(path: Path, head: bytes) -> None:
    rng = random.Random(1)
    for nbytes in (0, 1, 63, 64, 65, 5000):
        path.write_bytes(head + rng.randbytes(nbytes))
        with pytest.raises((ModelError, IncompatibleError), match=r"model\.ago"):
            ag.open(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read the archive: No such file"):
        ag.open(tmp_path / "nothing.ago")
    with pytest.raises(ModelError, match=r"cannot read the archive"):
        ag.open(tmp_path)
    with pytest.raises(OptionError, match="threads is 0"):
        ag.open(tmp_path, threads=0)


def test_a_failed_save_leaves_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exe = small()
    path.write_bytes(b"before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        exe.save(path)

    assert [path] == list(path.parent.iterdir()) and path.read_bytes() == b"before"


@pytest.mark.skipif(os.name == "nt", reason="Windows replaces no file that is mapped")
def test_an_open_archive_may_be_replaced(path: Path) -> None:
    small(seed=1).save(path)
    opened = ag.open(path)
    expected = opened(given())
    small(seed=2).save(path)

    np.testing.assert_array_equal(expected, opened(given()))
    assert not np.array_equal(expected, ag.open(path)(given()))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(20)
def test_a_header_of_other_kinds_is_damage(path: Path, seed: int) -> None:
    """The digest is made right, so that only what the header says is wrong."""
    elementwise(2.0).save(path)
    _, content = damage.damaged_archive(seed, path.read_bytes())
    path.write_bytes(content)
    with contextlib.suppress(ModelError, IncompatibleError):
        archive.read(path)
