"""`alpenglow devices`: the devices that are here, as lines and as JSON."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from alpenglow.cli import cli


def ran(*words: str) -> Result:
    return CliRunner().invoke(cli, ["devices", *words])


def test_help_has_examples() -> None:
    result = ran("--help")

    assert result.exit_code == 0
    assert "alpenglow devices --no-measure --json" in result.stdout


@pytest.mark.opencl
def test_devices_are_lines_with_what_they_reach() -> None:
    result = ran("pocl")

    assert result.exit_code == 0
    head, row = (line.split() for line in result.stdout.splitlines())
    assert head[:6] == ["target", "kind", "units", "memory", "GB/s", "GFLOP/s"]
    assert row[0].startswith("opencl:")
    assert min(float(row[5]), float(row[6])) > 0


@pytest.mark.opencl
def test_json_has_all_that_they_say() -> None:
    result = ran("--no-measure", "--json")
    first, *rest = json.loads(result.stdout)["devices"]

    assert (first["target"], first["index"], first["bytes_per_second"]) == ("opencl:0", 0, None)
    assert rest


@pytest.mark.opencl
def test_a_device_that_is_not_here_is_the_users_mistake() -> None:
    result = ran("nobody")

    assert result.exit_code == 2
    assert "error: OpenCL device is 'nobody', expected one of 0 (" in result.stderr
