"""How close the memory planner comes to the lower bound on recorded traces, beside Glow's planner.

Prints a line for each trace, then totals.  The milliseconds are of one run without repetition.
"""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path
from time import perf_counter

from alpenglow.program.offsets import assign_offsets

TESTS = Path(__file__).resolve().parent.parent / "tests"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "traces",
        nargs="?",
        type=Path,
        default=TESTS / "data" / "memory_traces.txt",
        help="a file in the format of tests/data/memory_traces.txt, which is the default",
    )
    parser.add_argument("--model", default="", help="only traces whose name contains this text")
    options = parser.parse_args()

    # The tests own the reader, because they are shipped without the benchmarks.
    reader = runpy.run_path(str(TESTS / "program/test_offsets.py"), run_name="traces")
    read_traces = reader["read_traces"]
    begin = perf_counter()
    traces = [t for t in read_traces(options.traces.read_text()) if options.model in t.name]
    parse_seconds = perf_counter() - begin

    print(f"{'trace':34}{'blocks':>7}{'bound':>11}{'peak':>11}{'eff':>7}{'Glow':>7}{'ms':>8}")
    optimal = better = 0
    total_seconds = 0.0
    for trace in traces:
        begin = perf_counter()
        placement = assign_offsets(trace.blocks, trace.alignment)
        seconds = perf_counter() - begin
        total_seconds += seconds
        optimal += placement.gap == 0
        better += placement.peak < trace.glow_nbytes
        efficiency = placement.lower_bound / placement.peak if placement.peak else 1.0
        print(
            f"{trace.name:34}{len(trace.blocks):7}{placement.lower_bound:11}{placement.peak:11}"
            f"{efficiency:7.3f}{trace.glow_efficiency:7.3f}{seconds * 1e3:8.2f}"
        )
    print(f"{optimal} of {len(traces)} at the bound; below Glow's memory on {better}")
    print(f"planning {total_seconds * 1e3:.0f} ms, reading the file {parse_seconds * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
