"""The walker: the compiled loops that run a table of kernels, alone or as a team of threads.

A *table* is an array of 24-byte entries {address of a kernel, address of its operands' addresses,
extent}, 8 bytes each.  A kernel is `void kernel(ptr args, i64 begin, i64 end)` and runs the part
[begin, end) of its parallel loop.  Every thread of a team walks the whole table and runs its part
of each entry; an entry of extent 1 is run by worker 0.  Between entries the team meets at a
barrier.  Whoever walks looks at the *stop word* before each entry: once that is not 0, nothing more
is run, though the team goes on to meet.

A team talks through a *mailbox* (`MAILBOX_NBYTES`, aligned to `LINE`, zero at first).  Its leader
fills in a job and sets `openings` to the number of helpers wanted; a helper claims one by counting
it down, and the count it found is its number.  Nobody is addressed by name: whoever is awake
comes.  A helper that finds no opening for a while registers in `sleepers` and returns to its
caller to sleep; the leader withdraws registrations and must give each sleeper so withdrawn one
permit to wake up.  Registering precedes a last look at the openings, and opening precedes a look at
the sleepers, so one of the two always sees the other.

Whoever takes part marks the CPU that it is on; one that finds its CPU marked says so at `CROWDED`.
"""

from __future__ import annotations

from alpenglow.ir.target import Target

LINE = 128  # bytes: two cache lines, as processors fetch them in pairs, and Apple's are this long
ENTRY_NBYTES = 24

# Where things lie in a mailbox: what is waited on has a line of its own.
OPENINGS = 0 * LINE
JOB = 1 * LINE
BARRIER = 2 * LINE
DONE = 3 * LINE
SLEEPERS = 4 * LINE
WAKING = 5 * LINE
CROWDED = 6 * LINE
MAILBOX_NBYTES = 7 * LINE
LEADER = JOB + 24  # the bit of the leader's CPU, 0 if that is not known
STOP = JOB + 32  # the address of the stop word


def walk_ir(target: Target) -> str:
    """Return the walker as LLVM IR.

    - `void alone(ptr table, i64 count, ptr word)` runs a table in the calling thread; `word` is the
      stop word, here and below.
    - `i64 until(ptr table, i64 count, i64 turns, ptr flags, ptr word)` runs `turns` tables of
      `count` entries that follow each other, but none after that whose byte of `flags` is then
      zero, or that was stopped; it returns how many have run.
    - `void walk(ptr table, i64 count, i64 worker, i64 workers, ptr barrier, ptr word)` runs one
      worker's part; `barrier` points to an i64 that is zero when the first worker comes.  It
      returns without meeting the others after the last entry: the join does that.
    - `void lead(ptr mailbox, ptr table, i64 count, i64 workers, ptr word)` posts a job, runs worker
      0's part and waits for the others.  If helpers must be woken it only posts the job, and leaves
      their number at `WAKING`: give as many permits, then call `finish`.
    - `void finish(ptr mailbox)` does the rest of `lead`.
    - `i64 serve(ptr mailbox, i64 budget)` is a helper's loop.  It returns 0 after `budget` rounds
      of nothing, registered as a sleeper, and 1 when `openings` has become negative.
    """
    pause, yielding = _pause(target), _yield(target)
    declarations = sorted({line for line, _ in (pause, yielding) if line})
    place = _PLACE if target.os == "linux" else _NOWHERE
    text = "\n".join([*declarations, place, _ALONE, _UNTIL, _WAIT, _WALK, _lead(), _serve()])
    return text.replace("PAUSE", pause[1]).replace("YIELD", yielding[1])


def _pause(target: Target) -> tuple[str, str]:
    """Return (declaration, call) of what a spinning thread does to leave the core to others."""
    match target.architecture:
        case "x86-64":
            return "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"
        case "aarch64":
            # The yield hint does nothing on most cores; the barrier costs about a pause.
            return "declare void @llvm.aarch64.isb(i32)", "call void @llvm.aarch64.isb(i32 15)"
        case "arm":
            return "declare void @llvm.arm.hint(i32)", "call void @llvm.arm.hint(i32 1)"
        case _:
            return "", ""


def _yield(target: Target) -> tuple[str, str]:
    """Return (declaration, call) of what gives the core to another thread that waits for it."""
    match target.os:
        case "windows":
            return "declare i32 @SwitchToThread()", "call i32 @SwitchToThread()"
        case "linux" | "macosx":
            return "declare i32 @sched_yield()", "call i32 @sched_yield()"
        case _:
            return "", ""


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

_ALONE = """
define void @alone(ptr %table, i64 %count, ptr %word) nounwind {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %each, label %end
each:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %at = getelementptr [3 x i64], ptr %table, i64 %i
  %args.at = getelementptr i64, ptr %at, i64 1
  %extent.at = getelementptr i64, ptr %at, i64 2
  %kernel = load ptr, ptr %at, align 8
  %args = load ptr, ptr %args.at, align 8
  %extent = load i64, ptr %extent.at, align 8
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
}"""

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

