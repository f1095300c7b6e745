"""How a team of threads walks a table of kernels together (`walk.py` says what a table is).

The table is walked in *steps*: an entry whose extent is above 1, or a run of entries that are not
parallel.  A step has a share for each worker: a part of the entry's extent, or, of a run, all for
worker 0 and nothing for the others.  Which numbers are in which share depends on the number of
workers alone, and no result depends on it.

A share is *claimed* before it is run.  Each worker claims its own first, so that data stay in the
cache they are in; who finds nothing more to do claims what others have not begun.  A step is done
once all its shares are done, whoever ran them, and then the next one may begin.  So nobody waits
for a thread that the system does not let run, unless that has begun a share.

All is counted up and nothing ever reset, so that a thread that is late, by calls even, can do no
harm: entries have numbers that go on from job to job; the word of a share holds the number of the
step it was last claimed for, plus 1, and can only be claimed for a later one; `DONE` grows by a
step's entries for every share that is done.  A claim that succeeds proves that the job is still
going on: only then is the table read, or anything else that is the caller's.

A team talks through a *mailbox* (`mailbox_nbytes`, aligned to `LINE`, zero at first).  Its leader
fills in a job and sets `OPENINGS` to the number of helpers wanted, with the number of the job above
it; a helper claims one by counting it down, and the count it found is its share.  Nobody is
addressed by name: whoever is awake comes.  A helper that finds no opening for a while registers in
`SLEEPERS` and returns to its caller to sleep; the leader withdraws registrations and must give each
sleeper so withdrawn one permit to wake up.  Registering precedes a last look at the openings, and
opening precedes a look at the sleepers, so one of the two always sees the other.

Whoever takes part marks the CPU that it is on; one that finds its CPU marked says so at `CROWDED`,
and so does a helper that finds no work and is where its leader is, which is why it came too late.
A leader that waits for a share for very long counts that at `LATE`, and at `STOLEN` the shares of
others that it has run because nobody came.
"""

from __future__ import annotations

from alpenglow.ir.target import Target
from alpenglow.machines.cpu.drive import drive_ir
from alpenglow.machines.cpu.system import on_system
from alpenglow.machines.cpu.walk import ENTRY, alone_ir

LINE = 128  # bytes: two cache lines, as processors fetch them in pairs, and Apple's are this long

# Where things lie in a mailbox: what is waited on has a line of its own.
OPENINGS = 0 * LINE
JOB = 1 * LINE
DONE = 2 * LINE
POSITION = 3 * LINE
SLEEPERS = 4 * LINE
WAKING = 5 * LINE
CROWDED = 6 * LINE
SHARES = 7 * LINE

# What a job is.  `base` is the number of its first entry, negative while the rest is filled in.
BASE, TABLE, COUNT, WORKERS, WORD, START = (JOB + 8 * i for i in range(6))
LEADER = JOB + 48  # the bit of the leader's CPU, 0 if that is not known
NEXT = JOB + 56  # the number of the first entry of the next job
LIMIT = JOB + 64  # for how many rounds to wait before it is worth a thought

LATE, STOLEN = WAKING + 8, WAKING + 16

# For so many times as long as its own share took, a leader waits before the others are late.
LONG = 4


def mailbox_nbytes(workers: int) -> int:
    """Return how long the mailbox of a team of at most so many is."""
    return SHARES + LINE * workers


def walk_ir(target: Target) -> str:
    """Return the walker as LLVM IR: `alone_ir`, and

    - `void lead(ptr mailbox, ptr table, i64 count, i64 workers, ptr word)` posts a job, works on it
      as worker 0 and returns when all is done.  If helpers must be woken it only posts the job, and
      leaves their number at `WAKING`: give as many permits, then call `finish`.
    - `void finish(ptr mailbox)` does the rest of `lead`.
    - `drive` runs a table with jumps (`drive_ir`).
    - `i64 serve(ptr mailbox, i64 budget)` is a helper's loop.  It returns 0 after `budget` rounds
      of nothing, registered as a sleeper, and 1 when `OPENINGS` has become negative.
    """
    parts = (alone_ir(), _CLAIM, _SHARE, _SCAN, _AFTER, _WALK, _LEAD, drive_ir(WAKING), _SERVE)
    return on_system("\n".join(parts), target)


