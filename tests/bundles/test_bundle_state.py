"""Bundles that keep state: a decoder's cache and other variables in the memory of their caller."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import alpenglow as ag
import models
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.memory import aligned_bytes
from alpenglow.bundles import Bundle, planned
from alpenglow.bundles.extents import ROWS, LlvmExtents, spelled
from alpenglow.cli import cli
from alpenglow.ir import dims
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.jit import Code
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Transpose
from growing_cases import decoder, ragged, rows, stopped

sys.path.insert(0, str(models.ROOT / "tools"))

import make_decoder

Array = NDArray[Any]

NO_STATE, NO_ROOM, OUT_OF_RANGE = 4, 5, 3
STEP = {"x": (1, 1, 8)}


class Host:
    """A program that has a bundle in it: memory for its regions, and calls of its functions."""

    def __init__(self, made: Bundle, library: Any = None) -> None:
        """Link the bundle's object into this process, or take a library made of its source."""
        self.made, self.library = made, library
        name, routines = made.name, made.routines
        if library is None:
            state = made.routines[0].state
            names = [*(r.entry for r in routines), *(state.functions if state else ())]
            self.code = Code.install([(made.folder / f"{name}.o").read_bytes()], names)
        weights = np.fromfile(made.folder / f"{name}.weights.bin", np.uint8)
        sizes = (
            len(weights),
            max(r.mutable_nbytes for r in routines),
            max(r.scratch_nbytes for r in routines),
        )
        self.regions = [aligned_bytes(max(size, 1)) for size in sizes]
        for region in self.regions:
            region[:] = 0xA5
        self.regions[0][: len(weights)] = weights

    def call(self, name: str, *arguments: Any, result: Any = ctypes.c_int) -> int:
        types = [ctypes.c_void_p if isinstance(a, np.ndarray) else ctypes.c_int64
                 for a in arguments]  # fmt: skip
        address = self.code.address(name) if self.library is None else self.library[name]
        function = ctypes.CFUNCTYPE(result, *types)(address)
        return int(function(*(a.ctypes.data if isinstance(a, np.ndarray) else a
                              for a in arguments)))  # fmt: skip

    def reset(self) -> int:
        return self.call(f"{self.made.name}_reset", *self.regions[:2])

    @property
    def rows(self) -> int:
        return self.call(f"{self.made.name}_length", self.regions[1], result=ctypes.c_int64)

    def trim(self, count: int) -> int:
        return self.call(f"{self.made.name}_trim", self.regions[1], count)

    def run(self, feeds: dict[str, Array], entry: int = 0) -> tuple[int, dict[str, Array]]:
        routine, mutable = self.made.routines[entry], self.regions[1]
        for s in routine.inputs:
            content = np.frombuffer(np.ascontiguousarray(feeds[s.name]).tobytes(), np.uint8)
            mutable[s.offset : s.offset + len(content)] = content
        dynamic = [np.empty(0)] * 0 if "alpenglow_bundle.h" not in self.made.files else [0]
        status = self.call(routine.entry, *self.regions, *dynamic)
        return status, {
            s.name: mutable[s.offset : s.offset + s.type.nbytes]
            .view(s.type.numpy).reshape(s.type.extents).copy()
            for s in routine.outputs
        }  # fmt: skip

    def answer(self, feeds: dict[str, Array], entry: int = 0) -> dict[str, Array]:
        status, outputs = self.run(feeds, entry)
        assert status == 0
        return outputs


def made_of(g: Any, folder: Path, **options: Any) -> Bundle:
    return ag.bundle(g, folder / "out", entry="dec", **{"state": True, "shapes": STEP, **options})


def assert_same(expected: dict[str, Array], actual: dict[str, Array]) -> None:
    assert {n: a.tobytes() for n, a in actual.items()} == {
        n: a.tobytes() for n, a in expected.items()
    }


@pytest.mark.parametrize("api", ["static", "dynamic"])
@pytest.mark.parametrize("last", [False, True])
def test_steps_are_those_of_a_session(tmp_path: Path, api: Any, last: bool) -> None:
    host = Host(made_of(decoder(last), tmp_path, length=40, api=api))
    session = ag.compile(decoder(last), threads=1, shapes=STEP, state=True).session(length=40)
    host.reset()
    for step in range(40):
        feeds = {"x": rows(1, 1, step)}

        assert_same(session.run(feeds), host.answer(feeds))
    assert host.rows == 40