# Every few microseconds whoever waits here, or in `serve`, yields: where threads outnumber cores,
# the one waited for may need this very core.  Without it, two threads on one core took 210 µs for
# what takes them 20 with it; on two cores it costs nothing that can be measured.
_SPIN = """spin:
  PAUSE
  %spins.next = add i64 %spins, 1
  %low = and i64 %spins.next, 63
  %long = icmp eq i64 %low, 0
  br i1 %long, label %lend, label %again
lend:
  YIELD
  br label %again
again:"""

_WAIT = (
    """
define internal void @wait(ptr %counter, i64 %goal) nounwind {
entry:
  br label %look
look:
  %spins = phi i64 [0, %entry], [%spins.next, %again]
  %seen = load atomic i64, ptr %counter acquire, align 8
  %reached = icmp sge i64 %seen, %goal
  br i1 %reached, label %end, label %spin
"""
    + _SPIN
    + """
  br label %look
end:
  ret void
}"""
)

# The barrier counts arrivals and is never reset within a walk: the n-th time all have arrived
# it stands at n * workers.  Two entries in a row that worker 0 runs alone need none between.
_WALK = """
define void @walk(
    ptr %table, i64 %count, i64 %worker, i64 %workers, ptr %barrier, ptr %word
) nounwind {
entry:
  %worker.next = add i64 %worker, 1
  %first = icmp eq i64 %worker, 0
  %single = icmp sle i64 %workers, 1
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %each, label %end
each:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %goal = phi i64 [0, %entry], [%goal.out, %next]
  %at = getelementptr [3 x i64], ptr %table, i64 %i
  %args.at = getelementptr i64, ptr %at, i64 1
  %extent.at = getelementptr i64, ptr %at, i64 2
  %kernel = load ptr, ptr %at, align 8
  %args = load ptr, ptr %args.at, align 8
  %extent = load i64, ptr %extent.at, align 8
  %serial = icmp sle i64 %extent, 1
  br i1 %serial, label %whole, label %part
whole:
  %whole.end = select i1 %first, i64 %extent, i64 0
  br label %share
part:
  %part.low = mul i64 %extent, %worker
  %part.high = mul i64 %extent, %worker.next
  %part.begin = udiv i64 %part.low, %workers
  %part.end = udiv i64 %part.high, %workers
  br label %share
share:
  %from = phi i64 [0, %whole], [%part.begin, %part]
  %to = phi i64 [%whole.end, %whole], [%part.end, %part]
  %stopped = load atomic i64, ptr %word monotonic, align 8
  %goes.on = icmp eq i64 %stopped, 0
  %some.part = icmp slt i64 %from, %to
  %any = and i1 %goes.on, %some.part
  br i1 %any, label %run, label %ran
run:
  call void %kernel(ptr %args, i64 %from, i64 %to)
  br label %ran
ran:
  %i.next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %meet, label %end
meet:
  br i1 %single, label %next, label %team
team:
  %next.at = getelementptr i64, ptr %at, i64 5
  %next.extent = load i64, ptr %next.at, align 8
  %next.serial = icmp sle i64 %next.extent, 1
  %free = and i1 %serial, %next.serial
  br i1 %free, label %next, label %arrive
arrive:
  %goal.next = add i64 %goal, %workers
  %arrived = atomicrmw add ptr %barrier, i64 1 acq_rel, align 8
  call void @wait(ptr %barrier, i64 %goal.next)
  br label %next
next:
  %goal.out = phi i64 [%goal, %meet], [%goal, %team], [%goal.next, %arrive]
  br label %each
end:
  ret void
}"""


def _job(indent: str = "  ") -> str:
    """Return the IR that finds the fields of the job in %mailbox."""
    fields = (("table", JOB), ("count", JOB + 8), ("workers", JOB + 16), ("word", STOP))
    return "\n".join(
        f"{indent}%{field}.at = getelementptr i8, ptr %mailbox, i64 {offset}"
        for field, offset in fields
    )


