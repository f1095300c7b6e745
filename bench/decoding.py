"""Decoding, token by token, beside other runtimes; prints a table in Markdown.

    python bench/decoding.py FOLDER [--threads 1,2] [--rounds N] [--peers genai,llama,openvino]

FOLDER holds what `tools/make_decoder.py` writes; for runtimes that read GGUF the same weights are
written as that beside it.  Each runtime is a process of its own, pinned to the same CPUs and
stopped while another runs; in each round all take a prompt and then go on by single tokens, in an
order drawn anew.  Figures are medians over the rounds; a ratio, in brackets, is the median of
*theirs / ours*.  Peers are installed under .bench; what cannot be is said and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import helper

import peers

BENCH = Path(__file__).resolve().parent
HOME = BENCH.parent / ".bench" / "decoders"
PROMPTS = (16, 512, 1000)
STEPS = 20
LENGTH = 2048

TITLES = {"ours": "ours", "genai": "GenAI", "llama": "llama.cpp", "openvino": "OpenVINO GenAI"}
"""The runtimes, and what the table calls them."""

ONNX = ("ours", "genai")
"""Who reads the ONNX file, where a block has a scale of f32; in GGUF it has one of f16."""


class Runtime:
    """A process that decodes; it is stopped but while it is asked."""

    def __init__(self, name: str, command: Sequence[str], cwd: Path | None, threads: int) -> None:
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
        self.name, self.tokens = name, list[int]()
        self.process = subprocess.Popen(
            ["taskset", "-c", cpus, *command, str(threads), str(STEPS), str(LENGTH)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd,
        )  # fmt: skip
        self.who: str = self._answer()
        self.ask([1, 2, 3])
        self.tokens.clear()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, prompt: list[int]) -> tuple[float, float]:
        """Return the seconds of a prompt and those of a step."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(prompt) + "\n")
        self.process.stdin.flush()
        first, step, token = self._answer()
        self.process.send_signal(signal.SIGSTOP)
        self.tokens.append(token)
        return first, step

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended: exit status {self.process.wait()}")
        return json.loads(line)


def commands(names: Sequence[str], folder: Path) -> dict[str, tuple[list[str], Path | None]]:
    """Return what starts each runtime, and where; install those that are not there.

    One that cannot be installed is left out, and it is said why.
    """
    started: dict[str, tuple[list[str], Path | None]] = {}
    served = str(BENCH / "decoders.py")
    for name in names:
        try:
            if name in peers.NODE_DECODERS:
                home = peers.install_for_node(name, HOME)
                started[name] = (["node", str(BENCH / f"{name}.mjs"), str(folder)], home)
                continue
            known = name in peers.DECODERS
            python = peers.install(name, HOME, peers.DECODERS) if known else sys.executable
            started[name] = ([str(python), served, name, str(folder)], None)
        except peers.PeerError as error:
            print(f"{TITLES[name]} is not installed: {error}\n")
    return started


def write_gguf(folder: Path) -> None:
    """Write the weights as GGUF, unless they are there and no older."""
    model, made = folder / "model.onnx", folder / "model.gguf"
    if made.exists() and made.stat().st_mtime >= model.stat().st_mtime:
        return
    tool = BENCH.parent / "tools" / "make_gguf.py"
    subprocess.run([sys.executable, str(tool), str(folder)], check=True)


def measure(runtimes: Mapping[str, Runtime], threads: int, rounds: int) -> None:
    """Print the rows of a table for a number of threads."""
    rng = np.random.default_rng(0)
    for length in PROMPTS:
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in runtimes}
        for turn in range(rounds + 1):
            prompt = rng.integers(3, 1000, length).tolist()
            for name in random.sample(list(runtimes), len(runtimes)):
                answer = runtimes[name].ask(prompt)
                if turn:  # the first is no measurement: code is made, or memory is touched
                    seen[name].append(answer)
        for i, what in enumerate(("prompt", "a token")):
            cells = [_cell([x[i] for x in seen[n]], [x[i] for x in seen["ours"]]) for n in runtimes]
            cells[0], _, _ = cells[0].partition(" ")
            print(f"| {threads} | {length} | {what} | {' | '.join(cells)} |", flush=True)


def _cell(theirs: Sequence[float], own: Sequence[float]) -> str:
    ratio = median(t / o for t, o in zip(theirs, own, strict=True))
    return f"{median(theirs) * 1e3:.2f} ({ratio:.2f})"


def read_a_token(folder: Path) -> dict[str, float]:
    """Return how many bytes of weights each runtime reads for a token, as its file has them."""
    nbytes = dict.fromkeys(TITLES, 0.0)
    for node in onnx.load(folder / "model.onnx", load_external_data=False).graph.node:
        if node.op_type == "MatMulNBits":
            how = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            count = how["K"] * how["N"]
            for name in nbytes:
                scale = 4 if name in ONNX else 2
                nbytes[name] += count * (how["bits"] / 8 + scale / how["block_size"])
    return nbytes


def report(runtimes: Mapping[str, Runtime], nbytes: Mapping[str, float]) -> None:
    """Print what ran, what it reads, and how often it went on as ours did."""
    own = runtimes["ours"].tokens
    for name, runtime in runtimes.items():
        alike = sum(a == b for a, b in zip(runtime.tokens, own, strict=True))
        print(f"- {TITLES[name]}: {runtime.who}; {nbytes[name] / 1e6:.0f} MB of weights a token; "
              f"the first token is ours in {alike} of {len(own)} cases")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="genai,llama,openvino", help="default: %(default)s")
    given: Any = parser.parse_args()
    folder, wanted = given.folder.resolve(), ["ours", *given.peers.split(",")]
    if unknown := set(wanted) - set(TITLES):
        parser.error(f"there is no peer called {', '.join(sorted(unknown))}")
    if set(wanted) - set(ONNX):
        write_gguf(folder)
    started, nbytes = commands(wanted, folder), read_a_token(folder)
    titles = " | ".join(f"{TITLES[name]} ms" for name in started)
    print(f"| threads | tokens before | | {titles} |\n|{'---|' * (3 + len(started))}", flush=True)
    for threads in map(int, given.threads.split(",")):
        with ExitStack() as stack:
            runtimes = {}
            for name, (command, cwd) in started.items():
                runtime = Runtime(name, command, cwd, threads)
                runtimes[name] = stack.enter_context(runtime)
            measure(runtimes, threads, given.rounds)
            last = runtimes
    print()
    report(last, nbytes)


if __name__ == "__main__":
    main()
