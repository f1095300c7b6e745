"""Files of arrays, sessions and tuning records with bytes flipped, cut off and put in."""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError
from alpenglow.calibration import samples
from alpenglow.cli import options, source
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.passes.choices import Record
from alpenglow.runtime.session.session import Session

RECORD = b"conv f32 1x64x56x56 : tile=4 unroll=2\nmatmul f32 7 8 9 : m=6 n=16\n"


def session() -> Session:
    g = ag.Graph("sum")
    x, total = g.input("x", "f32[4]"), g.variable("total", np.zeros(4, np.float32))
    g.variable("other", np.zeros((3, 5), np.float16))
    g.assign("total", g(Add(), total, x))
    g.output("y", total)
    return ag.compile(g, "interpreter").session()


def files(folder: Path) -> dict[str, bytes]:
    session().save(folder / "s.npz")
    packed, plain = io.BytesIO(), io.BytesIO()
    np.savez_compressed(packed, x=np.arange(12.0).reshape(3, 4), labels=np.arange(3))
    np.save(plain, np.arange(12.0).reshape(3, 4))
    return {"session": (folder / "s.npz").read_bytes(), "npz": packed.getvalue(),
            "npy": plain.getvalue(), "record": RECORD}  # fmt: skip


def readers(file: Path) -> dict[str, list[Callable[[], object]]]:
    loading = session()
    arrays = [lambda: source.array_in("x", str(file)).copy(), lambda: samples._loaded(file)]
    return {
        "session": [lambda: loading.load(file)],
        "npz": [*arrays, lambda: options.parse_feeds(file),
                lambda: source.read_weights(file.with_suffix(""))],
        "npy": [*arrays, lambda: options.parse_constants((f"x={file}",))],
        "record": [lambda: Record.read(file)],
    }  # fmt: skip


def damaged(dice: random.Random, content: bytes) -> bytes:
    made = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(made) + 1)
        match dice.choice(["flip", "flip", "cut", "put", "digits", "drop"]):
            case "flip" if at < len(made):
                made[at] ^= 1 << dice.randrange(8)
            case "cut":
                del made[at:]
            case "put":
                made[at:at] = dice.randbytes(dice.randrange(1, 9))
            case "digits":
                made[at:at] = b"9" * 5000
            case "drop":
                del made[at : at + dice.randrange(1, 20)]
    return bytes(made)


@pytest.mark.parametrize("form", ["session", "npz", "npy", "record"])
def test_what_is_wrong_with_a_damaged_file_is_told(tmp_path: Path, form: str) -> None:
    content = files(tmp_path)[form]
    file = tmp_path / f"damaged.{'npy' if form == 'npy' else 'npz'}"
    told, reads = 0, readers(file)[form]
    for seed in range(250):
        file.write_bytes(damaged(random.Random(seed), content))
        for read in reads:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # NumPy's, of what it reads all the same
                    read()
            except AlpenglowError as error:
                told += bool(str(error))
    assert told > 100