def _at(**fields: int) -> str:
    """Return the IR that finds fields of %mailbox: their addresses, as %NAME.at."""
    lines = (f"  %{n}.at = getelementptr i8, ptr %mailbox, i64 {at}" for n, at in fields.items())
    return "\n".join(lines)


_FIELDS = {
    "base": BASE, "table": TABLE, "count": COUNT, "workers": WORKERS, "word": WORD, "start": START,
}  # fmt: skip
_TYPES = {"table": "ptr", "word": "ptr"}


def _job(but: str = "") -> str:
    """Return the IR that loads the fields of a job, but for one."""
    lines = []
    for name in _FIELDS:
        if name != but:
            kind = _TYPES.get(name, "i64")
            lines.append(f"  %{name} = load atomic {kind}, ptr %{name}.at monotonic, align 8")
    return "\n".join(lines)


# Every few microseconds whoever waits yields: where threads outnumber cores, the one waited for may
# need this very core.  Without it, two threads on one core took 210 µs for what takes them 20 with
# it; on two cores it costs nothing that can be measured.
_SPIN = """spin:
  PAUSE
  %spins.next = add i64 %spins, 1
  %low = and i64 %spins.next, 63
  %long = icmp eq i64 %low, 0
  br i1 %long, label %lend, label %again"""

_CLAIM = f"""
define internal i1 @claim(ptr %mailbox, i64 %share, i64 %number) nounwind {{
entry:
  %line = mul i64 %share, {LINE}
  %offset = add i64 %line, {SHARES}
  %at = getelementptr i8, ptr %mailbox, i64 %offset
  %seen = load atomic i64, ptr %at monotonic, align 8
  %free = icmp slt i64 %seen, %number
  br i1 %free, label %try, label %end
try:
  %swap = cmpxchg ptr %at, i64 %seen, i64 %number acq_rel monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %swap, 1
  br label %end
end:
  %mine = phi i1 [false, %entry], [%won, %try]
  ret i1 %mine
}}"""

# Runs a share that was claimed, and returns where the next step begins.
_SHARE = f"""
define internal i64 @share(
    ptr %mailbox, ptr %table, i64 %count, i64 %workers, ptr %word, i64 %share, i64 %step
) nounwind {{
entry:
  %share.next = add i64 %share, 1
  %first = icmp eq i64 %share, 0
  br label %each
each:
  %i = phi i64 [%step, %entry], [%i.next, %ran]
{ENTRY}
  %serial = icmp sle i64 %extent, 1
  br i1 %serial, label %whole, label %part
whole:
  %whole.end = select i1 %first, i64 %extent, i64 0
  br label %told
part:
  %part.low = mul i64 %extent, %share
  %part.high = mul i64 %extent, %share.next
  %part.begin = udiv i64 %part.low, %workers
  %part.end = udiv i64 %part.high, %workers
  br label %told
told:
  %from = phi i64 [0, %whole], [%part.begin, %part]
  %to = phi i64 [%whole.end, %whole], [%part.end, %part]
  %stopped = load atomic i64, ptr %word monotonic, align 8
  %goes.on = icmp eq i64 %stopped, 0
  %some = icmp slt i64 %from, %to
  %any = and i1 %goes.on, %some
  br i1 %any, label %run, label %ran
run:
  call void %kernel(ptr %args, i64 %from, i64 %to)
  br label %ran
ran:
  %i.next = add nuw nsw i64 %i, 1
  %next = call i1 @goes_on(ptr %table, i64 %count, i64 %i)
  br i1 %next, label %each, label %end
end:
  %entries = sub i64 %i.next, %step
{_at(done=DONE)}
  %before = atomicrmw add ptr %done.at, i64 %entries acq_rel, align 8
  ret i64 %i.next
}}"""

# Claims and runs what share there is of a step; returns where the next one begins, or -1.
_SCAN = """
define internal i64 @scan(
    ptr %mailbox, i64 %base, ptr %table, i64 %count, i64 %workers, ptr %word, i64 %step
) nounwind {
entry:
  %entry.number = add i64 %base, %step
  %number = add i64 %entry.number, 1
  br label %each
each:
  %share = phi i64 [0, %entry], [%share.next, %taken]
  %mine = call i1 @claim(ptr %mailbox, i64 %share, i64 %number)
  br i1 %mine, label %work, label %taken
work:
  %next = call i64 @share(
      ptr %mailbox, ptr %table, i64 %count, i64 %workers, ptr %word, i64 %share, i64 %step)
  ret i64 %next
taken:
  %share.next = add i64 %share, 1
  %more = icmp slt i64 %share.next, %workers
  br i1 %more, label %each, label %none
none:
  ret i64 -1
}"""

