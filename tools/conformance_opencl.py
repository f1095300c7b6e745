"""Run ONNX's node tests through OpenCL on every runtime that is here, and write how that went.

    python tools/conformance_opencl.py --jobs 2
    python tools/conformance_opencl.py --target opencl-gpu:intel --every 20

Without --every and --target it writes docs/conformance-opencl.md.  Each target is tried by
`alpenglow test-machine`, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from alpenglow.machines.opencl.devices import DeviceFacts, devices

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance-opencl.md"
WAYS = ("opencl-cpu", "opencl-gpu")

HEAD = """\
# Conformance: OpenCL

*Reference.*  Results of ONNX's tests of single nodes on OpenCL.  For users of OpenCL devices.
Index: [index](index.md).

The tests of single nodes that onnx brings, on the OpenCL runtimes of one machine.  Both are for
processors, so `opencl` is `opencl-cpu` there: kernels that keep vectors in registers and take a
part of a loop for each core.  `opencl-gpu` is what a GPU runs: a grid with a thread for each
element, shared memory and barriers.  No GPU has run it.  All is compiled under strict numerics.

*Equal* are results with the bits that onnx expects, *near* those within the test's tolerance.  Of
these, what is *in part on the host* had an instruction without a kernel.  Tests that say nothing of
who fails them are left out: their random numbers differ, or see [conformance.md](conformance.md).

`make conformance-opencl` runs the tests and writes this page.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, print how many passed, and write the page if all ran."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", action="append", default=[], help="a target alone")
    parser.add_argument("--every", type=int, default=1, help="each N-th test only")
    parser.add_argument("--jobs", type=int, default=1, help="targets that run at once")
    options = parser.parse_args(arguments)
    here = devices()
    targets = options.target or [f"{way}:{d.index}" for d in here for way in WAYS]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda target: tried(target, options.every), targets))
    lines = page(results, here)
    print("\n".join(lines))
    if options.every == 1 and not options.target:
        PAGE.write_text("\n".join([HEAD, *lines, ""]))
    return 0


def tried(target: str, every: int) -> dict[str, Any]:
    """Return what `alpenglow test-machine` tells of a target, and the seconds that it took."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "alpenglow", "test-machine", target, "--nodes", "--json",
               "--every", str(every)]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    print(f"{target}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return result


def page(results: list[dict[str, Any]], here: list[DeviceFacts]) -> list[str]:
    """Return the tables: of targets, and of what did not pass."""
    names = {str(d.index): f"{d.platform}, {d.driver}" for d in here}
    lines = ["| target | runtime | tests | equal | near | refused | wrong | in part on the host |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in results:
        way, _, index = r["target"].partition(":")
        rows = r["operators"]
        counts = {k: sum(row[k] for row in rows)
                  for k in ("equal", "near", "refused", "wrong", "interpreted")}  # fmt: skip
        tests = sum(counts[k] for k in ("equal", "near", "refused", "wrong"))
        runtime = names.get(index, index)
        lines.append(f"| {way} | {runtime} | {tests} | {' | '.join(map(str, counts.values()))} |")
    lines += ["", f"{len(results[0]['undecided'])} tests are left out.", "", "## What did not pass"]
    failures = [(r["target"], f) for r in results for f in r["failures"]]
    lines += ["", *(f"- {target}: `{f['case']}` is {f['verdict']}: {reason(f['detail'])}"
                    for target, f in failures)] if failures else ["", "Nothing."]  # fmt: skip
    return lines


def reason(detail: str) -> str:
    """Return the beginning of why a test did not pass, without the names of files here."""
    first = re.sub(r"\S*/\S+", "…", detail.splitlines()[0])
    return first[:160]


if __name__ == "__main__":
    sys.exit(main())
