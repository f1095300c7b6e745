"""A model that was kept, once more: what everybody makes of it, in f64 as well.

python -m tests.fuzz.again .fuzz/GENERATION/findings/17.onnx ["x86-64-v3 fast level=0"]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from .judge import Array, judge
from .oracles import ORACLES, in_f64, oracle
from .reference import Reference, loaded
from .settings import PLAIN, Setting, here


def kept(path: Path) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model, and the feeds that lie beside it."""
    model = onnx.load(path)
    kinds = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    with np.load(path.with_suffix(".npz")) as arrays:
        found = {k: arrays[k] for k in arrays.files}
    # NumPy keeps the bytes of types that it does not know.
    return model, {k: a.view(helper.tensor_dtype_to_np_dtype(kinds[k])) if a.dtype.kind == "V"
                   else a for k, a in found.items()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("setting", nargs="*", help="by custom all widths, both numerics")
    asked = parser.parse_args()
    model, feeds = kept(asked.model)
    print(onnx.printer.to_text(model))
    show("fed", feeds)
    content = model.SerializeToString()
    reference = Reference(loaded(content, feeds), feeds)
    show("reference of ours", reference.expected)
    for name in ORACLES:
        who = oracle(name, content)
        show(name, None if who is None else who.run(feeds))
    show("in f64", in_f64(content, feeds))
    settings = [Setting.parse(s) for s in asked.setting] or here(PLAIN)
    print(judge(content, [feeds], settings, ORACLES))


def show(whose: str, values: Mapping[str, Array] | None) -> None:
    print(f"{whose}:" + (" declines" if values is None else ""))
    for name, a in (values or {}).items():
        print(f"  {name} {a.dtype}{list(a.shape)} {np.array2string(a, threshold=40)}")


if __name__ == "__main__":
    main()
