"""The other runtimes, each in an environment of its own, so that none disturbs another."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import rivals
from alpenglow.measure.contest import Process

STAMP = "packages.txt"


@dataclass(frozen=True)
class Peer:
    """What to install for a runtime; `bare` packages come without what they ask for.

    `patience` is how many seconds it may take to convert, compile and load a net.
    """

    packages: tuple[str, ...]
    bare: tuple[str, ...] = ()
    patience: float = 300.0


PEERS: Mapping[str, Peer] = {
    "onnxruntime": Peer(("onnxruntime",)),
    "openvino": Peer(("openvino",)),
    # The converter is a program beside a package; only the package wants PyTorch.
    "ncnn": Peer(("ncnn", "numpy"), ("pnnx",)),
    "mnn": Peer(("MNN", "numpy")),
    # onnx2torch wants torchvision, for operators that none of the nets has.
    "torch": Peer(("torch==2.13.0", "onnx", "numpy", "setuptools"), ("onnx2torch",), 120.0),
}


DECODERS: Mapping[str, Peer] = {
    "genai": Peer(("onnxruntime-genai==0.18.0", "numpy")),
    "openvino": Peer(("openvino-genai==2026.4.1.0", "numpy")),
}
"""Those that decode token by token, of which `decoding.py` asks nothing else."""

NODE_DECODERS: Mapping[str, tuple[str, ...]] = {
    # The second is llama.cpp, built for each kind of CPU; others, for GPUs, are left out.
    "llama": ("node-llama-cpp@3.22.1", "@node-llama-cpp/linux-x64@3.22.1"),
}
"""The packages of those that Node has."""


class Running(Process):
    """A runtime of the benchmark, Alpenglow or another, in a process of its own."""

    program = rivals.__file__

    def results(self, to: Path) -> list[np.ndarray]:
        """Return the outputs, by way of a file."""
        names = self.ask("results", to=str(to))["names"]
        with np.load(to) as arrays:
            return [arrays[str(i)] for i in range(len(names))]


class PeerError(Exception):
    """A runtime cannot be installed."""


def install_all(names: Sequence[str], folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the Pythons of runtimes, and why others cannot be installed; all at the same time."""
    pythons, absent = {}, {}
    with ThreadPoolExecutor(max(len(names), 1)) as pool:
        pending = {name: pool.submit(install, name, folder) for name in names}
    for name, made in pending.items():
        try:
            pythons[name] = made.result()
        except PeerError as error:
            absent[name] = f"not installed: {error}"
    return pythons, absent


def install(name: str, folder: Path, known: Mapping[str, Peer] = PEERS) -> Path:
    """Return the Python that has a runtime; make its environment if it is not there.

    Raises PeerError if that fails.
    """
    peer = known[name]
    home = folder / name
    python = home / "bin" / "python"
    wanted = "\n".join((*peer.packages, *peer.bare))
    stamp = home / STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {', '.join(peer.packages)} into {home}", flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(home)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *peer.packages])
    if peer.bare:
        _run([*pip, "--no-deps", *peer.bare])
    stamp.write_text(wanted)
    return python


def install_for_node(name: str, folder: Path) -> Path:
    """Return the folder in which Node finds a runtime; install it if it is not there.

    Raises PeerError if that fails.
    """
    packages, home = NODE_DECODERS[name], folder / name
    stamp, wanted = home / STAMP, "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return home
    if (npm := shutil.which("npm")) is None:
        raise PeerError("npm is not there")
    print(f"installing {', '.join(packages)} into {home}", flush=True)
    home.mkdir(parents=True, exist_ok=True)
    settings = ("--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund")
    _run([npm, "install", *settings, *packages], home)
    stamp.write_text(wanted)
    return home


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise PeerError(said[-1] if said else f"exit status {done.returncode}")
