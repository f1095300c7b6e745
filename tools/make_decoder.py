"""Write a decoder in the shape of TinyLlama-1.1B with seeded weights, as its exporter would.

The file is what the model builder of ONNX Runtime GenAI writes for a CPU: weights of few bits in
MatMulNBits, GroupQueryAttention with rotary positions inside, SimplifiedLayerNormalization, and a
genai_config.json, by which onnxruntime-genai runs the same file.  Weights are scaled so that
logits stay finite.  They are made and written piece by piece.

    python tools/make_decoder.py FOLDER
    python tools/make_decoder.py FOLDER --bits 8
    python tools/make_decoder.py FOLDER --layers 2 --width 256 --inner 688 --heads 8 --groups 2 \\
        --vocabulary 1000

FOLDER then holds model.onnx, model.onnx.data and genai_config.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
MICROSOFT = "com.microsoft"

PIECE = 1 << 22
"""So many elements are made at a time."""

PAGE = 4096
"""Where tensors begin in the file of weights: at multiples of this, so that they can be mapped."""


@dataclass(frozen=True)
class Size:
    """How large a decoder is, and how its weights are stored; by default TinyLlama-1.1B's."""

    layers: int = field(default=22, metadata={"help": "blocks of attention and expansion"})
    width: int = field(default=2048, metadata={"help": "elements of a token's state"})
    inner: int = field(default=5632, metadata={"help": "elements between the two expansions"})
    heads: int = field(default=32, metadata={"help": "heads of queries"})
    groups: int = field(default=4, metadata={"help": "heads of keys and values"})
    vocabulary: int = field(default=32000, metadata={"help": "tokens there are"})
    positions: int = field(default=2048, metadata={"help": "tokens that fit into the context"})
    bits: int = field(default=4, metadata={"help": "bits of a weight: 4 or 8"})
    block: int = field(default=32, metadata={"help": "weights that share a scale"})
    accuracy: int = field(default=4, metadata={"help": "accuracy_level of products, 0 to 4"})
    seed: int = field(default=0, metadata={"help": "of the weights"})

    def __post_init__(self) -> None:
        checks = {
            "--width is a multiple of --heads": self.width % self.heads == 0,
            "--heads is a multiple of --groups": self.heads % self.groups == 0,
            "a head has an even size": self.width // self.heads % 2 == 0,
            "--bits is 4 or 8": self.bits in (4, 8),
            "--block is a power of two, 16 at least": self.block in [1 << n for n in range(4, 16)],
        }
        for rule, kept in checks.items():
            if not kept:
                raise ValueError(f"expected that {rule}: {self}")

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.width // self.heads

    def past(self, batch: int = 1, length: int = 0) -> dict[str, Array]:
        """Return keys and values of `length` tokens, all zero: before the first token, none."""
        empty = np.zeros((batch, self.groups, length, self.head), np.float32)
        names = [f"past_key_values.{i}" for i in range(self.layers)]
        return {f"{name}.{part}": empty for name in names for part in ("key", "value")}


