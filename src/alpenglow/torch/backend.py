"""The backend of `torch.compile`: registered as "alpenglow", so that no import is needed.

Dynamo traces, AOTAutograd makes a graph of ATen calls of it that mutate nothing but inputs, at the
end (`writes`), and what converters take of that is compiled (`plan`).  Gradients work: forward and
backward graphs are compiled alike.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.words import counted
from alpenglow.compiler.options import Options
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.refusals import listed
from alpenglow.torch import attention, resize
from alpenglow.torch.plan import Plan, plan
from alpenglow.torch.runner import Runner
from alpenglow.torch.writes import take_out

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The options of `torch.compile(…, backend="alpenglow", options={…})`.

    With `strict`, what would run in eager raises UnsupportedError, which lists all of it.  `freeze`
    lets parameters be constants of the code in inference.  `compiler` are `alpenglow.Options`.
    """

    strict: bool = False
    freeze: bool = True
    compiler: Options | None = None

    @staticmethod
    def of(words: Mapping[str, Any]) -> BackendOptions:
        """Return options from the dict that torch hands on; raise OptionError for others."""
        known = [f.name for f in fields(BackendOptions)]
        if unknown := [name for name in words if name not in known]:
            raise OptionError(f"option {unknown[0]} is unknown, expected one of {', '.join(known)}")
        for name in ("strict", "freeze"):
            if not isinstance(words.get(name, False), bool):
                raise OptionError(f"option {name} is {words[name]!r}, expected True or False")
        compiler = words.get("compiler")
        if compiler is not None and not isinstance(compiler, Options):
            raise OptionError(f"option compiler is {compiler!r}, expected alpenglow.Options(…)")
        return BackendOptions(**words)


@dataclass(slots=True)
class Record:
    """The plans that were made while somebody listened, each with what it is for."""

    plans: list[tuple[str, Plan]] = field(default_factory=list)


_listening: ContextVar[Record | None] = ContextVar("record", default=None)


@contextlib.contextmanager
def recording() -> Iterator[Record]:
    """Keep the plans that are made inside this block."""
    record = Record()
    token = _listening.set(record)
    try:
        yield record
    finally:
        _listening.reset(token)


def backend(
    module: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Compile a graph of Dynamo's; `torch.compile(model, backend="alpenglow")` calls this.

    Raises OptionError for options that there are not, IncompatibleError for a torch that is too
    old, and with ``options={"strict": True}`` UnsupportedError for what would run in eager.
    """
    fx.torch()
    if mode is not None:
        raise OptionError(f"mode is '{mode}', expected None", hint="options={…}")
    chosen = BackendOptions.of(options or {})

    def inference(graph: Any, fakes: Sequence[Any]) -> Runner:
        return _compiled(graph, "inference", chosen, _fixed() if chosen.freeze else frozenset())

    def forward(graph: Any, fakes: Sequence[Any]) -> Runner:
        return _compiled(graph, "forward", chosen, frozenset())

    def backward(graph: Any, fakes: Sequence[Any]) -> Runner:
        return _compiled(graph, "backward", chosen, frozenset())

    compile_graph = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        decompositions={**fx.decompositions(), attention.ATEN: attention.without_forward},
        keep_inference_input_mutations=True,
        partition_fn=min_cut_rematerialization_partition,
    )
    with resize.whole(example_inputs):
        outcome: Callable[..., Any] = compile_graph(module, example_inputs)
    return outcome


def _fixed() -> frozenset[int]:
    """Return the places of arguments that are always the same tensor, and that nothing writes."""
    context = TracingContext.try_get()
    about = None if context is None else context.fw_metadata
    if about is None:
        return frozenset()
    written = {i for i, info in enumerate(about.input_info) if info.mutates_data}
    return frozenset(about.static_input_indices) - written


def _compiled(
    graph: Any, purpose: str, options: BackendOptions, fixed: frozenset[int]
) -> Runner:  # fmt: skip
    writes = take_out(graph)
    steps = plan(graph)
    record = _listening.get()
    if record is not None:
        record.plans.append((purpose, steps))
    if steps.refusals:
        said = listed(steps.refusals)
        if options.strict:
            raise UnsupportedError(
                f"{purpose}: {said}",
                hint="options={'strict': False} runs these calls in eager, the others compiled",
            )
        calls = counted(len(steps.refusals), "call")
        LOG.warning("%s of %d in the %s graph run in eager: %s", calls,
                    len(steps.program.body.calls), purpose, said)  # fmt: skip
    return Runner(graph, steps, fixed, options.compiler, writes)
