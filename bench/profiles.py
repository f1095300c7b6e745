"""The profiles of a few nets, kernel by kernel: text files beside the page of results."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import alpenglow as ag
from alpenglow.cli.profile import lines
from alpenglow.measure.bandwidth import bandwidth
from alpenglow.measure.peak import peak
from alpenglow.measure.profile import profile

PROFILED = ("resnet50", "mobilenetv2", "bert_base")
"""The nets that are profiled unless others are asked for."""

KERNELS = 40
"""How many kernels are shown of each, the slowest first."""


def write(name: str, model: Path, feeds: Path, to: Path) -> None:
    """Profile a net on one thread and write the table of its slowest kernels."""
    with np.load(feeds) as archive:
        arrays = dict(archive)
    graph = ag.load(model, {name: x.shape for name, x in arrays.items()})
    exe = ag.compile(model, threads=1, shapes={name: x.shape for name, x in arrays.items()})
    found = profile(exe, arrays, graph)
    table = lines(found, KERNELS, peak(1, exe.target), bandwidth(1))
    to.mkdir(parents=True, exist_ok=True)
    (to / f"{name}.txt").write_text("\n".join((f"{name}, one thread", "", *table)) + "\n")
