"""`alpenglow bundle`: from a model to files that a C programmer links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import click

from alpenglow.base import deadline
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.bundles import (
    Bundle,
    check,
    default_format,
    default_name,
    machines,
    planned,
    produced,
    write,
)
from alpenglow.bundles.curve import curve
from alpenglow.bundles.elf.system import SYSTEMS
from alpenglow.bundles.entry import APIS, Api
from alpenglow.bundles.footprint import Limits
from alpenglow.bundles.formats import FORMATS
from alpenglow.bundles.plan import Planned
from alpenglow.cli.help import Command
from alpenglow.cli.options import (
    Request,
    Shapes,
    memory_option,
    model_options,
    parse_shapes,
    timeout_option,
)
from alpenglow.cli.output import examples, show
from alpenglow.cli.progress import progress
from alpenglow.cli.source import IMPORT, ModelSource, kind_of, read, refuse_staged
from alpenglow.compiler import Options
from alpenglow.driver.state import with_state
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.program import Program


@click.command(
    "bundle",
    cls=Command,
    epilog=examples("""
alpenglow bundle model.onnx -o bundle --shapes image=1x3x224x224
alpenglow bundle model.onnx -o bundle --force
alpenglow bundle model.onnx -o board --target cortex-m4 --freestanding --memory 64KB
alpenglow bundle model.onnx --target cortex-m4 --memory-curve
alpenglow bundle model.onnx --target cortex-m4 -o out --flash 512KiB --ram 128KiB
alpenglow bundle model.onnx -o source --format c --portable
alpenglow bundle model.onnx -o web --format wasm --target wasm32
alpenglow bundle model.onnx -o fat --target x86-64-v2,x86-64-v3,x86-64-v4
alpenglow bundle model.onnx -o device --target opencl-gpu
alpenglow bundle model.onnx -o packages --format wheel --release 1.1
alpenglow bundle decoder.onnx -o decoder --state --max-length 256 --dim batch=1,sequence=1
alpenglow bundle model.onnx -o both --variant small:image=1x3x64x64 --variant large:image=1x3x96x96
"""),
)
@model_options
@click.option("-o", "output", type=click.Path(path_type=Path), metavar="DIR",
              help="The folder to create.")  # fmt: skip
@click.option("--api", type=click.Choice(APIS), default="static", show_default=True,
              help="static: sizes are constants in the header.  dynamic: sizes are read from a "
              "table at run time, and calls may use threads.")  # fmt: skip
@click.option("--entry", metavar="NAME",
              help="The name of the entry point and of the files.  [default: the name of MODEL]")
@click.option("--weights", type=click.Choice(["separate", "embedded"]), default="separate",
              show_default=True, help="Write the weights to a file of their own, or into the code.",
)  # fmt: skip
@click.option("--format", "kind", type=click.Choice(list(FORMATS)),
              help="What to write.  [default: object; opencl for OpenCL targets]")  # fmt: skip
@click.option("--variant", "variants", multiple=True, metavar="ENTRY:NAME=1x3x224x224[,…]",
              help="Add an entry point for these shapes.  All entry points share the weights.")
@click.option("--state", is_flag=True,
              help="Keep state in the memory of the bundle: an input such as "
              "past_key_values.0.key is fed by the output present.0.key of the call before (KV "
              "cache).")  # fmt: skip
@click.option("--max-length", "length", type=click.IntRange(1), metavar="ROWS",
              help="The largest number of rows (tokens) in state that grows, such as a KV cache.")
@click.option(
    "--last-row",
    "last",
    multiple=True,
    metavar="OUTPUT",
    help="With --state: return only the last row of this output, such as logits.",
)
@click.option("--system", type=click.Choice(SYSTEMS),
              help="The operating system to write for.  [default: the one of this machine]")
@click.option("--freestanding", is_flag=True,
              help="Call no function of the C library, not even memcpy.")
@click.option("--portable", is_flag=True,
              help="With --format c: write plain C11, without vector instructions.")
@click.option("--release", default="1.0", show_default=True, metavar="VERSION",
              help="With --format wheel: the version of the package.")  # fmt: skip
@memory_option
@click.option("--flash", metavar="BYTES|256KiB",
              help="Limit of code and constants together.  A larger bundle is not written.")
@click.option("--ram", metavar="BYTES|64KiB",
              help="Limit of inputs, outputs, state, scratch memory and stack of a call together.")
@timeout_option
@click.option("--memory-curve", is_flag=True,
              help="Print the cost of several memory limits, and write nothing.")  # fmt: skip
@click.option("--force", is_flag=True,
              help="Replace the folder if it holds an unchanged bundle and nothing else.",
)  # fmt: skip
def command(
    request: Request, output: Path | None, api: Api, entry: str | None, weights: str,
    kind: str | None, variants: tuple[str, ...], state: bool, length: int | None,
    last: tuple[str, ...], freestanding: bool,
    system: str | None,
    portable: bool, release: str, memory: str | None, flash: str | None, ram: str | None,
    memory_curve: bool, force: bool, timeout: float | None,
) -> None:  # fmt: skip
    """Write MODEL as files that run without Alpenglow, into a new folder.

    The caller provides all memory.  The sizes are printed, and are constants of the header.
    """
    request, limits = replace(request, memory=memory, timeout=timeout), Limits.parse(flash, ram)
    name = entry or default_name(request.model)
    shapes = parse_variants(variants)
    targets = machines(request.target, system)
    form = kind or default_format(targets)
    if memory_curve:
        if state or last or shapes or len(targets) > 1 or memory or output:
            raise OptionError(
                "--memory-curve: expected one entry point, one target, no --state, --last-row, "
                "--memory or -o"
            )
        code = partial(
            _code_of, target=targets[0], name=name, api=api, embedded=weights == "embedded",
            format=form, freestanding=freestanding, portable=portable,
        )  # fmt: skip
        _show_curve(request, targets[0], code)
        return
    if output is None:
        raise OptionError("a bundle needs a folder to be written to", flags="-o DIR")
    check(output, name, api, form, tuple(shapes), force)
    requests = {e: replace(request, shapes=s) for e, s in shapes.items()} or {name: request}
    with progress() as report, deadline.limited(timeout):
        options = request.options(report)
        programs: dict[Target, dict[str, Planned]] = {target: {} for target in targets}
        for each, asked in requests.items():
            for target in targets:
                # An archive's program is not planned twice, so each target has its own.
                source = remembering_source(asked, state, last) if state or last else read(asked)
                refuse_staged(asked, source, "bundled")
                programs[target][each] = planned(source.ir, target, options, source.resume, length)
        made = produced(
            programs, name, api=api, embedded=weights == "embedded", format=form,
            freestanding=freestanding, portable=portable, release=release, options=options,
        )  # fmt: skip
        bundle = write(made, output, name, force, limits)
    show(_described(bundle), str(bundle).splitlines(), request.json)


def _show_curve(request: Request, target: Target, code_of: Callable[..., int]) -> None:
    """Print what limits of memory cost."""
    source = read(request)
    refuse_staged(request, source, "bundled")
    if isinstance(source.ir, Program):
        raise UnsupportedError("this is planned already", hint="--memory-curve of the model itself")
    with progress() as report:
        options = request.options(report)

        def plan(chosen: Options) -> Program:
            made = planned(source.ir, target, chosen, source.resume)
            assert isinstance(made, Program), "there is no state"
            return made

        points = list(curve(options, plan, partial(code_of, options=options)))
    lines = ["     scratch   extra multiply-adds   instructions        code"]
    lines += [
        f"{p.scratch_nbytes:12,} {p.extra:21,} {p.instructions:14,} "
        f"{f'{p.code_nbytes:,}' if p.code_nbytes else '-':>11}"
        for p in points
    ]
    show({"points": [asdict(p) for p in points]}, lines, request.json)


def _code_of(
    program: Program, *, options: Options, target: Target, name: str, api: Api, embedded: bool,
    format: str, freestanding: bool, portable: bool,
) -> int:  # fmt: skip
    """Return how many bytes of code a program becomes; 0 where a C compiler decides that."""
    _, product = produced(
        {target: {name: program}}, name, api=api, embedded=embedded, format=format,
        freestanding=freestanding, portable=portable, options=options,
    )  # fmt: skip
    needs = product.needs
    return needs.code_nbytes + needs.data_nbytes if needs.compiled else 0


def remembering_source(request: Request, state: bool, last: Sequence[str]) -> ModelSource:
    """Return a model whose caches are state."""
    if kind_of(request) == "archive":
        raise UnsupportedError(
            "--state for an archive is not supported, only as the archive is made from a model",
            hint="leave --state out, or name the model",
        )
    source = read(request)
    if isinstance(source.ir, Program) or source.after != IMPORT:
        raise UnsupportedError(
            "--state for the text of a stage is not supported; supported: a model"
        )
    if source.staged:
        return source
    kept = with_state(source.ir, state, last)
    assert isinstance(kept, Graph), "state makes no parts of a graph"
    return replace(source, ir=kept)


def parse_variants(texts: tuple[str, ...]) -> dict[str, Shapes]:
    """Read ENTRY:NAME=1x3x224x224[,…], once for each entry point."""
    variants: dict[str, Shapes] = {}
    for text in texts:
        entry, colon, shapes = text.partition(":")
        if not colon:
            raise OptionError(f"--variant {text}: expected ENTRY:NAME=1x3x224x224")
        if entry in variants:
            raise OptionError(f"--variant names '{entry}' twice, expected once")
        variants[entry] = parse_shapes((shapes,))
    return variants


def _described(bundle: Bundle) -> dict[str, object]:
    compiled, state = bundle.needs.compiled, bundle.routines[0].state
    return {
        "folder": str(bundle.folder),
        "target": str(bundle.target),
        "files": dict(bundle.files),
        "code_nbytes": bundle.needs.code_nbytes + bundle.needs.data_nbytes if compiled else None,
        "constants_nbytes": bundle.constants_nbytes,
        "flash_nbytes": bundle.flash_nbytes if compiled else None,
        "ram_nbytes": bundle.ram_nbytes,
        "state": None
        if state is None
        else {
            "nbytes": state.nbytes,
            "length": state.length,
            "variables": [
                {"name": c.name, "type": str(c.type), "offset": c.offset} for c in state.cells
            ],
        },
        "entries": [
            {
                "name": r.entry,
                "mutable_nbytes": r.mutable_nbytes,
                "scratch_nbytes": r.scratch_nbytes,
                "multiply_adds": r.multiply_adds,
                "stack_nbytes": bundle.needs.stack_nbytes if compiled else None,
                "symbols": [
                    {
                        "name": s.name,
                        "type": str(s.type),
                        "output": s.output,
                        "offset": s.offset,
                        **({"now": s.shown} if s.now else {}),
                    }
                    for s in r.symbols
                ],
            }
            for r in bundle.routines
        ],
    }
