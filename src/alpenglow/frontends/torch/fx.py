"""Programs from objects of torch: an ExportedProgram, or a graph that `torch.compile` traced.

Nothing here imports torch: the caller that has such an object has imported it.
"""

from __future__ import annotations

import copy
import itertools
import logging
import operator
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from alpenglow.base.errors import AlpenglowError, IncompatibleError, ModelError, UnsupportedError
from alpenglow.base.memory import copied
from alpenglow.frontends.torch import converters
from alpenglow.frontends.torch.apart import check_given
from alpenglow.frontends.torch.convert.random import DRAWS
from alpenglow.frontends.torch.demands import demands
from alpenglow.frontends.torch.generator import generator_of
from alpenglow.frontends.torch.program import (
    Argument,
    Body,
    Call,
    Condition,
    Input,
    InputKind,
    Output,
    Program,
    Ref,
    Unknown,
    module_path,
    program_name,
)
from alpenglow.frontends.torch.pytrees import described, with_plain_trees
from alpenglow.frontends.torch.structure import paths, structure
from alpenglow.frontends.torch.symbols import FLOAT, conditions, extent, named
from alpenglow.frontends.torch.symbols import LEAST as LEAST_NUMBER
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.structure import Fixed, Leaf, Structure
from alpenglow.ir.types import Array, TensorType

LOG = logging.getLogger(__name__)

LONGEST = 600
"""How many characters of torch's message are quoted."""

LEAST = (2, 13)
"""The oldest version whose programs are read."""

DTYPES = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "float16": "f16", "bfloat16": "bf16",
    "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8e4m3fn", "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0",
}  # fmt: skip
"""Element types by their names in torch."""

OVER_BYTES = {"bf16": (np.dtype(ml_dtypes.bfloat16), "int16")}
"""Types that NumPy lacks: a NumPy extension type, and the torch type of the same size."""

DROPPED = frozenset({
    "aten._assert_tensor_metadata.default", "aten.sym_constrain_range_for_size.default",
    "aten.sym_constrain_range.default", "aten._assert_async.msg",
})  # fmt: skip
"""Calls that compute nothing."""

WRONG = frozenset({"aten.multilabel_margin_loss_forward.default"})
"""Calls whose decomposition by torch 2.13 is wrong: it counts targets behind the end, -1."""

OUTPUTS = "USER_OUTPUT, BUFFER_MUTATION, PARAMETER_MUTATION and USER_INPUT_MUTATION"
LISTS = "aten::_foreach_"
"""How the names of operators on lists of tensors begin."""

STRIDED = frozenset({
    "aten.as_strided.default", "aten.as_strided_copy.default", "aten.as_strided_scatter.default",
    "aten.resize.default",
})  # fmt: skip
"""Calls that read the memory of their tensor, however its elements lie there."""
READERS = frozenset({"aten._local_scalar_dense.default", "aten.item.default"})
"""Calls that read a number out of a tensor: the results are symbols."""

PARAMETERS = {
    "cond": ("pred", "true_fn", "false_fn", "operands"),
    "while_loop": ("cond_fn", "body_fn", "carried_inputs", "additional_inputs"),
    "scan": ("combine_fn", "init", "xs", "additional_inputs"),
    "map_impl": ("f", "xs", "pos_args"),
    "associative_scan": ("combine_fn", "xs", "additional_inputs"),
}
"""The names of arguments of operators on functions."""


def torch() -> Any:
    """Return the torch that is imported; raise IncompatibleError if it is too old."""
    module = sys.modules["torch"]
    numbers = re.match(r"(\d+)\.(\d+)", str(module.__version__))
    if numbers is None or (int(numbers[1]), int(numbers[2])) < LEAST:
        least = ".".join(map(str, LEAST))
        raise IncompatibleError(
            f"torch {module.__version__} is too old: expected {least} or newer",
            hint=f"pip install 'torch>={least}'",
        )
    return module


