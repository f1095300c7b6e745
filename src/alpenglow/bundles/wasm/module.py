"""Bundles as WebAssembly: NAME.wasm, which imports nothing, and NAME.mjs, which loads and calls it.

The module is the object format's code for wasm32, linked here (`wasm_link`).  It exports its entry
points, its memory, and where in it `constants`, `mutable` and `scratch` begin, for programs that
have no use for NAME.mjs.  Weights are its data, or a file of their own that is loaded beside it.
"""

from __future__ import annotations

import json
from importlib.resources import files

from alpenglow.base.errors import OptionError
from alpenglow.bundles.elf.object import emit
from alpenglow.bundles.entry import OUT_OF_RANGE
from alpenglow.bundles.entry_state import NO_ROOM, NO_STATE
from alpenglow.bundles.extents import ROWS, spelled
from alpenglow.bundles.job import Job, Made
from alpenglow.bundles.mutable import Symbol
from alpenglow.bundles.wasm.link import MEMORY_NAME, Area, Module, link
from alpenglow.bundles.wasm.object import WasmObject
from alpenglow.ir.types import COMPLEX, NARROW

ARRAYS = {
    "bool": "Uint8Array",
    **{f"i{bits}": f"Int{bits}Array" for bits in (8, 16, 32)},
    **{f"u{bits}": f"Uint{bits}Array" for bits in (8, 16, 32)},
    "i64": "BigInt64Array",
    "u64": "BigUint64Array",
    "f16": "Uint16Array",
    "bf16": "Uint16Array",
    "f32": "Float32Array",
    "f64": "Float64Array",
    **dict.fromkeys(sorted(NARROW), "Uint8Array"),
    "c64": "Float32Array",
    "c128": "Float64Array",
}
"""What holds elements in JavaScript: the bits of types that it lacks; complex ones are pairs."""

_REGIONS = ("constants", "mutable", "scratch")


def wasm_files(job: Job) -> Made:
    """Return the module, the script that loads it, an example, and weights that are not in it."""
    _refuse(job)
    layout, name = job.layout, job.name
    emitted = emit(layout, pic=False, freestanding=True, progress=job.progress)
    weights = layout.weights()
    areas = {
        "constants": Area(len(weights), weights if job.embedded else b""),
        "mutable": Area(max(r.mutable_nbytes for r in layout.routines)),
        "scratch": Area(max(r.scratch_nbytes for r in layout.routines)),
    }
    state = layout.routines[0].state
    entries = [*(r.entry for r in layout.routines), *(state.functions if state else ())]
    linked = link(WasmObject(emitted.image), emitted.needs.stack_nbytes, areas, entries)
    contents = {
        f"{name}.wasm": linked.image,
        f"{name}.mjs": _script(job, linked).encode(),
        "main.mjs": _example(job).encode(),
    }
    if not job.embedded:
        contents[f"{name}.weights.bin"] = weights
    return Made(contents, emitted.needs)


def _refuse(job: Job) -> None:
    target = job.layout.target
    if target.architecture != "wasm32":
        raise OptionError(
            f"WebAssembly is made for target wasm32, not for {target}",
            hint="target='wasm32'",
            flags="--target wasm32",
        )
    if job.api != "static":
        raise OptionError(
            f"WebAssembly bundles have one thread and the static API, not the {job.api} one",
            hint=f"api='static'; {job.name}.mjs has the names, types and shapes",
            flags=f"--api static; {job.name}.mjs has the names, types and shapes",
        )
    for routine in job.layout.routines:
        if routine.entry in (MEMORY_NAME, *_REGIONS):
            raise OptionError(
                f"a WebAssembly bundle exports '{routine.entry}' itself, so no entry point can "
                "have this name",
                hint=f"entry='{routine.entry}_1'",
                flags=f"--entry {routine.entry}_1",
            )


def _script(job: Job, linked: Module) -> str:
    layout = job.layout
    entries = {
        r.entry: {
            "inputs": r.inputs,
            "outputs": r.outputs,
        }
        for r in layout.routines
    }
    checks = {r.entry: r.stop_word.offset + 8 if r.checks else 0 for r in layout.routines}
    listed = ",\n".join(
        f"  {json.dumps(entry)}: {{\n"
        + "".join(
            f"    {kind}: [\n" + "".join(f"      {_literal(s)},\n" for s in rows) + "    ],\n"
            for kind, rows in symbols.items()
        )
        + f"    outOfRange: {checks[entry]},\n  }}"
        for entry, symbols in entries.items()
    )
    state = layout.routines[0].state
    return _filled(
        "module.mjs",
        STATE="null" if state is None else f'{{ name: "{state.name}", length: {state.length} }}',
        NAME=job.name,
        VERSION=job.version,
        TARGET=str(layout.target),
        ENTRIES=listed,
        OUT_OF_RANGE=str(OUT_OF_RANGE),
        NO_STATE=str(NO_STATE),
        NO_ROOM=str(NO_ROOM),
        CONSTANTS=str(linked.places["constants"]),
        MUTABLE=str(linked.places["mutable"]),
        SCRATCH=str(linked.places["scratch"]),
        WEIGHTS="null" if job.embedded else json.dumps(f"{job.name}.weights.bin"),
        NBYTES=str(layout.constants_nbytes),
        MEMORY=f"{linked.memory_nbytes:,}",
    )


def _described(s: Symbol) -> dict[str, object]:
    return {
        "name": s.name,
        "type": s.type.dtype,
        "shape": list(s.type.extents),
        "array": ARRAYS[s.type.dtype],
        "offset": s.offset,
        "count": s.type.size * (2 if s.type.dtype in COMPLEX else 1),
        "random": s.hidden,
    }


def _literal(s: Symbol) -> str:
    """Return a symbol as an object of JavaScript."""
    fields = [f"{key}: {json.dumps(value)}" for key, value in _described(s).items()]
    if s.now:
        fields.append(f"now: ({ROWS}) => [{', '.join(map(spelled, s.now))}]")
    return "{" + ", ".join(fields) + "}"


def _example(job: Job) -> str:
    return _filled("main.mjs", NAME=job.name)


def _filled(file: str, **words: str) -> str:
    """Return a file of this package with every @WORD@ replaced."""
    text = (files("alpenglow.bundles") / "js" / file).read_text()
    for word, meaning in words.items():
        text = text.replace(f"@{word}@", meaning)
    return text
