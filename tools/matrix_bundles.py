"""Bundles of each format as a caller uses them: linked, imported or loaded, and run."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import alpenglow as ag
from alpenglow.base.memory import aligned_bytes

FORMATS = ("object", "c", "shared", "wheel", "wasm", "opencl")

SCRIPT = """
import fs from "node:fs";
const [script, folder] = process.argv.slice(2);
const { load, entries } = await import(script);
const [entry, { inputs, outputs }] = Object.entries(entries)[0];
const net = await load();
const feeds = Object.fromEntries(inputs.map((input, i) => {
    const bytes = Uint8Array.from(fs.readFileSync(`${folder}/${i}.in`));
    return [input.name, new globalThis[input.array](bytes.buffer)];
}));
const results = net.run(feeds, entry);
outputs.forEach((y, i) => fs.writeFileSync(`${folder}/${i}.out`, results[y.name].data));
"""


def run(graph: Any, format: str, folder: Path, feeds: Mapping[str, Any]) -> dict[str, Any] | None:
    """Write a bundle and return its outputs by name; None for a format that does not run here."""
    target = {"wasm": "wasm32", "opencl": "opencl-cpu"}.get(format, "cpu")
    name = f"bundle_{format}"
    made = ag.bundle(graph, folder / name, format=format, target=target, entry=name)
    if format == "opencl":
        return None
    if format == "wheel":
        return wheel(made, graph, feeds)
    return node(made, feeds) if format == "wasm" else linked(made, format, feeds)


def linked(made: ag.Bundle, format: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a function in C, called once."""
    if format == "shared":
        (library,) = made.folder.glob("*.so")
    else:
        library = made.folder / "linked.so"
        source = f"{made.name}.{'c' if format == 'c' else 'o'}"
        command = ["gcc", "-O1", "-std=c11", "-w", "-march=native", "-fPIC", "-shared", "-o"]
        words = [*command, str(library), str(made.folder / source)]
        subprocess.run(words, check=True, capture_output=True)
    code = ctypes.CDLL(str(library))
    routine = made.routines[0]
    weights = np.fromfile(made.folder / f"{made.name}.weights.bin", np.uint8)
    sizes = (len(weights), routine.mutable_nbytes, routine.scratch_nbytes)
    constants, mutable, scratch = (aligned_bytes(n or 1) for n in sizes)
    constants[: len(weights)] = weights
    regions = [ctypes.c_void_p(a.ctypes.data) for a in (constants, mutable, scratch)]
    if routine.state is not None:
        assert getattr(code, f"{made.name}_reset")(*regions[:2]) == 0, "reset fails"
    for s in routine.inputs:
        mutable[s.offset : s.offset + s.type.nbytes] = np.frombuffer(
            np.ascontiguousarray(feeds[s.name]).tobytes(), np.uint8
        )
    status = getattr(code, routine.entry)(*regions)
    assert status == 0, f"the entry point returns {status}"
    return {
        s.name: mutable[s.offset : s.offset + s.type.nbytes]
        .view(s.type.numpy).reshape(s.type.extents)
        for s in routine.outputs
    }  # fmt: skip


def wheel(made: ag.Bundle, graph: ag.Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a package, imported from where its wheel is unpacked."""
    (file,) = made.files
    site = made.folder / "site"
    with zipfile.ZipFile(made.folder / file) as archive:
        archive.extractall(site)
    sys.path.insert(0, str(site))
    try:
        sys.modules.pop(made.name, None)
        package = import_module(made.name)
    finally:
        sys.path.remove(str(site))
    call = package.session() if hasattr(package, "session") else package.run
    results = call(*(feeds[n] for n in graph.callers_inputs()))
    names = list(graph.callers_outputs())
    return dict(zip(names, results if isinstance(results, tuple) else (results,), strict=True))


def node(made: ag.Bundle, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a module of WebAssembly, run by Node.js."""
    routine = made.routines[0]
    (made.folder / "run.mjs").write_text(SCRIPT)
    for i, s in enumerate(routine.inputs):
        np.ascontiguousarray(feeds[s.name]).tofile(made.folder / f"{i}.in")
    files = (made.folder / "run.mjs", made.folder / f"{made.name}.mjs", made.folder)
    command = ["node", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, json.dumps(done.stderr[-150:])
    return {
        s.name: np.fromfile(made.folder / f"{i}.out", s.type.numpy).reshape(s.type.extents)
        for i, s in enumerate(routine.outputs)
    }