def decompositions() -> dict[Any, Any]:
    """Return torch's decompositions of all operators that have no converter.

    Those that change an operand are left for whoever makes the program functional.
    """
    t = torch()
    table = {**_over_lists(), **t._decomp.decomposition_table}
    table |= dict(t.export.default_decompositions().items())
    return {op: f for op, f in table.items()
            if converters.find(name := target_of(op)) is None and name not in WRONG
            and not _mutates(op)}  # fmt: skip


def _over_lists() -> dict[Any, Any]:
    """Return how operators on lists of tensors are made of those on tensors: by torch's loops."""
    t, key = torch(), "CompositeExplicitAutograd"
    loops = {}
    for name in t._C._dispatch_get_registrations_for_dispatch_key(key):
        if name.startswith(LISTS):
            packet, _, overload = name.removeprefix("aten::").partition(".")
            op = getattr(getattr(t.ops.aten, packet), overload or "default")
            loops[op] = partial(op._op_dk, getattr(t._C.DispatchKey, key))
    return loops


def _mutates(op: Any) -> bool:
    """True if an operator changes an operand; those of higher order have no schema that says so."""
    return isinstance(op, torch()._ops.OpOverload) and bool(op._schema.is_mutable)


def exported(program: Any) -> Program:
    """Return an ExportedProgram as a program of operators that have converters, if there are such.

    Inputs have the names of its placeholders; outputs are called by their keys in what it returns.

    Raises ModelError where two inputs, or one and a parameter, were one tensor when the program was
    traced (it reads one), and with torch's message where torch cannot decompose the program.
    """
    t = torch()
    given = t.utils._pytree.tree_leaves(program.example_inputs or ())
    state = {**program.state_dict, **program.constants}
    check_given([x for x in given if isinstance(x, t.Tensor)], state)
    views = _with_views(with_plain_trees(program))
    try:
        lowered = views.run_decompositions(decompositions())
    except AlpenglowError:
        raise
    except Exception as error:  # torch raises dozens of classes, AssertionError among them
        said = " ".join(str(error).split())
        raise ModelError(
            f"torch cannot decompose the program: {type(error).__name__}: {said[:LONGEST]}",
            hint="write calls that change their operand in place (named …_) as those that do not",
        ) from error
    return decomposed(lowered, program.call_spec)


def _with_views(program: Any) -> Any:
    """Return a program in which no call changes the shape of its operand in place.

    After ``x.t_()`` whatever reads x reads a view of what x was.  What torch decomposes loses track
    of inputs that such a call changes.
    """
    if not any(_in_place_view(n) for n in program.graph_module.graph.nodes):
        return program
    graph = copy.deepcopy(program.graph_module.graph)
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if (view := _in_place_view(node)) is None:
            continue
        node.target = view
        node.args[0].replace_all_uses_with(
            node, lambda user, here=node: order[user] > order[here], propagate_meta=False
        )
    module = torch().fx.GraphModule(program.graph_module, graph)
    module.meta.update(program.graph_module.meta)
    return program._update(module, program.graph_signature)


def _in_place_view(node: Any) -> Any:
    """Return the operator that makes the view which a call makes of its operand, or None."""
    t, op = torch(), node.target
    if not isinstance(op, t._ops.OpOverload) or t.Tag.inplace_view not in op.tags:
        return None
    packet = getattr(t.ops.aten, op._schema.name.removeprefix("aten::").removesuffix("_"), None)
    taken = [a.name for a in op._schema.arguments]
    for view in (getattr(packet, name) for name in (packet.overloads() if packet else ())):
        if view.is_view and [a.name for a in view._schema.arguments] == taken:
            return view
    return None


