"""Damaged models, led by coverage: what reaches new lines of the importer is damaged further.

    pip install atheris
    python -m tests.fuzz.guided findings -max_total_time=900 -seed=1

The first argument is a folder: the corpus grows in its `corpus`, and what the importer does not
receive as it should stands in `found`.  The others are libFuzzer's, which atheris brings.  Only
loading is tried; `hostile` goes on from there.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

# Optional, and its hook must stand before anything of ours is imported.
atheris: Any = import_module("atheris")
with atheris.instrument_imports(include=["alpenglow.frontends", "alpenglow.ops", "alpenglow.ir"]):
    ag: Any = import_module("alpenglow")
    errors: Any = import_module("alpenglow.base.errors")
    failure: Any = import_module("alpenglow.debug.failure")
    damage: Any = import_module(f"{__package__}.damage")
    models: Any = import_module(f"{__package__}.corpus")

SLOW = 10.0
"""Seconds of work, not of waiting: others may be busy."""
LARGEST = 1 << 14
"""Bytes of a model: small ones show as much, and sooner."""


class Gate:
    """What is handed to the importer, and how it was received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.how: Counter[str] = Counter()
        self.begun = time.monotonic()

    def try_bytes(self, data: bytes) -> None:
        """Load a model; keep it as a finding if anything but one of our errors comes of it."""
        begin = time.process_time()
        try:
            ag.load(data)
            how = "loaded"
        except errors.AlpenglowError as error:
            how = type(error).__name__
        except Exception as error:
            how = f"finding: {failure.place(error)}"
            self._keep(data, how, str(error))
        if time.process_time() - begin > SLOW:
            how = "finding: slow"
            self._keep(data, how, f"{time.process_time() - begin:.1f} s")
        self.how[how] += 1
        if self.how.total() % 20_000 == 0:
            self.tell()

    def _keep(self, data: bytes, how: str, message: str) -> None:
        if not self.how[how]:
            name = hashlib.sha256(how.encode()).hexdigest()[:12]
            (self.folder / f"{name}.onnx").write_bytes(data)
            print(f"{name}: {how}: {message[:300]}", flush=True)

    def tell(self) -> None:
        seconds = time.monotonic() - self.begun
        print(f"{self.how.total()} models in {seconds:.0f} s: {dict(self.how)}", flush=True)


def mutated(data: bytes, most: int, seed: int) -> bytes:
    """Return a model changed in what it means, or in its bytes."""
    rng = np.random.default_rng(seed)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
        if rng.random() < 0.25 or not model.graph.node or not model.opset_import:
            return bytes(atheris.Mutate(data, most))
        changed = bytes(damage.one_of(rng, damage.MEANINGS)(rng, model))
        return changed if len(changed) <= most else data
    except (DecodeError, ValueError, OverflowError, TypeError, AttributeError):
        # No model, or one without what was to be damaged.
        return bytes(atheris.Mutate(data, most))


def main() -> None:
    folder = Path(sys.argv[1])
    for name in ("corpus", "found"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for i, model in enumerate(models.corpus()):
        data = model.SerializeToString()
        if len(data) <= LARGEST:
            (folder / "corpus" / f"begin{i}").write_bytes(data)
    gate = Gate(folder / "found")
    given = [sys.argv[0], str(folder / "corpus"), f"-max_len={LARGEST}", *sys.argv[2:]]
    atheris.Setup(given, gate.try_bytes, custom_mutator=mutated)
    try:
        atheris.Fuzz()
    finally:
        gate.tell()


if __name__ == "__main__":
    main()