def _lead() -> str:
    return f"""
define void @lead(
    ptr %mailbox, ptr %table, i64 %count, i64 %workers, ptr %word
) nounwind {{
entry:
{_job()}
  %barrier = getelementptr i8, ptr %mailbox, i64 {BARRIER}
  %done = getelementptr i8, ptr %mailbox, i64 {DONE}
  %sleepers = getelementptr i8, ptr %mailbox, i64 {SLEEPERS}
  %waking = getelementptr i8, ptr %mailbox, i64 {WAKING}
  store ptr %table, ptr %table.at, align 8
  store i64 %count, ptr %count.at, align 8
  store i64 %workers, ptr %workers.at, align 8
  store ptr %word, ptr %word.at, align 8
  %here = call i64 @place()
  %leader = getelementptr i8, ptr %mailbox, i64 {LEADER}
  %places = getelementptr i8, ptr %mailbox, i64 {CROWDED + 8}
  store i64 %here, ptr %leader, align 8
  store atomic i64 %here, ptr %places monotonic, align 8
  store atomic i64 0, ptr %barrier monotonic, align 8
  store atomic i64 0, ptr %done monotonic, align 8
  %wanted = sub i64 %workers, 1
  store atomic i64 %wanted, ptr %mailbox seq_cst, align 8
  br label %look
look:
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %none = icmp eq i64 %asleep, 0
  br i1 %none, label %go, label %withdraw
withdraw:
  %fewer = icmp slt i64 %asleep, %wanted
  %take = select i1 %fewer, i64 %asleep, i64 %wanted
  %left = sub i64 %asleep, %take
  %try = cmpxchg ptr %sleepers, i64 %asleep, i64 %left seq_cst seq_cst, align 8
  %taken = extractvalue {{ i64, i1 }} %try, 1
  br i1 %taken, label %post, label %look
post:
  store i64 %take, ptr %waking, align 8
  ret void
go:
  call void @finish(ptr %mailbox)
  ret void
}}

define void @finish(ptr %mailbox) nounwind {{
entry:
{_job()}
  %barrier = getelementptr i8, ptr %mailbox, i64 {BARRIER}
  %done = getelementptr i8, ptr %mailbox, i64 {DONE}
  %waking = getelementptr i8, ptr %mailbox, i64 {WAKING}
  %table = load ptr, ptr %table.at, align 8
  %count = load i64, ptr %count.at, align 8
  %workers = load i64, ptr %workers.at, align 8
  %word = load ptr, ptr %word.at, align 8
  call void @walk(ptr %table, i64 %count, i64 0, i64 %workers, ptr %barrier, ptr %word)
  %others = sub i64 %workers, 1
  call void @wait(ptr %done, i64 %others)
  store i64 0, ptr %waking, align 8
  ret void
}}"""


def _serve() -> str:
    return f"""
define i64 @serve(ptr %mailbox, i64 %budget) nounwind {{
entry:
{_job()}
  %barrier = getelementptr i8, ptr %mailbox, i64 {BARRIER}
  %done = getelementptr i8, ptr %mailbox, i64 {DONE}
  %sleepers = getelementptr i8, ptr %mailbox, i64 {SLEEPERS}
  br label %fresh
fresh:
  br label %look
look:
  %spins = phi i64 [0, %fresh], [%spins.next, %again]
  %open = load atomic i64, ptr %mailbox monotonic, align 8
  %shut = icmp eq i64 %open, 0
  br i1 %shut, label %spin, label %called
{_SPIN}
  %patient = icmp slt i64 %spins.next, %budget
  br i1 %patient, label %look, label %drowse
called:
  %stop = icmp slt i64 %open, 0
  br i1 %stop, label %quit, label %claim
claim:
  %rest = sub i64 %open, 1
  %try = cmpxchg ptr %mailbox, i64 %open, i64 %rest acq_rel monotonic, align 8
  %mine = extractvalue {{ i64, i1 }} %try, 1
  br i1 %mine, label %work, label %fresh
work:
  %table = load ptr, ptr %table.at, align 8
  %count = load i64, ptr %count.at, align 8
  %workers = load i64, ptr %workers.at, align 8
  %word = load ptr, ptr %word.at, align 8
  %here = call i64 @place()
  %places = getelementptr i8, ptr %mailbox, i64 {CROWDED + 8}
  %taken = atomicrmw or ptr %places, i64 %here monotonic, align 8
  %both = and i64 %taken, %here
  %apart = icmp eq i64 %both, 0
  br i1 %apart, label %run, label %crowd
crowd:
  %crowded = getelementptr i8, ptr %mailbox, i64 {CROWDED}
  store atomic i64 1, ptr %crowded monotonic, align 8
  br label %run
run:
  call void @walk(ptr %table, i64 %count, i64 %open, i64 %workers, ptr %barrier, ptr %word)
  %before = atomicrmw add ptr %done, i64 1 release, align 8
  br label %fresh
drowse:
  %registered = atomicrmw add ptr %sleepers, i64 1 seq_cst, align 8
  %last = load atomic i64, ptr %mailbox seq_cst, align 8
  %still = icmp eq i64 %last, 0
  br i1 %still, label %sleep, label %cancel
cancel:
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %withdrawn = icmp eq i64 %asleep, 0
  br i1 %withdrawn, label %sleep, label %leave
leave:
  %fewer = sub i64 %asleep, 1
  %swap = cmpxchg ptr %sleepers, i64 %asleep, i64 %fewer seq_cst seq_cst, align 8
  %left = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %left, label %fresh, label %cancel
sleep:
  ret i64 0
quit:
  ret i64 1
}}"""
