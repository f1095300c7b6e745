"""How long it takes to compile or load a net, and how much memory a process needs to run it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from alpenglow.measure.contest import Length
from peers import Running

STARTUP = ("resnet50", "vgg19", "mobilenetv2")
"""The nets that are measured unless others are asked for."""

FEW = Length(rounds=1, calls=3, seconds=0.0)

SAVE = """
import sys, alpenglow, numpy
model, feeds, archive = sys.argv[1:]
shapes = {name: x.shape for name, x in numpy.load(feeds).items()}
alpenglow.compile(model, shapes=shapes).save(archive)
"""


def measure(model: Path, feeds: Path, pythons: Mapping[str, Path], cpu: int) -> dict[str, float]:
    """Return seconds to compile cold and cached, and to load elsewhere; and peaks of memory.

    Memory is the most that a process had that loaded the model and ran it a few times.
    """
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        archive = scratch / "model.ago"
        cache = {"ALPENGLOW_CACHE": str(scratch / "cache")}
        for when in ("cold", "cached"):
            with Running("alpenglow", 1, {cpu}, environment=cache) as one:
                found[when] = one.load(model, feeds, scratch)["seconds"]
        subprocess.run([sys.executable, "-c", SAVE, str(model), str(feeds), str(archive)],
                       env={**os.environ, **cache}, check=True)  # fmt: skip
        with Running("alpenglow", 1, {cpu}) as one:
            found["open"] = one.load(archive, feeds, scratch)["seconds"]
            one.burst(FEW)
            found["memory"] = one.ask("memory")["peak"]
        for name in ("onnxruntime", "openvino"):
            if name in pythons:
                with Running(name, 1, {cpu}, pythons[name]) as one:
                    found[f"{name} load"] = one.load(model, feeds, scratch)["seconds"]
                    one.burst(FEW)
                    found[f"{name} memory"] = one.ask("memory")["peak"]
    return found