def test_a_step_past_the_length_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    host = Host(made_of(decoder(), tmp_path, length=3))
    feeds = {"x": rows(1)}

    assert (host.run(feeds)[0], host.rows, host.trim(0)) == (NO_STATE, -1, NO_STATE)
    assert (host.reset(), host.rows) == (0, 0)
    answers = [host.answer(feeds) for _ in range(3)]
    assert (host.run(feeds)[0], host.rows) == (NO_ROOM, 3)
    assert [host.trim(count) for count in (-1, 4, -(2**63))] == [NO_ROOM] * 3
    assert (host.trim(1), host.rows) == (0, 1)
    assert_same(answers[1], host.answer(feeds))
    assert host.reset() == 0
    assert_same(answers[0], host.answer(feeds))


def test_functions_of_the_state_refuse_memory_that_is_not_aligned(tmp_path: Path) -> None:
    host = Host(made_of(decoder(), tmp_path, length=3))
    host.reset()
    host.regions[1] = host.regions[1][8:]

    assert (host.reset(), host.rows, host.trim(0)) == (1, -1, 1)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    size = make_decoder.Size(
        layers=1, width=32, inner=48, heads=2, groups=1, vocabulary=40, positions=32
    )
    return make_decoder.write(tmp_path_factory.mktemp("decoder"), size)


def tokens(count: int, past: int) -> dict[str, Array]:
    ids = (np.arange(past, past + count)[None] * 7 + 3) % 40
    return {"input_ids": ids, "attention_mask": np.ones((1, past + count), np.int64)}


def masked() -> ag.Graph:
    """Attention of new rows over all so far, of which a mask says which count."""
    g = ag.Graph("masked")
    x, mask = g.input("x", "f32[1,S,8]"), g.input("mask", "f32[1,T]")
    keys = g(Concat(1), g.input("past.0.key", "f32[1,P,8]"), x)
    total, each = dims.symbol("T"), dims.symbol("P") + dims.symbol("S")
    g.guards = ((each - total, "=="),)
    seen = g(Reshape((1, 1, each)), mask)
    scores = g(MatMul(), x, g(Transpose((0, 2, 1)), keys))
    scores = g(Add(), scores, g(Broadcast(scores.type.shape), seen))
    g.output("y", g(MatMul(), g(Softmax(2), scores), keys))
    g.output("present.0.key", keys)
    return g


def test_inputs_may_grow_as_the_state_does(tmp_path: Path) -> None:
    host = Host(made_of(masked(), tmp_path, length=12))
    mask = host.made.routines[0].inputs[1]
    session = ag.compile(masked(), threads=1, shapes=STEP, state=True).session(length=12)
    host.reset()

    assert (mask.type.extents, mask.shown) == ((1, 12), f"f32[1,{ROWS}+1]")
    for past in range(12):
        feeds = {
            "x": rows(1, 1, past),
            "mask": np.linspace(-3, 3, past + 1, dtype=np.float32)[None],
        }
        assert_same(session.run(feeds), host.answer(feeds))


def test_a_prompt_and_steps_share_one_state(tmp_path: Path) -> None:
    variants = {"prompt": {"x": (1, 4, 8)}, "step": STEP}
    host = Host(made_of(decoder(), tmp_path, length=12, shapes=None, variants=variants))
    host.reset()
    session = ag.compile(decoder(), threads=1, shapes=STEP, state=True).session(length=12)
    x = rows(12)
    singly = [session(x[:, [k]])[0, 0] for k in range(12)]
    host.answer({"x": x[:, :4]})

    assert host.rows == 4
    for k in range(4, 12):
        y = host.answer({"x": x[:, [k]]}, 1)["y"][0, 0]
        np.testing.assert_allclose(y, singly[k], rtol=0, atol=1e-5)
    assert host.run({"x": x[:, :1]}, 1)[0] == NO_ROOM
    assert (host.trim(9), host.run({"x": x[:, :4]})[0], host.rows) == (0, NO_ROOM, 9)


def test_entry_points_with_other_states_are_refused(tmp_path: Path) -> None:
    variants = {"one": STEP, "two": {"x": (2, 1, 8)}}
    with pytest.raises(UnsupportedError, match=r"share its state, but one has past.0.key: f32\[1,"):
        made_of(decoder(), tmp_path, length=8, shapes=None, variants=variants)
    with pytest.raises(OptionError, match="'dec_reset' is already a function of the state"):
        made_of(decoder(), tmp_path, length=8, shapes=None, variants={"dec_reset": STEP})