@dataclass
class _Writer:
    """The nodes so far, and the file of weights, which is written as they are made."""

    size: Size
    data: BinaryIO
    location: str
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def __call__(
        self, op: str, inputs: list[str], *, name: str, domain: str = "", outputs: Any = None,
        **attributes: Any,
    ) -> str:  # fmt: skip
        made = [f"{name}/output_0"] if outputs is None else list(outputs)
        node = helper.make_node(op, inputs, made, name=name, domain=domain, **attributes)
        self.nodes.append(node)
        return str(made[0])

    def small(self, name: str, value: Any, dtype: Any = np.int64) -> str:
        """Add a constant that stands in the model itself."""
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def stored(self, name: str, kind: int, shape: tuple[int, ...], pieces: Iterator[Array]) -> str:
        """Add a constant whose pieces, from first to last, go to the file of weights."""
        self.data.write(bytes(-self.data.tell() % PAGE))
        start = self.data.tell()
        for piece in pieces:
            self.data.write(np.ascontiguousarray(piece).data)
        tensor = TensorProto(name=name, data_type=kind, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        places = {"location": self.location, "offset": start, "length": self.data.tell() - start}
        for key, value in places.items():
            tensor.external_data.add(key=key, value=str(value))
        self.weights.append(tensor)
        return name

    def normal(self, name: str, *shape: int, around: float = 0.0, spread: float = 1.0) -> str:
        """Add floats with a normal distribution."""

        def pieces() -> Iterator[Array]:
            for count in _counts(int(np.prod(shape))):
                noise = self.rng.standard_normal(count, np.float32)
                yield np.float32(around) + np.float32(spread) * noise

        return self.stored(name, TensorProto.FLOAT, shape, pieces())

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        """Multiply by a matrix of few bits, whose results are about as large as x."""
        size = self.size
        blocks, each = -(-rows // size.block), size.block * size.bits // 8
        # Whole numbers of n bits, all as likely, spread by 2^n / sqrt(12).
        scale = 12**0.5 / 2**size.bits / rows**0.5

        def numbers() -> Iterator[Array]:
            for count in _counts(columns * blocks * each):
                yield np.frombuffer(self.rng.bytes(count), np.uint8)

        def scales() -> Iterator[Array]:
            for count in _counts(columns * blocks):
                yield np.float32(scale) * (0.5 + self.rng.random(count, np.float32))

        weights = self.stored(
            f"{name}.qweight", TensorProto.UINT8, (columns, blocks, each), numbers()
        )
        grid = self.stored(f"{name}.scales", TensorProto.FLOAT, (columns * blocks,), scales())
        return self(
            "MatMulNBits", [x, weights, grid], name=f"/{name.replace('.', '/')}", domain=MICROSOFT,
            K=rows, N=columns, bits=size.bits, block_size=size.block,
            accuracy_level=size.accuracy,
        )  # fmt: skip


def _counts(total: int) -> Iterator[int]:
    """Yield how many elements there are in each piece of `total`."""
    for start in range(0, total, PIECE):
        yield min(PIECE, total - start)


def write(folder: Path, size: Size) -> Path:
    """Write the decoder to a folder; return the path of the model.

    Inputs are `input_ids` and `attention_mask`, i64[B, S] and i64[B, P+S], and
    `past_key_values.I.key` and `.value`, f32[B, groups, P, head], which as `present.I.…` have S
    more rows beside `logits`, f32[B, S, vocabulary].
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    with (folder / "model.onnx.data").open("wb") as data:
        w = _Writer(size, data, "model.onnx.data", np.random.default_rng(size.seed))
        _nodes(w)
    onnx.save(_model(w), path)
    (folder / "genai_config.json").write_text(json.dumps(_config(size), indent=4) + "\n")
    return path


def _nodes(w: _Writer) -> None:
    size = w.size
    lengths = _lengths(w)
    angles = _angles(size)
    caches = [w.small(f"{name}_cache", f(angles), np.float32) for name, f in _TURNS]
    table = w.normal("model.embed_tokens.weight", size.vocabulary, size.width)
    state = w("Gather", [table, "input_ids"], name="/model/embed_tokens/Gather")
    norm, change = "SimplifiedLayerNormalization", ""
    for i in range(size.layers):
        layer = f"model.layers.{i}"
        x, state = _normalized(w, norm, f"{layer}.input_layernorm", state, change)
        change = _attention(w, x, i, [*lengths, *caches])
        norm = "SkipSimplifiedLayerNormalization"
        x, state = _normalized(w, norm, f"{layer}.post_attention_layernorm", state, change)
        change = _expansion(w, x, f"{layer}.mlp")
    x, _ = _normalized(w, norm, f"model.layers.{size.layers}.final_norm_layernorm", state, change)
    logits = w.product(x, "lm_head", size.width, size.vocabulary)
    w.nodes[-1].output[0] = "logits"
    assert logits, "the last node makes the logits"


_TURNS = (("cos", np.cos), ("sin", np.sin))


def _angles(size: Size) -> Array:
    """Return by how much each pair of a head's elements is turned at each position."""
    speeds = 10000.0 ** -(np.arange(0, size.head, 2) / size.head)
    return np.outer(np.arange(size.positions), speeds)


def _lengths(w: _Writer) -> list[str]:
    """Return how many keys each sample has but one, and how many there are at most."""
    base = "/model/attn_mask_reformat/attn_mask_subgraph"
    one = w.small("/model/constants/INT64/[1]", [1])
    first = w.small("/model/constants/INT64/1", 1)
    total = w("ReduceSum", ["attention_mask", one], name=f"{base}/ReduceSum")
    last = w("Sub", [total, one], name=f"{base}/Sub")
    shape = w("Shape", ["attention_mask"], name=f"{base}/Shape")
    most = w("Gather", [shape, first], name=f"{base}/Gather", axis=0)
    casts = (("Sub", last), ("Gather", most))
    return [w("Cast", [v], name=f"{base}/{after}/Cast", to=TensorProto.INT32) for after, v in casts]


def _normalized(w: _Writer, op: str, name: str, state: str, change: str) -> tuple[str, str]:
    """Return the state, with what changes it added, normalised and as it is."""
    weight = w.normal(f"{name}.weight", w.size.width, around=1.0, spread=0.02)
    path = f"/{name.replace('.', '/')}"
    if not change:
        x = w(op, [state, weight], name=path, epsilon=1e-5, axis=-1, stash_type=1)
        return x, state
    outputs = [f"{path}/output_0", "", "", f"{path}/output_3"]
    x = w(op, [state, change, weight], name=path, domain=MICROSOFT, outputs=outputs, epsilon=1e-5)
    return x, outputs[3]


def _attention(w: _Writer, x: str, i: int, lengths_and_caches: list[str]) -> str:
    size, name = w.size, f"model.layers.{i}.attn"
    both = size.heads + 2 * size.groups
    qkv = w.product(x, f"{name}.qkv_proj.MatMul", size.width, both * size.head)
    past = [f"past_key_values.{i}.{part}" for part in ("key", "value")]
    path = f"/{name.replace('.', '/')}/GroupQueryAttention"
    seen = w(
        "GroupQueryAttention", [qkv, "", "", *past, *lengths_and_caches], name=path,
        domain=MICROSOFT, outputs=[f"{path}/output_0", f"present.{i}.key", f"present.{i}.value"],
        num_heads=size.heads, kv_num_heads=size.groups, scale=size.head**-0.5, do_rotary=1,
        rotary_interleaved=0, local_window_size=-1, softcap=0.0,
    )  # fmt: skip
    return w.product(seen, f"{name}.o_proj.MatMul", size.heads * size.head, size.width)


def _expansion(w: _Writer, x: str, name: str) -> str:
    size, path = w.size, f"/{name.replace('.', '/')}"
    gate, up = (
        w.product(x, f"{name}.{part}_proj.MatMul", size.width, size.inner)
        for part in ("gate", "up")
    )
    soft = w("Sigmoid", [gate], name=f"{path}/act_fn/Sigmoid")
    chosen = w("Mul", [gate, soft], name=f"{path}/act_fn/Mul")
    inner = w("Mul", [chosen, up], name=f"{path}/Mul")
    return w.product(inner, f"{name}.down_proj.MatMul", size.inner, size.width)


def _model(w: _Writer) -> onnx.ModelProto:
    size = w.size
    ids: list[str | int | None] = ["batch_size", "sequence_length"]
    mask: list[str | int | None] = ["batch_size", "total_sequence_length"]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ids),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, mask),
    ]
    result = [*ids, size.vocabulary]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, result)]
    for name in size.past():
        present = name.replace("past_key_values", "present")
        for infos, label, length in (
            (inputs, name, "past_sequence_length"),
            (outputs, present, "total_sequence_length"),
        ):
            shape: list[str | int | None] = ["batch_size", size.groups, length, size.head]
            infos.append(helper.make_tensor_value_info(label, TensorProto.FLOAT, shape))
    graph = helper.make_graph(w.nodes, "decoder", inputs, outputs, w.weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _config(size: Size) -> dict[str, Any]:
    """Return what tells onnxruntime-genai how to run the model."""
    return {
        "model": {
            "bos_token_id": 1,
            "context_length": size.positions,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": size.head,
                "hidden_size": size.width,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": size.heads,
                "num_hidden_layers": size.layers,
                "num_key_value_heads": size.groups,
            },
            "eos_token_id": 2,
            "pad_token_id": 2,
            "type": "llama",
            "vocab_size": size.vocabulary,
        },
        "search": {
            "do_sample": False,
            "early_stopping": True,
            "max_length": size.positions,
            "min_length": 0,
            "num_beams": 1,
            "past_present_share_buffer": False,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 1,
            "top_p": 1.0,
        },
    }


def main() -> None:
    head, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=head, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    for f in fields(Size):
        said = f"{f.metadata['help']} ({f.default})"
        parser.add_argument(f"--{f.name}", type=int, default=f.default, help=said)
    words = vars(parser.parse_args())
    folder = words.pop("folder")
    try:
        size = replace(Size(), **words)
    except ValueError as error:
        parser.error(str(error))
    path = write(folder, size)
    nbytes = sum(p.stat().st_size for p in (path, path.with_name("model.onnx.data")))
    print(f"{path}: {nbytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
