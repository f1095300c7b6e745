"""The command line, through click's runner and as a process; and the pages that show it."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
import models
import staged_cases
from alpenglow.cli import COMMANDS
from alpenglow.cli import verify as verify_command
from alpenglow.cli.files import stems
from alpenglow.cli.show import STAGE_DOCS
from alpenglow.compiler import every_pass, pipeline
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.measure.peak import peak
from alpenglow.ops.elementwise.activation import Relu
from command import alpenglow, answer

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/cli.md")
FLOP = 2 * 8 * 16 * 16 * 3 * 9 + 2 * 8 * 10
"""Of the model below: a 3×3 convolution to 8×16×16, then 8 to 10 features."""


def convolutional(opset: int = 21) -> onnx.ModelProto:
    """Return a small network from image[batch, 3, 32, 32] to scores[batch, 10]."""
    rng = np.random.default_rng(0)
    weights = {"w": (8, 3, 3, 3), "b": (8,), "v": (8, 10)}
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node(
                    "Conv", ["image", "w", "b"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]
                ),
                helper.make_node("Relu", ["c"], ["r"]),
                helper.make_node("GlobalAveragePool", ["r"], ["g"]),
                helper.make_node("Flatten", ["g"], ["f"]),
                helper.make_node("MatMul", ["f", "v"], ["scores"]),
            ],
            "convolutional",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
            [
                numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
                for n, s in weights.items()
            ],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=10,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a cache of its own: `model.onnx`, `image.npy`, `samples.npz`."""
    onnx.save(convolutional(), tmp_path / "model.onnx")
    image = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    images = np.concatenate([image, -image, 2 * image])
    np.savez(tmp_path / "samples.npz", image=images, labels=np.arange(3))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path


# ── every command ──


def test_help_lists_every_command() -> None:
    text = alpenglow("--help").stdout

    assert all(f"  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_examples_in_its_help(name: str) -> None:
    subject = {"test-machine": "cpu", "devices": "nvidia"}.get(name, "model.")

    assert f"alpenglow {name} {subject}" in alpenglow(f"{name} --help").stdout


@pytest.mark.parametrize("name", ["run", "check", "verify", "bench", "profile"])
def test_open_extents_are_an_error_that_says_how_to_bind_them(folder: Path, name: str) -> None:
    found = alpenglow(f"{name} model.onnx", 2).stderr

    assert found.startswith("error: dimensions batch are dynamic")
    assert "--dim batch=1, or --shapes 'image=1x3x32x32'" in found


def test_a_missing_file_is_an_error_without_traceback(folder: Path) -> None:
    found = alpenglow("run nothing.onnx", 2).stderr

    assert found.startswith("error: cannot read the model") and "Traceback" not in found


def test_traceback_shows_where_an_error_was_found(folder: Path) -> None:
    assert "Traceback" in alpenglow("run nothing.onnx --traceback", 2).stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--shapes image=1xx3", "joined by x"),
        ("--shapes 1x3", "expected NAME="),
        ("--shapes other=1", "names 'other'"),
        ("--dim batch=x", "expected a number"),
        ("--dim size=1", "open in no input: image f32[batch,3,32,32]"),
        ("--dim batch=1,batch=2", "twice"),
        ("--dim batch=1 --target z80", "z80"),
        ("--dim batch=1 --input other=random", "expected inputs: image"),
        ("--input image=model.onnx", "expected a .npy file"),
    ],
)
def test_a_wrong_option_is_told_by_name(folder: Path, flags: str, message: str) -> None:
    found = alpenglow(f"run model.onnx {flags}", 2).stderr

    assert found.startswith("error:") and message in found


def test_an_interrupt_exits_with_130(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("alpenglow.cli.run.executable", interrupted)

    assert alpenglow("run model.onnx", 130).stderr == "interrupted\n"


def test_our_own_mistake_exits_with_3_and_a_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: Any) -> None:
        raise AssertionError("this cannot be")

    monkeypatch.setattr("alpenglow.cli.run.executable", mistaken)

    assert "AssertionError: this cannot be" in alpenglow("run model.onnx", 3).stderr


