"""The reader of flatbuffers: what it reads, and what it says of damage."""

from __future__ import annotations

import contextlib
import struct
import time
from typing import Any

import numpy as np
import pytest
from tests.frontends.tflite.flat import file_of, one_op

from alpenglow.base.errors import AlpenglowError, ModelError
from alpenglow.frontends.flatbuffer import root
from alpenglow.frontends.tflite.file.flexbuffer import numbers
from alpenglow.frontends.tflite.file.schema import LAYOUTS
from alpenglow.frontends.tflite.loading import load

CONV: dict[str, Any] = {"padding": 0, "stride_w": 1, "stride_h": 1, "fused_activation_function": 3}


def convolution() -> bytes:
    w, b = np.ones((2, 3, 3, 4), np.float32), np.zeros(2, np.float32)
    model = one_op("CONV_2D", ["f32[1,5,5,4]", w, b], ["f32[1,5,5,2]"], "Conv2DOptions", **CONV)
    return file_of(model)


def test_fields_that_are_absent_have_their_defaults() -> None:
    table = root(file_of({"version": 3}), "Model", LAYOUTS)

    assert table.number("version") == 3
    assert table.text("description") == ""
    assert len(table.tables("subgraphs")) == 0


def test_scalars_strings_vectors_and_tables_are_read() -> None:
    signature = {"signature_key": "é", "inputs": [{"name": "a", "tensor_index": 7}]}
    table = root(file_of({"description": "d", "signature_defs": [signature]}), "Model", LAYOUTS)
    (read,) = table.tables("signature_defs")

    assert (table.text("description"), read.text("signature_key")) == ("d", "é")
    assert [m.number("tensor_index") for m in read.tables("inputs")] == [7]


def test_an_offset_outside_of_the_file_is_told_with_its_field() -> None:
    broken = bytearray(file_of({"version": 3}))
    struct.pack_into("<I", broken, 0, 1 << 30)

    with pytest.raises(ModelError, match=r"Model lies in bytes 1073741824 to"):
        root(bytes(broken), "Model", LAYOUTS)


def test_a_vector_that_is_longer_than_the_file_is_told() -> None:
    content = file_of({"description": "abcdef"})
    broken = content.replace(b"\6\0\0\0abcdef", b"\xff\xff\xff\xffabcdef")
    table = root(broken, "Model", LAYOUTS)

    with pytest.raises(ModelError, match=r"Model\.description, of 4294967295 elements"):
        table.text("description")


def test_a_vector_of_one_table_many_times_over_is_not_read_for_ever() -> None:
    """A million operators that are all one are more tables than so small a file has room for."""
    count = 1 << 18
    content = bytearray(file_of({"version": 3, "operator_codes": [{} for _ in range(count)]}))
    start = content.find(struct.pack("<I", count)) + 4
    first = start + struct.unpack_from("<I", content, start)[0]
    for i in range(count):
        struct.pack_into("<I", content, start + 4 * i, first - start - 4 * i)
    del content[first + 64 :]
    codes = root(bytes(content), "Model", LAYOUTS).tables("operator_codes")

    with pytest.raises(ModelError, match=r"expected at most .* tables"):
        for _ in range(3):
            list(codes)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_files_are_told_and_never_crash(seed: int) -> None:
    random = np.random.default_rng(seed)
    whole = convolution()
    began = time.monotonic()
    for _ in range(150):
        broken = bytearray(whole)
        match random.integers(3):
            case 0:
                for at in random.integers(0, len(broken), random.integers(1, 4)):
                    broken[at] = random.integers(256)
            case 1:
                del broken[random.integers(8, len(broken)) :]
            case _:
                at = 4 * random.integers(0, len(broken) // 4 - 1)
                number = random.choice([0, 1, 4, 1 << 16, 1 << 31, (1 << 32) - 1, len(broken)])
                struct.pack_into("<I", broken, at, number)
        with contextlib.suppress(AlpenglowError):
            load(bytes(broken))

    assert time.monotonic() - began < 60


def test_options_of_custom_operators_are_maps_of_numbers() -> None:
    # {"a": 7, "b": 0.5}, as flexbuffers store it in four bytes a value.
    keys = b"a\0b\0"
    key_vector = bytes([2, 5, 4])
    values = struct.pack("<III", 3, 1, 2) + struct.pack("<if", 7, 0.5)
    types = bytes([1 << 2 | 2, 3 << 2 | 2])
    content = keys + key_vector + b"\0" + values + types + bytes([10, 9 << 2 | 2, 1])

    assert numbers(content) == {"a": 7, "b": 0.5}


def test_damaged_options_are_told() -> None:
    random = np.random.default_rng(0)
    for _ in range(500):
        content = random.integers(0, 256, random.integers(0, 40)).astype(np.uint8).tobytes()
        with contextlib.suppress(ModelError):
            numbers(content + bytes([9 << 2 | 2, 1]))
