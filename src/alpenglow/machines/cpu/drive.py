"""Running tables with jumps: loops and branches, without a way back to Python for each turn."""

from __future__ import annotations

from alpenglow.machines.api import JUMPS
from alpenglow.machines.cpu.walk import ENTRY


def drive_ir(waking: int) -> str:
    """Return LLVM IR of the function that runs a table with jumps (`JUMPS`).

    `i64 drive(ptr mailbox, ptr table, i64 count, i64 workers, ptr word, i64 from)` begins at entry
    `from`.  It calls `lead` for the entries between two jumps, or `alone` if none of these has
    parts for several threads or there is one worker, who needs no mailbox.  It returns `count`; or,
    if helpers must be woken, the entry to go on from afterwards, with the number of helpers in the
    mailbox, `waking` bytes behind its beginning.
    """
    return f"""
define i64 @drive(
    ptr %mailbox, ptr %table, i64 %count, i64 %workers, ptr %word, i64 %from
) nounwind {{
entry:
  %waking.at = getelementptr i8, ptr %mailbox, i64 {waking}
  %shared = icmp sgt i64 %workers, 1
  br label %each
each:
  %i = phi i64 [%from, %entry], [%to, %jumped], [%end, %next]
  %stopped = load atomic i64, ptr %word monotonic, align 8
  %told = icmp ne i64 %stopped, 0
  %behind = icmp sge i64 %i, %count
  %ends = or i1 %told, %behind
  br i1 %ends, label %over, label %look
look:
{ENTRY}
  %jumps = icmp slt i64 %extent, 0
  br i1 %jumps, label %jump, label %straight
jump:
  %by = ptrtoint ptr %kernel to i64
  %i.next = add i64 %i, 1
  %there = add i64 %i, %by
  %always = icmp eq i64 %extent, {JUMPS[None]}
  br i1 %always, label %jumped, label %ask
ask:
  %flag.at = load ptr, ptr %args, align 8
  %flag = load i8, ptr %flag.at, align 1
  %is.set = icmp ne i8 %flag, 0
  %wants.set = icmp eq i64 %extent, {JUMPS[True]}
  %fits = icmp eq i1 %is.set, %wants.set
  %asked = select i1 %fits, i64 %there, i64 %i.next
  br label %jumped
jumped:
  %to = phi i64 [%there, %jump], [%asked, %ask]
  br label %each
straight:
  br label %further
further:
  %j = phi i64 [%i, %straight], [%j.next, %passed]
  %parts = phi i1 [false, %straight], [%parts.next, %passed]
  %extent.j.at = getelementptr [3 x i64], ptr %table, i64 %j, i64 2
  %extent.j = load i64, ptr %extent.j.at, align 8
  %is.jump = icmp slt i64 %extent.j, 0
  br i1 %is.jump, label %found, label %passed
passed:
  %has.parts = icmp sgt i64 %extent.j, 1
  %parts.next = or i1 %parts, %has.parts
  %j.next = add i64 %j, 1
  %more = icmp slt i64 %j.next, %count
  br i1 %more, label %further, label %found
found:
  %end = phi i64 [%j, %further], [%j.next, %passed]
  %any.parts = phi i1 [%parts, %further], [%parts.next, %passed]
  %number = sub i64 %end, %i
  %team = and i1 %shared, %any.parts
  br i1 %team, label %together, label %by.itself
by.itself:
  call void @alone(ptr %at, i64 %number, ptr %word)
  br label %next
together:
  call void @lead(ptr %mailbox, ptr %at, i64 %number, i64 %workers, ptr %word)
  %asleep = load i64, ptr %waking.at, align 8
  %wakes = icmp ne i64 %asleep, 0
  br i1 %wakes, label %wake, label %next
next:
  br label %each
wake:
  ret i64 %end
over:
  ret i64 %count
}}"""
