"""A decoder as ONNX Runtime GenAI's builder writes it is one graph, for prompts and for steps."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import alpenglow as ag
import models

sys.path.insert(0, str(models.ROOT / "tools"))

import make_decoder

Array = NDArray[Any]

SIZE = make_decoder.Size(
    layers=1, width=64, inner=96, heads=4, groups=2, vocabulary=50, positions=64, accuracy=0
)

TOLERANCE = 1e-5
"""Sums in another order, against the largest element."""


class Conversation:
    """One decoder in two runtimes, which are told the same and must say the same."""

    def __init__(self, path: Path, exe: ag.Executable) -> None:
        self.peer = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.exe = exe
        self.rng = np.random.default_rng(0)

    def begin(self, batch: int, size: make_decoder.Size) -> None:
        """Forget all that was said."""
        self.lengths, self.kept = [0] * batch, 0
        self.past = size.past(batch)

    def say(self, counts: Sequence[int]) -> None:
        """Say so many tokens to each sample, the shorter ones padded behind."""
        rows = max(counts)
        self.lengths = [n + count for n, count in zip(self.lengths, counts, strict=True)]
        total = self.kept + rows
        feeds = {
            "input_ids": self.rng.integers(0, 50, (len(counts), rows)),
            "attention_mask": np.array([[1] * n + [0] * (total - n) for n in self.lengths]),
            **self.past,
        }
        names = [o.name for o in self.peer.get_outputs()]
        expected = dict(zip(names, self.peer.run(None, feeds), strict=True))
        actual = self.exe.run(feeds)

        assert list(actual) == names
        for sample, (count, n) in enumerate(zip(counts, self.lengths, strict=True)):
            self.compare(actual, expected, sample, count, n)
        present = {n: a for n, a in expected.items() if n != "logits"}
        self.past = {n.replace("present", "past_key_values"): a for n, a in present.items()}
        self.kept = total

    def compare(
        self, actual: Mapping[str, Array], expected: Mapping[str, Array], sample: int, count: int,
        length: int,
    ) -> None:  # fmt: skip
        """Compare what counts of a sample: nobody looks at what was padded."""
        for name, wanted in expected.items():
            part = (slice(count),) if name == "logits" else (slice(None), slice(length))
            tolerance = TOLERANCE * np.abs(wanted).max()
            got = actual[name][sample][part]
            np.testing.assert_allclose(got, wanted[sample][part], 0, tolerance, err_msg=name)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_decoder.write(tmp_path_factory.mktemp("decoder"), SIZE)


@pytest.fixture(scope="module")
def exe(path: Path) -> ag.Executable:
    return ag.compile(path)


def test_prompts_and_steps_are_one_graph_of_two_kinds(
    path: Path, exe: ag.Executable, tmp_path: Path
) -> None:
    talk = Conversation(path, exe)
    for length in (5, 9):
        talk.begin(1, SIZE)
        talk.say([length])
        for _ in range(3):
            talk.say([1])

    assert len(exe.artifacts) == 2

    exe.save(tmp_path / "decoder.ago")
    talk.exe = ag.open(tmp_path / "decoder.ago")
    talk.begin(1, SIZE)
    talk.say([7])
    talk.say([1])

    assert len(talk.exe.artifacts) == 2


@pytest.mark.rest
def test_shorter_samples_go_on_where_they_end(path: Path, exe: ag.Executable) -> None:
    talk = Conversation(path, exe)
    talk.begin(2, SIZE)
    talk.say([6, 3])
    for _ in range(3):
        talk.say([1, 1])


@pytest.mark.rest
def test_a_buffer_with_room_for_more_keys_is_imported_anew(path: Path, exe: ag.Executable) -> None:
    """As past_present_share_buffer has it: keys and values are written over those in the buffer."""
    talk = Conversation(path, exe)
    talk.begin(1, SIZE)
    talk.past = SIZE.past(1, 16)
    talk.kept = 0
    for counts in ([5], [1]):
        talk.say(counts)


def test_bytes_are_weights_like_nibbles(tmp_path: Path) -> None:
    size = make_decoder.replace(SIZE, bits=8)
    path = make_decoder.write(tmp_path, size)
    talk = Conversation(path, ag.compile(path))
    talk.begin(1, size)
    talk.say([5])


@pytest.mark.parametrize(("chosen", "level"), [("int8", 4), ("f32", 0)])
@pytest.mark.rest
def test_what_a_caller_says_of_activations_overrules_the_accuracy_level(
    tmp_path: Path, chosen: Literal["int8", "f32"], level: int
) -> None:
    alike = make_decoder.write(tmp_path, make_decoder.replace(SIZE, accuracy=level))
    other = make_decoder.write(tmp_path / "other", make_decoder.replace(SIZE, accuracy=4 - level))
    exe = ag.compile(other, options=ag.Options(activations=chosen))
    exe.save(tmp_path / "decoder.ago")
    feeds = {"input_ids": np.array([[3, 1, 4]]), "attention_mask": np.ones((1, 3), np.int64)}
    feeds |= SIZE.past()
    expected = ag.compile(alike).run(feeds)["logits"]

    np.testing.assert_array_equal(exe.run(feeds)["logits"], expected)
    np.testing.assert_array_equal(ag.open(tmp_path / "decoder.ago").run(feeds)["logits"], expected)
    assert not np.array_equal(ag.compile(other).run(feeds)["logits"], expected)


@pytest.mark.rest
def test_products_that_a_caller_keeps_take_activations_as_they_are(tmp_path: Path) -> None:
    path = make_decoder.write(tmp_path, make_decoder.replace(SIZE, accuracy=0))
    options = ag.Options(activations="int8", keep=("mat_mul",))
    feeds = {"input_ids": np.array([[3, 1, 4]]), "attention_mask": np.ones((1, 3), np.int64)}
    feeds |= SIZE.past()
    expected = ag.compile(path).run(feeds)["logits"]

    np.testing.assert_array_equal(ag.compile(path, options=options).run(feeds)["logits"], expected)
