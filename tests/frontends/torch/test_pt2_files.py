"""Files of PyTorch's exported programs: what they compute, and what is refused with which words."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, IncompatibleError, ModelError, UnsupportedError
from alpenglow.ir.text import print_graph
from exported_files import CONSTANTS, FILES, MODEL, WEIGHTS, edited, entries, names, packed


def graph_text(model: Path | bytes) -> str:
    graph = ag.load(model)
    assert isinstance(graph, ag.Graph)
    return print_graph(graph)


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
@pytest.mark.parametrize("name", names())
@pytest.mark.sampled(6)
def test_a_file_computes_what_eager_did(name: str, target: str) -> None:
    with np.load(FILES / f"{name}.npz") as arrays:
        feeds = {n: arrays[n] for n in arrays.files if not n.startswith("=")}
        expected = {n[1:]: arrays[n] for n in arrays.files if n.startswith("=")}
    exe = ag.compile(FILES / f"{name}.pt2", target=target)
    actual = exe.run(feeds)

    assert actual.keys() == expected.keys()
    for output, y in expected.items():
        np.testing.assert_allclose(actual[output], y, rtol=1e-5, atol=1e-5)


def test_a_program_is_called_as_its_module_was() -> None:
    exe = ag.compile(FILES / "words.pt2", target="interpreter")
    words = np.arange(15, dtype=np.int64).reshape(3, 5)
    made = exe(words=words)

    assert made["scores"].shape == (3, 5, 20)
    assert made["last"][0].shape == (3, 16) and made["last"][1] == 3


def test_a_buffer_that_is_written_is_kept_from_call_to_call() -> None:
    session = ag.compile(FILES / "count.pt2", target="interpreter").session()
    x = np.ones((3, 4), np.float32)
    first, second = session(x)[0], session(x)[0]

    np.testing.assert_array_equal(second, 2 * first)


def test_bytes_and_packed_files_are_read_as_well(tmp_path: Path) -> None:
    data = (FILES / "images.pt2").read_bytes()
    again = packed(entries(data), zipfile.ZIP_DEFLATED)
    (tmp_path / "model").write_bytes(again)
    expected = graph_text(data)

    assert expected == graph_text(again) == graph_text(tmp_path / "model")


def test_metadata_says_who_made_the_file() -> None:
    metadata = ag.load(FILES / "images.pt2").metadata

    assert (metadata.producer, metadata.producer_version[:5]) == ("torch", "2.13.")


def test_tied_weights_are_one_constant() -> None:
    text = graph_text(FILES / "words.pt2")

    assert text.count("const @embedding.weight") == 1


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    """Return an edit that puts a value where a path leads."""

    def edit(whole: Any) -> None:
        for key in path[:-1]:
            whole = whole[key]
        whole[path[-1]] = value

    return edit


GRAPH = ("graph_module", "graph")
BUFFERS = ("config", "part")
Edit = Callable[[Any], Any]
EDITS: list[tuple[str, str, Edit, type[AlpenglowError], str]] = [
    ("count", MODEL, put("schema_version", "major", value=9), IncompatibleError,
     r"schema 9\.20, expected 8\.20"),
    ("count", MODEL, put("opset_version", "aten", value=11), IncompatibleError, "opset 11"),
    ("count", MODEL, put(*GRAPH, "nodes", 0, "mood", value=1), IncompatibleError, "field 'mood'"),
    ("count", MODEL, put(*GRAPH, "nodes", 0, "target", value="torch.ops.my.op"), UnsupportedError,
     r"my\.op \(1 call .*\): there is no converter"),
    ("count", MODEL, put(*GRAPH, "nodes", 0, "inputs", 0, "arg", "as_tensor", "name", value="q"),
     ModelError, "'q' is read before it is defined, expected"),
    ("count", MODEL, put(*GRAPH, "nodes", 0, "inputs", 0, "arg", value={"as_new": 1}),
     UnsupportedError, "kind as_new"),
    ("count", MODEL, lambda w: w["graph_module"]["graph"]["nodes"].append(
        w["graph_module"]["graph"]["nodes"][0]), ModelError, "defined twice"),
    ("count", MODEL, put("graph_module", "signature", "input_specs", value=[]), ModelError,
     "the signature has 0"),
    ("count", MODEL, put("graph_module", "signature", "input_specs", 0,
                         value={"custom_obj": {"arg": {}}}), UnsupportedError, "pickled"),
    ("count", MODEL, put("graph_module", "signature", "output_specs", 0,
                         value={"loss_output": {"arg": {"name": "x"}}}), UnsupportedError,
     "loss_output"),
    ("count", MODEL, put("graph_module", "module_call_graph", 0, "signature", "out_spec",
                         value="4.5"), ModelError, "expected .version"),
    ("count", MODEL, put(*GRAPH, "tensor_values", "x", "sizes", 0, "as_int", value=-3), ModelError,
     "sizes"),
    ("choice", MODEL, put(*GRAPH, "tensor_values", "full", "sizes", 0, "as_int", value=2**61),
     ModelError, "expected at most"),
    ("images", MODEL, put(*GRAPH, "tensor_values", "image", "sizes", 0,
                          value={"as_expr": {"expr_str": "Symbol('a b')"}}), ModelError, "'a b'"),
    ("images", MODEL, put(*GRAPH, "tensor_values", "relu", "sizes", 1, value={"as_int": 7}),
     ModelError, "PyTorch states"),
    ("count", WEIGHTS, put(*BUFFERS, "use_pickle", value=True), UnsupportedError,
     "'part' is pickled"),
    ("count", WEIGHTS, put(*BUFFERS, "path_name", value="weight_99"), ModelError, "weight_99"),
    ("count", WEIGHTS, put(*BUFFERS, "path_name", value="../../models/model.json"), ModelError,
     "is missing"),
    ("count", WEIGHTS, put(*BUFFERS, "tensor_meta", "strides", value=[{"as_int": -1}]), ModelError,
     "strides"),
    ("count", WEIGHTS, put(*BUFFERS, "tensor_meta", "storage_offset", value={"as_int": 19}),
     ModelError, r"reaches element \d+, expected less than 20"),
    ("count", WEIGHTS, put(*BUFFERS, "tensor_meta", "sizes", value=[{"as_int": 3}]), ModelError,
     "declared"),
    ("count", WEIGHTS, put(*BUFFERS, "tensor_meta", "dtype", value=9), UnsupportedError, "is 9"),
    ("count", WEIGHTS, put(*BUFFERS, "tensor_meta", "layout", value=1), UnsupportedError, "sparse"),
    ("count", WEIGHTS, put(*BUFFERS, "tensor_meta", "device", "type", value="meta"),
     UnsupportedError, "meta"),
    ("count", WEIGHTS, lambda w: w["config"].pop("part") and None, ModelError, "'part' is missing"),
    ("count", CONSTANTS, put("config", "part", value={}), ModelError, "stored twice"),
    ("count", WEIGHTS, lambda w: [], ModelError, "expected a record"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "entry", "edit", "error", "words"), EDITS)
def test_what_is_wrong_is_said(
    name: str, entry: str, edit: Edit, error: type[AlpenglowError], words: str
) -> None:
    with pytest.raises(error, match=words):
        ag.load(edited(name, edit, entry))


def without(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda parts: parts.pop(name) and None


def content(name: str, value: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda parts: parts.update({name: value})


PARTS: list[tuple[Callable[[dict[str, bytes]], None], type[AlpenglowError], str]] = [
    (without("archive_format"), ModelError, "no 'archive_format'"),
    (content("archive_format", b"pt3"), IncompatibleError, "'pt3', expected 'pt2'"),
    (content("archive_version", b"1"), IncompatibleError, "archive_version is '1'"),
    (content("byteorder", b"big"), IncompatibleError, "byteorder is 'big'"),
    (without(MODEL), UnsupportedError, "0 models"),
    (content("models/other.json", b"{}"), UnsupportedError, "2 models"),
    (content("data/weights/model.pt", b"PK"), UnsupportedError, "is pickled"),
    (content(MODEL, b"\xff"), ModelError, "not text"),
    (content(MODEL, b"[" * 100_000), ModelError, "expected JSON"),
    (content(MODEL, b'{"graph_module": NaN}'), ModelError, "not a number of JSON"),
    (content(WEIGHTS, b'{"config": {}}'), ModelError, "is missing in the archive"),
]


@pytest.mark.parametrize(("edit", "error", "words"), PARTS)
def test_archives_with_other_parts_are_refused(
    edit: Callable[[dict[str, bytes]], None], error: type[AlpenglowError], words: str
) -> None:
    parts = entries((FILES / "count.pt2").read_bytes())
    edit(parts)
    with pytest.raises(error, match=words):
        ag.load(packed(parts))


def test_a_weight_whose_checksum_is_another_is_refused() -> None:
    data = (FILES / "images.pt2").read_bytes()
    weight = entries(data)["data/weights/weight_0"]
    at = data.index(weight)
    damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    with pytest.raises(ModelError, match="checksum"):
        ag.load(damaged)


def test_what_unpacks_to_far_more_is_refused() -> None:
    parts = entries((FILES / "count.pt2").read_bytes())
    parts["data/weights/weight_0"] = b"\0" * (64 << 20)
    with pytest.raises(ModelError, match="unpacks to"):
        ag.load(packed(parts, zipfile.ZIP_DEFLATED))


def test_few_elements_stored_are_not_taken_for_endlessly_many() -> None:
    def edit(whole: Any) -> None:
        meta = whole["config"]["part"]["tensor_meta"]
        meta["sizes"], meta["strides"] = [{"as_int": 1 << 40}], [{"as_int": 0}]

    with pytest.raises(ModelError, match="far larger"):
        ag.load(edited("count", edit, WEIGHTS))


@pytest.mark.parametrize(("name", "words"), [("m.pt2", "no such file"), (".", "folder")])
def test_files_that_are_not_there_are_named(tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / name if name != "." else tmp_path / "f.pt2"
    if name == ".":
        path.mkdir()
    with pytest.raises(ModelError, match=rf"(?i){words}"):
        ag.load(path)
