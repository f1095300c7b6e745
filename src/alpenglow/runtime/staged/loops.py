"""Loops: ONNX's Loop and Scan, whose bodies are staged models of their own.

Turns are run in a row where the body is of a kind for that (`runtime.staged.turns`), else one by
one.  The first turn of a kind is always run by itself: it is what imports and compiles the body.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import AlpenglowError, FeedError, ModelError, UnsupportedError
from alpenglow.ir.staged import Loop, Scan, StagedModel
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.host.sequence import SequenceAt, SequenceInsert
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.staged.row import Ran
from alpenglow.runtime.staged.stages import Env
from alpenglow.runtime.staged.turns import Roles

FIRST_CHUNK = 32
"""How many turns are laid out at first where one of them may end the loop."""

LARGEST_CHUNK = 4096
"""How many are at most: tables are made for as many as will hardly all be walked."""


class Body(Protocol):
    """What runs the body of a loop."""

    @property
    def model(self) -> StagedModel:
        """The body as a model."""
        ...

    @property
    def roles(self) -> Roles | None:
        """What its inputs and results are to the loop."""
        ...

    def run(self, inputs: Mapping[str, Any], call: Call) -> Env:
        """Run one turn; return the outputs by name."""
        ...

    def run_row(
        self, inputs: Mapping[str, Any], sliced: Callable[[], list[Array]], first: int, most: int,
        chunk: int, call: Call,
    ) -> Ran | None:  # fmt: skip
        """Run at most so many turns, fewer (`chunk`) where one may end the loop; None: cannot."""
        ...

    def types(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[TensorType | None]:
        """Return the types that some outputs would have, as far as can be told without a run."""
        ...


def roles_of(action: Loop | Scan) -> Roles:
    """Return what the inputs and results of a body are to its loop."""
    names, results = list(action.body.inputs), list(action.body.outputs)
    match action:
        case Loop():
            behind = 1 + len(action.carried)
            return Roles(
                count=names[0],
                going=names[1],
                goes_on=results[0],
                carried=tuple(zip(names[2 : 1 + behind], results[1:behind], strict=True)),
                sliced=tuple(names[1 + behind :][: len(action.picked)]),
                collected=tuple(results[behind:]),
            )
        case Scan():
            count = len(action.states)
            return Roles(
                count="",
                going="",
                goes_on="",
                carried=tuple(zip(names[:count], results[:count], strict=True)),
                sliced=tuple(names[count : count + len(action.scanned)]),
                collected=tuple(results[count:]),
            )


def loop(action: Loop, body: Body, env: Env, call: Call) -> tuple[Any, ...]:
    """Return the results of a Loop."""
    most = int(_single(env[action.trips], "how often")) if action.trips else None
    going = bool(_single(env[action.condition], "whether")) if action.condition else True
    carried = [env[n] if n else None for n in action.carried]
    picked = [_Picks(env[n], said) for n, said in action.picked]
    course = _Course(body, {n: env[n] for n in action.captured}, carried, picked)
    course.run(most, going, call)
    stacked = len(course.collected) - len(action.appended)
    joined = [_joined(env[n], parts, said) for (n, said), parts
              in zip(action.appended, course.collected[stacked:], strict=True)]  # fmt: skip
    if not course.turns:
        return (*carried, *(_none_of(t, 0) for t in course.types((), stacked)), *joined)
    return (*course.carried, *map(_stacked, course.collected[:stacked]), *joined)


def scan(action: Scan, body: Body, env: Env, call: Call) -> tuple[Any, ...]:
    """Return the results of a Scan."""
    states = [env[n] for n in action.states]
    scanned = [np.asarray(env[n]) for n in action.scanned]
    if not action.batched:
        return _scan(action, body, env, states, scanned, call)
    # Before opset 9 there are several sequences, some shorter than others.
    count = scanned[0].shape[0]
    longest = scanned[0].shape[1]
    lengths = env[action.lengths].tolist() if action.lengths else [longest] * count
    rows = []
    for b in range(count):
        cut = [x[b, : lengths[b]] for x in scanned]
        rows.append(_scan(action, body, env, [s[b] for s in states], cut, call))
    results = []
    for k, parts in enumerate(zip(*rows, strict=True)):
        if k >= len(states):
            parts = tuple(_padded(p, longest) for p in parts)
        results.append(_stacked([p[None] for p in parts]))
    return tuple(results)


def _scan(
    action: Scan, body: Body, env: Env, states: list[Any], scanned: list[Array], call: Call
) -> tuple[Any, ...]:
    axes, reverse = action.axes[: len(scanned)], action.reverse[: len(scanned)]
    lengths = {x.shape[_axis(a, x.ndim)] for x, a in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise FeedError(f"the scanned operands have {sorted(lengths)} slices, expected as many")
    (length,) = lengths
    moved = [np.moveaxis(x, a, 0)[:: -1 if r else 1]
             for x, a, r in zip(scanned, axes, reverse, strict=True)]  # fmt: skip
    slices = list(map(_Slices, moved))
    course = _Course(body, {n: env[n] for n in action.captured}, states, slices)
    course.run(length, True, call)
    axes, reverse = action.axes[len(scanned) :], action.reverse[len(scanned) :]
    if not length:
        like = [np.zeros(x.shape[1:], x.dtype) for x in moved]
        types = course.types(like, len(course.collected))
        return (*states, *(_none_of(t, a) for t, a in zip(types, axes, strict=True)))
    stacks = zip(course.collected, axes, reverse, strict=True)
    return (*course.carried, *(_stacked(s, a, r) for s, a, r in stacks))


class _Slices:
    """The slices of an array along its first axis, one for each turn."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self._dense: Array | None = None

    def at(self, turn: int) -> Array:
        return np.array(self._array[turn])

    def ahead(self, turn: int) -> Array:
        """Return the slices of this turn and of those behind it, densely."""
        if self._dense is None:
            self._dense = np.require(self._array, None, ("C", "A"))
        return self._dense[turn:]


