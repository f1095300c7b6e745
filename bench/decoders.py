"""The process of a runtime that decodes: how each takes a prompt and then single tokens.

    python decoders.py NAME FOLDER THREADS STEPS LENGTH

It is run by whichever Python has the runtime; `llama.mjs` is the same for one that Node has.  The
first line on stdout says what runs.  Each line on stdin is a prompt, tokens in JSON, and is
answered by a line: the seconds of the prompt, those of a step after it (the median of STEPS), and
the token after the prompt.  LENGTH is how many tokens there are at most.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np

Run = Callable[[list[int]], tuple[list[float], int]]
"""Takes a prompt and then steps; returns when it began and when each of their tokens was there, and
the first one."""


@dataclass(frozen=True)
class Task:
    """A decoder, and how it is to be run."""

    folder: Path
    threads: int
    steps: int
    length: int


def ours(task: Task) -> tuple[str, Run]:
    ag = import_module("alpenglow")
    # Generation asks for no more, of us as of others: what a prompt ends with.
    exe = ag.compile(task.folder / "model.onnx", threads=task.threads, state=True, last=["logits"])
    session = exe.session(length=task.length)

    def run(prompt: list[int]) -> tuple[list[float], int]:
        session.reset()
        times, tokens = [time.perf_counter()], []
        ids = np.array([prompt], np.int64)
        for _ in range(task.steps + 1):
            mask = np.ones((1, session.rows + ids.shape[1]), np.int64)
            logits = session.run({"input_ids": ids, "attention_mask": mask})["logits"]
            ids = logits[:, -1:].argmax(-1).astype(np.int64)
            times.append(time.perf_counter())
            tokens.append(int(ids[0, 0]))
        assert np.isfinite(logits).all(), "the weights are such that logits are finite"
        return times, tokens[0]

    return f"Alpenglow {ag.__version__}", run


def genai(task: Task) -> tuple[str, Run]:
    """Its threads are those of its process."""
    og = import_module("onnxruntime_genai")
    config = og.Config(str(task.folder))
    settings = {"intra_op_num_threads": task.threads}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": settings}}}))
    model = og.Model(config)

    def run(prompt: list[int]) -> tuple[list[float], int]:
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(max_length=task.length, do_sample=False)
        generator = og.Generator(model, parameters)
        times = [time.perf_counter()]
        generator.append_tokens(np.array([prompt], np.int32))
        for _ in range(task.steps + 1):
            generator.generate_next_token()
            times.append(time.perf_counter())
        return times, int(generator.get_sequence(0)[len(prompt)])

    return f"onnxruntime-genai {version('onnxruntime-genai')}", run


def openvino(task: Task) -> tuple[str, Run]:
    ov, og = import_module("openvino"), import_module("openvino_genai")
    scheduler = og.SchedulerConfig()
    # All of a prompt at once, and nothing of an earlier one.
    scheduler.max_num_batched_tokens = task.length
    scheduler.enable_prefix_caching = False
    pipeline = og.LLMPipeline(
        str(task.folder / "model.gguf"), "CPU", scheduler_config=scheduler,
        INFERENCE_NUM_THREADS=task.threads,
        # The process is pinned already.
        ENABLE_CPU_PINNING=False,
    )  # fmt: skip
    config = og.GenerationConfig(
        max_new_tokens=task.steps + 1, ignore_eos=True, do_sample=False, apply_chat_template=False
    )

    def run(prompt: list[int]) -> tuple[list[float], int]:
        times = [time.perf_counter()]

        def write(_: object, token: int | list[int]) -> object:
            times.append(time.perf_counter())
            return og.StreamingStatus.RUNNING

        clock = type("Clock", (og.StreamerBase,), {"write": write, "end": lambda _: None})()
        answer = pipeline.generate(ov.Tensor(np.array([prompt], np.int64)), config, clock)
        return times, int(answer.tokens[0][0])

    return f"openvino-genai {version('openvino-genai')}", run


RUNTIMES: dict[str, Callable[[Task], tuple[str, Run]]] = {
    "ours": ours,
    "genai": genai,
    "openvino": openvino,
}


def main() -> None:
    name, folder, *numbers = sys.argv[1:]
    task = Task(Path(folder), *map(int, numbers))
    who, run = RUNTIMES[name](task)
    print(json.dumps(who), flush=True)
    for line in sys.stdin:
        times, token = run(json.loads(line))
        first, *steps = np.diff(times).tolist()
        assert len(steps) == task.steps, "there is a time for each token"
        print(json.dumps([first, statistics.median(steps), token]), flush=True)


if __name__ == "__main__":
    main()