def keeping() -> ag.Graph:
    """A graph whose variables change in place, move, change places with others, or stay."""
    g = ag.Graph("keeping")
    x, i = g.input("x", "f32[3,3]"), g.input("i", "i64[1]")
    total = g.variable("total", np.eye(3, dtype=np.float32))
    turned = g.variable("turned", np.arange(9, dtype=np.float32).reshape(3, 3))
    a, b = (g.variable(n, np.full((1, 3), k, np.float32)) for k, n in enumerate("ab"))
    g.variable("kept", np.arange(4, dtype=np.int32))
    g.assign("total", g(Add(), total, x))
    g.assign("turned", g(Add(), g(Transpose((1, 0)), turned), x))
    g.assign("a", b)
    g.assign("b", a)
    table = g.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    g.output("row", g(Add(), g(Gather(0), table, g(InRange(0, 2), i)), a))
    g.output("y", g(Add(), total, turned))
    return g


def test_variables_of_fixed_size_are_kept(tmp_path: Path) -> None:
    host = Host(made_of(keeping(), tmp_path, state=False, shapes=None))
    session = ag.compile(keeping(), threads=1).session()
    assert host.run({"x": np.ones((3, 3), np.float32), "i": np.array([0])})[0] == NO_STATE
    for turn in range(6):
        if turn % 4 == 0:
            session.reset()
            assert host.reset() == 0
        feeds = {"x": np.full((3, 3), turn, np.float32), "i": np.array([turn % 2])}

        assert_same(session.run(feeds), host.answer(feeds))


@pytest.mark.parametrize(("make", "lost"), [(decoder, False), (ragged, True)])
def test_state_that_was_only_added_to_survives_bad_data(
    tmp_path: Path, make: Any, lost: bool
) -> None:
    g = stopped(make())
    host = Host(made_of(g, tmp_path, length=4, shapes={"x": (2, 1, 8)}))
    feeds = {"x": rows(1, 2), "start": np.zeros(2, np.int64), "row": np.array([0])}
    host.reset()
    host.answer(feeds)

    assert host.run({**feeds, "row": np.array([7])})[0] == OUT_OF_RANGE
    assert (host.run(feeds)[0], host.rows) == ((NO_STATE, -1) if lost else (0, 2))


def test_what_is_not_bounded_by_the_rows_is_refused_by_name(
    language_model: Path, tmp_path: Path
) -> None:
    for options, error, said in (
        ({}, OptionError, r"grows \(past_key_values.0.key.*\n  try: length=256"),
        (
            {"length": 8},
            UnsupportedError,
            r"^dimensions batch_size, sequence_length are dynamic in",
        ),
        ({"length": 8, "state": False}, OptionError, "no state of decoder grows"),
        (
            {"length": 8, "shapes": {"input_ids": (1, 9)}},
            OptionError,
            "expected 9 or more, which a call adds",
        ),
        ({"length": 0}, OptionError, "length is 0, expected"),
        ({"length": 1 << 21}, OptionError, "there is room, 1 to 1048576"),
        ({"length": True}, OptionError, "length is True, expected"),
    ):
        with pytest.raises(error, match=said):
            made_of(language_model, tmp_path, **{"shapes": None, **options})
    g = ag.Graph("two")
    x = g.input("x", "f32[1,4]")
    for name, count in (("one", 1), ("two", 2)):
        cache = g.growing_variable(name, f"f32[{name},4]", 0)
        g.assign(name, g(Concat(0), cache, *[x] * count))
    with pytest.raises(UnsupportedError, match=r"grows \(one by 1, two by 2\), expected the same"):
        made_of(g, tmp_path, state=False, shapes=None, length=8)
    exe = ag.compile(decoder(), shapes=STEP, state=True)
    exe.session(length=8)(rows(1))
    with pytest.raises(UnsupportedError, match="not supported for a program"):
        planned(exe.artifacts[0].program, ag.Target.parse("cpu"), ag.Options(), length=8)
    assert not list(tmp_path.iterdir())


