"""What a waiting thread asks of its processor and its system: to pause, to yield, time, and place.

IR says PAUSE and YIELD for a call, CLOCK for a value, and calls `i64 @place()`; `on_system` puts in
what these are for a target.  Where there is no such thing, nothing happens, and values are 0.
"""

from __future__ import annotations

from alpenglow.ir.target import Target

# Leaves the core to its other thread.  The yield hint of AArch64 does nothing on most cores; the
# barrier costs about a pause.
_PAUSES = {
    "x86-64": "void @llvm.x86.sse2.pause()",
    "aarch64": "void @llvm.aarch64.isb(i32 15)",
    "arm": "void @llvm.arm.hint(i32 1)",
}

# Gives the core to another thread that waits for it.
_YIELDS = {
    "linux": "i32 @sched_yield()",
    "macosx": "i32 @sched_yield()",
    "windows": "i32 @SwitchToThread()",
}

# Counts cycles or ticks.
_CLOCKS = {
    "x86-64": "i64 @llvm.readcyclecounter()",
    "aarch64": "i64 @llvm.readsteadycounter()",
}


def on_system(text: str, target: Target) -> str:
    """Return IR in which PAUSE, YIELD, CLOCK and `@place` are those of a target."""
    asked = {
        "PAUSE": _PAUSES.get(target.architecture, ""),
        "YIELD": _YIELDS.get(target.os, ""),
        "CLOCK": _CLOCKS.get(target.architecture, ""),
    }
    for name, function in asked.items():
        otherwise = "add i64 0, 0" if name == "CLOCK" else ""
        text = text.replace(name, f"call {function}" if function else otherwise)
    declared = sorted({_declaration(function) for function in asked.values() if function})
    return "\n".join([*declared, _PLACE if target.os == "linux" else _NOWHERE, text])


def _declaration(call: str) -> str:
    """Return the declaration of a function that is called, with at most one number."""
    name, _, numbers = call.partition("(")
    return f"declare {name}({numbers.partition(' ')[0].rstrip(')')})"


# The bit of the CPU that the caller is on; those past 64 have none.
_PLACE = """
declare i32 @sched_getcpu()

define internal i64 @place() nounwind {
  %cpu = call i32 @sched_getcpu()
  %known = icmp ult i32 %cpu, 64
  %one = zext i1 %known to i64
  %low = and i32 %cpu, 63
  %shift = zext i32 %low to i64
  %bit = shl i64 %one, %shift
  ret i64 %bit
}"""

_NOWHERE = """
define internal i64 @place() nounwind {
  ret i64 0
}"""
