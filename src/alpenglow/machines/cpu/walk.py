"""The walker: the compiled loops that run a table of kernels in one thread.

A *table* is an array of 24-byte entries {address of a kernel, address of its operands' addresses,
extent}, 8 bytes each.  A kernel is `void kernel(ptr args, i64 begin, i64 end)` and runs the part
[begin, end) of its parallel loop.  Whoever walks looks at the *stop word* before each entry: once
that is not 0, nothing more is run.  How a team walks a table: `together.py`.
"""

from __future__ import annotations

ENTRY = """\
  %at = getelementptr [3 x i64], ptr %table, i64 %i
  %args.at = getelementptr i64, ptr %at, i64 1
  %extent.at = getelementptr i64, ptr %at, i64 2
  %kernel = load ptr, ptr %at, align 8
  %args = load ptr, ptr %args.at, align 8
  %extent = load i64, ptr %extent.at, align 8"""
"""How a walker reads entry %i."""


def alone_ir() -> str:
    """Return the walker of one thread as LLVM IR.

    `void alone(ptr table, i64 count, ptr word)` runs a table; `word` is the stop word.
    """
    return _ALONE


_ALONE = f"""
define void @alone(ptr %table, i64 %count, ptr %word) nounwind {{
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %each, label %end
each:
  %i = phi i64 [0, %entry], [%i.next, %next]
{ENTRY}
  %stopped = load atomic i64, ptr %word monotonic, align 8
  %goes.on = icmp eq i64 %stopped, 0
  %some.extent = icmp sgt i64 %extent, 0
  %any = and i1 %goes.on, %some.extent
  br i1 %any, label %run, label %next
run:
  call void %kernel(ptr %args, i64 0, i64 %extent)
  br label %next
next:
  %i.next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %each, label %end
end:
  ret void
}}"""
