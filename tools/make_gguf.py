"""Write a decoder that tools/make_decoder.py made as GGUF too, which llama.cpp and OpenVINO read.

The weights are the same, Q4_0 or Q8_0; but scales, and the table of tokens, are f16.  The
vocabulary has words without a meaning: runtimes that want one are given numbers of tokens.

    python tools/make_gguf.py FOLDER

FOLDER then holds model.gguf.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]

PAGE = 32
"""Tensors begin at multiples of this."""

GROUP = 32
"""Weights of Q4_0 and of Q8_0 that share a scale."""

F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8
"""What the elements of a tensor are."""

FILE_TYPES = {4: 2, 8: 7}
"""What most weights of a file are, by their bits."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file: its shape, outermost first, and its bytes."""

    name: str
    kind: int
    shape: tuple[int, ...]
    stored: Array


def convert(folder: Path) -> Path:
    """Write `model.gguf` beside `model.onnx`; return its path."""
    model = onnx.load(folder / "model.onnx")
    config = json.loads((folder / "genai_config.json").read_text())["model"]
    tensors = list(_tensors(model.graph, config["decoder"]))
    bits = next(_attributes(n)["bits"] for n in model.graph.node if n.op_type == "MatMulNBits")
    path = folder / "model.gguf"
    with path.open("wb") as file:
        _write(file, _metadata(config, model.graph, bits), tensors)
    return path


def _tensors(graph: onnx.GraphProto, decoder: Mapping[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors of a decoder by the names that they have in GGUF."""
    constants = {t.name: t for t in graph.initializer}
    products = {n.input[1]: _attributes(n) for n in graph.node if n.op_type == "MatMulNBits"}

    def floats(name: str, source: str, kind: int = F32) -> Tensor:
        array = numpy_helper.to_array(constants[source])
        stored = array.astype(np.float16) if kind == F16 else array
        return Tensor(f"{name}.weight", kind, array.shape, stored)

    def product(source: str) -> tuple[Array, int]:
        how = products[f"{source}.qweight"]
        packed, scales = (
            numpy_helper.to_array(constants[f"{source}.{part}"]) for part in ("qweight", "scales")
        )
        if how["block_size"] != GROUP:
            raise ValueError(f"{source} has groups of {how['block_size']}, expected {GROUP}")
        return blocks(packed, scales.reshape(packed.shape[:2]), how["bits"]), how["bits"]

    def quantized(name: str, stored: Array, bits: int) -> Tensor:
        shape = (stored.shape[0], stored.shape[1] * GROUP)
        return Tensor(f"{name}.weight", Q4_0 if bits == 4 else Q8_0, shape, stored)

    heads, groups, size = (
        decoder[key] for key in ("num_attention_heads", "num_key_value_heads", "head_size")
    )
    yield floats("token_embd", "model.embed_tokens.weight", F16)
    for i in range(decoder["num_hidden_layers"]):
        layer, block = f"model.layers.{i}", f"blk.{i}"
        yield floats(f"{block}.attn_norm", f"{layer}.input_layernorm.weight")
        yield floats(f"{block}.ffn_norm", f"{layer}.post_attention_layernorm.weight")
        qkv, bits = product(f"{layer}.attn.qkv_proj.MatMul")
        q, k, v = np.split(qkv, np.cumsum([heads, groups]) * size)
        yield quantized(f"{block}.attn_q", interleaved(q, heads), bits)
        yield quantized(f"{block}.attn_k", interleaved(k, groups), bits)
        yield quantized(f"{block}.attn_v", v, bits)
        for name, source in _PRODUCTS.items():
            yield quantized(f"{block}.{name}", *product(f"{layer}.{source}"))
    last = f"model.layers.{decoder['num_hidden_layers']}.final_norm_layernorm.weight"
    yield floats("output_norm", last)
    yield quantized("output", *product("lm_head"))


_PRODUCTS = {
    "attn_output": "attn.o_proj.MatMul",
    "ffn_gate": "mlp.gate_proj.MatMul",
    "ffn_up": "mlp.up_proj.MatMul",
    "ffn_down": "mlp.down_proj.MatMul",
}


def blocks(packed: Array, scales: Array, bits: int) -> Array:
    """Return weights of MatMulNBits, u8[N, blocks, bytes] and f32[N, blocks], as blocks of GGUF.

    These are u8[N, blocks, 2 + bytes]: a scale, f16, and numbers.  In Q4_0 a byte has numbers i and
    i + 16 of its block, not 2i and 2i + 1; in Q8_0 they are signed.
    """
    if bits == 4:
        numbers = np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:2], GROUP)
        numbers = numbers[..., : GROUP // 2] | numbers[..., GROUP // 2 :] << 4
    else:
        numbers = packed ^ np.uint8(128)
    halves = np.ascontiguousarray(scales.astype("<f2"))[..., None].view(np.uint8)
    return np.concatenate([halves, numbers], axis=-1)


def interleaved(rows: Array, heads: int) -> Array:
    """Return the rows of queries or keys with those that turn together as neighbours.

    MatMulNBits has the second of such a pair half a head behind the first.
    """
    _, *rest = rows.shape
    return rows.reshape(heads, 2, -1, *rest).swapaxes(1, 2).reshape(rows.shape)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _metadata(config: Mapping[str, Any], graph: onnx.GraphProto, bits: int) -> dict[str, Any]:
    """Return what the file says of its model; whole numbers are u32."""
    decoder, vocabulary = config["decoder"], config["vocab_size"]
    inner = next(
        _attributes(n)["N"] for n in graph.node if n.input[1:2] and "gate_proj" in n.input[1]
    )
    special = ["<unk>", "<s>", "</s>"]
    tokens = [*special, *(f"token{i}" for i in range(len(special), vocabulary))]
    return {
        "general.architecture": "llama",
        "general.name": "decoder",
        "general.file_type": FILE_TYPES[bits],
        "general.quantization_version": 2,
        "llama.block_count": decoder["num_hidden_layers"],
        "llama.context_length": config["context_length"],
        "llama.embedding_length": decoder["hidden_size"],
        "llama.feed_forward_length": inner,
        "llama.attention.head_count": decoder["num_attention_heads"],
        "llama.attention.head_count_kv": decoder["num_key_value_heads"],
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": decoder["head_size"],
        "llama.rope.freq_base": 10000.0,
        "llama.vocab_size": vocabulary,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if t in special else 1 for t in tokens],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": config["bos_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
    }


def _write(file: BinaryIO, metadata: Mapping[str, Any], tensors: Sequence[Tensor]) -> None:
    """Write version 3 of the format."""
    file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, value in metadata.items():
        file.write(_text(key) + _value(value))
    start = 0
    for t in tensors:
        shape = t.shape[::-1]
        file.write(_text(t.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        file.write(struct.pack("<IQ", t.kind, start))
        start += -(-t.stored.nbytes // PAGE) * PAGE
    for stored in (np.empty(0), *(t.stored for t in tensors)):
        file.write(np.ascontiguousarray(stored).data)
        file.write(bytes(-file.tell() % PAGE))


def _text(text: str) -> bytes:
    stored = text.encode()
    return struct.pack("<Q", len(stored)) + stored


def _value(value: Any) -> bytes:
    """Return a value of the metadata with its type before it."""
    match value:
        case str():
            return struct.pack("<I", 8) + _text(value)
        case float():
            return struct.pack("<If", 6, value)
        case int():
            return struct.pack("<II", 4, value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
        case [int(), *_]:
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    raise AssertionError(f"{value!r} is no value of metadata")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what make_decoder.py wrote")
    path = convert(parser.parse_args().folder)
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
