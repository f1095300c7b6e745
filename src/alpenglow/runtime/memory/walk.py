"""Running the table of a layout on arrays, what is compiled and what is interpreted by turns.

A call takes an arena from a pool, writes the addresses of inputs and outputs into the argument
table, and lets compiled code walk the table.  Instructions without a kernel are interpreted on
the same memory.  A call that may be long, or is given a time, waits for a thread that runs the code
(`runtime.call.calls`); whether it is long is measured.  Calls from several threads run side by
side, each in an arena of its own.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from functools import partial

from alpenglow.base.cpus import default_threads
from alpenglow.base.memory import bytes_of
from alpenglow.ir.types import Array
from alpenglow.machines.api import ENTRY_NBYTES
from alpenglow.machines.registry import this_process
from alpenglow.program.interpret import step
from alpenglow.runtime.call import calls
from alpenglow.runtime.call.calls import Call, StopWord
from alpenglow.runtime.device.layout import DeviceLayout
from alpenglow.runtime.memory.layout import Bound, Context, Layout, Place, address_of


def run_code(
    place: Place,
    inputs: Mapping[str, Array],
    results: Mapping[str, Array],
    threads: int | None,
    running: set[StopWord | Call],
    call: Call | None,
) -> None:
    """Run the table on arrays, as a part of `call`; raise an error if that is stopped.

    Its stop word is in `running` meanwhile.
    """
    layout, bound = place
    if isinstance(layout, DeviceLayout):
        layout.run(bound, inputs, results, running, call)
        return
    with layout.turn:
        context = layout.take(bound)
        try:
            running.add(context.stop)
            with calls.part(context.stop, call):
                walk(layout, bound, context, inputs, results, threads)
            layout.check_files()
        finally:
            running.discard(context.stop)
            layout.give_back(bound, context)


def walk(
    layout: Layout,
    bound: Bound,
    c: Context,
    inputs: Mapping[str, Array],
    results: Mapping[str, Array],
    threads: int | None,
) -> None:
    """Run the table on arrays, to its end or until the stop word of `c` is set."""
    begin = time.perf_counter()
    for name, array in (*inputs.items(), *results.items()):
        address = address_of(array)
        for slot, offset in bound.slots[name]:
            c.words[slot] = address + offset
        if c.memory is not None:
            c.memory.bytes[name] = bytes_of(array)
    try:
        _walk_spans(layout, bound, c, threads)
    finally:
        if c.memory is not None:
            # The caller's arrays are not held on to.
            for name in bound.slots:
                del c.memory.bytes[name]
    # How often a loop turns may be another number the next time.
    if not c.stop.is_set() and not layout.has_jumps:
        bound.is_long = time.perf_counter() - begin > calls.LONG


def _walk_spans(layout: Layout, bound: Bound, c: Context, threads: int | None) -> None:
    """Run what is compiled and what is interpreted by turns."""
    # No more threads than find something to do.
    most = 1 if bound.widest <= 1 else min(threads or default_threads(), bound.widest)
    apart = bound.is_long or c.stop.deadline is not None
    process = this_process()
    run = process.run_with_jumps if layout.has_jumps else process.run
    k = -1
    while (k := k + 1) < len(layout.spans):
        span = layout.spans[k]
        if c.stop.is_set():
            return
        if span.jump is not None:
            if span.slot < 0 or _byte(c.words[span.slot]) == span.jump.when:
                k = span.to - 1
            continue
        if span.number >= 0:
            assert c.memory is not None
            step(c.memory, bound.interpreted[span.number])
            continue
        if layout.streams:
            layout.enter(k)
        table = c.base + ENTRY_NBYTES * span.begin, span.end - span.begin
        if apart:
            calls.run_apart(partial(run, *table, most, c.stop.address), c.stop)
        else:
            run(*table, most, c.stop.address)
        if layout.streams:
            layout.leave(k)


def _byte(address: int) -> bool:
    """Return the truth value at an address."""
    return bool(ctypes.c_uint8.from_address(address).value)