# ── run, compile ──


def test_run_tells_of_each_output(folder: Path) -> None:
    (row,) = answer("run model.onnx --shapes image=2x3x32x32")["outputs"]

    assert (row["name"], row["type"], len(row["first"])) == ("scores", "f32[2,10]", 5)
    assert row["min"] < row["mean"] < row["max"]


def test_run_is_the_same_on_every_run_and_in_the_interpreter(folder: Path) -> None:
    compiled = answer("run model.onnx --dim batch=1")["outputs"][0]["first"]
    interpreted = answer("run model.onnx --dim batch=1 --target interpreter")["outputs"][0]["first"]

    assert compiled == answer("run model.onnx --dim batch=1")["outputs"][0]["first"]
    np.testing.assert_allclose(compiled, interpreted, rtol=1e-4)


def test_a_given_array_binds_the_extents_of_its_input(folder: Path) -> None:
    alpenglow("run model.onnx --input image=image.npy --output out")

    assert np.load(folder / "out" / "scores.npy").shape == (1, 10)
    assert [p.name for p in (folder / "out").iterdir()] == ["scores.npy"]


def test_an_archive_runs_as_the_model_does(folder: Path) -> None:
    alpenglow("compile model.onnx --dim batch=1 -o model.ago")
    (folder / "model.onnx").rename(folder / "gone.onnx")

    assert answer("run model.ago") == answer("run gone.onnx --dim batch=1")


@pytest.mark.parametrize("name", ["run", "verify", "bench --calls 3", "profile"])
def test_an_archive_of_open_extents_takes_them_from_arrays(folder: Path, name: str) -> None:
    ag.compile(folder / "model.onnx").save(folder / "open.ago")
    ((x, t),) = ag.open(folder / "open.ago").inputs.items()
    np.save(folder / "x.npy", np.ones(t.bind({"batch": 3}).extents, np.float32))

    assert alpenglow(f"{name} open.ago --input {x}=x.npy").stdout
    assert "--input NAME=FILE.npy" in alpenglow(f"{name} open.ago --dim batch=3", 2).stderr


def test_extents_that_are_left_open_stay_so_in_an_archive(folder: Path) -> None:
    told = alpenglow("compile model.onnx -o open.ago").stdout
    np.save(folder / "x.npy", np.ones((3, 3, 32, 32), np.float32))
    done = answer("compile model.onnx -o met.ago --input image=x.npy")

    assert "code is made where it is run" in told
    assert ag.open(folder / "open.ago").artifacts == []
    assert done["programs"] == len(ag.open(folder / "met.ago").artifacts) == 1
    assert answer("run open.ago --input image=x.npy") == answer("run met.ago --input image=x.npy")
    (scores,) = answer("run open.ago --input image=x.npy")["outputs"]
    (fixed,) = answer("run model.onnx --input image=x.npy")["outputs"]
    assert scores["type"] == fixed["type"] == "f32[3,10]"
    assert scores["mean"] == pytest.approx(fixed["mean"], 1e-5)
    np.save(folder / "flat.npy", np.ones(3, np.float32))
    for given, said in (
        ("image=flat.npy", "shape of input 'image' is (3,)"),
        ("picture=x.npy", "--input names"),
    ):
        line = f"compile model.onnx -o no.ago --input {given}"
        assert said in alpenglow(line, 2).stderr
    assert not (folder / "no.ago").exists()


def test_arrays_for_a_model_of_fixed_extents_are_checked_by_name(folder: Path) -> None:
    np.save(folder / "x.npy", np.ones((1, 3, 32, 32), np.float32))
    line = "compile model.onnx --dim batch=1 -o model.ago --input"

    assert "kernels" in answer(f"{line} image=x.npy")
    assert "--input names picture" in alpenglow(f"{line} picture=x.npy", 2).stderr


