"""Archives of staged models that are damaged: found as they are read, by an error of ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import alpenglow as ag
from alpenglow.base.errors import IncompatibleError, ModelError
from alpenglow.machines.api import CONVENTION
from alpenglow.runtime.archive import archive
from alpenglow.runtime.staged.kept import StagedArchive
from fuzz.damage import damaged_archive, replace
from staged_cases import (
    CASES,
    GOES,
    GOES_ON,
    I64,
    ITERATION,
    Feeds,
    count,
    graph,
    info,
    model,
    node,
    numbers,
)

pytestmark = pytest.mark.usefixtures("own_cache", "loops_in_parts")


def saved(made: onnx.ModelProto, calls: Sequence[Feeds]) -> bytes:
    """Return the archive of a model after calls."""
    exe = ag.compile(made)
    for feeds in calls:
        exe.run(feeds)
    return archive.to_bytes(exe.archived())


@pytest.mark.parametrize("name", ["sequences", "nested_loops", "suppression", "scan"])
def test_any_damage_is_found(name: str, tmp_path: Path) -> None:
    """A changed bit is found, or lies in padding and changes nothing."""
    path = tmp_path / "model.ago"
    case = CASES[name]
    feeds = case.calls()[0]
    data = saved(case.model(), [feeds])
    expected = ag.open(data).run(feeds)
    rng = random.Random(0)
    noticed = 0
    for _ in range(60):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            for output, y in ag.open(path).run(feeds).items():
                np.testing.assert_array_equal(expected[output], y)
        except (ModelError, IncompatibleError) as error:
            noticed += 1
            assert str(path) in str(error)

    assert noticed > 40


@pytest.mark.parametrize("name", ["sequences", "nested_loops", "scan", "reshape"])
def test_stages_of_other_kinds_are_damage(name: str) -> None:
    """The digests are made right, so that only what the stages say is wrong."""
    case = CASES[name]
    data = saved(case.model(), case.calls()[:2])
    refused = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        times = int(rng.integers(1, 3))
        try:
            archive.read(with_stages(data, lambda rows: [replace(rng, rows) for _ in range(times)]))
        except (ModelError, IncompatibleError):
            refused += 1

    assert isinstance(archive.read(with_stages(data, lambda rows: None)), StagedArchive)
    assert refused > 75


def change(place: str, value: Any) -> Callable[[Any], None]:
    """Return what puts a value in a place, as ``0 stages 0 needs``, of models."""

    def act(models: Any) -> None:
        *keys, last = [int(k) if k.isdecimal() else k for k in place.split()]
        for key in keys:
            models = models[key]
        models[last] = value

    return act


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        # A loop that is its own body.
        ("0 stages 0 bodies 0", 0, "the number is 0, expected an integer from 1"),
        ("0 stages 0 after", 0, "the number is 0, expected an integer from -1 to -1"),
        ("0 stages 0 artifacts", 9, "other bodies or programs"),
        ("0 stages 0 graph", None, "expected fixed dimensions"),
        ("0 stages 0 inputs", {}, "other inputs or outputs"),
        ("0 stages 0 guards", [["N", "??"]], "the relation is"),
        ("0 stages 0 others", {}, "the kinds of operands"),
        ("0 stages 0 elements", {"x": {"shape": [0], "extents": []}}, "reads other values"),
        ("0 stages 0 elements", {"x": []}, "elements of a value are a list"),
        ("0 stages 0 values", {"N": True}, "expected an object"),
        ("0 constants", {"c": 1}, "contents of a value"),
        ("1 inputs", {}, "other inputs or results"),
        ("1 outputs", {}, "other inputs or results"),
        ("0 kinds", {"x": {"what": "box"}}, "expected tensor, sequence"),
        ("0 kinds", {"x": {"what": "tensor", "dtype": "f33"}}, "expected string or one of"),
        ("0 untold", [[["f33"]]], "f33"),
    ],
)
def test_damage_to_stages_says_what_is_wrong(place: str, value: Any, said: str) -> None:
    data = saved(squared(), [{"x": numbers(3), "n": count(2)}])
    with pytest.raises(ModelError, match=f"the archive is damaged: .*{said}"):
        ag.open(with_stages(data, change(place, value)))


def test_symbols_of_which_nothing_is_told_are_not_asked_about() -> None:
    case = CASES["nested_loops"]  # its products ask whether extents are the same
    data = saved(case.model(), case.calls()[:1])

    def forget(models: Any) -> None:
        for stage in (s for m in models for s in m["stages"] if s["graph"]):
            stage["values"] = dict.fromkeys(["other"], 1)

    with pytest.raises(IncompatibleError, match="has no value"):
        ag.open(with_stages(data, forget))


def squared() -> onnx.ModelProto:
    """Return a model whose first part has a graph with open extents, and a loop behind it."""
    body = graph(
        [node("Mul", ["acc", "acc"], ["acc2"]), GOES_ON], [*ITERATION, info("acc")], [GOES, "acc2"]
    )
    nodes = [node("Neg", ["x"], ["a"]), node("Loop", ["n", "", "a"], ["y"], body=body)]
    return model(nodes, [info("x", ["N"]), info("n", (), I64)], ["y"])


def test_a_header_of_other_kinds_is_damage() -> None:
    data = saved(squared(), [{"x": numbers(3), "n": count(2)}])
    for seed in range(60):
        with contextlib.suppress(ModelError, IncompatibleError):
            archive.read(damaged_archive(seed, data)[1])


def with_stages(data: bytes, change: Callable[[Any], object]) -> bytes:
    """Return an archive whose stages are changed, and all digests right."""
    size = archive.PREFIX.unpack(data[: archive.PREFIX.size])[3]
    end = archive.PREFIX.size + size
    fields = json.loads(data[archive.PREFIX.size : end])
    body = data[end + -end % 64 :]
    place = fields["sections"]["stages"]
    models = json.loads(body[place["offset"] :][: place["nbytes"]])
    change(models)
    section = json.dumps(models).encode()
    # They stand behind all else, and the old ones stay where they were.
    place |= {"offset": len(body), "nbytes": len(section)}
    place["sha256"] = hashlib.sha256(section).hexdigest()
    body += section + bytes(-len(section) % 64)
    fields["nbytes"] = len(body)
    header = json.dumps(fields).encode()
    digest = hashlib.sha256(header).digest()
    prefix = archive.PREFIX.pack(archive.MAGIC, archive.FORMAT, CONVENTION, len(header), digest)
    return prefix + header + bytes(-len(header) % 64) + body
