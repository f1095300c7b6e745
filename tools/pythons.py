"""Find the CPythons from 3.11 on that this machine has, and run make on each.

    python tools/pythons.py each TARGET ...    make TARGET on each, in an environment of its own
    python tools/pythons.py other              print one of another version than this one

They are looked for on PATH and in /usr/bin, and among what PYTHONS names: commands or paths,
separated by spaces.  A command may be there and yet not run, as pyenv's are where no version is
chosen, so each is started before it counts.  `each` names the releases of which there is none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MINORS = range(11, 16)
"""The releases 3.N that are looked for: from the first that we support to the latest there is."""

SYSTEM = "/usr/bin/python3"
FOLDERS = ("/usr/bin",)
"""Where to look beside PATH."""

ASK = """
import json, sys
import ensurepip, venv
base = getattr(sys, "_base_executable", "") or sys.executable
print(json.dumps([sys.implementation.name, sys.version_info[:3], base]))
"""

Version = tuple[int, ...]


@dataclass(frozen=True)
class Python:
    version: Version
    executable: str

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))


class UnusableError(Exception):
    """This is no Python that tests can run on; the text says why."""


def main(arguments: list[str]) -> int:
    match arguments:
        case ["other"]:
            return print_other()
        case ["each", _, *_]:
            return make_each(arguments[1:])
    print(__doc__, file=sys.stderr)
    return 2


def print_other() -> int:
    """Print the system's Python if it is another version than this, else the oldest that is."""
    here = sys.version_info[:3]
    pythons, _ = find()
    others = [p for p in pythons if p.version != here]
    system = os.path.realpath(SYSTEM)
    others.sort(key=lambda p: (os.path.realpath(p.executable) != system, p.version))
    for python in others[:1]:
        print(python.executable)
    return 0 if others else 1


def make_each(targets: list[str]) -> int:
    """Run make on every Python, all of them even if one fails; tell what became of each."""
    pythons, absent = find()
    lines = []
    failed = 0
    for python in pythons:
        print(f"── {python.name}: {python.executable} ──", flush=True)
        started = time.perf_counter()
        make = os.environ.get("MAKE", "make")
        command = [make, *targets, f"PYTHON={python.executable}", f"VENV=.venv/{python.name}"]
        status = subprocess.run(command).returncode
        failed += status != 0
        seconds = time.perf_counter() - started
        result = f"failed, status {status}" if status else "passed"
        lines.append(f"{python.name:<8} {result} in {seconds:.0f} s   ({python.executable})")
    print(*lines, *absent, sep="\n")
    return 1 if failed or not pythons else 0


def find() -> tuple[list[Python], list[str]]:
    """Return the first Python of each version, and a line on each release that there is none of."""
    pythons: dict[Version, Python] = {}
    refusals: dict[str, list[str]] = {}
    for command in candidates():
        try:
            python = ask(command)
        except UnusableError as error:
            refusals.setdefault(Path(command).name, []).append(f"{command}: {error}")
        else:
            pythons.setdefault(python.version, python)
    absent = []
    for minor in MINORS:
        if not any(version[:2] == (3, minor) for version in pythons):
            reasons = refusals.pop(f"python3.{minor}", ["not found"])
            absent.append(f"3.{minor:<6} {'; '.join(reasons)}")
    for name in named():
        absent += refusals.get(Path(name).name, [])
    return [pythons[version] for version in sorted(pythons)], absent


def candidates() -> Iterator[str]:
    """Yield every command that may be a Python, those that are asked for by name first."""
    yield from named()
    folders = dict.fromkeys([*os.get_exec_path(), *FOLDERS])
    for name in [f"python3.{minor}" for minor in MINORS] + ["python3"]:
        for folder in folders:
            if path := shutil.which(name, path=folder):
                yield path


def named() -> list[str]:
    return os.environ.get("PYTHONS", "").split()


def ask(command: str) -> Python:
    """Start a Python and let it tell what it is."""
    chosen = Path(command).name.removeprefix("python")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    if chosen.startswith("3."):
        environment["PYENV_VERSION"] = chosen  # a name on PATH that pyenv has put there needs it
    try:
        done = subprocess.run(
            [os.path.expanduser(command), "-c", ASK], env=environment, capture_output=True,
            text=True, timeout=60, check=True,
        )  # fmt: skip
        kind, version, executable = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"status {error.returncode}"]
        raise UnusableError(f"does not run ({said[-1 if 'Error' in said[-1] else 0]})") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise UnusableError(f"does not run ({error})") from error
    if kind != "cpython" or tuple(version[:2]) < (3, MINORS[0]):
        raise UnusableError(f"is {kind} {'.'.join(map(str, version))}")
    return Python(tuple(version), executable)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
