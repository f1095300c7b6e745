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

    - `void alone(ptr table, i64 count, ptr word)` runs a table; `word` is the stop word.
    - `i64 until(ptr table, i64 count, i64 turns, ptr flags, ptr word)` runs `turns` tables of
      `count` entries that follow each other, but none after that whose byte of `flags` is then
      zero, or that was stopped; it returns how many have run.
    """
    return _ALONE + "\n" + _UNTIL


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

_UNTIL = """
define i64 @until(ptr %table, i64 %count, i64 %turns, ptr %flags, ptr %word) nounwind {
entry:
  %some = icmp sgt i64 %turns, 0
  br i1 %some, label %each, label %end
each:
  %turn = phi i64 [0, %entry], [%turn.next, %next]
  %from = mul i64 %turn, %count
  %at = getelementptr [3 x i64], ptr %table, i64 %from
  call void @alone(ptr %at, i64 %count, ptr %word)
  %turn.next = add nuw nsw i64 %turn, 1
  %flag.at = getelementptr i8, ptr %flags, i64 %turn
  %flag = load i8, ptr %flag.at, align 1
  %last = icmp eq i8 %flag, 0
  %stopped = load atomic i64, ptr %word monotonic, align 8
  %told = icmp ne i64 %stopped, 0
  %ends = or i1 %last, %told
  br i1 %ends, label %end, label %next
next:
  %more = icmp slt i64 %turn.next, %turns
  br i1 %more, label %each, label %end
end:
  %done = phi i64 [0, %entry], [%turn.next, %each], [%turn.next, %next]
  ret i64 %done
}"""