def decomposed(lowered: Any, called: Any = None) -> Program:
    """Return an ExportedProgram as a program of its operators.

    `called` has the TreeSpecs of arguments and results, if they differ from the TreeSpecs of
    `lowered`.
    """
    called = called or lowered.call_spec
    signature = lowered.graph_signature
    inputs = tuple(map(_input, signature.input_specs))
    read = {i.target for i in inputs if i.kind in ("parameter", "buffer", "constant")}
    state = {k: v for k, v in {**lowered.state_dict, **lowered.constants}.items() if k in read}
    outputs = named_outputs(signature.output_specs, called.out_spec)
    body = body_of(lowered.graph_module)
    ranges = ranges_of(lowered.range_constraints.items())
    tree = _structure(lowered, called, outputs)
    name = program_name(_kind(lowered.graph_module))
    return Program(name, body, inputs, outputs, arrays(state), ranges, structure=tree,
                   version=str(torch().__version__), generator=generator_of(body),
                   demands=demands(lowered._guards_code, tree, inputs, body))  # fmt: skip


def _kind(module: Any) -> object:
    """Return the class of the module that was traced, or its name; "" if no call tells it."""
    stacks = (node.meta.get("nn_module_stack") for node in module.graph.nodes)
    outermost = (next(iter(stack.values())) for stack in stacks if stack)
    return next((kind for path, kind in outermost if not path), "")


KINDS: dict[str, InputKind] = {
    "PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant",
    "CUSTOM_OBJ": "constant", "TOKEN": "constant",
}  # fmt: skip
"""What torch calls inputs that are no caller's."""


def _input(spec: Any) -> Input:
    if spec.kind.name != "USER_INPUT":
        return Input(spec.arg.name, KINDS[spec.kind.name], spec.target or "")
    match type(spec.arg).__name__:
        case "TensorArgument":
            return Input(spec.arg.name, "user")
        case "ConstantArgument":
            return Input(spec.arg.name, "fixed")
    return Input(spec.arg.name, "symbol")


def named_outputs(specs: Iterable[Any], spec: Any) -> tuple[Output, ...]:
    """Return the outputs of a signature; the caller's have names of their own."""
    text = described(spec)
    user = iter(paths(text) if text else itertools.repeat("output"))
    names: set[str] = set()
    outputs = []
    for s in specs:
        match s.kind.name:
            case "USER_OUTPUT":
                name = next(user)
                if type(s.arg).__name__ == "ConstantArgument":
                    outputs.append(Output("fixed"))
                    continue
                outputs.append(Output("user", name=unique(name, names)))
            case "BUFFER_MUTATION" | "PARAMETER_MUTATION":
                outputs.append(Output("buffer", s.target))
            case "USER_INPUT_MUTATION":
                outputs.append(Output("input", s.target, unique(f"{s.target}_after", names)))
            case other:
                raise UnsupportedError(f"output kind {other} is not supported; supported: "
                                       f"{OUTPUTS}")  # fmt: skip
    return tuple(outputs)


def unique(name: str, taken: set[str]) -> str:
    """Return a name, with a number behind it if it is taken, and take it."""
    chosen, number = name, 1
    while chosen in taken:
        number += 1
        chosen = f"{name}_{number}"
    taken.add(chosen)
    return chosen


def _structure(program: Any, called: Any, outputs: Sequence[Output]) -> Structure | None:
    """Return how a program is called."""
    specs = program.graph_signature
    texts = [described(s) for s in (called.in_spec, called.out_spec)]
    if not all(texts):
        return None
    user = [s.arg for s in specs.input_specs if s.kind.name == "USER_INPUT"]
    arguments = [Fixed(a.value) if type(a).__name__ == "ConstantArgument" else Leaf(a.name)
                 for a in user]  # fmt: skip
    returned = [s.arg for s in specs.output_specs if s.kind.name == "USER_OUTPUT"]
    named = [o for o in outputs if o.kind in ("user", "fixed")]
    results = [Leaf(o.name) if o.kind == "user" else Fixed(a.value)
               for a, o in zip(returned, named, strict=True)]  # fmt: skip
    entry = program.module_call_graph[0].signature
    parameters = list(entry.forward_arg_names or ()) if entry is not None else []
    return structure(texts[0], texts[1], parameters, arguments, results)


