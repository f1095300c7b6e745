"""The entry points of a bundle as LLVM IR: calls of kernels at computed addresses.

The static API is `int NAME(constants, mutable, scratch)`; the dynamic one takes `parallel` as well,
null or a structure of two pointers: a function that runs a task on all of [0, extent), in parts, on
as many threads as it likes, and what is handed to it first.  Both return 1 if a region does not
begin at a multiple of the alignment, 3 if data was out of range, what `entry_state` says of state,
else 0, and keep nothing anywhere but in the three regions.

Where code depends on how many rows the state has, each of its branches is a function of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from alpenglow.bundles import entry_state
from alpenglow.bundles.config import config
from alpenglow.bundles.elf.fat import alternatives, dispatch, level
from alpenglow.bundles.entry_state import MISALIGNED
from alpenglow.bundles.extents import ROWS, LlvmExtents
from alpenglow.bundles.mutable import MEMORIES, Place
from alpenglow.bundles.plan import Branch, BundlePlan, Goto, KernelCall, Routine
from alpenglow.ir.dims import is_open

Api = Literal["static", "dynamic"]
APIS: tuple[Api, ...] = ("static", "dynamic")

OUT_OF_RANGE = 3
"""What an entry point returns if data was out of range: outputs then hold anything."""

Body = Callable[[str, Branch], Iterator[str]]

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
    if layout.routines[0].state is not None:
        lines += [entry_state.DECLARED, *entry_state.functions(layout)]
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
    regions = ", ".join(f"ptr %{memory}" for memory in MEMORIES)
    yield f'define {_linkage(routine)}i32 @"{routine.entry}"({regions}) nounwind {{'
    yield from _checked(layout.alignment)
    yield from entry_state.admitted(routine)
    yield from _cleared(routine)
    yield from _branches(routine, regions, _called)
    yield from _returned(routine)
    yield from _bodies(routine, regions, _called)


def _called(name: str, branch: Branch) -> Iterator[str]:
    """Call the kernels of a branch, one after the other."""

    def run(number: int, call: KernelCall) -> Iterator[str]:
        extents = LlvmExtents(f"c{number}.n")
        extent = extents.of(call.extent)
        yield from extents.lines
        yield from _call(call, f"c{number}", "0", extent)

    yield from _in_blocks(branch, run, in_regions=False)


def _dynamic(layout: BundlePlan, routine: Routine) -> Iterator[str]:
    regions = ", ".join(f"ptr %{memory}" for memory in MEMORIES)
    head = f"{regions}, ptr %parallel"
    yield f'define {_linkage(routine)}i32 @"{routine.entry}"({head}) nounwind {{'
    yield from _checked(layout.alignment, "  %regions = alloca [3 x ptr], align 8")
    for slot, memory in enumerate(MEMORIES):
        yield f"  %at{slot} = getelementptr [3 x ptr], ptr %regions, i64 0, i64 {slot}"
        yield f"  store ptr %{memory}, ptr %at{slot}"
    yield from entry_state.admitted(routine)
    yield from _cleared(routine)
    parameters = "ptr %parallel, ptr %regions"
    yield from _branches(routine, parameters, _shared)
    yield from _returned(routine)
    yield from _bodies(routine, parameters, _shared)
    for name, branch in routine.named("."):
        for number, call in enumerate(branch.calls):
            if isinstance(call, KernelCall):
                yield from _task(f'@"{name}.{number}"', call)


def _shared(name: str, branch: Branch) -> Iterator[str]:
    """Run the kernels of a branch, one after the other, each on all threads that there are."""

    def run(number: int, call: KernelCall) -> Iterator[str]:
        # What one block computes is not known in all that follow it.
        extents = LlvmExtents(f"c{number}.n")
        task = f'@"{name}.{number}"'
        extent = extents.of(call.extent)
        yield from extents.lines
        if is_open(call.extent) or call.extent > 1:
            yield f"  call void @each(ptr %parallel, ptr {task}, ptr %regions, i64 {extent})"
        else:
            yield f"  call void {task}(ptr %regions, i64 0, i64 {extent})"

    yield from _in_blocks(branch, run, in_regions=True)


def _in_blocks(
    branch: Branch, run: Callable[[int, KernelCall], Iterator[str]], *, in_regions: bool
) -> Iterator[str]:
    """Run the calls of a branch, and begin a basic block where a jump leads, and behind each.

    The addresses of memory are parameters, or stand `in_regions`.
    """
    ends = {call.to for call in branch.calls if isinstance(call, Goto)}
    for number, call in enumerate((*branch.calls, None)):
        if number in ends:
            yield from (f"  br label %call{number}", f"call{number}:")
        if isinstance(call, Goto):
            yield from _goto(call, number, in_regions)
        elif call is not None:
            yield from run(number, call)


def _goto(call: Goto, number: int, in_regions: bool) -> Iterator[str]:
    """Jump, or go on in the block behind the jump."""
    to, past = f"label %call{call.to}", f"past{number}"
    prefix = f"%j{number}"
    if call.flag is None:
        assert call.stop is None, "a jump without a flag leads on"
        yield from (f"  br {to}", f"{past}:")
        return
    yield from _pointer(f"{prefix}.flag.at", call.flag, in_regions)
    yield f"  {prefix}.flag = load i8, ptr {prefix}.flag.at"
    yield f"  {prefix}.set = icmp {'ne' if call.when else 'eq'} i8 {prefix}.flag, 0"
    taken = f"{prefix}.set"
    if call.stop is not None:
        yield from _pointer(f"{prefix}.stop.at", call.stop, in_regions)
        yield f"  {prefix}.stop = load volatile i64, ptr {prefix}.stop.at, align 8"
        yield f"  {prefix}.good = icmp eq i64 {prefix}.stop, 0"
        taken = f"{prefix}.on"
        yield f"  {taken} = and i1 {prefix}.set, {prefix}.good"
    yield from (f"  br i1 {taken}, {to}, label %{past}", f"{past}:")


def _pointer(name: str, place: Place, in_regions: bool) -> Iterator[str]:
    """Compute the address of a place."""
    extents = LlvmExtents(f"{name[1:]}.x")
    offset = extents.of(place.offset)
    yield from extents.lines
    memory = f"%{place.memory}"
    if in_regions:
        slot, memory = MEMORIES.index(place.memory), f"{name}.memory"
        yield f"  {name}.slot = getelementptr [3 x ptr], ptr %regions, i64 0, i64 {slot}"
        yield f"  {memory} = load ptr, ptr {name}.slot"
    yield f"  {name} = getelementptr i8, ptr {memory}, i64 {offset}"


def _branches(routine: Routine, parameters: str, body: Body) -> Iterator[str]:
    """Run the only branch, or call that which is for the rows that there are."""
    branches = routine.named(".")
    if len(branches) == 1:
        yield from body(*branches[0])
        return
    for k, (name, branch) in enumerate(branches):
        among = "false"
        for j, (first, last) in enumerate(branch.rows):
            yield f"  %above{k}.{j} = icmp uge i64 %{ROWS}, {first}"
            yield f"  %below{k}.{j} = icmp ule i64 %{ROWS}, {last}"
            yield f"  %within{k}.{j} = and i1 %above{k}.{j}, %below{k}.{j}"
            yield f"  %among{k}.{j} = or i1 {among}, %within{k}.{j}"
            among = f"%among{k}.{j}"
        yield f"  br i1 {among}, label %branch{k}, label %next{k}"
        yield f"branch{k}:"
        yield f'  call void @"{name}"({parameters}, i64 %{ROWS})'
        yield from ("  br label %ended", f"next{k}:")
    yield from ("  br label %ended", "ended:")


def _bodies(routine: Routine, parameters: str, body: Body) -> Iterator[str]:
    """Define the functions of branches, where there are several."""
    branches = routine.named(".")
    for name, branch in branches if len(branches) > 1 else ():
        head = f"{parameters}, i64 %{ROWS}"
        yield f'define internal void @"{name}"({head}) nounwind noinline {{'
        yield from body(name, branch)
        yield from ("  ret void", "}")


def _cleared(routine: Routine) -> Iterator[str]:
    """Clear the words in which checks leave what they find."""
    if routine.checks:
        place = routine.stop_word
        yield f"  %stop = getelementptr i8, ptr %{place.memory}, i64 {place.offset}"
        yield f"  %fault = getelementptr i8, ptr %{place.memory}, i64 {place.offset + 8}"
        yield "  store volatile i64 0, ptr %stop, align 8"
        yield "  store volatile i64 0, ptr %fault, align 8"


def _returned(routine: Routine) -> Iterator[str]:
    """Return whether data was out of range; if not, the state is what it has become."""
    if routine.checks:
        yield "  %stopped = load volatile i64, ptr %stop, align 8"
        yield "  %good = icmp eq i64 %stopped, 0"
        yield "  br i1 %good, label %done, label %outside"
        yield "outside:"
        yield from entry_state.lost(routine)
        yield from (f"  ret i32 {OUT_OF_RANGE}", "done:")
    yield from entry_state.kept(routine)
    yield from ("  ret i32 0", "}")


def _task(name: str, call: KernelCall) -> Iterator[str]:
    """Define what runs a part of one call."""
    yield f"define internal void {name}(ptr %regions, i64 %begin, i64 %end) nounwind noinline {{"
    counts = any(map(is_open, (*call.extents, *(a.offset for a in call.args))))
    used = {a.memory for a in call.args} | ({"mutable"} if counts else set())
    for slot, memory in enumerate(MEMORIES):
        if memory in used:
            yield f"  %at{slot} = getelementptr [3 x ptr], ptr %regions, i64 0, i64 {slot}"
            yield f"  %{memory} = load ptr, ptr %at{slot}"
    if counts:
        yield from entry_state.rows()
    yield from _call(call, "c", "%begin", "%end")
    yield from ("  ret void", "}")


def _call(call: KernelCall, prefix: str, begin: str, end: str) -> Iterator[str]:
    extents = LlvmExtents(f"{prefix}.x")
    offsets = [extents.of(place.offset) for place in call.args]
    numbers = [extents.of(d) for d in call.extents]
    yield from extents.lines
    pointers = []
    for k, (place, offset) in enumerate(zip(call.args, offsets, strict=True)):
        yield f"  %{prefix}.{k} = getelementptr i8, ptr %{place.memory}, i64 {offset}"
        pointers.append(f"ptr %{prefix}.{k}")
    arguments = ", ".join([*pointers, *(f"i64 {n}" for n in (*numbers, begin, end))])
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
    numbers = len(definition.extents) + 2
    return ", ".join(["ptr"] * len(definition.buffers) + ["i64"] * numbers)


_EACH = (
    "define internal void @each(ptr %parallel, ptr %task, ptr %regions, i64 %extent)"
    " nounwind noinline {",
    "  %none = icmp eq ptr %parallel, null",
    "  %few = icmp sle i64 %extent, 1",
    "  %alone = or i1 %none, %few",
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