# Whether an entry and that behind it are in one step, and where the step behind one begins.
_AFTER = """
define internal i1 @goes_on(ptr %table, i64 %count, i64 %i) nounwind {
entry:
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %look, label %end
look:
  %extent.at = getelementptr [3 x i64], ptr %table, i64 %i, i64 2
  %next.at = getelementptr [3 x i64], ptr %table, i64 %i.next, i64 2
  %extent = load i64, ptr %extent.at, align 8
  %next = load i64, ptr %next.at, align 8
  %this = icmp sle i64 %extent, 1
  %that = icmp sle i64 %next, 1
  %both = and i1 %this, %that
  ret i1 %both
end:
  ret i1 false
}

define internal i64 @after(ptr %table, i64 %count, i64 %step) nounwind {
entry:
  br label %each
each:
  %i = phi i64 [%step, %entry], [%i.next, %each]
  %i.next = add i64 %i, 1
  %next = call i1 @goes_on(ptr %table, i64 %count, i64 %i)
  br i1 %next, label %each, label %end
end:
  ret i64 %i.next
}"""

# Works on a job from a step on whose turn has come, until the job is done or there is nothing left
# to claim in it.  A leader knows the job to be alive, and may read the table without a claim.  A
# helper that comes to a step of which all is claimed cannot, and learns from the leader's position
# where the next one begins.
_WALK = f"""
define internal void @walk(
    ptr %mailbox, i64 %base, i64 %start, ptr %table, i64 %count, i64 %workers, ptr %word,
    i64 %own, i64 %begin, i1 %leads
) nounwind {{
entry:
{_at(done=DONE, position=POSITION, late=LATE, limit=LIMIT)}
{_at(stolen=STOLEN)}
  %limit = load i64, ptr %limit.at, align 8
  %all = mul i64 %count, %workers
  %all.done = add i64 %start, %all
  br label %arrive
arrive:
  %step = phi i64 [%begin, %entry], [%now, %reached], [%their, %found]
  %over = icmp sge i64 %step, %count
  br i1 %over, label %end, label %publish
publish:
  %number = add i64 %base, %step
  br i1 %leads, label %tell, label %take
tell:
  store atomic i64 %number, ptr %position.at release, align 8
  br label %take
take:
  %claimed = add i64 %number, 1
  %work.began = CLOCK
  %mine = call i1 @claim(ptr %mailbox, i64 %own, i64 %claimed)
  br i1 %mine, label %work, label %other
work:
  %after.own = call i64 @share(
      ptr %mailbox, ptr %table, i64 %count, i64 %workers, ptr %word, i64 %own, i64 %step)
  br label %meet
other:
  %after.other = call i64 @scan(
      ptr %mailbox, i64 %base, ptr %table, i64 %count, i64 %workers, ptr %word, i64 %step)
  %none = icmp slt i64 %after.other, 0
  br i1 %none, label %late.here, label %meet
late.here:
  br i1 %leads, label %read, label %lost
read:
  %after.read = call i64 @after(ptr %table, i64 %count, i64 %step)
  br label %meet

meet:
  %now = phi i64 [%after.own, %work], [%after.other, %other], [%after.read, %read],
                 [%now, %helped]
  %work.ended = CLOCK
  %took = sub i64 %work.ended, %work.began
  %patience = mul i64 %took, {LONG}
  %shares = mul i64 %now, %workers
  %goal = add i64 %start, %shares
  br label %look
look:
  %spins = phi i64 [0, %meet], [%spins.next, %again]
  %ask.from = phi i64 [%limit, %meet], [%ask.next, %again]
  %seen = load atomic i64, ptr %done.at acquire, align 8
  %reached.goal = icmp sge i64 %seen, %goal
  br i1 %reached.goal, label %reached, label %spin
reached:
  br label %arrive
{_SPIN}
lend:
  %is.first = icmp eq i64 %spins.next, 64
  br i1 %is.first, label %help, label %wait
help:
  %helped.next = call i64 @scan(
      ptr %mailbox, i64 %base, ptr %table, i64 %count, i64 %workers, ptr %word, i64 %step)
  %nothing = icmp slt i64 %helped.next, 0
  br i1 %nothing, label %wait, label %helping
helping:
  br i1 %leads, label %steal, label %helped
steal:
  %stolen = load i64, ptr %stolen.at, align 8
  %stolen.next = add i64 %stolen, 1
  store i64 %stolen.next, ptr %stolen.at, align 8
  br label %helped
helped:
  br label %meet
wait:
  %is.long = icmp sge i64 %spins.next, %ask.from
  %asks = and i1 %is.long, %leads
  br i1 %asks, label %judge, label %rest
judge:
  %waited.until = CLOCK
  %waited = sub i64 %waited.until, %work.ended
  %is.late = icmp sgt i64 %waited, %patience
  br i1 %is.late, label %count.late, label %rest
count.late:
  %lates = load atomic i64, ptr %late.at monotonic, align 8
  %lates.next = add i64 %lates, 1
  store atomic i64 %lates.next, ptr %late.at monotonic, align 8
  br label %rest
rest:
  %ask.then = phi i64 [%ask.from, %wait], [%ask.from, %judge], [9223372036854775807, %count.late]
  YIELD
  br label %again
again:
  %ask.next = phi i64 [%ask.from, %spin], [%ask.then, %rest]
  br label %look

lost:
  %turns = phi i64 [0, %late.here], [%turns.next, %seek.again]
  %so.far = load atomic i64, ptr %done.at acquire, align 8
  %job.over = icmp sge i64 %so.far, %all.done
  br i1 %job.over, label %end, label %seek
seek:
  %at = load atomic i64, ptr %position.at acquire, align 8
  %their = sub i64 %at, %base
  %further = icmp sgt i64 %their, %step
  br i1 %further, label %found, label %stay
found:
  br label %arrive
stay:
  PAUSE
  %turns.next = add i64 %turns, 1
  %turns.low = and i64 %turns.next, 63
  %lends = icmp eq i64 %turns.low, 0
  br i1 %lends, label %seek.lend, label %seek.again
seek.lend:
  YIELD
  br label %seek.again
seek.again:
  br label %lost
end:
  ret void
}}"""

