"""The low-level IR and its passes: scheduling, views, sharing and static memory planning."""

from alpenglow.program.instr import Alloc, Buffer, Free, Instr, Program, Region
from alpenglow.program.plan import mark_lifetimes, plan
from alpenglow.program.schedule import schedule
from alpenglow.program.share import share
from alpenglow.program.text import parse_program, print_program
from alpenglow.program.views import eliminate_copies

__all__ = [
    "Alloc",
    "Buffer",
    "Free",
    "Instr",
    "Program",
    "Region",
    "eliminate_copies",
    "mark_lifetimes",
    "parse_program",
    "plan",
    "print_program",
    "schedule",
    "share",
]