def test_an_archive_for_another_machine_is_made_but_not_run(folder: Path) -> None:
    made = answer("compile model.onnx --dim batch=1 --target riscv64+v -o other.ago")

    assert made["target"] == "riscv64+v" and made["kernels"] > 0
    assert "this machine is" in alpenglow("run other.ago", 2).stderr


def test_an_archive_that_cannot_be_written_is_an_error(folder: Path) -> None:
    found = alpenglow("compile model.onnx --dim batch=1 -o nowhere/model.ago", 2).stderr

    assert found.startswith("error:") and "nowhere" in found


@pytest.mark.parametrize("line", [
    "run {}", "compile {} -o x.ago", "bundle {} -o x", "show {}", "check {}", "verify {}",
    "reduce {} -o x.onnx", "bench {} --calls 1", "profile {}", "tune {} -o x.txt",
    "profile-ranges {} --data samples.npz -o x.yaml",
    "quantize {} --data samples.npz -o x.onnx",
])  # fmt: skip
@pytest.mark.sampled(5)
def test_code_under_the_name_of_data_is_refused(folder: Path, line: str) -> None:
    np.savez(folder / "samples.npz", image=np.zeros((1, 1, 3, 32, 32), np.float32))
    alpenglow("compile model.onnx --dim batch=1 -o archive.ago")
    alpenglow("show model.onnx --dim batch=1 --after plan -o text.txt")
    (folder / "archive.ago").rename(folder / "archive.onnx")
    (folder / "text.txt").rename(folder / "text.ago")

    found = alpenglow(line.format("archive.onnx"), 2).stderr
    assert "archive.onnx holds machine code, expected a name that ends in .ago" in found
    assert "text.ago holds the text of a stage" in alpenglow(line.format("text.ago"), 2).stderr
    assert not list(folder.glob("x*"))


def test_code_under_another_name_runs_if_it_is_trusted(folder: Path) -> None:
    alpenglow("compile model.onnx --dim batch=1 -o model.bin")
    alpenglow("show model.onnx --dim batch=1 --after plan -o text.bin")
    expected = answer("run model.onnx --dim batch=1")

    assert answer("run model.bin --trust") == answer("run text.bin --trust") == expected


def test_extents_of_an_archive_are_fixed(folder: Path) -> None:
    alpenglow("compile model.onnx --dim batch=1 -o model.ago")

    assert "are already fixed" in alpenglow("run model.ago --dim batch=2", 2).stderr


# ── show ──


def test_show_lists_the_stages_with_their_docs(folder: Path) -> None:
    lines = alpenglow("show --list").stdout.splitlines()

    assert [line.split()[0] for line in lines] == list(STAGE_DOCS)
    assert lines[0].endswith("the model as it was imported")


def test_show_prints_open_extents_after_import(folder: Path) -> None:
    text = alpenglow("show model.onnx").stdout

    assert text.startswith("# after: import\ngraph @convolutional {\n")
    assert "f32[batch,8,16,16] = conv(" in text


RUN = [p.name for p in every_pass() if p.serves("cpu") and p.runs(ag.Options())]
"""The passes that run where nothing is asked for."""


@pytest.mark.parametrize("stage", ["import", *RUN])
@pytest.mark.sampled(3)
def test_text_of_every_stage_is_a_model(folder: Path, stage: str) -> None:
    alpenglow(f"show model.onnx --dim batch=1 --after {stage} -o stage.txt")

    assert answer("run stage.txt") == answer("run model.onnx --dim batch=1")
    assert alpenglow("show stage.txt").stdout == (folder / "stage.txt").read_text()


def test_show_goes_on_from_a_text(folder: Path) -> None:
    alpenglow("show model.onnx --dim batch=1 --after lower -o lowered.txt")
    direct = alpenglow("show model.onnx --dim batch=1 --after plan").stdout

    assert alpenglow("show lowered.txt --after plan").stdout == direct


