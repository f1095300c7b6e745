"""Folders that are replaced: those that a bundle wrote, whole or not at all, and no others."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

import alpenglow as ag
from alpenglow.base.errors import OptionError
from alpenglow.bundles.write import SUMS, refuse_existing, write_folder
from command import alpenglow
from open_cases import model

FIRST, SECOND = {"a.o": b"code", "a.h": b"header"}, {"a.o": b"other code", "b.h": b"header"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder that was written."""
    write_folder(tmp_path / "out", FIRST)
    return tmp_path / "out"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != SUMS}


def test_what_was_written_is_replaced_if_that_is_wanted(out: Path) -> None:
    write_folder(out, SECOND, force=True)

    assert files(out) == SECOND
    assert list(out.parent.iterdir()) == [out]
    write_folder(out, FIRST, force=True)
    assert files(out) == FIRST


def test_what_was_written_stays_unless_it_is_to_be_replaced(out: Path) -> None:
    with pytest.raises(OptionError, match=r"is there already.*\n.*force=True"):
        write_folder(out, SECOND)

    assert files(out) == FIRST
    assert list(out.parent.iterdir()) == [out]


def linked(folder: Path) -> None:
    folder.rename(folder.with_name("away"))
    folder.symlink_to("away")


SPOILERS: dict[str, Callable[[Path], object]] = {
    "'main.c' in it is not of the bundle": lambda folder: (folder / "main.c").touch(),
    "'sub' in it is not of the bundle": lambda folder: (folder / "sub").mkdir(),
    "'a.h' in it was changed": lambda folder: (folder / "a.h").write_bytes(b"mine"),
    "no bundle wrote it": lambda folder: (folder / SUMS).unlink(),
    "it is no folder": linked,
}


@pytest.mark.parametrize("says", SPOILERS)
def test_what_is_of_somebody_else_is_never_replaced(out: Path, says: str) -> None:
    SPOILERS[says](out)
    before = files(out.resolve()) if says[1:4] != "sub" else {}
    with pytest.raises(OptionError, match=says):
        write_folder(out, SECOND, force=True)

    assert not before or files(out.resolve()) == before
    assert not list(out.parent.glob(".out*"))


def test_a_folder_that_is_empty_or_lacks_files_is_replaced(out: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (out / "a.h").unlink()
    refuse_existing(tmp_path / "empty", force=True)
    refuse_existing(out, force=True)

    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="it is no folder"):
        refuse_existing(tmp_path / "file", force=True)


def test_what_cannot_be_replaced_stays(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if target == out and not self.name.endswith(".old"):
            raise OSError("no more names")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="no more names"):
        write_folder(out, SECOND, force=True)

    assert files(out) == FIRST
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_the_sums_are_checked_by_others(out: Path) -> None:
    check = ["sha256sum", "--check", "--strict", SUMS]
    assert subprocess.run(check, cwd=out, capture_output=True).returncode == 0

    (out / "a.h").write_bytes(b"mine")
    assert subprocess.run(check, cwd=out, capture_output=True).returncode == 1


def test_the_command_and_the_function_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], {"x": (4,)}), "net.onnx")
    alpenglow("bundle net.onnx -o out --entry first")
    assert "--force" in alpenglow("bundle net.onnx -o out", 2).stderr
    alpenglow("bundle net.onnx -o out --entry second --force")

    assert Path("out/second.h").exists() and not Path("out/first.h").exists()
    ag.bundle("net.onnx", "out", entry="third", force=True)
    assert Path("out/third.h").exists() and not Path("out/second.h").exists()