class _Picks:
    """The elements of a sequence, one for each turn; in messages they are called `said`."""

    def __init__(self, sequence: Any, said: str) -> None:
        self._sequence = sequence
        self._said = said

    def at(self, turn: int) -> Array:
        try:
            return SequenceAt().reference(self._sequence, np.array(turn))
        except AlpenglowError as error:
            raise error.located(node=self._said) from None

    def ahead(self, turn: int) -> Array:
        """Return the elements from this turn on that are of one type."""
        first = self._sequence[turn]
        alike = itertools.takewhile(
            lambda x: x.shape == first.shape and x.dtype == first.dtype, self._sequence[turn:]
        )
        return np.stack(list(alike))


class _Course:
    """A loop under way: how many turns there were, what is carried, and what was collected."""

    def __init__(
        self,
        body: Body,
        captured: Env,
        carried: list[Any],
        sources: Sequence[_Slices] | Sequence[_Picks],
    ) -> None:
        assert body.roles is not None, "this is no body of a loop"
        self._body = body
        self._roles = roles = body.roles
        self._captured = captured
        self._sources = sources
        self._declared = body.model.inputs
        if roles.going:
            self._true = _like(self._declared[roles.going], np.bool_(True))
        self.turns = 0
        self.carried = carried
        self.collected: list[list[Array]] = [[] for _ in roles.collected]

    def run(self, most: int | None, going: bool, call: Call) -> None:
        """Run turns until one ends the loop, or there were `most`."""
        ask, pause = 0, 1  # when to ask next for turns in a row, and how long to wait after a no
        chunk = FIRST_CHUNK
        while going and (most is None or self.turns < most):
            left = LARGEST_CHUNK if most is None else most - self.turns
            inputs = self._inputs([s.at(self.turns) for s in self._sources])
            if left > 1 and self.turns >= ask:
                ran = self._body.run_row(
                    inputs, self._slices, self.turns, left, min(left, chunk), call
                )
                if ran is not None:
                    self._add(ran)
                    going, pause, chunk = ran.going, 1, min(4 * chunk, LARGEST_CHUNK)
                    continue
                ask, pause = self.turns + pause, 2 * pause
            going = self._turn(inputs, call)

    def _turn(self, inputs: Env, call: Call) -> bool:
        """Run one turn; return whether it asks for more."""
        outputs = self._body.run(inputs, call)
        values = list(outputs.values())
        going = bool(_single(values.pop(0), "whether")) if self._roles.goes_on else True
        self.carried = values[: len(self.carried)]
        for stack, value in zip(self.collected, values[len(self.carried) :], strict=True):
            stack.append(np.asarray(value)[None])
        self.turns += 1
        return going

    def _add(self, ran: Ran) -> None:
        self.turns += ran.turns
        self.carried = list(ran.carried)
        for stack, values in zip(self.collected, ran.collected, strict=True):
            stack.append(values)

    def _inputs(self, slices: Sequence[Array]) -> Env:
        roles = self._roles
        inputs = dict(self._captured)
        if roles.count:
            inputs[roles.count] = _like(self._declared[roles.count], np.int64(self.turns))
            inputs[roles.going] = self._true
        inputs |= zip((i for i, _ in roles.carried), self.carried, strict=True)
        inputs |= zip(roles.sliced, slices, strict=False)  # there may be none, for no turn
        return inputs

    def _slices(self) -> list[Array]:
        """Return the slices from here on."""
        return [s.ahead(self.turns) for s in self._sources]

    def types(self, slices: Sequence[Array], count: int) -> list[TensorType | None]:
        """Return the types of the first `count` collected results, as far as they can be told."""
        return self._body.types(self._roles.collected[:count], self._inputs(slices))