def test_show_does_not_go_back(folder: Path) -> None:
    alpenglow("show model.onnx --dim batch=1 --after fuse -o fused.txt")

    assert "it is after fuse" in alpenglow("show fused.txt --after lower", 2).stderr


def test_show_compiles_as_it_is_told(folder: Path) -> None:
    command = "show model.onnx --dim batch=1"

    assert " : bf16[" in alpenglow(f"{command} --after layout --precision bf16").stdout
    assert "stage 'quantized' is left out for target cpu with these options" in alpenglow(
        f"{command} --after quantized --numerics strict", 2).stderr  # fmt: skip


@pytest.mark.parametrize("command", ["run", "show --after fuse", "compile -o x.ago", "bundle -o x"])
def test_names_to_keep_that_are_nobodys_are_refused(folder: Path, command: str) -> None:
    line = f"{command} model.onnx --dim batch=1 --precision bf16 --keep nobody"

    assert "keep: 'nobody' is unknown, expected the name of" in alpenglow(line, 2).stderr


def test_show_after_emit_prints_each_kernel_once_and_the_table(folder: Path) -> None:
    text = alpenglow("show model.onnx --dim batch=1 --after emit").stdout
    kernels = re.findall(r"^# kernel (\S+)", text, re.MULTILINE)
    table = text[text.index("# table") :]

    assert len(kernels) == len(set(kernels)) > 0
    assert all(f" {name} " in table for name in kernels)


@pytest.mark.parametrize(
    ("language", "holds"),
    [
        ("kernel", "# addresses: "),
        ("llvm", "define "),
        ("llvm-optimized", "define "),
        ("assembly", "ret"),
        ("c", "#include <stdint.h>"),
    ],
)
def test_show_prints_the_code_of_one_kernel(folder: Path, language: str, holds: str) -> None:
    listed = alpenglow("show model.onnx --dim batch=1 --after emit").stdout
    [name, *_] = re.findall(r"^# kernel (\S+)", listed, re.MULTILINE)
    code = alpenglow(f"show model.onnx --dim batch=1 --kernel {name} --as {language}").stdout

    assert holds in code
    assert "\\t" not in code


def test_show_names_the_kernels_and_languages_that_there_are(folder: Path) -> None:
    show = "show model.onnx --dim batch=1"
    [name, *_] = re.findall(r"^# kernel (\S+)", alpenglow(f"{show} --after emit").stdout, re.M)

    assert name in alpenglow(f"{show} --kernel softmaks", 2).stderr
    assert "llvm-optimized" in alpenglow(f"{show} --kernel {name} --as cuda", 2).stderr
    assert "--kernel NAME" in alpenglow(f"{show} --as c", 2).stderr
    assert "no kernels" in alpenglow(f"{show} --target interpreter --after emit", 2).stderr


def test_text_after_emit_is_not_read_back(folder: Path) -> None:
    alpenglow("show model.onnx --dim batch=1 --after emit -o emitted.txt")

    assert "cannot be read back" in alpenglow("run emitted.txt", 2).stderr


def test_an_error_in_a_text_names_its_line(folder: Path) -> None:
    alpenglow("show model.onnx --dim batch=1 --after lower -o lowered.txt")
    path = folder / "lowered.txt"
    lines = path.read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if " = conv(" in line)
    lines[number] = lines[number].replace("conv(", "convey(")
    path.write_text("\n".join(lines))

    assert (
        f"line {number + 1}: expected an operator, not 'convey'"
        in alpenglow("run lowered.txt", 2).stderr
    )


def test_constants_in_half_precision_are_read_back(folder: Path) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])],
            "half",
            [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [40])],
            [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [40])],
            [helper.make_tensor("w", TensorProto.BFLOAT16, [40], [float(i) for i in range(40)])],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    onnx.save(model, folder / "half.onnx")
    alpenglow("show half.onnx --after import -o half.txt")

    assert answer("run half.txt") == answer("run half.onnx")


