"""Record which functions of the package each test executes, and how long each test takes.

    python tools/record.py [--into FOLDER] [-- ARGUMENTS OF PYTEST]

Each function of the package sets a byte when it is called (`functions.marked`), also in processes
that tests start.  `tools/changed.py` chooses tests by the record.
"""

from __future__ import annotations

import argparse
import json
import marshal
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flaky import MARKS
from functions import ROOT, marked, module, sources

FOLDER = ROOT / ".venv" / "reached"
FILE = "record.npz"
RECORDING = Path(__file__).resolve().with_name("recording")


@dataclass(frozen=True)
class Record:
    """For each test its seconds of cores, whether it started a process that marks nothing, and a
    row of bits: the functions that it executed, or for a test file, that its import executed."""

    functions: tuple[str, ...]
    tests: tuple[str, ...]
    seconds: npt.NDArray[np.float32]
    unseen: npt.NDArray[np.bool_]
    bits: npt.NDArray[np.uint8]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each function, which is called `FILE:NAME`, FILE below the package."""
        return {name: k for k, name in enumerate(self.functions)}

    def reaching(self, function: int) -> npt.NDArray[np.bool_]:
        """Return for each test whether it executed a function."""
        column: npt.NDArray[np.bool_] = (self.bits[:, function // 8] >> (7 - function % 8)) & 1 > 0
        return column

    def save(self, path: Path) -> None:
        names = np.array(json.dumps([self.functions, self.tests]))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            np.savez_compressed(
                file, names=names, seconds=self.seconds, unseen=self.unseen, bits=self.bits
            )
        os.replace(file.name, path)


def load(path: Path) -> Record:
    """Return the record of a file."""
    with np.load(path) as file:
        functions, tests = json.loads(str(file["names"]))
        return Record(tuple(functions), tuple(tests), file["seconds"], file["unseen"], file["bits"])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Record which functions each test executes.")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="reached-") as scratch:
        names = mark(Path(scratch), sources())
        status = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "reached", "-q", "-m", MARKS, *options.pytest],
            env=environment(Path(scratch)), cwd=ROOT, check=False,
        ).returncode  # fmt: skip
        record = gathered(names, lines(Path(scratch)))
    record.save(options.into / FILE)
    print(f"record.py: {len(record.tests)} tests and test files, {len(names)} functions, "
          f"{record.seconds.sum():.0f} s of cores: {options.into / FILE}")  # fmt: skip
    return status


def mark(folder: Path, paths: Iterable[Path]) -> list[str]:
    """Write the marked code of files into a folder; return the names of all their functions."""
    names: list[str] = []
    (folder / "code").mkdir()
    for path in paths:
        code, here = marked(path, len(names))
        names += [f"{path.relative_to(ROOT).as_posix()}:{name}" for name in here]
        (folder / "code" / module(path)).write_bytes(marshal.dumps(code))
    (folder / "size").write_text(str(len(names)))
    return names


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a recorded run."""
    paths = [str(RECORDING), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "REACHED_FOLDER": str(folder), "PYTHONPATH": os.pathsep.join(paths)}


Line = tuple[str, float, int, list[int]]


def lines(folder: Path) -> Iterable[Line]:
    """Yield what the processes of a run have written."""
    for path in sorted(folder.glob("lines-*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def gathered(functions: Sequence[str], written: Iterable[Line]) -> Record:
    """Return a record; of a test that was written twice, all functions of both."""
    rows: dict[str, tuple[float, bool, npt.NDArray[np.bool_]]] = {}
    for name, seconds, unseen, reached in written:
        row = np.zeros(len(functions), np.bool_)
        row[reached] = True
        if name in rows:
            seconds = max(seconds, rows[name][0])
            unseen, row = bool(unseen) or rows[name][1], row | rows[name][2]
        rows[name] = seconds, bool(unseen), row
    width = (len(functions) + 7) // 8
    return Record(
        tuple(functions),
        tuple(rows),
        np.array([r[0] for r in rows.values()], np.float32),
        np.array([r[1] for r in rows.values()], np.bool_),
        np.array([np.packbits(r[2]) for r in rows.values()]).reshape(len(rows), width),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
