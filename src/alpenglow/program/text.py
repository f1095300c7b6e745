"""The textual form of programs: what `print_program` writes, `parse_program` reads back.

    program @mnist8 arena=37696 bound=37696 {
      input %x : f32[1,1,28,28]
      hidden %k : u32[2]
      const @w : f32[8,1,5,5] sha256:3f…
      output %y : f32[1,10]
      variable %h : f32[4] sha256:08…
      assign h = %h.2
      arena %a : 4096 @ 64
      alloc %a
      %a f32[1,8,28,28] = conv(%x f32[1,1,28,28], @w f32[8,1,5,5])
      %b f32[1,8,28,28] +32 (6272, 784, 28, 1) = fused(%a f32[…]) {
        …
      }
      free %a
    }

A region is its buffer and type; where it does not fill the buffer densely, its offset and strides
in elements follow.  `assign` tells what buffer holds what a variable has at exit.  The runtime
fills a `hidden` input.  An instruction of control flow has the programs that it runs in braces,
until they are laid out in the program around them; what a loop carries is `carried` there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from alpenglow.ir import text as graph_text
from alpenglow.ir.dims import Sym
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.text import WORD, Lines, parse_application, quote, unquote
from alpenglow.ir.types import Array, TensorType
from alpenglow.program.instr import (
    Alloc,
    Buffer,
    Cell,
    Free,
    Instr,
    Program,
    Region,
    Space,
    Step,
    roomy,
    whole,
)
from alpenglow.program.verify import shown_properties, verify


def _balanced(depth: int) -> str:
    """Return a pattern of something in parentheses, with so many levels of others inside."""
    inner = r"[^()]*"
    for _ in range(depth):
        inner = rf"[^()]*(?:\({inner}\)[^()]*)*"
    return rf"\({inner}\)"


TYPE = r"\w+\[[^\]]*\]"
PLACE = rf" \+(\S+) ({_balanced(12)})"
REGION = rf"[%@]({WORD}) ({TYPE})(?:{PLACE})?"
OPERAND = rf"(?:none|{REGION})(?:, |$)"
RESULTS = rf"[%@]{WORD} {TYPE}(?: \+\S+ {_balanced(12)})?"


def print_program(program: Program) -> str:
    """Return the text of `program`."""
    return "\n".join(_lines(program))


def print_ir(ir: Graph | Program) -> str:
    """Return the text of what the compiler holds: a graph at first, a program after scheduling."""
    return graph_text.print_graph(ir) if isinstance(ir, Graph) else print_program(ir)


def parse_program(
    text: str,
    weights: Mapping[str, Array] | None = None,
    properties: Set[str] | None = None,
    *,
    trusted: bool = False,
    may_be_open: bool = False,
) -> Program:
    """Read a program; `weights` holds the constants that are not inline, by SHA-256.

    A program is verified: `properties` must be true of it, or those that it shows.  One that is
    `trusted` is not, nor are the hashes of its weights computed again.  Where it `may_be_open`, its
    extents may be symbols; then it is not verified, which takes numbers.  Raises ParseError with
    the line where the text breaks the grammar, and ProgramError where the program breaks a rule.
    """
    source = _Source(text, trusted=trusted, may_be_open=may_be_open)
    program = _parse(source, weights or {})
    source.end()
    if not trusted and not may_be_open:
        verify(program, shown_properties(program) if properties is None else properties)
    return program


def _parse(source: _Source, weights: Mapping[str, Array]) -> Program:
    """Read a program up to its closing brace."""
    head = source.match(
        rf"program @({WORD}) arena=(\d+) bound=(\d+) {{", "program @NAME arena=N … {"
    )
    buffers: dict[str, Buffer] = {}
    body: list[Step] = []
    names: dict[str, str] = {}
    variables: dict[str, Cell] = {}
    while (line := source.peek()) != "}":
        keyword = line.split(" ", 1)[0]
        if m := re.fullmatch(rf"output %({WORD}) : .* called ({WORD})", line):
            names[unquote(m[1])] = unquote(m[2])
        if keyword in ("variable", "carried"):
            cell = _parse_variable(source, buffers, weights)
            variables[cell.initial.name] = cell
        elif keyword == "assign":
            _parse_assigned(source, buffers, variables)
        elif keyword in ("input", "hidden", "output", "const", "arena"):
            buffer = _parse_buffer(source, weights)
            if buffer.name in buffers:
                raise source.error(f"buffer '{buffer.name}' is already declared", line)
            buffers[buffer.name] = buffer
        elif keyword in ("alloc", "free"):
            m = source.match(rf"(alloc|free) %({WORD})", "alloc %NAME")
            name = unquote(m[2])
            if name not in buffers:
                raise source.error(f"expected a declared buffer, '{name}' is not", line)
            body.append(Alloc(name) if m[1] == "alloc" else Free(name))
        else:
            body.append(_parse_instr(source, buffers, weights))
    source.take()
    inputs, outputs = (
        tuple(b.name for b in buffers.values() if b.space == s) for s in ("input", "output")
    )
    return Program(
        unquote(head[1]), buffers, inputs, outputs, tuple(body), int(head[2]), int(head[3]), names,
        variables,
    )  # fmt: skip


def side_weights(program: Program) -> dict[str, Array]:
    """Return the constants that the text of `program` refers to by hash."""
    weights: dict[str, Array] = {}
    for b in program.buffers.values():
        if b.constant is not None and not graph_text.inline(b.constant.type):
            assert b.array is not None
            weights[b.constant.digest] = b.array
    for cell in program.variables.values():
        if cell.initial.array is not None and not graph_text.inline(cell.type):
            weights[cell.initial.digest] = cell.initial.array
    for instr in program.instrs():
        for part in instr.parts:
            weights |= side_weights(part)
        if instr.body is not None:
            weights |= graph_text.side_weights(instr.body)
    return weights


def _lines(program: Program) -> Iterator[str]:
    name = quote(program.name)
    yield f"program @{name} arena={program.arena} bound={program.lower_bound} {{"
    for label in program.inputs:
        b = program.buffers[label]
        yield f"  {'hidden' if b.hidden else 'input'} %{quote(label)} : {b.type}"
    for label in program.outputs:
        called = f" called {quote(program.names[label])}" if label in program.names else ""
        yield f"  output %{quote(label)} : {program.buffers[label].type}{called}"
    for label, cell in program.variables.items():
        if cell.axis is None and cell.initial.array is None:
            yield f"  carried %{quote(label)} : {cell.type}"
        else:
            contents = graph_text.variable_text(cell.initial, cell.axis)
            yield f"  variable %{quote(label)} : {contents}"
        if cell.exit:
            grown = "" if cell.grown is None else f" {cell.grown}"
            yield f"  assign {quote(label)} = %{quote(cell.exit)}{grown}"
    for label, b in program.buffers.items():
        if b.space == "const":
            assert b.constant is not None
            yield f"  const @{quote(label)} : {graph_text.constant_text(b.constant)}"
        elif b.space == "arena":
            place = "" if b.offset is None else f" @ {b.offset}"
            yield f"  arena %{quote(label)} : {b.nbytes}{place}"
    for step in program.body:
        match step:
            case Alloc(label):
                yield f"  alloc %{quote(label)}"
            case Free(label):
                yield f"  free %{quote(label)}"
            case Instr():
                yield from _instr_lines(program, step)
    yield "}"


def _instr_lines(program: Program, i: Instr) -> Iterator[str]:
    left = ", ".join(_region_text(program, r) for r in i.outs)
    operands = ["none" if r is None else _region_text(program, r) for r in i.ins]
    line = f"  {left}{' = ' if left else ''}{graph_text.application_text(i.op, operands)}"
    if i.body is None and not i.parts:
        yield line
        return
    yield line + " {"
    if i.body is not None:
        inner = graph_text.print_graph(i.body).splitlines()[1:-1]
        yield from ("  " + text for text in inner)
    for part in i.parts:
        yield from ("    " + text for text in _lines(part))
    yield "  }"


def _region_text(program: Program, r: Region) -> str:
    mark = "@" if program.buffers[r.buffer].space == "const" else "%"
    text = f"{mark}{quote(r.buffer)} {r.type}"
    if r == whole(r.buffer, r.type):
        return text
    return f"{text} +{r.offset} {graph_text.literal(r.strides)}"


class _Source(Lines):
    """The lines of a program, whose extents are numbers unless it `may_be_open`."""

    def __init__(self, text: str, *, trusted: bool, may_be_open: bool) -> None:
        super().__init__(text, trusted=trusted)
        self.may_be_open = may_be_open
        self._dense: dict[TensorType, Region] = {}

    def memory_type(self, text: str) -> TensorType:
        """Read the type of a buffer or region."""
        t = self.type(text)
        if not (t.static or self.may_be_open):
            raise self.error("expected a buffer type without dynamic dimensions", text)
        return t

    def dense(self, buffer: str, t: TensorType) -> Region:
        """Return all of a buffer of this type."""
        if t not in self._dense:
            self._dense[t] = whole(buffer, t)
        return replace(self._dense[t], buffer=buffer)

    def extent(self, text: str) -> Any:
        """Read a number, or an extent that is open."""
        value = self.literal(text)
        if type(value) is not int and not (self.may_be_open and isinstance(value, Sym)):
            raise self.error("expected a number", text)
        return value


def _parse_buffer(source: _Source, weights: Mapping[str, Array]) -> Buffer:
    m = source.match(rf"(input|hidden|output|const|arena) [%@]({WORD}) : (.*)", "SPACE %NAME : …")
    name = unquote(m[2])
    if m[1] == "arena":
        place = re.fullmatch(r"(\S+)(?: @ (\d+))?", m[3])
        if place is None:
            raise source.error("expected arena %NAME : BYTES @ OFFSET", m[0])
        offset = int(place[2]) if place[2] else None
        return Buffer(name, source.extent(place[1]), "arena", offset=offset)
    if m[1] == "const":
        v = graph_text.parse_constant(Graph(), name, m[3], weights, source)
        return Buffer(name, v.type.nbytes, "const", v.type, v)
    t = source.memory_type(m[3].split(" called ")[0])
    nbytes: Any = math.prod(t.shape) * t.numpy.itemsize
    space: Space = "output" if m[1] == "output" else "input"
    return Buffer(name, nbytes, space, t, hidden=m[1] == "hidden")


def _parse_variable(
    source: _Source, buffers: dict[str, Buffer], weights: Mapping[str, Array]
) -> Cell:
    """Read a variable that nothing is assigned to so far; add its buffer."""
    if m := re.fullmatch(rf"carried %({WORD}) : ({TYPE})", source.peek()):
        source.take()
        cell = Cell(Value(source.memory_type(m[2]), unquote(m[1])))
        _add_variable(source, buffers, cell.initial.name, cell.type)
        return cell
    m = source.match(rf"variable %({WORD}) : (.*)", "variable %NAME : TYPE = … or sha256:…")
    if grows := graph_text.GROWS.fullmatch(m[2]):
        t, axis = source.memory_type(grows[1]), int(grows[2])
        if axis >= t.rank:
            raise source.error(f"{t} grows along axis {axis}, expected less than {t.rank}", m[0])
        cell = Cell(Value(t, unquote(m[1])), axis=axis)
        _add_variable(source, buffers, cell.initial.name, roomy(t, axis))
        return cell
    initial = graph_text.parse_constant(Graph(), unquote(m[1]), m[2], weights, source)
    _add_variable(source, buffers, initial.name, initial.type)
    return Cell(initial)


def _parse_assigned(
    source: _Source, buffers: dict[str, Buffer], variables: dict[str, Cell]
) -> None:
    """Read what buffer a variable has at exit, and add the buffer if it is another."""
    m = source.match(rf"assign ({WORD}) = %({WORD})(?: ({TYPE}))?", "assign NAME = %BUFFER")
    name, label = unquote(m[1]), unquote(m[2])
    if name not in variables or variables[name].exit:
        why = "already assigned" if name in variables else "not declared, expected a variable"
        raise source.error(f"'{name}' is {why}", m[0])
    if label != name:
        _add_variable(source, buffers, label, variables[name].type)
    grown = source.memory_type(m[3]) if m[3] else None
    if (grown is None) != (variables[name].axis is None) or (grown is not None and label != name):
        rule = "its own buffer and a TYPE if it grows, no TYPE otherwise"
        raise source.error(f"variable '{name}' is assigned wrongly, expected {rule}", m[0])
    variables[name] = replace(variables[name], exit=label, grown=grown)


def _add_variable(source: Lines, buffers: dict[str, Buffer], label: str, t: TensorType) -> None:
    if label in buffers:
        raise source.error(f"buffer '{label}' is already declared", label)
    buffers[label] = Buffer(label, t.nbytes, "variable", t)


def _parse_instr(
    source: _Source, buffers: Mapping[str, Buffer], weights: Mapping[str, Array]
) -> Instr:
    line = source.take()
    m = re.fullmatch(rf"(?:({RESULTS}(?:, {RESULTS})*) = )?(\w+)\((.*)\)( {{)?", line)
    if m is None:
        raise source.error("expected REGION = OPERATOR(REGION…)", line)
    outs = [r for r in _take_regions(source, m[1] or "")[0] if r is not None]
    ins, attributes = _take_regions(source, m[3])
    for r in (*outs, *ins):
        if r is not None and r.buffer not in buffers:
            raise source.error(f"expected declared buffers, '{r.buffer}' is not", line)
    words, op = parse_application(m[2], attributes, source)
    if words:
        raise source.error("expected a region: a buffer, then its type", words[0])
    body, parts = None, list[Program]()
    if m[4] and source.peek().startswith("program @"):
        while source.peek() != "}":
            parts.append(_parse(source, weights))
        source.take()
    elif m[4]:
        body = graph_text.parse_body(source, "region", weights)
    return Instr(op, tuple(outs), tuple(ins), body, parts=tuple(parts))


def _take_regions(source: _Source, text: str) -> tuple[list[Region | None], str]:
    """Split off the regions that `text` begins with; return them and the rest."""
    regions: list[Region | None] = []
    while m := re.match(OPERAND, text):
        text = text[m.end() :]
        if m[1] is None:
            regions.append(None)
            continue
        dense = source.dense(unquote(m[1]), source.memory_type(m[2]))
        if m[3] is None and m[4] is None:
            regions.append(dense)
            continue
        strides = dense.strides if m[4] is None else source.literal(m[4])
        if not source.may_be_open and any(type(stride) is not int for stride in strides):
            raise source.error("expected integer strides", m[0])
        if len(strides) != len(dense.strides):
            raise source.error(f"expected {len(dense.strides)} strides, one per axis", m[0])
        regions.append(replace(dense, offset=source.extent(m[3] or "0"), strides=tuple(strides)))
    return regions, text