# ── check, verify, bench ──


def test_check_counts_operators_by_how_they_run(folder: Path) -> None:
    rows = answer("check model.onnx --dim batch=1")["operators"]
    interpreted = answer("check model.onnx --dim batch=1 --target interpreter")["operators"]

    assert {r["how"] for r in rows} == {"compiled"}
    assert {r["how"] for r in interpreted} == {"interpreted"}


def test_check_names_all_that_is_missing(folder: Path) -> None:
    model = convolutional()
    model.graph.node[1].op_type = "Unheard"
    model.graph.node[2].op_type = "Unknown"
    onnx.save(model, folder / "strange.onnx")
    found = answer("check strange.onnx", 1)

    assert not found["ok"]
    assert "Unheard (1 node at 'r')" in found["missing"]
    assert "Unknown (1 node at 'g')" in found["missing"]


def test_verify_agrees_with_the_interpreter(folder: Path) -> None:
    found = answer("verify model.onnx --dim batch=1 --tolerance 1e-5")

    assert found["ok"] and "interpreter" in {row["against"] for row in found["outputs"]}


def test_verify_says_no_above_the_tolerance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_command, "error", lambda expected, actual: 0.5)
    found = answer("verify model.onnx --dim batch=1", 1)

    assert not found["ok"] and found["outputs"][0]["error"] == 0.5


def test_an_error_is_infinite_where_nan_stands_elsewhere() -> None:
    x, y = np.array([1.0, np.nan], np.float32), np.array([np.nan, 1.0], np.float32)

    assert verify_command.error(x, y) == np.inf
    assert verify_command.error(x, x) == 0


def test_feeds_are_read_by_name(folder: Path) -> None:
    image = np.load(folder / "image.npy")
    np.savez(folder / "arrays.npz", image=image)

    assert answer("run model.onnx --feeds arrays.npz") == answer(
        "run model.onnx --input image=image.npy"
    )
    assert "expected a .npz file" in alpenglow("run model.onnx --feeds model.onnx", 2).stderr


def test_bisect_names_the_pass_after_which_outputs_differ(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer("verify model.onnx --dim batch=1 --bisect")["after"] is None

    def drop_activations(g: Graph, target: Target) -> Graph:
        for node in list(g.nodes):
            if node.op == Relu() and node.inputs[0] is not None:
                g.replace(node.output, node.inputs[0])
        return g

    monkeypatch.setattr(pipeline, "sink", lambda g: drop_activations(g, Target.parse("cpu")))
    found = answer("verify model.onnx --dim batch=1 --bisect", 1)

    assert found["after"] == "sink" and found["before"] < 1e-4 < found["error"]


# ── reduce ──


@pytest.mark.rest
def test_reduce_says_so_if_nothing_fails(folder: Path) -> None:
    assert answer("reduce model.onnx --dim batch=1 -o small.onnx", 1) == {"failure": None}
    assert not (folder / "small.onnx").exists()


def test_reduce_finds_the_node_that_is_refused(folder: Path) -> None:
    model = convolutional()
    model.graph.node[2].op_type = "Unheard"
    onnx.save(model, folder / "strange.onnx")
    found = answer("reduce strange.onnx --dim batch=1 -o small.onnx")

    assert found["operators"] == ["Unheard"] and found["failure"]["kind"] == "error"
    assert len(onnx.load(folder / "small.onnx").graph.node) == 1
    assert "Unheard" in alpenglow("run small.onnx", 2).stderr


@pytest.mark.rest
def test_reduce_keeps_the_arrays_that_a_failure_needs(folder: Path) -> None:
    """With a tolerance of 0 rounding is a failure; zeros and ones show none."""
    np.savez(folder / "arrays.npz", image=np.load(folder / "image.npy"))
    found = answer(
        "reduce model.onnx --feeds arrays.npz --check onnxruntime --tolerance 0 -o small.onnx"
    )

    assert found["failure"]["what"] == "ONNX Runtime"
    assert found["nodes"]["after"] == 1
    feeding = f" --feeds {found['feeds']}" if found["feeds"] else ""
    assert not answer(f"verify small.onnx --tolerance 0{feeding}", 1)["ok"]


def test_profile_tells_of_every_kernel(folder: Path) -> None:
    found = answer("profile model.onnx --dim batch=1 --rounds 1 --threads 1 --trace trace.json")
    sources = {s for kernel in found["kernels"] for s in kernel["sources"]}
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]

    assert {"c", "r", "scores"} <= sources
    assert sum(kernel["flop"] for kernel in found["kernels"]) == FLOP
    assert sum(e["ph"] == "X" for e in events) == len(found["kernels"])


