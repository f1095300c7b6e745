"""Kernel language to LLVM IR text.

A kernel NAME becomes ``void NAME(ptr args, i64 begin, i64 end)``.  `args` points to slots of 8
bytes: the addresses of the buffers, in order, then the run-time extents.  The parallel loop, if
there is one, runs from `begin` to `end`, everything before it in full; without one, the whole
body runs.  The work is in a second function that takes the slots as parameters, because LLVM
knows only of parameters that they do not alias.

A register that is set once is the value it is set to; others are stack slots here, which LLVM
promotes to values.  In memory a bool is a byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.types import FLOATS
from alpenglow.kernel.address import Addresses
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Blend,
    Buffer,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Index,
    Intrinsic,
    Lanes,
    Load,
    Lookup,
    Reduce,
    Register,
    Select,
    Shuffle,
    Splat,
    Unary,
    signed,
)
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.kernel.stmt import (
    Atomic,
    For,
    If,
    Kernel,
    Prefetch,
    Set,
    Stmt,
    Store,
    While,
    statements,
)
from alpenglow.render.llvm.operands import Pointers, pointer_to
from alpenglow.render.llvm.spelling import (
    SCALAR,
    WORD,
    alignment,
    constant,
    holding,
    memory,
    natural,
    places,
    suffix,
    typed,
    vector,
)
from alpenglow.render.llvm.writer import Writer

INTERFACE = "(ptr noalias %args, i64 %begin, i64 %end)"
LONG = 64
"""A loop of more statements is not worth unrolling, and LLVM need not find out."""
ATTRIBUTES = 'nounwind "prefer-vector-width"="512"'


def render(kernel: Kernel, *, fast: bool = True, aliased: frozenset[str] = frozenset()) -> str:
    """Return `kernel` as an LLVM module.

    `fast` lets LLVM contract products and sums, never reassociate them or assume that they are
    finite.
    `aliased` names the read-only buffers that may be the same memory as a mutable one.
    """
    return "\n".join([*_entry(kernel), *_Body(kernel, fast).render(aliased)]) + "\n"


def render_body(kernel: Kernel, *, fast: bool, aliased: frozenset[str]) -> str:
    """Return the body of `kernel` alone as an LLVM module, for a linker of modules to call.

    Its parameters are the addresses of the buffers, the extents, and i64 begin and end.
    """
    return "\n".join(_Body(kernel, fast).render(aliased, "hidden")) + "\n"


def _entry(kernel: Kernel) -> list[str]:
    """Return the function that unpacks the slots."""
    lines = [f'define void @"{kernel.name}"{INTERFACE} {ATTRIBUTES} {{']
    params = []
    for slot in range(len(kernel.buffers) + len(kernel.extents)):
        type_ = "ptr" if slot < len(kernel.buffers) else "i64"
        lines.append(f"  %p{slot} = getelementptr inbounds i64, ptr %args, i64 {slot}")
        lines.append(f"  %s{slot} = load {type_}, ptr %p{slot}, align 8")
        params.append(f"{type_} %s{slot}")
    arguments = ", ".join([*params, "i64 %begin", "i64 %end"])
    lines += [f'  call void @"{kernel.name}.body"({arguments})', "  ret void", "}", ""]
    return lines


def _parameters(kernel: Kernel, aliased: frozenset[str]) -> str:
    """Return the parameters of the body, saying of each buffer what LLVM may believe."""
    parameters = []
    for b in kernel.buffers:
        if b.volatile:
            parameters.append(f'ptr align {alignment(b)} %"b.{b.name}"')
            continue
        # One aliased operand suffices to take the promise from all that are written.
        alone = "" if b.name in aliased or (aliased and b.mutable) else "noalias "
        access = "" if b.mutable else "readonly "
        parameters.append(f'ptr {alone}{access}captures(none) align {alignment(b)} %"b.{b.name}"')
    parameters += [f'i64 %"n.{n.name}"' for n in kernel.extents]
    return ", ".join([*parameters, "i64 %begin", "i64 %end"])


def _plain(s: Stmt) -> bool:
    """Whether LLVM can make vectors of a statement; asked for what it cannot do, it warns."""
    match s:
        case Set(register, _):
            return register.lanes == 1
        case Store(_, _, value):
            return value.lanes == 1
        case If(_, then, orelse):
            return all(map(_plain, (*then, *orelse)))
    return False


class _Body:
    """Renders the body of one kernel: lines, in the order of execution."""

    def __init__(self, kernel: Kernel, fast: bool) -> None:
        self.kernel = kernel
        self.out = Writer(fast)
        self.lines = self.out.lines
        self.emit = self.out.emit
        self.slots: dict[str, str] = {}
        self.sets = Counter(s.register.name for s in statements(kernel.body) if isinstance(s, Set))
        self.values: dict[str, str] = {}
        self.makers: dict[str, tuple[int, str]] = {}
        self.indices = {n.name: f'%"n.{n.name}"' for n in kernel.extents}
        self.metadata: list[str] = []
        self.groups: list[int] = []
        self.pointers: Pointers = {}
        self.addresses = Addresses(lambda part: self.value(part, index=True))
        self.access = ""
        self.label = "entry"

    def render(self, aliased: frozenset[str], linkage: str = "internal") -> list[str]:
        arrays = [self.array(a) for a in self.kernel.arrays]
        self.block(self.kernel.body, self.kernel.parallel)
        # Where a register is read out of the block that sets it, it is a slot there all the same.
        for register, (place, line) in reversed(self.makers.items()):
            if register in self.slots:
                self.lines.insert(place, line)
        name, parameters = self.kernel.name, _parameters(self.kernel, aliased)
        return [
            # Not inlined: parameters say more plainly what does not alias than metadata does.
            f'define {linkage} void @"{name}.body"({parameters}) noinline {ATTRIBUTES} {{',
            "entry:",
            *arrays,
            *(f'  %"r.{name}" = alloca {type_}' for name, type_ in self.slots.items()),
            *self.lines,
            "  ret void",
            "}",
            *(f"!{i} = {text}" for i, text in enumerate(self.metadata)),
        ]

    def array(self, a: Buffer) -> str:
        if a.space != "local":
            raise self.lacks(f"a {a.space} array")
        return f'  %"b.{a.name}" = alloca [{a.size} x {memory(a.dtype)}], align {alignment(a)}'

    def lacks(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"LLVM: {what} is not supported (kernel {self.kernel.name})")

    # ── lines ──

    def open(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def fresh(self, *names: str) -> list[str]:
        """Return new labels."""
        number = self.out.fresh()
        return [f"{name}{number}" for name in names]

    def note(self, text: str) -> int:
        """Add a metadata node; returns its number."""
        self.metadata.append(text)
        return len(self.metadata) - 1

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Render a block: what it computes is not known after it."""
        outer = self.values, self.out.known, self.pointers
        self.values, self.out.known, self.pointers = dict(self.values), dict(self.out.known), {}
        yield
        self.values, self.out.known, self.pointers = outer

    # ── statements ──

    def block(self, body: tuple[Stmt, ...], parallel: For | None = None) -> None:
        for s in body:
            match s:
                case Set(register, value):
                    if isinstance(value, Load):
                        self.pointers = {}  # what is read after it shall stay behind it
                    self.set(register, self.value(value))
                case Store():
                    self.store(s)
                case For():
                    self.loop(s, s is parallel)
                case If():
                    self.branch(s)
                case While():
                    self.repeat(s)
                case Atomic():
                    self.atomic(s)
                case Prefetch(buffer, at, later):
                    self.prefetch(buffer, at, later)
                case _:
                    raise self.lacks(type(s).__name__.lower())

    def set(self, register: Register, value: str) -> None:
        name, type_ = register.name, typed(register)
        line = f'  store {type_} {value}, ptr %"r.{name}"'
        if self.sets[name] == 1:
            self.values[name] = value
            self.makers[name] = len(self.lines), line
        else:
            self.slots[name] = type_
            self.lines.append(line)

    def register(self, register: Register) -> str:
        """Return the value of a register."""
        if register.name in self.values:
            return self.values[register.name]
        self.slots[register.name] = typed(register)
        return self.emit(f'load {typed(register)}, ptr %"r.{register.name}"')

    def loop(self, loop: For, parallel: bool) -> None:
        if loop.kind in ("group", "thread"):
            raise self.lacks(f"a {loop.kind} loop")
        assert parallel or loop.kind != "parallel", "a parallel loop is outermost and last"
        if loop.strips > 1:
            self.strips(loop)
            return
        begin, end = ("%begin", "%end") if parallel else ("0", self.value(loop.extent))
        self.run(loop, begin, end, parallel)

    def strips(self, loop: For) -> None:
        """Run the part of a parallel loop in strips."""
        n = loop.strips
        head, exit_ = self.fresh("strip", "stripped")
        self.lines.append(f"  br label %{head}")
        before, slot = self.label, len(self.lines) + 1
        self.open(head)
        strip = self.emit("")
        room = self.emit(f"sub i64 {n - 1}, {strip}")
        begin, end = (
            self.emit(f"udiv i64 {self.emit(f'add i64 {bound}, {room}')}, {n}")
            for bound in ("%begin", "%end")
        )

        def index_of(number: str) -> str:
            first = self.emit(f"mul nuw nsw i64 {number}, {n}")
            return self.emit(f"add nuw nsw i64 {first}, {strip}")

        with self.scope():
            self.run(loop, begin, end, True, index_of)
        following = self.emit(f"add nuw nsw i64 {strip}, 1")
        self.lines[slot] = f"  {strip} = phi i64 [0, %{before}], [{following}, %{self.label}]"
        more = self.emit(f"icmp ult i64 {following}, {n}")
        self.lines.append(f"  br i1 {more}, label %{head}, label %{exit_}")
        self.open(exit_)

    def run(
        self, loop: For, begin: str, end: str, parallel: bool,
        index_of: Callable[[str], str] = lambda number: number,
    ) -> None:  # fmt: skip
        """Run a loop for numbers from `begin` to `end`, which stand for indices."""
        head, exit_ = self.fresh("loop", "done")
        if isinstance(loop.extent, Const) and loop.extent.value > 0 and not parallel:
            self.lines.append(f"  br label %{head}")
        else:
            some = self.emit(f"icmp slt i64 {begin}, {end}")
            self.lines.append(f"  br i1 {some}, label %{head}, label %{exit_}")
        before, slot = self.label, len(self.lines) + 1
        self.open(head)
        index = self.emit("")
        outer = self.indices.get(loop.index.name), self.access
        hints = self.hints(loop)
        with self.scope():
            self.indices[loop.index.name] = index_of(index)
            self.block(loop.body)
        following = self.emit(f"add nuw nsw i64 {index}, 1")
        self.lines[slot] = f"  {index} = phi i64 [{begin}, %{before}], [{following}, %{self.label}]"
        more = self.emit(f"icmp slt i64 {following}, {end}")
        self.lines.append(f"  br i1 {more}, label %{head}, label %{exit_}{hints}")
        self.open(exit_)
        if loop.kind in ("vector", "parallel"):
            self.groups.pop()
            self.access = outer[1]
        if outer[0] is not None:
            self.indices[loop.index.name] = outer[0]

    def hints(self, loop: For) -> str:
        """Return what the back edge of a loop tells LLVM; starts the group of its accesses."""
        properties = []
        if loop.kind in ("vector", "parallel"):
            group = self.note("distinct !{}")
            self.groups.append(group)
            tag = group
            if len(self.groups) > 1:
                tag = self.note("!{" + ", ".join(f"!{g}" for g in self.groups) + "}")
            self.access = f", !llvm.access.group !{tag}"
            properties.append(self.note(f'!{{!"llvm.loop.parallel_accesses", !{group}}}'))
        if loop.kind == "vector" and all(map(_plain, loop.body)):
            properties.append(self.note('!{!"llvm.loop.vectorize.enable", i1 true}'))
        if loop.kind == "unrolled" and isinstance(loop.extent, Const):
            properties.append(self.note('!{!"llvm.loop.unroll.full"}'))
        elif len(list(islice(statements(loop.body), LONG + 1))) > LONG:
            properties.append(self.note('!{!"llvm.loop.unroll.disable"}'))
        if not properties:
            return ""
        own = len(self.metadata)
        self.note("distinct !{" + ", ".join(f"!{n}" for n in [own, *properties]) + "}")
        return f", !llvm.loop !{own}"

    def branch(self, s: If) -> None:
        then, orelse, join = self.fresh("then", "else", "join")
        condition = self.value(s.condition)
        last = orelse if s.orelse else join
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{last}")
        for label, body in ((then, s.then), (orelse, s.orelse)):
            if body or label == then:
                self.open(label)
                with self.scope():
                    self.block(body)
                self.lines.append(f"  br label %{join}")
        self.open(join)

    def repeat(self, s: While) -> None:
        head, body, exit_ = self.fresh("while", "body", "done")
        self.lines.append(f"  br label %{head}")
        self.open(head)
        with self.scope():
            self.lines.append(f"  br i1 {self.value(s.condition)}, label %{body}, label %{exit_}")
            self.open(body)
            self.block(s.body)
        self.lines.append(f"  br label %{head}")
        self.open(exit_)

    def guarded(self, mask: Expr, action: Callable[[], str]) -> tuple[str, str, str]:
        """Run `action` where the scalar `mask` holds; returns its value and the two origins."""
        then, join = self.fresh("then", "join")
        condition, before = self.value(mask), self.label
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{join}")
        self.open(then)
        with self.scope():
            value = action()
        after = self.label
        self.lines.append(f"  br label %{join}")
        self.open(join)
        return value, after, before

    # ── memory ──

    def address(self, buffer: Buffer, at: Expr, inbounds: bool) -> str:
        kind = "inbounds " if inbounds else ""
        index = f"{typed(at)} {self.value(at, index=True)}"
        return self.emit(
            f'getelementptr {kind}{memory(buffer.dtype)}, ptr %"b.{buffer.name}", {index}'
        )

    def operand(self, e: Load) -> str:
        """Return the address of what stays in memory."""
        pointer, behind = pointer_to(
            e, self.pointers, self.addresses, lambda: self.address(e.buffer, e.at, True), self.emit
        )  # fmt: skip
        if not behind:
            return pointer
        return self.emit(f"getelementptr inbounds {memory(e.dtype)}, ptr {pointer}, i64 {behind}")

    def load(self, e: Load) -> str:
        if e.mask is not None and e.lanes == 1:
            plain = Load(e.buffer, e.at)
            value, after, before = self.guarded(e.mask, lambda: self.load(plain))
            zero = "zeroinitializer"
            return self.emit(f"phi {typed(e)} [{value}, %{after}], [{zero}, %{before}]")
        size = natural(e.dtype)
        kind = vector(memory(e.dtype), e.lanes)
        at = self.operand(e) if e.operand else self.address(e.buffer, e.at, e.mask is None)
        if e.at.lanes == 1 and e.mask is None:
            how = "load volatile" if e.buffer.volatile else "load"
            access = "" if e.buffer.volatile else self.access
            raw = self.emit(f"{how} {kind}, ptr {at}, align {size}{access}")
        else:
            mask = "splat (i1 true)" if e.mask is None else self.value(e.mask)
            what, where = places("load", "gather", e.at)
            raw = self.emit(
                f"call {kind} @llvm.masked.{what}.{suffix(e)}.{where[0]}({where[1]} align {size} "
                f"{at}, <{e.lanes} x i1> {mask}, {kind} zeroinitializer){self.access}"
            )
        return self.emit(f"icmp ne {kind} {raw}, zeroinitializer") if e.dtype == "bool" else raw

    def store(self, s: Store) -> None:
        if s.mask is not None and s.value.lanes == 1:
            self.guarded(s.mask, lambda: self.put(s.buffer, s.at, s.value, None))
        else:
            self.put(s.buffer, s.at, s.value, s.mask)

    def put(self, buffer: Buffer, at: Expr, e: Expr, mask: Expr | None) -> str:
        size = natural(e.dtype)
        kind = vector(memory(e.dtype), e.lanes)
        value = self.value(e)
        if e.dtype == "bool":
            value = self.emit(f"zext {typed(e)} {value} to {kind}")
        place = self.address(buffer, at, mask is None)
        if at.lanes == 1 and mask is None:
            how = "store volatile" if buffer.volatile else "store"
            access = "" if buffer.volatile else self.access
            self.lines.append(f"  {how} {kind} {value}, ptr {place}, align {size}{access}")
            return value
        lanes = "splat (i1 true)" if mask is None else self.value(mask)
        what, where = places("store", "scatter", at)
        self.lines.append(
            f"  call void @llvm.masked.{what}.{suffix(e)}.{where[0]}({kind} {value}, {where[1]} "
            f"align {size} {place}, <{e.lanes} x i1> {lanes}){self.access}"
        )
        return value

    def atomic(self, s: Atomic) -> None:
        if s.buffer.space == "shared":
            raise self.lacks("a shared array")
        assert s.value.lanes == 1 and s.value.dtype != "bool", "an atomic operation is scalar"
        if s.value.dtype in FLOATS:
            op = {"add": "fadd", "min": "fminimum", "max": "fmaximum"}[s.op]
        else:
            op = s.op if s.op == "add" else ("" if signed(s.value.dtype) else "u") + s.op
        value, place = self.value(s.value), self.address(s.buffer, s.at, True)
        self.lines.append(f"  atomicrmw {op} ptr {place}, {typed(s.value)} {value} monotonic")

    def prefetch(self, buffer: Buffer, at: Expr, later: bool) -> None:
        """Read, into all caches or all but the first, data."""
        place = self.address(buffer, at, False)
        how = f"i32 0, i32 {3 - later}, i32 1"
        self.lines.append(f"  call void @llvm.prefetch.p0(ptr {place}, {how})")

    # ── expressions ──

    def value(self, e: Expr, index: bool = False) -> str:
        """Return the operand that holds `e`.  What is part of an address does not overflow."""
        match e:
            case Const():
                return constant(e)
            case Index(name):
                return self.indices[name]
            case Register():
                return self.register(e)
            case Binary(op, x, y):
                a, b = self.value(x, index), self.value(y, index)
                return self.out.binary(op, e.dtype, e.lanes, a, b, index)
            case Load():
                return self.load(e)
            case Fma(x, y, z):
                a, b, c = self.value(x), self.value(y), self.value(z)
                return self.out.fma(e.dtype, e.lanes, a, b, c)
            case Select(condition, x, y):
                flag, a, b = self.value(condition), self.value(x), self.value(y)
                choice = f"{typed(condition)} {flag}, {typed(x)} {a}, {typed(y)} {b}"
                return self.emit(f"select {choice}")
            case Compare(op, x, y):
                a, b = self.value(x), self.value(y)
                return self.out.compare(op, x.dtype, x.lanes, a, b)
            case Splat(x, lanes):
                return self.out.splat(self.value(x, index), x.dtype, lanes)
            case Unary(op, x):
                return self.out.unary(op, e.dtype, e.lanes, self.value(x))
            case Convert(x, dtype):
                return self.out.convert(self.value(x), x.dtype, dtype, e.lanes)
            case Bitcast(x, dtype) if x.lanes != e.lanes:
                return self.emit(f"bitcast {typed(x)} {self.value(x)} to {typed(e)}")
            case Bitcast(x, dtype):
                return self.out.bitcast(self.value(x), x.dtype, dtype, e.lanes)
            case Lanes(lanes):
                return "<" + ", ".join(f"i64 {i}" for i in range(lanes)) + ">"
            case Reduce(op, x):
                return self.out.reduce(op, x.dtype, x.lanes, self.value(x))
            case Shuffle(x, order):
                if x.lanes == 1:
                    return self.out.splat(self.value(x), x.dtype, len(order))
                return self.out.shuffle(self.value(x), typed(x), order)
            case Blend(x, y, order):
                return self.out.shuffle(self.value(x), typed(x), order, self.value(y))
            case Lookup(table, at):
                return self.lookup(table, at)
            case Intrinsic(name, args):
                return self.intrinsic(name, args)
        raise self.lacks(type(e).__name__.lower())

    def lookup(self, table: tuple[float, ...], at: Expr) -> str:
        if not len(table) == at.lanes == 16:
            raise self.lacks(f"a lookup of {at.lanes} lanes in a table of {len(table)}")
        numbers = ", ".join(f"float {constant(Const(x, 'f32'))}" for x in table)
        operands = f"<16 x float> <{numbers}>, <16 x i32> {self.value(at)}"
        return self.emit(
            f"call <16 x float> @{INTRINSICS['vpermps'].llvm.functions[512]}({operands})"
        )

    def intrinsic(self, name: str, args: tuple[Expr, ...]) -> str:
        bits = args[0].lanes * WORD
        known = INTRINSICS.get(name)
        if known is None or bits not in known.llvm.functions:
            raise self.lacks(f"{name} of {args[0].lanes} lanes")
        spelling = known.llvm
        operands = args[1:] if spelling.adds else args
        params = [
            f"{holding(element, bits)} {self.held(x, holding(element, bits))}"
            for element, x in zip(spelling.operands, operands, strict=True)
        ]
        params += [spelling.constants] if spelling.constants else []
        kind, wanted = holding(spelling.result, bits), vector(SCALAR[known.result], args[0].lanes)
        called = f"call {kind} @{spelling.functions[bits]}({', '.join(params)})"
        result = self.emit(called)
        if kind != wanted:
            result = self.emit(f"bitcast {kind} {result} to {wanted}")
        if not spelling.adds:
            return result
        return self.out.binary("add", known.result, args[0].lanes, self.value(args[0]), result)

    def held(self, x: Expr, kind: str) -> str:
        """Return an operand as a vector of another type."""
        value = self.value(x)
        return value if typed(x) == kind else self.emit(f"bitcast {typed(x)} {value} to {kind}")
