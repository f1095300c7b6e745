"""The zoo: which packages hold which trained networks, and how one is taken out of its package.

`zoo_models.toml` has a table for each archive of a registry, pinned by SHA-256, and below it one
for each network in it, pinned too.  Nothing in an archive is installed or imported; its files are
read as bytes.  The fields of a network:

    name      what we call it: its file is NAME.onnx
    member    its path in the archive; `X.gz` is unpacked, `X#KEY` is put together from the pieces
              that the JSON file X lists under KEY
    exporter  who wrote it, where the file does not say
    weights   `int8` for a network that quantizes as it runs, `f16` for halves; else floats
    sizes     numbers for the names in its feeds: the first is bound with shapes=, an open
              Executable is called with all
    feeds     what each input gets, see zoo_inputs.py
    note      what is odd about it
"""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from public_packages import Package, read

ROOT = Path(__file__).resolve().parent.parent
ZOO = Path(os.environ.get("ALPENGLOW_MODELS") or ROOT / ".models") / "zoo"
LIST = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Network:
    """One trained network of a package."""

    name: str
    package: Package
    registry: str
    member: str
    sha256: str
    exporter: str
    weights: str
    sizes: tuple[Mapping[str, int], ...]
    feeds: Mapping[str, str]
    note: str

    @property
    def file(self) -> Path:
        """Where the network lies once it is fetched."""
        return ZOO / f"{self.name}.onnx"


@cache
def networks() -> dict[str, Network]:
    """Return the networks of the zoo by name."""
    found: dict[str, Network] = {}
    for table in tomllib.loads(LIST.read_text())["package"]:
        package = Package(table["name"], table["version"], table["file"], table["sha256"], "")
        for model in table["model"]:
            network = Network(
                model["name"],
                package,
                table["registry"],
                model["member"],
                model["sha256"],
                model.get("exporter", ""),
                model.get("weights", "float"),
                tuple(model["sizes"]),
                model["feeds"],
                model.get("note", ""),
            )
            assert network.name not in found, f"two networks are called {network.name}"
            found[network.name] = network
    return found


def contents(archive: Path, member: str) -> bytes:
    """Return the bytes of a network in an archive."""
    index, _, key = member.partition("#")
    if key:
        return _put_together(archive, index, key)
    found = read(archive, member)
    return gzip.decompress(found) if member.endswith(".gz") else found


def _put_together(archive: Path, index: str, key: str) -> bytes:
    """Join the pieces of a file that a package cuts up, in the order in which its index lists them.

    One pass through the archive is enough: the pieces are named by their hashes.
    """
    folder = index.rpartition("/")[0]
    chunks = json.loads(read(archive, index))[key]["chunks"]
    names = [f"{folder}/{chunk['hash']}" for chunk in chunks]
    pieces: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for entry in tar:
            if entry.name in names and (file := tar.extractfile(entry)) is not None:
                pieces[entry.name] = file.read()
    return b"".join(pieces[name] for name in names)