_LEAD = f"""
define void @lead(
    ptr %mailbox, ptr %table, i64 %count, i64 %workers, ptr %word
) nounwind {{
entry:
{_at(**_FIELDS, done=DONE, position=POSITION, sleepers=SLEEPERS, waking=WAKING)}
{_at(leader=LEADER, next=NEXT, places=CROWDED + 8)}
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %fill, label %end
fill:
  store atomic i64 -1, ptr %base.at monotonic, align 8
  fence seq_cst
  %base = load i64, ptr %next.at, align 8
  %base.next = add i64 %base, %count
  store i64 %base.next, ptr %next.at, align 8
  %start = load atomic i64, ptr %done.at monotonic, align 8
  store atomic ptr %table, ptr %table.at monotonic, align 8
  store atomic i64 %count, ptr %count.at monotonic, align 8
  store atomic i64 %workers, ptr %workers.at monotonic, align 8
  store atomic ptr %word, ptr %word.at monotonic, align 8
  store atomic i64 %start, ptr %start.at monotonic, align 8
  store atomic i64 %base, ptr %position.at monotonic, align 8
  %here = call i64 @place()
  store atomic i64 %here, ptr %leader.at monotonic, align 8
  store atomic i64 %here, ptr %places.at monotonic, align 8
  store atomic i64 %base, ptr %base.at release, align 8
  %wanted = sub i64 %workers, 1
  %tag = shl i64 %base, 16
  %openings = or i64 %tag, %wanted
  store atomic i64 %openings, ptr %mailbox seq_cst, align 8
  br label %look
look:
  %asleep = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %none = icmp eq i64 %asleep, 0
  br i1 %none, label %go, label %withdraw
withdraw:
  %fewer = icmp slt i64 %asleep, %wanted
  %take = select i1 %fewer, i64 %asleep, i64 %wanted
  %left = sub i64 %asleep, %take
  %try = cmpxchg ptr %sleepers.at, i64 %asleep, i64 %left seq_cst seq_cst, align 8
  %taken = extractvalue {{ i64, i1 }} %try, 1
  br i1 %taken, label %post, label %look
post:
  store i64 %take, ptr %waking.at, align 8
  ret void
go:
  call void @finish(ptr %mailbox)
  ret void
end:
  ret void
}}

define void @finish(ptr %mailbox) nounwind {{
entry:
{_at(**_FIELDS, waking=WAKING)}
{_job()}
  call void @walk(
      ptr %mailbox, i64 %base, i64 %start, ptr %table, i64 %count, i64 %workers, ptr %word,
      i64 0, i64 0, i1 true)
  store atomic i64 0, ptr %mailbox monotonic, align 8
  store i64 0, ptr %waking.at, align 8
  ret void
}}"""

