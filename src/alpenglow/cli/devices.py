"""`alpenglow devices`: which OpenCL devices are here, and what they reach."""

from __future__ import annotations

from dataclasses import asdict

import click

from alpenglow.cli.help import Command
from alpenglow.cli.output import examples, show, table
from alpenglow.driver.progress import reporter
from alpenglow.machines.opencl.device import device_of
from alpenglow.machines.opencl.devices import DeviceFacts, devices, find
from alpenglow.measure.opencl import bandwidth, peak


@click.command(
    "devices",
    cls=Command,
    epilog=examples("""
alpenglow devices
alpenglow devices nvidia
alpenglow devices --no-measure --json
"""),
)
@click.argument("device", default="")
@click.option("--measure/--no-measure", default=True, show_default=True,
              help="Measure memory bandwidth and multiply-adds, about one second for each device.")
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON, with all properties of the devices.")
def command(device: str, measure: bool, as_json: bool) -> None:
    """List the OpenCL devices of this machine, or one device by number or name.

    Each device is a target: compile for opencl:0, or for a part of its name, opencl:nvidia.
    """
    here = [find(device)] if device else devices()
    report = reporter(measure)
    reached: list[tuple[float, float] | None] = []
    for done, facts in enumerate(here):
        report("measuring devices", done, len(here))
        opened = device_of(facts) if measure else None
        reached.append(None if opened is None else (bandwidth(opened), peak(opened)))
    report("measuring devices", len(here), len(here))
    rows = list(zip(here, reached, strict=True))
    show({"devices": [_listed(*row) for row in rows]}, _lines(rows), as_json)


def _listed(facts: DeviceFacts, reached: tuple[float, float] | None) -> dict[str, object]:
    copied, computed = reached or (None, None)
    return {
        "target": facts.target, **asdict(facts),
        "bytes_per_second": copied, "operations_per_second": computed,
    }  # fmt: skip


def _lines(rows: list[tuple[DeviceFacts, tuple[float, float] | None]]) -> list[str]:
    head = ("target", "kind", "units", "memory", "GB/s", "GFLOP/s", "name", "driver", "has")
    lines = [head]
    for facts, reached in rows:
        copied, computed = (f"{x / 1e9:.0f}" for x in reached) if reached else ("", "")
        memory = f"{facts.memory_nbytes / 2**30:.1f} GB"
        driver = f"{facts.platform} {facts.driver}"
        lines.append((facts.target, facts.kind, str(facts.units), memory, copied, computed,
                      facts.name, driver, _extras(facts)))  # fmt: skip
    return table(lines, frozenset(range(2, 6)))


def _extras(facts: DeviceFacts) -> str:
    """Return what a device has beside the plainest, as words."""
    named = {
        "fp16": facts.fp16, "fp64": facts.fp64, "dot product": facts.integer_dot,
        "command buffers": facts.command_buffers,
        f"subgroups of {'/'.join(map(str, facts.subgroups))}": bool(facts.subgroups),
    }  # fmt: skip
    return ", ".join(word for word, there in named.items() if there)
