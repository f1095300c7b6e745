"""Decoding, token by token, beside ONNX Runtime GenAI; prints a table in Markdown.

    python bench/decoding.py FOLDER [--threads 1,2] [--rounds N] [--python PYTHON]

FOLDER holds what `tools/make_decoder.py` writes.  Each runtime is a process of its own, pinned to
the same CPUs and stopped while the other runs; in each round both take a prompt and then go on by
single tokens, in an order drawn anew.  Figures are medians over the rounds.  GenAI is installed
under .bench, or it is what PYTHON has.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

HOME = Path(__file__).resolve().parent.parent / ".bench" / "genai"
PACKAGES = ("onnxruntime-genai==0.18.0", "numpy")
PROMPTS = (16, 512, 1000)
STEPS = 20
LENGTH = 2048


def ours(folder: Path, threads: int) -> Callable[[list[int]], tuple[float, list[float]]]:
    """Return what takes a prompt and then STEPS tokens, and how long each took."""
    ag = import_module("alpenglow")

    exe = ag.compile(folder / "model.onnx", threads=threads, state=True)
    session = exe.session(length=LENGTH)

    def run(prompt: list[int]) -> tuple[float, list[float]]:
        session.reset()
        seconds = []
        ids = np.array([prompt], np.int64)
        for step in range(STEPS + 1):
            begin = time.perf_counter()
            mask = np.ones((1, session.rows + ids.shape[1]), np.int64)
            logits = session.run({"input_ids": ids, "attention_mask": mask})["logits"]
            ids = logits[:, -1:].argmax(-1).astype(np.int64)
            seconds.append(time.perf_counter() - begin)
            assert step or np.isfinite(logits).all()
        return seconds[0], seconds[1:]

    return run


def genai(folder: Path, threads: int) -> Callable[[list[int]], tuple[float, list[float]]]:
    """Return the same for ONNX Runtime GenAI; its threads are those of its process."""
    onnxruntime_genai = import_module("onnxruntime_genai")

    config = onnxruntime_genai.Config(str(folder))
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {
        "intra_op_num_threads": threads}}}}))  # fmt: skip
    model = onnxruntime_genai.Model(config)

    def run(prompt: list[int]) -> tuple[float, list[float]]:
        parameters = onnxruntime_genai.GeneratorParams(model)
        parameters.set_search_options(max_length=LENGTH, do_sample=False)
        generator = onnxruntime_genai.Generator(model, parameters)
        begin = time.perf_counter()
        generator.append_tokens(np.array([prompt], np.int32))
        generator.generate_next_token()
        first = time.perf_counter() - begin
        seconds = []
        for _ in range(STEPS):
            begin = time.perf_counter()
            generator.generate_next_token()
            seconds.append(time.perf_counter() - begin)
        return first, seconds

    return run


def serve(name: str, folder: Path, threads: int) -> None:
    """Answer prompts on stdin, a line each, with times in seconds."""
    run = {"ours": ours, "genai": genai}[name](folder, threads)
    for line in sys.stdin:
        first, steps = run(json.loads(line))
        print(json.dumps([first, statistics.median(steps)]), flush=True)


class Runtime:
    """A process that serves; it is stopped but while it is asked."""

    def __init__(self, name: str, python: str, folder: Path, threads: int) -> None:
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
        command = ["taskset", "-c", cpus, python, __file__, str(folder)]
        command += ["--serve", name, "--threads", str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ask([1, 2, 3])

    def ask(self, prompt: list[int]) -> list[float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(prompt) + "\n")
        self.process.stdin.flush()
        answer: list[float] = json.loads(self.process.stdout.readline())
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(folder: Path, pythons: dict[str, str], threads: int, rounds: int) -> None:
    """Print the rows of a table for a number of threads."""
    runtimes = {name: Runtime(name, python, folder, threads) for name, python in pythons.items()}
    rng = np.random.default_rng(0)
    try:
        for length in PROMPTS:
            seen: dict[str, list[list[float]]] = {name: [] for name in runtimes}
            for turn in range(rounds + 1):
                prompt = rng.integers(0, 1000, length).tolist()
                for name in random.sample(list(runtimes), len(runtimes)):
                    answer = runtimes[name].ask(prompt)
                    if turn:  # the first is no measurement: code is made, or memory is touched
                        seen[name].append(answer)
            for i, what in enumerate(("prompt", "a token")):
                middle = {n: statistics.median(x[i] for x in seen[n]) * 1e3 for n in runtimes}
                pairs = zip(seen["genai"], seen["ours"], strict=True)
                ratio = statistics.median(theirs[i] / own[i] for theirs, own in pairs)
                print(f"| {threads} | {length} | {what} | {middle['ours']:.2f} | "
                      f"{middle['genai']:.2f} | {ratio:.2f} |", flush=True)  # fmt: skip
    finally:
        for runtime in runtimes.values():
            runtime.end()


def installed() -> str:
    """Return the Python of an environment that has GenAI."""
    python = HOME / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", help="one that has onnxruntime-genai")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given: Any = parser.parse_args()
    if given.serve:
        serve(given.serve, given.folder, int(given.threads))
        return
    pythons = {"ours": sys.executable, "genai": given.python or installed()}
    print("| threads | tokens before | | ours ms | GenAI ms | ratio |\n|---|---|---|---|---|---|")
    for threads in map(int, given.threads.split(",")):
        measure(given.folder, pythons, threads, given.rounds)


if __name__ == "__main__":
    main()