def traced(module: Any, name: str = "main", draws: bool = False) -> Program:
    """Return a GraphModule of ATen operators as a program: all placeholders are inputs.

    If it `draws` random numbers, the program goes on from the state of torch's generator.
    """
    body = body_of(module, floats=False)
    inputs = tuple(Input(n, "user" if n in body.types else "symbol") for n in body.inputs)
    outputs = tuple(Output("user", name=f"output_{i}") for i in range(len(body.outputs)))
    return Program(name, body, inputs, outputs, {}, _ranges(module),
                   generator=generator_of(body) if draws else None)  # fmt: skip


def _ranges(module: Any) -> dict[str, tuple[int, int | None]]:
    """Return the ranges of the symbols in a traced graph."""
    for node in module.graph.nodes:
        fake = node.meta.get("val")
        for d in (fake, *(fake.shape if isinstance(fake, torch().Tensor) else ())):
            if isinstance(d, torch().SymInt):
                known = d.node.shape_env.var_to_range.items()
                return ranges_of(known)
    return {}


def ranges_of(known: Iterable[tuple[Any, Any]]) -> dict[str, tuple[int, int | None]]:
    """Return the ranges of integer symbols by their names in `ir.dims`."""
    whole = [(str(s), r) for s, r in known if str(s).isidentifier() and not FLOAT.fullmatch(str(s))]
    return {str(named(s)): _range(r) for s, r in whole}


def _range(r: Any) -> tuple[int, int | None]:
    low, high = str(r.lower), str(r.upper)
    return (int(low) if low.lstrip("-").isdecimal() else LEAST_NUMBER,
            int(high) if high.isdecimal() else None)  # fmt: skip


def arrays(tensors: Mapping[str, Any]) -> dict[str, Array]:
    """Return copies of tensors as arrays; those that share all of their memory are one array.

    A module goes on changing its tensors, and by `tensor.data` without a trace.
    """
    shared: dict[tuple[Any, ...], Array] = {}
    named = {}
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key not in shared or not tensor.numel():
            shared[key] = copied(array_of(tensor))
        named[name] = shared[key]
    return named


def array_of(tensor: Any) -> Array:
    """Return a tensor as an array, which shares its memory if the tensor lies on the CPU.

    Raises UnsupportedError for tensors of other devices, layouts and element types.
    """
    t = torch()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise UnsupportedError(f"a tensor has dtype {name}, expected one of {', '.join(DTYPES)}")
    if tensor.device.type != "cpu":
        raise UnsupportedError(
            f"a tensor is on {tensor.device}", hint="module.cpu() before it is exported"
        )
    if tensor.layout != t.strided or type(tensor) not in (t.Tensor, t.nn.Parameter, t.nn.Buffer):
        raise UnsupportedError(f"a tensor is a {type(tensor).__name__} of layout {tensor.layout}, "
                               "expected torch.Tensor and torch.strided")  # fmt: skip
    plain = tensor.detach().resolve_conj().resolve_neg()
    if DTYPES[name] in OVER_BYTES:
        ours, bits = OVER_BYTES[DTYPES[name]]
        return np.asarray(plain.view(getattr(t, bits)).numpy().view(ours))
    if DTYPES[name].startswith("f8"):
        return np.asarray(plain.view(t.uint8).numpy().view(type_(DTYPES[name]).numpy))
    return np.asarray(plain.numpy())


def type_(dtype: str) -> TensorType:
    return TensorType(dtype, ())


def dims_of(shape: Iterable[Any]) -> tuple[Dim, ...]:
    """Return a shape of ints and SymInts as dimensions."""
    return tuple(d if type(d) is int else extent(str(d)) for d in shape)


def type_of(fake: Any) -> TensorType | None:
    """Return the type of a fake tensor; None if it is not dense on the CPU."""
    t = torch()
    if not isinstance(fake, t.Tensor) or fake.layout != t.strided or fake.device.type != "cpu":
        return None
    name = DTYPES.get(str(fake.dtype).removeprefix("torch."))
    return None if name is None else TensorType(name, dims_of(fake.shape))


