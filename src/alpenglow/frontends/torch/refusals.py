"""Refusals of calls, reported all at once, with their places in the user's code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from alpenglow.base.errors import NONSENSE, ModelError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.frontends.refusals import summary
from alpenglow.frontends.torch.program import Call, Program

EXPLAIN = "alpenglow.torch.explain(module, *args) lists them with their places"
DECOMPOSE = "save exported_program.run_decompositions(), whose operators are fewer"
AGAIN = "export the program again, with torch 2.13"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that could not be converted, and why; one that `waits` can be when data are there."""

    call: Call
    reason: str
    waits: bool = False


def label(call: Call) -> str:
    """Return how messages name a call."""
    where = f", {call.source}" if call.source else ""
    return f"{call.target} '{call.name}'{where}"


def unsupported(program: Program, refusals: Sequence[Refusal]) -> UnsupportedError:
    """Return the error that lists what could not be converted."""
    hint = EXPLAIN if program.trusted else DECOMPOSE
    return UnsupportedError(listed(refusals), file=program.file, hint=hint)


def listed(refusals: Sequence[Refusal]) -> str:
    """Return the list of refused operators with reasons, numbers of calls and first places."""
    named = ((r.call.target, r.reason, r.call.source) for r in refusals)
    return summary(named, "call")


def undefined(name: str) -> ModelError:
    """Return the error for a name that no input and no earlier call defines."""
    return ModelError(f"'{shown(name)}' is read before it is defined, expected an input or the "
                      "result of an earlier call")  # fmt: skip


@contextmanager
def blaming(trusted: bool) -> Iterator[None]:
    """Let what a file breaks be the file's mistake."""
    try:
        yield
    except (AssertionError, RecursionError, *NONSENSE) as error:
        if trusted:
            raise
        what = f"{type(error).__name__}: {error}"
        raise ModelError(f"the program breaks the rules of PyTorch: {what}", hint=AGAIN) from error