def _single(value: Any, what: str) -> Any:
    """Return the element of what tells a loop when to end."""
    if not isinstance(value, np.ndarray) or value.size != 1:
        shown = value.shape if isinstance(value, np.ndarray) else type(value).__name__
        raise FeedError(f"what tells {what} to go on is {shown}, expected one element")
    if value.dtype.kind not in "biu":
        raise FeedError(f"what tells {what} to go on is a {value.dtype}, expected a whole number")
    return value.reshape(-1)[0]


def _like(t: TensorType | None, value: np.generic) -> Array:
    """Return a number as a body declares it: a scalar, or a vector of one."""
    array = np.array(value)
    return array.reshape(1) if t is not None and t.rank == 1 else array


def _none_of(t: TensorType | None, axis: int) -> Array:
    """Return what a loop that ran no time collected of such tensors."""
    if t is None:
        raise UnsupportedError("a loop that ran no time collects tensors of unknown rank")
    shape = [d if isinstance(d, int) else 0 for d in t.shape]
    shape.insert(axis % (len(shape) + 1), 0)
    return np.empty(shape, t.numpy)


def _stacked(parts: Sequence[Array], axis: int = 0, reverse: bool = False) -> Array:
    """Return what a loop collected, some turns a part, as one array along `axis`.

    Raises FeedError where the shapes of the turns differ.
    """
    shapes = {p.shape[1:] for p in parts}
    if len(shapes) > 1:
        raise FeedError(f"a loop collects tensors of the shapes {sorted(shapes)}, expected one")
    whole = parts[0] if len(parts) == 1 else np.concatenate(list(parts))
    moved = np.moveaxis(whole[::-1] if reverse else whole, 0, _axis(axis, whole.ndim))
    return np.require(moved, None, "C")


def _axis(axis: int, rank: int) -> int:
    """Return an axis that a model names; raise ModelError where there is none such."""
    if not -rank <= axis < rank:
        raise ModelError(f"a scan goes along axis {axis} of {rank}")
    return axis


def _joined(start: Any, parts: Sequence[Array], said: str) -> Any:
    """Return a sequence behind which is put what a loop collected."""
    values = [part[i, ...] for part in parts for i in range(len(part))]
    if not values:
        return start
    try:
        # The operator that this stands for looks whether these belong together.
        return [*SequenceInsert().reference(start, values[0]), *values[1:]]
    except AlpenglowError as error:
        raise error.located(node=said) from None


def _padded(array: Array, length: int) -> Array:
    missing = np.zeros((length - array.shape[0], *array.shape[1:]), array.dtype)
    return np.concatenate([array, missing])