def target_of(op: Any) -> str:
    """Return the name of an operator: ``aten.add.Tensor``, or ``operator.add`` for Python's."""
    text = str(op)
    if isinstance(op, torch()._ops.OpOverload | torch()._ops.HigherOrderOperator):
        return text
    return f"{getattr(op, '__module__', '').lstrip('_')}.{getattr(op, '__name__', text)}"


def body_of(module: Any, floats: bool = True) -> Body:
    """Return the calls of a GraphModule whose nodes say what they make (``node.meta["val"]``).

    Numbers with fractions that are computed from extents are tensors; those that come from outside
    or from data are unknown unless `floats`.
    """
    return _Reader(module, floats).body()


class _Reader:
    """The state of reading one GraphModule."""

    def __init__(self, module: Any, floats: bool) -> None:
        self.module = module
        self._floats = floats
        self.types: dict[str, TensorType] = {}
        self.alias: dict[str, Argument] = {}  # what nodes stand for that are no calls
        self.calls: list[Call] = []
        self.constants: dict[str, Array] = {}
        self.symbols: dict[str, Argument] = {}
        self._untyped: set[str] = set()  # what makes results that PyTorch states no types of

    def body(self) -> Body:
        inputs: list[str] = []
        outputs: tuple[Argument, ...] = ()
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                inputs.append(node.name)
                val = node.meta.get("val")
                self._state(node.name, val)
                if val is None or isinstance(val, str):
                    self.alias[node.name] = val
                if (number := self._number(node)) is not None:
                    self.alias[node.name] = self.symbols[node.name] = number
            elif node.op == "get_attr":
                if (attribute := self._attribute(node)) is not None:
                    self.alias[node.name] = attribute
            elif node.op == "output":
                made = node.args[0]
                made = made if isinstance(made, tuple | list) else (made,)
                outputs = tuple(self.argument(a) for a in made)
            else:
                self._call(node)
        return Body(
            tuple(inputs), tuple(self.calls), outputs, self.types, self.constants, self.symbols
        )

    def _attribute(self, node: Any) -> Argument:
        owner = self.module
        for part in node.target.split("."):
            owner = getattr(owner, part)
        if isinstance(owner, torch().fx.GraphModule):
            return body_of(owner, self._floats)
        if isinstance(owner, torch().Tensor):
            self._state(node.name, owner)
            with torch().utils._python_dispatch._disable_current_modes():  # it is no fake
                self.constants[node.name] = copied(array_of(owner))
            return None
        return Unknown(f"attribute {node.target} of the module")

    def _number(self, node: Any) -> Argument:
        """Return the extent or number that a node computes; None where it makes a tensor."""
        t, val = torch(), node.meta.get("val")
        if isinstance(val, bool | int | float):
            return val
        if isinstance(val, t.SymInt):
            try:
                return extent(str(val))
            except AlpenglowError as error:
                return Unknown(error.message)
        if isinstance(val, t.SymFloat) and not self._floats and self._is_untold(node):
            return Unknown(f"{val} is computed from dimensions, expected a fixed number")
        if isinstance(val, t.SymBool):
            try:
                return Condition(conditions(str(val)))
            except AlpenglowError as error:
                return Unknown(error.message)
        return None

    def _is_untold(self, node: Any) -> bool:
        """Whether a number comes from outside or from data, or from another one that does."""
        if node.op == "placeholder" or target_of(node.target) in READERS:
            return True
        return any(isinstance(self.argument(a), Unknown) for a in node.args)

    def _state(self, name: str, val: Any) -> None:
        if (t := type_of(val)) is not None:
            self.types[name] = t

    def _call(self, node: Any) -> None:
        target = target_of(node.target)
        if target in DROPPED:
            return
        if (number := self._number(node)) is not None:
            self.alias[node.name] = number
            if target not in READERS:
                return
        if node.target is operator.getitem and node.args[0].name not in self._untyped:
            return  # the call that it takes a result of has named it
        val = node.meta.get("val")
        results: tuple[str, ...] = (node.name,)
        if isinstance(val, tuple | list):
            results = self._taken(node, val)
        elif isinstance(number, Sym | Condition):
            results = tuple(str(named(str(s))) for s in node.meta["unbacked_bindings"])
        elif isinstance(val, torch().SymFloat) and number is None:
            self.types[node.name] = TensorType("f64", ())
        elif val is None:
            self._untyped.add(node.name)
            results = (node.name,) if node.users else ()
        else:
            self._state(node.name, val)
        arguments = {k: self.argument(a) for k, a in self._by_name(node).items()}
        if target in STRIDED and not lies_in_order(node.args[0].meta["val"]):
            arguments["self"] = Unknown("a tensor that is not contiguous")
        if target in DRAWS and not all(map(lies_in_order, tensors_of(val))):
            arguments["generator"] = Unknown("the result is not contiguous")
        source = source_of(node.meta.get("stack_trace") or "")
        stack = node.meta.get("nn_module_stack") or {}
        module = module_path(next(reversed(stack.values()), ("",))[0])
        several = isinstance(val, tuple | list) and len(val) > 1
        stated = tuple(map(type_of, val)) if several else ()
        self.calls.append(Call(node.name, target, arguments, results, source, module, stated))

    def _taken(self, node: Any, val: Any) -> tuple[str, ...]:
        """Return the names of the results that nodes take of a call, "" of the others."""
        names = [""] * len(val)
        for user in node.users:
            if user.target is not operator.getitem or not user.users:
                continue
            i = user.args[1]
            if names[i]:
                self.alias[user.name] = Ref(names[i])
            else:
                names[i] = user.name
                self._state(user.name, val[i])
                if isinstance(val[i], torch().SymInt):
                    names[i] = str(extent(str(val[i])))
        if any(u.target is not operator.getitem for u in node.users):
            for i, fake in enumerate(val):
                if not names[i]:
                    names[i] = f"{node.name}#{i}"
                    self._state(names[i], fake)
            self.alias[node.name] = tuple(Ref(n) for n in names)
        return tuple(names)

    def _by_name(self, node: Any) -> dict[str, Any]:
        """Return the arguments of a call by the names of its operator's schema."""
        if isinstance(node.target, torch()._ops.OpOverload):
            names = [a.name for a in node.target._schema.arguments]
        else:
            names = list(PARAMETERS.get(target_of(node.target), ("x", "other")))
            names += [str(i) for i in range(len(names), len(node.args))]
        return {**dict(zip(names, node.args, strict=False)), **node.kwargs}

    def argument(self, a: Any) -> Argument:
        """Return an argument of a node as the importer takes it."""
        t = torch()
        if isinstance(a, t.fx.Node):
            return self.alias.get(a.name, Ref(a.name))
        if isinstance(a, tuple | list):
            return tuple(map(self.argument, a))
        if a is None or isinstance(a, bool | int | float | complex | str):
            return a
        if isinstance(a, t.dtype):
            name = str(a).removeprefix("torch.")
            return DTYPES.get(name, Unknown(f"dtype {name}"))
        if isinstance(a, t.device | t.layout | t.memory_format):
            return str(a)
        return Unknown(f"type {type(a).__name__}")


def tensors_of(val: Any) -> list[Any]:
    """Return the tensors among what a node makes."""
    return [x for x in torch().utils._pytree.tree_leaves(val) if isinstance(x, torch().Tensor)]


def lies_in_order(fake: Any) -> bool:
    """Whether the elements of a tensor lie in order from the start of its memory."""
    return bool(fake.is_contiguous()) and fake.storage_offset() == 0


def source_of(trace: str) -> str:
    """Return the place in the user's code that a stack trace leads to: ``file:line``."""
    frames = re.findall(r'File "([^"]*)", line (\d+)', trace)
    own = [f for f in frames if "/torch/" not in f[0]]
    if not frames:
        return ""
    file, line = (own or frames)[-1]
    return f"{file}:{line}"
