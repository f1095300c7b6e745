"""The entry points of a bundle as LLVM IR: calls of kernels at computed addresses.

The static API is `int NAME(constants, mutable, scratch)`; the dynamic one takes `parallel` as well,
null or a structure of two pointers: a function that runs a task on all of [0, extent), in parts, on
as many threads as it likes, and what is handed to it first.  Both return 1 if a region does not
begin at a multiple of the alignment, 3 if data was out of range, else 0, and keep nothing anywhere
but in the three regions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from alpenglow.bundles.config import config
from alpenglow.bundles.fat import alternatives, dispatch, level
from alpenglow.bundles.plan import MEMORIES, BundlePlan, KernelCall, Routine

Api = Literal["static", "dynamic"]
APIS: tuple[Api, ...] = ("static", "dynamic")

MISALIGNED = 1
"""What an entry point returns if it cannot run."""

OUT_OF_RANGE = 3
"""What an entry point returns if data was out of range: outputs then hold anything."""

BODY = ".body"
"""What the renderer appends to the name of a kernel for the function that does the work."""


def entries(layout: BundlePlan, api: Api, stack_nbytes: int = 0) -> str:
    """Return a module that defines the entry points, and with the dynamic API what they share."""
    lines = [f"declare hidden void {_body(k)}({_types(k, layout)})" for k in layout.kernels]
    make = _static if api == "static" else _dynamic
    for routine in layout.routines:
        for each in alternatives(routine):
            lines += make(layout, each)
        if routine.choices:
            lines += dispatch(routine, api)
        if api == "dynamic":
            content = config(layout, routine, stack_nbytes)
            lines.append(data(f"{routine.entry}_config", content, 8))
    if any(r.choices for r in layout.routines):
        lines += level(layout.routines[0].choices)
    return "\n".join([*lines, *(_EACH if api == "dynamic" else ())]) + "\n"


def constants(layout: BundlePlan, name: str) -> str:
    """Return the definition of `NAME_constants`, the region of constants within the object."""
    return data(f"{name}_constants", layout.weights(), layout.alignment)


def data(name: str, content: bytes, alignment: int) -> str:
    """Return the definition of constant bytes that can be linked to."""
    text = "".join(map(_ESCAPED.__getitem__, content))
    return f'@"{name}" = constant [{len(content)} x i8] c"{text}", align {alignment}\n'


_ESCAPED = [f"\\{value:02X}" for value in range(256)]


def _static(layout: BundlePlan, routine: Routine) -> Iterator[str]:
    parameters = "ptr %constants, ptr %mutable, ptr %scratch"
    yield f'define {_linkage(routine)}i32 @"{routine.entry}"({parameters}) nounwind {{'
    yield from _checked(layout.alignment)
    yield from _cleared(routine)
    for number, call in enumerate(routine.calls):
        yield from _call(call, f"c{number}", "0", str(call.extent))
    yield from _returned(routine)


def _dynamic(layout: BundlePlan, routine: Routine) -> Iterator[str]:
    entry = routine.entry
    parameters = "ptr %constants, ptr %mutable, ptr %scratch, ptr %parallel"
    yield f'define {_linkage(routine)}i32 @"{entry}"({parameters}) nounwind {{'
    yield from _checked(layout.alignment, "  %regions = alloca [3 x ptr], align 8")
    for slot, memory in enumerate(MEMORIES):
        yield f"  %at{slot} = getelementptr [3 x ptr], ptr %regions, i64 0, i64 {slot}"
        yield f"  store ptr %{memory}, ptr %at{slot}"
    yield from _cleared(routine)
    for number, call in enumerate(routine.calls):
        task = f'@"{entry}.{number}"'
        if call.extent > 1:
            yield f"  call void @each(ptr %parallel, ptr {task}, ptr %regions, i64 {call.extent})"
        else:
            yield f"  call void {task}(ptr %regions, i64 0, i64 {call.extent})"
    yield from _returned(routine)
    for number, call in enumerate(routine.calls):
        yield from _task(f'@"{entry}.{number}"', call)


def _cleared(routine: Routine) -> Iterator[str]:
    """Clear the words in which checks leave what they find."""
    if routine.checks:
        place = routine.stop_word
        yield f"  %stop = getelementptr i8, ptr %{place.memory}, i64 {place.offset}"
        yield f"  %fault = getelementptr i8, ptr %{place.memory}, i64 {place.offset + 8}"
        yield "  store volatile i64 0, ptr %stop, align 8"
        yield "  store volatile i64 0, ptr %fault, align 8"


def _returned(routine: Routine) -> Iterator[str]:
    """Return whether data was out of range."""
    if routine.checks:
        yield "  %stopped = load volatile i64, ptr %stop, align 8"
        yield "  %good = icmp eq i64 %stopped, 0"
        yield f"  %status = select i1 %good, i32 0, i32 {OUT_OF_RANGE}"
        yield from ("  ret i32 %status", "}")
    else:
        yield from ("  ret i32 0", "}")


def _task(name: str, call: KernelCall) -> Iterator[str]:
    """Define what runs a part of one call."""
    yield f"define internal void {name}(ptr %regions, i64 %begin, i64 %end) nounwind noinline {{"
    used = {a.memory for a in call.args}
    for slot, memory in enumerate(MEMORIES):
        if memory in used:
            yield f"  %at{slot} = getelementptr [3 x ptr], ptr %regions, i64 0, i64 {slot}"
            yield f"  %{memory} = load ptr, ptr %at{slot}"
    yield from _call(call, "c", "%begin", "%end")
    yield from ("  ret void", "}")


def _call(call: KernelCall, prefix: str, begin: str, end: str) -> Iterator[str]:
    pointers = []
    for k, place in enumerate(call.args):
        yield f"  %{prefix}.{k} = getelementptr i8, ptr %{place.memory}, i64 {place.offset}"
        pointers.append(f"ptr %{prefix}.{k}")
    arguments = ", ".join([*pointers, f"i64 {begin}", f"i64 {end}"])
    yield f"  call void {_body(call.kernel)}({arguments})"


def _linkage(routine: Routine) -> str:
    """Return what makes one of several alternatives local to the object."""
    return "internal " if "." in routine.entry else ""


def _checked(alignment: int, *first: str) -> Iterator[str]:
    """Begin a function that returns at once if a region is not aligned."""
    yield from ("entry:", *first)
    for memory in MEMORIES:
        yield f"  %n.{memory} = ptrtoint ptr %{memory} to i64"
    yield "  %some = or i64 %n.constants, %n.mutable"
    yield "  %all = or i64 %some, %n.scratch"
    yield f"  %low = and i64 %all, {alignment - 1}"
    yield "  %aligned = icmp eq i64 %low, 0"
    yield "  br i1 %aligned, label %run, label %refuse"
    yield from ("refuse:", f"  ret i32 {MISALIGNED}", "run:")


def _body(kernel: str) -> str:
    return f'@"{kernel}{BODY}"'


def _types(kernel: str, layout: BundlePlan) -> str:
    definition = layout.kernels[kernel].kernel
    assert not definition.extents, f"{kernel} has open extents"
    return ", ".join(["ptr"] * len(definition.buffers) + ["i64", "i64"])


_EACH = (
    "define internal void @each(ptr %parallel, ptr %task, ptr %regions, i64 %extent)"
    " nounwind noinline {",
    "  %alone = icmp eq ptr %parallel, null",
    "  br i1 %alone, label %whole, label %team",
    "whole:",
    "  call void %task(ptr %regions, i64 0, i64 %extent)",
    "  ret void",
    "team:",
    "  %run = load ptr, ptr %parallel",
    "  %pool.at = getelementptr [2 x ptr], ptr %parallel, i64 0, i64 1",
    "  %pool = load ptr, ptr %pool.at",
    "  call void %run(ptr %pool, ptr %task, ptr %regions, i64 %extent)",
    "  ret void",
    "}",
)
"""Runs a task on the caller's threads, or, if there are none, on this one."""
