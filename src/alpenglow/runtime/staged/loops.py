"""Loops: ONNX's Loop and Scan, whose bodies are staged models of their own.

Each turn is a run of the body; the first of a kind imports and compiles it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import AlpenglowError, FeedError, ModelError, UnsupportedError
from alpenglow.ir.staged import Loop, Scan, StagedModel
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.host.sequence import SequenceAt, SequenceInsert
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.staged.stages import Env


class Body(Protocol):
    """What runs the body of a loop."""

    @property
    def model(self) -> StagedModel:
        """The body as a model."""
        ...

    def run(self, inputs: Mapping[str, Any], call: Call) -> Env:
        """Run one turn; return the outputs by name."""
        ...

    def types(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[TensorType | None]:
        """Return the types that some outputs would have, as far as can be told without a run."""
        ...


def loop(action: Loop, body: Body, env: Env, call: Call) -> tuple[Any, ...]:
    """Return the results of a Loop."""
    most = int(_single(env[action.trips], "the trip count")) if action.trips else None
    going = bool(_single(env[action.condition], "the condition")) if action.condition else True
    carried = [env[n] if n else None for n in action.carried]
    captured = {n: env[n] for n in action.captured}
    told = [_like(body.model.inputs[n], np.bool_(True)) for n in list(body.model.inputs)[1:2]]
    declared = next(iter(body.model.inputs.values()))
    rows = [list[Array]() for _ in action.outputs[len(carried) :]]
    turns = 0

    def inputs() -> Env:
        picked = [_picked(env[n], turns, said) for n, said in action.picked]
        own = [_like(declared, np.int64(turns)), *told, *carried, *picked]
        return {**captured, **dict(zip(body.model.inputs, own, strict=False))}

    while going and (most is None or turns < most):
        goes_on, *made = body.run(inputs(), call).values()
        going = bool(_single(goes_on, "the condition"))
        carried = made[: len(carried)]
        for row, value in zip(rows, made[len(carried) :], strict=True):
            row.append(np.asarray(value))
        turns += 1
    stacked = len(rows) - len(action.appended)
    joined = [_joined(env[n], parts, said) for (n, said), parts
              in zip(action.appended, rows[stacked:], strict=True)]  # fmt: skip
    if turns or not stacked:
        return (*carried, *map(_stacked, rows[:stacked]), *joined)
    names = list(body.model.outputs)[1 + len(carried) :][:stacked]
    types = body.types(names, {**captured, **dict(zip(body.model.inputs, (
        _like(declared, np.int64(0)), *told, *carried), strict=False))})  # fmt: skip
    return (*carried, *(_none_of(t, 0) for t in types), *joined)


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
        results.append(_stacked(parts))
    return tuple(results)


def _scan(
    action: Scan, body: Body, env: Env, states: list[Any], scanned: list[Array], call: Call
) -> tuple[Any, ...]:
    axes, reverse = action.axes[: len(scanned)], action.reverse[: len(scanned)]
    lengths = {x.shape[_axis(a, x.ndim)] for x, a in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise FeedError(f"the scanned operands have {sorted(lengths)} slices, expected as many")
    moved = [np.moveaxis(x, a, 0)[:: -1 if r else 1]
             for x, a, r in zip(scanned, axes, reverse, strict=True)]  # fmt: skip
    captured = {n: env[n] for n in action.captured}
    rows = [list[Array]() for _ in action.outputs[len(states) :]]
    axes, reverse = action.axes[len(scanned) :], action.reverse[len(scanned) :]

    def inputs(slices: Sequence[Array]) -> Env:
        return {**captured, **dict(zip(body.model.inputs, (*states, *slices), strict=False))}

    for slices in zip(*moved, strict=True):
        made = list(body.run(inputs([np.array(x) for x in slices]), call).values())
        states = made[: len(states)]
        for row, value in zip(rows, made[len(states) :], strict=True):
            row.append(np.asarray(value))
    if lengths == {0}:
        like = inputs([np.zeros(x.shape[1:], x.dtype) for x in moved])
        types = body.types(list(body.model.outputs)[len(states) :], like)
        return (*states, *(_none_of(t, a) for t, a in zip(types, axes, strict=True)))
    return (*states, *(_stacked(s, a, r) for s, a, r in zip(rows, axes, reverse, strict=True)))


def _picked(sequence: Any, turn: int, said: str) -> Array:
    """Return the element of a sequence of a turn; in messages the node is called `said`."""
    try:
        return SequenceAt().reference(sequence, np.array(turn))
    except AlpenglowError as error:
        raise error.located(node=said) from None


def _single(value: Any, what: str) -> Any:
    """Return the element of what tells a loop when to end."""
    if not isinstance(value, np.ndarray) or value.size != 1:
        shown = value.shape if isinstance(value, np.ndarray) else type(value).__name__
        raise FeedError(f"{what} of a loop is {shown}, expected one element")
    if value.dtype.kind not in "biu":
        raise FeedError(f"{what} of a loop is {value.dtype}, expected an integer")
    return value.reshape(-1)[0]


def _like(t: TensorType | None, value: np.generic) -> Array:
    """Return a number as a body declares it: a scalar, or a vector of one."""
    array = np.array(value)
    return array.reshape(1) if t is not None and t.rank == 1 else array


def _none_of(t: TensorType | None, axis: int) -> Array:
    """Return what a loop that ran no time collected of such tensors."""
    if t is None:
        raise UnsupportedError(
            "a loop of 0 iterations with results of unknown rank is not supported"
        )
    shape = [d if isinstance(d, int) else 0 for d in t.shape]
    shape.insert(axis % (len(shape) + 1), 0)
    return np.empty(shape, t.numpy)


def _stacked(rows: Sequence[Array], axis: int = 0, reverse: bool = False) -> Array:
    """Return the results of all turns of a loop as one array along a new `axis`.

    Raises FeedError where the shapes of the turns differ.
    """
    shapes = {row.shape for row in rows}
    if len(shapes) > 1:
        raise FeedError(f"a loop collects tensors of the shapes {sorted(shapes)}, expected one")
    axis = _axis(axis, rows[0].ndim + 1)
    return np.stack(rows[::-1] if reverse else rows, axis)


def _axis(axis: int, rank: int) -> int:
    """Return an axis that a model names; raise ModelError where there is none such."""
    if not -rank <= axis < rank:
        raise ModelError(f"the axis of a scan is {axis}, expected {-rank} to {rank - 1}")
    return axis


def _joined(start: Any, values: Sequence[Array], said: str) -> Any:
    """Return a sequence behind which is put what a loop collected."""
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