def test_extents_are_computed_as_they_are_here() -> None:
    """Quotients are rounded down, also of what is negative."""
    r = dims.symbol(ROWS)
    extents = [
        r * r * 3 - 5, (r - 7) // 3, (r - 7) % 3, dims.larger(r - 4, 2), dims.smaller(r, r * 2 - 3),
        dims.ceil_div(r * 5, 4) % (r + 1), 12, r,
    ]  # fmt: skip
    text = LlvmExtents()
    results = [text.of(d) for d in extents]
    lines = [f"  %at{k} = getelementptr i64, ptr %out, i64 {k}\n  store i64 {v}, ptr %at{k}"
             for k, v in enumerate(results)]  # fmt: skip
    module = "\n".join([f"define void @f(i64 %{ROWS}, ptr %out) {{", *text.lines, *lines,
                        "  ret void", "}"])  # fmt: skip
    code = Code.install([assemble(module, ag.Target.parse("cpu"))], ["f"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(code.address("f"))
    found = np.zeros(len(extents), np.int64)
    for value in range(12):
        call(value, found.ctypes.data)

        assert found.tolist() == [dims.bind(d, {ROWS: value}) for d in extents]
    assert spelled(extents[0]) == "(rows * rows * 3 - 5)"


@pytest.mark.cross
@pytest.mark.parametrize("api", ["static", "dynamic"])
def test_c_counts_as_the_object_does(language_model: Path, tmp_path: Path, api: Any) -> None:
    shapes = {"input_ids": (1, 1)}
    made = made_of(language_model, tmp_path, length=40, shapes=shapes, format="c", api=api)
    command = ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-fPIC"]
    library = tmp_path / f"{api}.so"
    subprocess.run([*command, "-shared", "-march=native", "-o", library, made.folder / "dec.c"],
                   check=True)  # fmt: skip
    loaded = ctypes.CDLL(str(library))
    host = Host(made, {n: ctypes.cast(loaded[n], ctypes.c_void_p).value
                       for n in ("dec", "dec_reset", "dec_length", "dec_trim")})  # fmt: skip
    model = ag.load(language_model, shapes)
    session = ag.compile(model, threads=1, state=True).session(length=40)
    assert (host.run(tokens(1, 0))[0], host.rows, host.reset()) == (NO_STATE, -1, 0)
    for past in range(32):
        expected = session.run(tokens(1, past))["logits"]
        np.testing.assert_allclose(host.answer(tokens(1, past))["logits"], expected, atol=1e-5)
    assert (host.trim(33), host.trim(-1), host.trim(5), host.rows) == (NO_ROOM, NO_ROOM, 0, 5)


def run(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [str(a) for a in args])
    return done.exit_code, done.output


BOUND = ("--dim", "batch_size=1,sequence_length=1")


@pytest.mark.rest
def test_the_command_bundles_state(language_model: Path, tmp_path: Path) -> None:
    args = ("bundle", language_model, "-o", tmp_path / "out", "--state")
    code, told = run(*args, *BOUND)
    assert code == 2 and "try: --max-length 256" in told
    code, told = run(*args, "--max-length", 8)
    assert code == 2 and "try: --dim batch_size=1 --dim sequence_length=1, with" in told
    code, told = run(*args, *BOUND, "--max-length", 8)

    assert code == 0 and "room for 8 rows" in told and "i64[1,rows+1]" in told
    assert "int64_t model_length" in (tmp_path / "out" / "model.h").read_text()


def test_the_command_bundles_archives_of_state(language_model: Path, tmp_path: Path) -> None:
    archive = tmp_path / "decoder.ago"
    assert run("compile", language_model, "-o", archive, "--state")[0] == 0
    args = ("bundle", archive, "-o", tmp_path / "out", *BOUND)
    code, told = run(*args)
    assert code == 2 and "try: --max-length 256" in told
    code, told = run(*args, "--max-length", 8)

    assert code == 0 and "i64[1,rows+1]" in told


@pytest.mark.parametrize("command", ["compile", "bundle"])
@pytest.mark.sampled(1)
def test_the_commands_keep_the_last_row_of_an_output(
    command: str, language_model: Path, tmp_path: Path
) -> None:
    given = ("--dim", "batch_size=1,sequence_length=3", "--max-length", 8)
    more = given if command == "bundle" else ()
    out = tmp_path / ("out" if command == "bundle" else "decoder.ago")
    code, told = run(command, language_model, "-o", out, "--last-row", "logits")
    assert code == 2 and "try: --state" in told
    code, told = run(command, language_model, "-o", out, "--state", *more, "--last-row", "nothing")
    assert code == 2 and "output is 'nothing', expected one of logits" in told
    code, told = run(command, language_model, "-o", out, "--state", *more, "--last-row", "logits")
    assert code == 0, told
    if command == "compile":
        session = ag.open(out).session(length=8)
        assert session.run(tokens(3, 0))["logits"].shape[:2] == (1, 1)
    else:
        assert "f32[1,1," in told
