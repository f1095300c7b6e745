"""`alpenglow place`: workers as text, and what is printed and written."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_place import layers

import alpenglow as ag
from alpenglow.base.errors import OptionError
from alpenglow.cli.place import parse_worker
from alpenglow.host.worker import Link, Worker
from alpenglow.measure import reach
from command import alpenglow, answer


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "layers.onnx"
    ag.export_onnx(layers(4), path)
    return path


def test_it_prints_stages_and_reasons_and_writes_the_placement(model: Path) -> None:
    to = model.with_suffix(".txt")
    workers = "--worker left=cpu --worker right=cpu --goal throughput --estimate"
    result = alpenglow(f"place {model} {workers} -o {to}")
    told = answer(f"place {model} {workers} --json")

    assert "to balance left" in result.stdout and "a request takes" in result.stdout
    assert [s["worker"] for s in told["stages"]] == ["left", "right"]
    assert ag.Placement.parse(to.read_text()) == ag.Placement.parse(told["text"])


def test_workers_are_read_from_text() -> None:
    cpu = ag.Target.parse("cpu")
    text = "a=cpu,threads=2,memory=2MB,delay=1.5ms,bandwidth=1GB"

    assert parse_worker("a=cpu") == Worker("a", cpu)
    assert parse_worker(text) == Worker("a", cpu, 2, 2_000_000, Link(1.5e-3, 1e9))


@pytest.mark.parametrize("text, message", [
    ("cpu", "expected NAME=TARGET"),
    ("a=cpu,speed=3", "'speed=3' is given, expected threads=N"),
    ("a=cpu,threads=1,threads=2", "at most once"),
    ("a=cpu,threads=two", "threads is 'two'"),
    ("a=cpu,memory=0", "memory is '0'"),
    ("a=cpu,delay=soon", "delay is 'soon'"),
    ("a b=cpu", "called 'a b'"),
])  # fmt: skip
def test_workers_that_are_none_are_told(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_worker(text)


def test_a_pin_without_a_worker_is_told(model: Path) -> None:
    result = alpenglow(f"place {model} --worker a=cpu --estimate --pin r1", 2)

    assert "expected RESULT=WORKER" in result.stderr


def test_a_placement_that_was_written_is_run(model: Path) -> None:
    to = model.with_suffix(".txt")
    alpenglow(f"place {model} --worker a=cpu --worker b=cpu --goal throughput --estimate -o {to}")
    whole, parts = (answer(f"run {model} {more}") for more in ("", f"--placement {to}"))
    broken = model.with_suffix(".broken")
    broken.write_text(to.read_text().replace("stage a", "stage nobody"))

    assert parts == whole
    assert "expected workers" in alpenglow(f"run {model} --placement {broken}", 2).stderr
    assert "expected a placement" in alpenglow(f"run {model} --placement none.txt", 2).stderr
    told = alpenglow(f"run {model} --placement {to} --timeout 1", 2).stderr
    assert "--timeout with --placement is not supported" in told


def test_a_machine_of_which_nothing_is_known_is_not_estimated(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "bandwidth_of", lambda target, threads: float("inf"))
    result = alpenglow(f"place {model} --worker a=cpu --worker b=cpu --estimate", 2)
    assert "worker 'a' cannot be estimated: the peak and the memory bandwidth" in result.stderr
    assert "try: leave --estimate out" in result.stderr
