"""Faults of the machine and of files around a model: one line that names what is wrong, no rubbish.

Disks are filled by a patch that fails where content reaches the disk, so that no test fills one.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base import knobs, whole
from alpenglow.compiler.options import TuningWarning
from alpenglow.frontends.onnx.file.attributes import LinkWarning
from command import alpenglow, answer


def model(external: str = "") -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((32, 32), np.float32), "w")
    if external:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=external)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["h"]),
                              helper.make_node("Softmax", ["h"], ["y"])], "g", [x], [y],
                              [weight])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")
    (tmp_path / "model.onnx").write_bytes(model().SerializeToString())
    np.savez(tmp_path / "samples.npz", x=np.ones((4, 1, 32), np.float32))
    return tmp_path


# ── disks ──

WRITERS = {
    "run model.onnx --output out": "out/y.npy",
    "compile model.onnx -o out.ago": "out.ago",
    "show model.onnx --after lower -o out.txt": "out.txt",
    "profile model.onnx --trace out.json": "out.json",
    "profile-ranges model.onnx --data samples.npz -o out.yaml": "out.yaml",
    "quantize model.onnx --data samples.npz -o out.onnx": "out.onnx",
}


@pytest.mark.parametrize("line", WRITERS)
def test_a_full_disk_is_told_of_the_file_and_nothing_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    before = sorted(p.name for p in folder.iterdir())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    told = alpenglow(line, 2).stderr

    assert "No space left on device" in told and WRITERS[line] in told
    assert sorted(p.name for p in folder.iterdir()) == before


def test_of_two_files_none_stays_if_one_cannot_be_written(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"old")

    with pytest.raises(OSError, match="second") as caught:
        whole.write_all({first: lambda f: f.write(b"new"), second: _short})
    assert caught.value.errno == errno.EIO
    assert first.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["first"]


def _short(file: object) -> None:
    raise OSError("100 requested and 3 written")  # as NumPy does


def test_a_folder_that_is_not_there_is_named_by_its_file(tmp_path: Path) -> None:
    target = tmp_path / "no" / "x.ago"
    with pytest.raises(FileNotFoundError) as caught:
        ag.compile(model()).save(target)

    assert caught.value.filename == str(target)


# ── memory ──


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits address space")
def test_what_needs_more_memory_than_there_is_is_an_error_of_the_model(folder: Path) -> None:
    shape = helper.make_node("Constant", [], ["s"], value_ints=[2**33])
    nodes = [shape, helper.make_node("ConstantOfShape", ["s"], ["z"])]
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [], [z])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "huge.onnx").write_bytes(made.SerializeToString())
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30));"
        "import sys; sys.argv[1:] = ['run', 'huge.onnx', '--threads', '1'];"
        "from alpenglow.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip

    assert ended.returncode == 2, ended.stderr
    assert "error: there is not enough memory" in ended.stderr and "32.0 GiB" in ended.stderr


# ── what lies around ──


@pytest.mark.parametrize("content", [b"conv : nonsense\n", b"\xff\xfe\x00", None])
def test_a_damaged_tuning_record_is_named_and_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    record = folder / "bad.txt"
    record.mkdir() if content is None else record.write_bytes(content)
    monkeypatch.setenv("ALPENGLOW_TUNING", str(record))

    with pytest.warns(TuningWarning, match=r"tuning record is ignored: .*bad\.txt"):
        ag.compile(model())
    told = alpenglow("run model.onnx").stderr
    assert told.count("warning:") == 1 and "bad.txt" in told and ".py" not in told


def test_damaged_entries_of_the_cache_are_one_line_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPENGLOW_CACHE", str(folder / "cache"))
    expected = answer("run model.onnx")
    entries = list((folder / "cache").rglob("*.entry"))
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:-3] + b"bad")
    told = alpenglow("run model.onnx --json")

    assert len(entries) > 1 and told.stdout.startswith("{") and str(expected["outputs"][0]["first"])
    lines = told.stderr.splitlines()
    assert lines[0].startswith("warning: ") and "is damaged" in lines[0]
    assert len(lines) == 2 and "more warning" in lines[1]


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
def test_a_relative_folder_of_the_system_is_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("ALPENGLOW_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv(variable, "somewhere")
    found = knobs.cache_folder()

    assert found == (None if variable == "HOME" else folder / "home" / ".cache" / "alpenglow")
    alpenglow("run model.onnx")
    assert not (folder / "somewhere").exists()


def test_a_weight_with_another_name_is_told(folder: Path) -> None:
    (folder / "secret").write_bytes(np.ones((32, 32), np.float32).tobytes())
    os.link(folder / "secret", folder / "data")
    (folder / "linked.onnx").write_bytes(model("data").SerializeToString())

    with pytest.warns(LinkWarning, match="data' has other names"):
        ag.load(folder / "linked.onnx")
