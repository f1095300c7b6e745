"""The fetching of models: whole or not at all, once, and without running what a pickle asks for."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import models

sys.path.insert(0, str(models.ROOT / "tools"))

import converted_networks
import fetch_models
import public_packages
import restricted_pickle
import seed_weights
from model_recipes import RECIPES, Recipe

WRITES_A_FILE = Recipe((), lambda _, folder: _write(folder / "model.onnx", "weights"), ())


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _fail(_: object, folder: Path) -> None:
    (folder / "model.onnx").write_text("half of the wei")
    raise OSError("no space left on device")


def test_a_fetched_folder_is_not_made_again(tmp_path: Path) -> None:
    fetch_models.fetch({"net": WRITES_A_FILE}, tmp_path)
    (tmp_path / "net" / "model.onnx").write_text("touched")
    fetch_models.fetch({"net": WRITES_A_FILE}, tmp_path)

    assert (tmp_path / "net" / "model.onnx").read_text() == "touched"


def test_a_folder_of_another_recipe_is_replaced(tmp_path: Path) -> None:
    changed = Recipe((), lambda _, folder: _write(folder / "other.onnx", ""), (), settings=("2",))
    fetch_models.fetch({"net": WRITES_A_FILE}, tmp_path)
    fetch_models.fetch({"net": changed}, tmp_path)

    assert sorted(os.listdir(tmp_path / "net")) == [fetch_models.MARKER, "other.onnx"]


def test_a_recipe_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no space"):
        fetch_models.fetch({"net": Recipe((), _fail, ())}, tmp_path)

    assert os.listdir(tmp_path) == []


def test_a_recipe_that_lacks_a_tool_is_left_out(tmp_path: Path) -> None:
    needy = Recipe((), _fail, (), releases=("no-such-distribution",))

    assert fetch_models.fetch({"net": needy}, tmp_path) == ["net"]


@pytest.mark.rest
def test_a_failed_download_says_why_and_what_else_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    status = fetch_models.main(["--to", str(tmp_path), "mnist8"])
    said = capsys.readouterr().err.splitlines()

    assert status == 1
    # Both are fetched at once: whichever fails first.
    either = tuple(
        f"fetch_models: cannot download {p}: " for p in ("foolbox==3.3.4", "qonnx==1.0.0")
    )
    assert said[0].startswith(either)
    assert said[1:] == [fetch_models.ADVICE]


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch_models.main(["mnist9"]) == 1
    assert "no model named mnist9" in capsys.readouterr().err


def test_an_archive_with_another_hash_is_refused(tmp_path: Path) -> None:
    package = public_packages.PACKAGES["qonnx"]
    archive = tmp_path / package.filename
    archive.write_bytes(b"not the wheel")

    with pytest.raises(public_packages.FetchError, match="SHA-256"):
        public_packages.checked(package, archive)


def test_every_reference_has_a_recipe() -> None:
    assert set(models.names()) == set(RECIPES) - {"data", "tflite"}


@pytest.mark.parametrize(
    "read", [restricted_pickle.read_numpy_pickle, restricted_pickle.read_state_dict]
)
def test_a_pickle_that_asks_for_more_than_arrays_is_refused(read) -> None:
    with pytest.raises(pickle.UnpicklingError, match="not allowed"):
        read(pickle.dumps(os.getcwd))


def test_numpy_weights_are_read() -> None:
    weights = {"conv": [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(2)]}
    kernel, bias = restricted_pickle.read_numpy_pickle(pickle.dumps(weights))["conv"]

    assert kernel.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert bias.tolist() == [0, 0]


class _Global:
    """Pickles as the name of something in PyTorch, which need not be installed."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class _TorchPickler(pickle._Pickler):
    """Writes names, storages and tensors as PyTorch did; the reader's counterpart."""

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, _Global):
            self.write(f"c{obj.module}\n{obj.name}\n".encode())
            return
        super().save(obj, save_persistent_id)

    def persistent_id(self, obj):
        if isinstance(obj, str) and obj == "the storage":
            return ("storage", _Global("torch", "FloatStorage"), "7", "cpu", 6, None)
        return None

    def tensor(self, offset, shape, strides):
        self.save(_Global("torch._utils", "_rebuild_tensor_v2"))
        self.save(("the storage", offset, shape, strides, False, collections.OrderedDict()))
        self.write(pickle.REDUCE)


def test_a_state_dict_is_read_without_torch() -> None:
    file = io.BytesIO()
    for header in (restricted_pickle.TORCH_MAGIC, 1001, {"little_endian": True}):
        pickle.dump(header, file, protocol=2)
    pickler = _TorchPickler(file, protocol=2)
    pickler.write(pickle.PROTO + b"\x02" + pickle.EMPTY_DICT)
    pickler.save("weight")
    pickler.tensor(1, (2, 2), (1, 2))
    pickler.write(pickle.SETITEM + pickle.STOP)
    pickle.dump(["7"], file, protocol=2)
    file.write(struct.pack("<q", 6) + np.arange(6, dtype=np.float32).tobytes())
    weights = restricted_pickle.read_state_dict(file.getvalue())

    assert {name: array.tolist() for name, array in weights.items()} == {"weight": [[1, 3], [2, 4]]}


def test_seeding_turns_fillers_into_initializers_of_the_same_shape() -> None:
    light = seed_weights.light_model("squeezenet")
    seeded = seed_weights.seeded_model("squeezenet")
    kernel = next(w for w in seeded.graph.initializer if w.name == "conv1_w_0")
    array = numpy_helper.to_array(kernel)

    assert "ConstantOfShape" not in {node.op_type for node in seeded.graph.node}
    assert [value.name for value in seeded.graph.input] == list(seed_weights.noise(light))
    assert array.shape == (64, 3, 3, 3)
    assert np.isclose(array.std(), np.sqrt(2 / 27), rtol=0.1)


def test_seeding_twice_gives_the_same_weights() -> None:
    first, second = (seed_weights.seeded_model("squeezenet") for _ in range(2))

    assert first == second


def test_a_written_network_has_the_input_and_outputs_it_was_given() -> None:
    writer = converted_networks.Writer()
    writer.node("Mul", ["x", writer.weight("two", np.array(2.0))], "y")
    graph = writer.model("doubler", ["N", 3], {"y": ["N", 3]}).graph
    expected = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])

    assert [value.name for value in graph.input] == ["x"]
    assert list(graph.output) == [expected]


@pytest.mark.models
def test_every_model_has_inputs_that_its_references_were_made_from() -> None:
    for name, number in models.cases():
        assert models.model_path(name).stat().st_size > 0
        assert models.reference(name, number)
