"""What a model file says of itself stays with what is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import alpenglow as ag
from alpenglow.ir.metadata import LONGEST_TEXT, MOST_ENTRIES, Metadata, of_plain
from open_cases import helper, model, weights
from staged_cases import CASES


def product(rows: int | str = 2) -> onnx.ModelProto:
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (rows, 8)},
                 {"w": weights(8, 4)})  # fmt: skip


def described(rows: int | str = 2, **properties: str) -> onnx.ModelProto:
    proto = product(rows)
    proto.producer_name, proto.producer_version = "anvil", "1.2"
    proto.domain, proto.model_version, proto.doc_string = "org.anvil", 7, "Rings\nwell."
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    helper.set_model_props(proto, {"classes": "a,b", **properties})
    return proto


EXPECTED = Metadata(
    "anvil", "1.2", "org.anvil", 7, "Rings\nwell.",
    {"": product().opset_import[0].version, "com.microsoft": 1}, {"classes": "a,b"},
)  # fmt: skip


@pytest.mark.parametrize("rows", [2, "N"])
def test_graphs_and_executables_have_it(rows: int | str) -> None:
    proto = described(rows)

    assert ag.load(proto).metadata == EXPECTED
    assert ag.load(proto).copy().metadata == EXPECTED
    assert ag.compile(proto).metadata == EXPECTED
    assert ag.compile(ag.load(proto)).metadata == EXPECTED


def test_a_staged_executable_has_it() -> None:
    proto = next(iter(CASES.values())).model()
    proto.producer_name = "anvil"

    assert ag.compile(proto).metadata.producer == "anvil"


def test_archives_have_it(tmp_path: Path) -> None:
    ag.compile(described()).save(tmp_path / "m.ago")

    assert ag.open(tmp_path / "m.ago").metadata == EXPECTED


def test_what_is_kept_of_a_file_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")
    for classes in ("a,b", "c", "a,b"):
        onnx.save(described(classes=classes), tmp_path / "m.onnx")
        for _ in range(2):
            exe = ag.compile(tmp_path / "m.onnx")

            assert exe.metadata.properties == {"classes": classes}


def test_a_graph_by_hand_has_none() -> None:
    assert ag.Graph("g").metadata == Metadata()


def test_it_is_bounded() -> None:
    proto = described()
    proto.doc_string = "x" * (2 * LONGEST_TEXT)
    helper.set_model_props(proto, {f"k{i}": "v" for i in range(2 * MOST_ENTRIES)})
    found = ag.load(proto).metadata

    assert len(found.description) == LONGEST_TEXT + 1 and found.description.endswith("…")
    assert len(found.properties) == MOST_ENTRIES


def test_text_that_is_no_utf8_is_replaced() -> None:
    data = described().SerializeToString().replace(b"anvil", b"an\xffil", 1)
    try:
        found = ag.load(data).metadata.producer
    except ag.errors.ModelError:  # as protobuf may refuse it
        return

    assert found == "an\ufffdil"


def test_it_goes_through_json() -> None:
    assert of_plain(json.loads(json.dumps(EXPECTED.plain()))) == EXPECTED
    assert of_plain({"later": [1]}) == Metadata()


@pytest.mark.parametrize(
    "wrong", [[], {"producer": 1}, {"version": "1"}, {"opsets": {"": "21"}},
              {"properties": {"a": 1}}, {"properties": ["a"]}],
)  # fmt: skip
def test_what_is_no_metadata_is_refused(wrong: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        of_plain(wrong)


def test_it_changes_nothing_that_is_computed() -> None:
    x = np.ones((2, 8), np.float32)

    np.testing.assert_array_equal(ag.compile(product())(x), ag.compile(described())(x))