# The fields of a job are read between two looks at its base: if that is the same, they belong
# together, and if it is that of the opening, they are what the helper was called to.
_SERVE = f"""
define i64 @serve(ptr %mailbox, i64 %budget) nounwind {{
entry:
{_at(**_FIELDS, position=POSITION, sleepers=SLEEPERS, places=CROWDED + 8, crowded=CROWDED)}
{_at(leader=LEADER)}
  br label %fresh
fresh:
  br label %look
look:
  %spins = phi i64 [0, %fresh], [%spins.next, %again]
  %open = load atomic i64, ptr %mailbox monotonic, align 8
  %open.low = and i64 %open, 65535
  %shut = icmp eq i64 %open.low, 0
  br i1 %shut, label %spin, label %called
{_SPIN}
lend:
  YIELD
  %idle.here = call i64 @place()
  %led = load atomic i64, ptr %leader.at monotonic, align 8
  %idle.both = and i64 %idle.here, %led
  %idle.apart = icmp eq i64 %idle.both, 0
  br i1 %idle.apart, label %again, label %idle.crowd
idle.crowd:
  store atomic i64 1, ptr %crowded.at monotonic, align 8
  br label %again
again:
  %patient = icmp slt i64 %spins.next, %budget
  br i1 %patient, label %look, label %drowse
called:
  %stop = icmp slt i64 %open, 0
  br i1 %stop, label %quit, label %claim
claim:
  %rest = sub i64 %open, 1
  %try = cmpxchg ptr %mailbox, i64 %open, i64 %rest acq_rel monotonic, align 8
  %mine = extractvalue {{ i64, i1 }} %try, 1
  br i1 %mine, label %read, label %fresh
read:
  %base = load atomic i64, ptr %base.at acquire, align 8
{_job(but="base")}
  %number = load atomic i64, ptr %position.at acquire, align 8
  fence seq_cst
  %base.again = load atomic i64, ptr %base.at monotonic, align 8
  %same = icmp eq i64 %base, %base.again
  %tag = lshr i64 %open, 16
  %ours = icmp eq i64 %base, %tag
  %begin = sub i64 %number, %base
  %going = icmp ult i64 %begin, %count
  %known = and i1 %same, %ours
  %joins = and i1 %known, %going
  br i1 %joins, label %work, label %fresh
work:
  %here = call i64 @place()
  %taken = atomicrmw or ptr %places.at, i64 %here monotonic, align 8
  %both = and i64 %taken, %here
  %apart = icmp eq i64 %both, 0
  br i1 %apart, label %run, label %crowd
crowd:
  store atomic i64 1, ptr %crowded.at monotonic, align 8
  br label %run
run:
  call void @walk(
      ptr %mailbox, i64 %base, i64 %start, ptr %table, i64 %count, i64 %workers, ptr %word,
      i64 %open.low, i64 %begin, i1 false)
  br label %fresh
drowse:
  %registered = atomicrmw add ptr %sleepers.at, i64 1 seq_cst, align 8
  %last = load atomic i64, ptr %mailbox seq_cst, align 8
  %last.low = and i64 %last, 65535
  %still = icmp eq i64 %last.low, 0
  br i1 %still, label %sleep, label %cancel
cancel:
  %asleep = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %withdrawn = icmp eq i64 %asleep, 0
  br i1 %withdrawn, label %sleep, label %leave
leave:
  %fewer = sub i64 %asleep, 1
  %swap = cmpxchg ptr %sleepers.at, i64 %asleep, i64 %fewer seq_cst seq_cst, align 8
  %left = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %left, label %fresh, label %cancel
sleep:
  ret i64 0
quit:
  ret i64 1
}}"""
