"""The smallest networks of the zoo: with extents bound and open, what ONNX Runtime answers."""

from __future__ import annotations

import sys

import pytest

import alpenglow as ag
import models

sys.path.insert(0, str(models.ROOT / "tools"))

import zoo
import zoo_measure

pytestmark = pytest.mark.models


def fetched(name: str) -> zoo.Network:
    network = zoo.networks()[name]
    if not zoo.is_here(network):
        raise models.NotFetchedError(f"{network.file}; run `python tools/zoo.py fetch`")
    return network


def answers(name: str, exe: ag.Executable, feeds: zoo_measure.Feeds) -> zoo_measure.Row:
    network = fetched(name)
    feeds = {k: zoo_measure.unpacked(v) for k, v in feeds.items()}
    expected = zoo_measure.session(network.file, False).run(None, feeds)
    return zoo_measure.agreement(list(exe.run(feeds).values()), expected, network.weights)


@pytest.mark.parametrize("name", zoo.SAMPLE)
@pytest.mark.rest
def test_a_network_with_bound_extents_agrees(name: str) -> None:
    network = fetched(name)
    feeds = next(zoo.inputs(network, {}))
    exe = ag.compile(network.file, shapes={k: v.shape for k, v in feeds.items()})

    row = answers(name, exe, feeds)

    assert row["agrees"], row["words"]


@pytest.mark.parametrize("name", zoo.SAMPLE)
@pytest.mark.sampled(0, "whisper_silero_v6")
def test_a_network_with_open_extents_agrees_for_each_size(name: str) -> None:
    exe = ag.compile(fetched(name).file)

    rows = [answers(name, exe, feeds) for feeds in zoo.inputs(fetched(name), {})]

    assert all(row["agrees"] for row in rows), rows
    assert len(rows) > 1


def test_open_extents_are_timed_with_the_last_of_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    network = fetched("whisper_silero_v6")
    inputs = list(zoo.inputs(network, {}))
    row: zoo_measure.Row = {}
    timed = zoo_measure.timed
    fed = []
    monkeypatch.setattr(zoo_measure, "SECONDS", 0)
    monkeypatch.setattr(zoo_measure, "timed", lambda *of: fed.append(of[1]) or timed(*of))

    zoo_measure.extents_open(network.file, network.weights, inputs, row)

    assert fed == [inputs[-1]]
    assert row["ms"] > 0
    assert row["peer_ms"] > 0
