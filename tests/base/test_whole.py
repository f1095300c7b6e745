"""Files appear whole or not at all, and what is no file stays what it is."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import pytest

from alpenglow.base import whole
from alpenglow.runtime.archive import archive
from command import alpenglow
from tiny_models import info, made

posix = pytest.mark.skipif(os.name != "posix", reason="there are no such files here")


def fill(file: BinaryIO) -> None:
    file.write(b"new")


def break_off(file: BinaryIO) -> None:
    file.write(b"ne")
    raise KeyboardInterrupt


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"old")
    return tmp_path / "file"


def test_a_file_is_replaced(path: Path) -> None:
    whole.write(path, fill)

    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["file"]


def test_a_file_that_breaks_off_is_as_it_was(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        whole.write(path, break_off)

    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["file"]


@posix
@pytest.mark.parametrize("exists", [True, False])
def test_of_a_link_what_it_leads_to_is_written(path: Path, exists: bool) -> None:
    if not exists:
        path.unlink()
    link = path.with_name("link")
    link.symlink_to("file")
    whole.write(link, fill)

    assert os.readlink(link) == "file" and not path.is_symlink()
    assert path.read_bytes() == b"new"


@posix
@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_to(tmp_path: Path, linked: bool) -> None:
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        whole.write(path, fill)
        assert reader.communicate(timeout=60)[0] == b"new"

    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert path.is_symlink() == linked


@posix
@pytest.mark.parametrize("write", [fill, break_off])
def test_a_device_stays_a_device(tmp_path: Path, write: Callable[[BinaryIO], None]) -> None:
    """A terminal of its own stands for /dev/null, which every process needs."""
    ours, theirs = os.openpty()
    link = tmp_path / "link"
    link.symlink_to(os.ttyname(theirs))
    try:
        whole.write(link, write)
    except KeyboardInterrupt:
        assert write is break_off

    assert stat.S_ISCHR(link.stat().st_mode) and link.is_symlink()
    assert os.read(ours, 100).startswith(b"ne")
    os.close(ours)
    os.close(theirs)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        whole.write(tmp_path, fill)

    assert tmp_path.is_dir() and os.listdir(tmp_path) == []


@posix
@pytest.mark.parametrize(
    ("command", "begins"),
    [("compile", archive.MAGIC), ("show --after import", b"# after: import\n")],
)
def test_commands_write_into_a_pipe(tmp_path: Path, command: str, begins: bytes) -> None:
    pipe, model = tmp_path / "pipe", tmp_path / "model.onnx"
    onnx.save(wide(), model)
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        try:
            alpenglow(f"{command} {model} -o {pipe}")
            assert reader.communicate(timeout=60)[0].startswith(begins)
        finally:
            reader.kill()

    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["model.onnx", "pipe"]


def wide() -> onnx.ModelProto:
    """A model with a constant that is too large to stand in a text."""
    w = onnx.numpy_helper.from_array(np.ones(100, np.float32), "w")
    return made([onnx.helper.make_node("Add", ["x", "w"], ["y"])], [info("x", (100,))], [w])
