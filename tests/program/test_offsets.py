"""Placements never overlap, are aligned, and reach the bound wherever Glow's do, and more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from random import Random
from time import process_time

from alpenglow.program.offsets import Block, Placement, assign_offsets

TRACES = Path(__file__).resolve().parents[1] / "data" / "memory_traces.txt"


@dataclass(frozen=True)
class Trace:
    """The blocks of one network, and the memory and efficiency that Glow's planner reached."""

    name: str
    alignment: int
    blocks: tuple[Block, ...]
    glow_nbytes: int
    glow_efficiency: float


def read_traces(text: str) -> Iterator[Trace]:
    """Parse the format in the head of the file; each ALLOC and each FREE is one step."""
    for section in text.split("MODEL ")[1:]:
        name, *lines = section.splitlines()
        words = [line.split() for line in lines]
        facts = {word[0]: word[1] for word in words}
        events = [word for word in words if word[0] in ("ALLOC", "FREE")]
        ends = {event[1]: step for step, event in enumerate(events) if event[0] == "FREE"}
        blocks = tuple(
            Block(int(event[2]), step, ends[event[1]])
            for step, event in enumerate(events)
            if event[0] == "ALLOC"
        )
        yield Trace(name, int(facts["ALIGN"]), blocks, int(facts["MEM"]), float(facts["EFF"]))


def efficiency(placement: Placement) -> float:
    """The largest live sum over the memory used, as Glow computes it."""
    return placement.lower_bound / placement.peak


def test_every_trace_is_at_least_as_efficient_as_glow_and_all_reach_the_bound() -> None:
    traces = list(read_traces(TRACES.read_text()))
    placements = [assign_offsets(trace.blocks, trace.alignment) for trace in traces]
    for trace, placement in zip(traces, placements, strict=True):
        check(trace.blocks, placement, trace.alignment)
    optimal = sum(placement.gap == 0 for placement in placements)
    print(f"{optimal} of {len(traces)} traces at efficiency 1.000")

    assert optimal == len(traces) == 79
    for trace, placement in zip(traces, placements, strict=True):
        assert placement.peak <= trace.glow_nbytes, trace.name
        assert efficiency(placement) >= trace.glow_efficiency - 1e-6, trace.name


def test_the_bound_is_the_one_that_glow_states() -> None:
    for trace in read_traces(TRACES.read_text()):
        bound = assign_offsets(trace.blocks, trace.alignment).lower_bound

        assert round(bound / trace.glow_nbytes, 6) == trace.glow_efficiency, trace.name


def test_live_blocks_never_overlap_and_offsets_are_aligned() -> None:
    random = Random(1)
    for _ in range(150):
        alignment = random.choice([1, 16, 64, 100])
        blocks = random_blocks(random, random.randrange(40))

        check(blocks, assign_offsets(blocks, alignment), alignment)


def test_small_placements_match_the_best_of_all_orders() -> None:
    random = Random(2)
    for _ in range(150):
        blocks = random_blocks(random, random.randrange(1, 6))
        best = min(first_fit_peak(order) for order in permutations(blocks))

        assert assign_offsets(blocks, 1).peak == best, blocks


def test_a_rectangle_cut_into_blocks_is_put_together_again_but_for_rare_gaps() -> None:
    random = Random(3)
    gaps = [assign_offsets(cut_rectangle(random, 20)).gap for _ in range(40)]

    # The search solves 37 of these 40 and leaves at most 0.102; the limits guard against worse.
    assert gaps.count(0.0) >= 36
    assert max(gaps) < 0.15


def test_blocks_of_size_zero_lie_at_zero_and_cost_nothing() -> None:
    placement = assign_offsets([Block(0, 0, 9), Block(10, 0, 5), Block(0, 2, 3), Block(70, 5, 9)])

    assert placement == Placement((0, 0, 0, 0), peak=128, lower_bound=128)


def test_nothing_to_place_needs_no_memory() -> None:
    assert assign_offsets([]) == Placement((), peak=0, lower_bound=0)
    assert assign_offsets([]).gap == 0.0


def test_a_block_ends_before_another_begins_on_the_same_step() -> None:
    placement = assign_offsets([Block(64, 0, 2), Block(64, 2, 4)])

    assert placement == Placement((0, 0), peak=64, lower_bound=64)


def test_the_same_blocks_get_the_same_offsets() -> None:
    blocks = cut_rectangle(Random(4), 100)

    assert assign_offsets(blocks) == assign_offsets(list(blocks))


def test_three_thousand_blocks_take_seconds_not_minutes() -> None:
    random = Random(5)
    starts = [random.randrange(30_000) for _ in range(3000)]
    blocks = [Block(random.randrange(1 << 20), b, b + random.randrange(1, 900)) for b in starts]
    before = process_time()
    placement = assign_offsets(blocks)
    seconds = process_time() - before

    # It takes about 0.5 s; the room is for a slow machine.
    assert seconds < 10
    assert placement.gap < 0.1


def check(blocks: tuple[Block, ...], placement: Placement, alignment: int) -> None:
    """Assert what every placement promises."""
    assert len(placement.offsets) == len(blocks)
    assert all(offset >= 0 and offset % alignment == 0 for offset in placement.offsets)
    ends = [o + b.size for o, b in zip(placement.offsets, blocks, strict=True)]
    assert max(ends, default=0) <= placement.peak
    assert placement.lower_bound <= placement.peak
    placed = list(zip(blocks, placement.offsets, ends, strict=True))
    for (a, a_low, a_high), (b, b_low, b_high) in combinations(placed, 2):
        together = a.begin < b.end and b.begin < a.end and a.size > 0 and b.size > 0
        assert not together or a_high <= b_low or b_high <= a_low, (a, b)


def random_blocks(random: Random, count: int) -> tuple[Block, ...]:
    begins = [random.randrange(12) for _ in range(count)]
    return tuple(Block(random.randrange(300), b, b + random.randrange(1, 9)) for b in begins)


def first_fit_peak(blocks: tuple[Block, ...]) -> int:
    """The peak of first fit in this order, by trying every offset at which a block can rest."""
    placed: list[tuple[int, Block]] = []
    for block in blocks:
        rivals = [(o, b) for o, b in placed if b.begin < block.end and block.begin < b.end]
        rests = sorted([0] + [o + b.size for o, b in rivals])
        fits = (r for r in rests if all(o + b.size <= r or r + block.size <= o for o, b in rivals))
        placed.append((next(fits), block))
    return max(o + b.size for o, b in placed)


def cut_rectangle(random: Random, count: int) -> tuple[Block, ...]:
    """Cut 1024 units of 64 bytes by 200 steps into blocks, which therefore fit without a gap."""
    pieces = [(0, 200, 0, 1024)]
    while len(pieces) < count:
        begin, end, low, high = pieces.pop(random.randrange(len(pieces)))
        if end - begin == 1 or high - low == 1:
            pieces.append((begin, end, low, high))
        elif (end - begin) * 5 > high - low:
            at = random.randrange(begin + 1, end)
            pieces += [(begin, at, low, high), (at, end, low, high)]
        else:
            at = random.randrange(low + 1, high)
            pieces += [(begin, end, low, at), (begin, end, at, high)]
    random.shuffle(pieces)
    return tuple(Block(64 * (high - low), begin, end) for begin, end, low, high in pieces)