def test_profile_shows_the_slowest_kernels(folder: Path) -> None:
    lines = alpenglow("profile model.onnx --dim batch=1 --rounds 1 --top 1").stdout.splitlines()

    assert lines[0].split()[-2:] == ["kernel", "computes"]
    assert "more kernels take" in lines[2] and "the peak is" in lines[3]


def test_flops_of_a_program_are_those_of_its_graph(folder: Path) -> None:
    alpenglow("compile model.onnx --dim batch=1 -o model.ago")

    assert answer("bench model.ago --calls 1")["flop"] == FLOP


def test_the_peak_of_one_thread_is_measured() -> None:
    assert 0 < peak(1) < math.inf


@pytest.mark.parametrize("dtype", ["u8", "bf16"])
def test_the_peak_of_narrow_types_is_one_of_many_products(dtype: str) -> None:
    assert 0 < peak(1, None, dtype) < math.inf


# ── graphs that depend on data ──


@pytest.fixture
def staged(folder: Path) -> Path:
    """`few.onnx`, whose results are as many as its operand has elements that are not 0."""
    onnx.save(staged_cases.CASES["nonzero"].model(), folder / "few.onnx")
    onnx.save(staged_cases.CASES["branches"].model(), folder / "branches.onnx")
    np.save(folder / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    np.save(folder / "k.npy", np.array([2]))
    return folder


FEW = "few.onnx --input x=x.npy --input k=k.npy"


def test_run_tells_what_came_out_of_data(staged: Path) -> None:
    lines = alpenglow(f"run {FEW} --output out").stdout.splitlines()

    assert lines[0] == "v : f32[5]   min 1  mean 3  max 5   [1 2 3 4 5 …]"
    assert lines[1].startswith("counted : i64[5]")
    assert sorted(f.name for f in (staged / "out").iterdir()) == [
        "best.npy", "counted.npy", "v.npy", "where.npy",
    ]  # fmt: skip


def test_verify_and_bench_run_staged_models(staged: Path) -> None:
    found = answer(f"verify {FEW}")
    measured = answer(f"bench {FEW} --calls 3")

    assert found["ok"] and {o["error"] for o in found["outputs"]} == {0.0}
    assert measured["seconds"]["alpenglow"]["best"] > 0 and "flop" not in measured


def test_extents_of_staged_models_are_bound_by_name(staged: Path) -> None:
    assert "z : f32[4]" in alpenglow("run branches.onnx --dim N=4").stdout
    assert "input 'x' is f32[N]" in alpenglow("run branches.onnx", 2).stderr
    assert alpenglow("verify branches.onnx --shapes x=5").stdout.count("ok") == 2


def test_show_and_check_tell_that_there_is_a_rest(staged: Path) -> None:
    shown = alpenglow("show branches.onnx")
    checked = alpenglow("check branches.onnx --dim N=4")

    assert "rest is imported when its data are known" in shown.stderr
    assert "greater" in shown.stdout and "mul" not in shown.stdout
    assert "rest is imported when its data are known" in checked.stdout
    assert answer("check branches.onnx --dim N=4")["first_part_only"]


def test_what_needs_the_whole_graph_says_why_not(staged: Path) -> None:
    result = alpenglow("verify branches.onnx --dim N=4 --bisect", 2)

    assert "the graph of this model depends on its data" in result.stderr


def test_an_archive_of_a_staged_model_holds_what_a_run_leads_to(staged: Path) -> None:
    for name, sign, n in (("positive", 1, 3), ("longer", 1, 5), ("negative", -1, 3)):
        np.save(staged / f"{name}.npy", np.full(n, sign, np.float32))
    refused = alpenglow("compile branches.onnx -o few.ago", 2).stderr
    assert "its archive holds what a run leads to" in refused
    assert "--input NAME=FILE.npy" in refused and not (staged / "few.ago").exists()
    done = answer("compile branches.onnx -o few.ago --input x=positive.npy")

    assert done["programs"] == 2 and done["instructions"] >= 2
    for name in ("positive", "longer"):
        feeds = f"--input x={name}.npy"
        assert answer(f"run few.ago {feeds}") == answer(f"run branches.onnx {feeds}")
    elsewhere = alpenglow("run few.ago --input x=negative.npy", 2).stderr
    assert "not in the archive" in elsewhere
    for command in ("show", "verify", "bench", "profile"):
        assert "only running it is supported" in alpenglow(f"{command} few.ago", 2).stderr


def test_strings_and_sequences_are_told_too(folder: Path) -> None:
    made = staged_cases.model(
        [
            helper.make_node("Cast", ["x"], ["t"], to=TensorProto.STRING),
            helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        ],
        [staged_cases.info("x")],
        [staged_cases.info("t", None, TensorProto.STRING), staged_cases.sequence("s")],
    )
    onnx.save(made, folder / "odd.onnx")
    np.save(folder / "x.npy", np.arange(3, dtype=np.float32))

    assert alpenglow("run odd.onnx --input x=x.npy --output out").stdout.splitlines() == [
        "t : string[3]   [0 1 2 …]",
        "s : sequence of 3",
    ]
    assert [f.name for f in (folder / "out").iterdir()] == ["t.npy"]
    assert answer("verify odd.onnx --input x=x.npy")["ok"]
    assert "does not tell the type and shape" in alpenglow("run odd.onnx", 2).stderr


def test_file_names_of_outputs_are_safe_and_differ() -> None:
    assert stems(["a/b", "a:b", "A_b", "../x"]) == {
        "a/b": "a_b", "a:b": "a_b_2", "A_b": "A_b_3", "../x": "_x",
    }  # fmt: skip


# ── as a process, on a real model, and in the pages ──


def test_the_program_prints_plain_lines_when_piped(folder: Path) -> None:
    command = [sys.executable, "-c", "from alpenglow.cli import main; main()"]
    arguments = ["run", "model.onnx", "--dim", "batch=1"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("scores : f32[1,10]   min ") and "\x1b" not in done.stdout


@pytest.mark.models
def test_verify_agrees_on_a_real_model(folder: Path) -> None:
    assert answer(f"verify {models.model_path('mnist8')}")["ok"]


def blocks(page: str, language: str) -> Iterator[str]:
    """Yield the blocks of a page in one language."""
    text = (ROOT / page).read_text()
    return (
        m[1] for m in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    )


def test_the_pages_for_newcomers_can_be_followed_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, with nothing but what the pages themselves make."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    for page in PAGES:
        code = "\n".join(blocks(page, "python"))
        run = [sys.executable, "-c", code]
        done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")

        lines = "".join(blocks(page, "console")).splitlines()
        commands = [line.removeprefix("$ alpenglow ") for line in lines if "$ alpenglow " in line]
        assert commands
        for command in commands:
            alpenglow(command)
