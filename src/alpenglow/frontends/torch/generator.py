"""The state of torch's generator of random numbers on the CPU, as ours (`ops.random.mersenne`).

Bytes are those of ``torch.get_rng_state()``: the seed, how many words are left and which is next,
624 words in 64 bits each, then a normal number that is left of a pair.
"""

from __future__ import annotations

import struct
import sys

import numpy as np

from alpenglow.base.errors import IncompatibleError
from alpenglow.frontends.torch.convert.random import DRAWS
from alpenglow.frontends.torch.program import Body
from alpenglow.ir.types import Array
from alpenglow.ops.random.mersenne import WORDS

HEAD = struct.Struct("<QiiQ")
TAIL = struct.Struct("<dddi")
NBYTES = 5056


def generator_of(body: Body) -> Array | None:
    """Return the state of torch's generator if a body draws from it."""
    if not draws(body):
        return None
    return state_of(sys.modules["torch"].get_rng_state().numpy().tobytes())


def draws(body: Body) -> bool:
    """Whether calls of a body, or of a function that is an argument of one, draw numbers."""
    functions = [a for call in body.calls for a in call.arguments.values() if isinstance(a, Body)]
    return any(c.target in DRAWS for c in body.calls) or any(map(draws, functions))


def state_of(raw: bytes) -> Array:
    """Return a state of torch's as ours; raise IncompatibleError if it is of another kind."""
    if len(raw) != NBYTES:
        raise IncompatibleError(f"the generator state has {len(raw)} bytes, expected {NBYTES}")
    _, left, _, following = HEAD.unpack_from(raw)
    words = np.frombuffer(raw, np.uint64, WORDS, HEAD.size).astype(np.uint32)
    _, normal, _, is_left = TAIL.unpack_from(raw, HEAD.size + 8 * WORDS)
    # One left means none: torch makes new words before it takes the last.
    rest = np.array([WORDS if left == 1 else following, is_left], np.uint32)
    number = np.array([normal if is_left else 0.0]).view(np.uint32)
    return np.concatenate([words, rest, number])
