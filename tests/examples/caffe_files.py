"""Files of Caffe for tests: networks as text, and weights in the binary format."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import alpenglow as ag
from alpenglow.ir.types import Array
from alpenglow_caffe.front_end import CaffeFrontEnd

Weights = Mapping[str, Sequence[Array]]


def layer(name: str, kind: str, bottoms: str = "data", parameters: str = "", tops: str = "") -> str:
    """Return the text of a layer; its top is called as the layer, if no tops are given."""
    names = "".join(f' bottom: "{b}"' for b in bottoms.split())
    names += "".join(f' top: "{t}"' for t in (tops or name).split())
    return f'layer {{ name: "{name}" type: "{kind}"{names} {parameters} }}\n'


def input_of(*shape: int, name: str = "data") -> str:
    """Return the text of an input."""
    dims = " ".join(f"dim: {d}" for d in shape)
    return layer(name, "Input", "", f"input_param {{ shape {{ {dims} }} }}")


def field(number: int, value: bytes | int) -> bytes:
    """Return a field of a message in the binary format."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    """Return a number that is written seven bits a byte."""
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def blob(array: Array) -> bytes:
    """Return a message BlobProto as Caffe writes it."""
    dims = b"".join(map(varint, array.shape))
    return field(7, field(1, dims)) + field(5, array.astype("<f4").tobytes())


def old_blob(array: Array) -> bytes:
    """Return a message BlobProto of before 2014: four extents, and floats one by one."""
    shape = (1,) * (4 - array.ndim) + array.shape
    extents = b"".join(field(i, d) for i, d in enumerate(shape, 1))
    return extents + b"".join(varint(5 << 3 | 5) + struct.pack("<f", v) for v in array.flat)


def caffemodel(weights: Weights) -> bytes:
    """Return a message NetParameter with the weights of layers."""
    layers = [
        field(100, b"".join([field(1, name.encode()), *(field(7, blob(a)) for a in arrays)]))
        for name, arrays in weights.items()
    ]
    return field(1, b"network") + b"".join(layers)


def load(folder: Path, text: str, weights: Weights | None = None) -> ag.Graph:
    """Write a network, and its weights if there are some, and load it."""
    (folder / "net.prototxt").write_text(text)
    if weights is not None:
        (folder / "net.caffemodel").write_bytes(caffemodel(weights))
    return CaffeFrontEnd().load(folder / "net.prototxt")


def run(
    folder: Path, text: str, weights: Weights | None = None, target: str = "interpreter",
    **feeds: Array,
) -> dict[str, Array]:  # fmt: skip
    """Return the results of a network."""
    return ag.compile(load(folder, text, weights), target=target).run(feeds)
