"""Assembling IR, for any target, and installing the code in this process."""

import ctypes
import threading

import pytest

from alpenglow.ir.target import Target
from alpenglow.machines.cpu.assemble import assemble, assembly
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.targets import EXTRAS, LEVELS
from alpenglow.machines.cpu.together import walk_ir

HOST = Target.parse("cpu")


def constant(name: str, value: int) -> bytes:
    """Return the object code of a function that returns `value`."""
    return assemble(f"define i64 @{name}() nounwind {{\n  ret i64 {value}\n}}\n", HOST)


def call(code: Code, name: str) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(code.address(name))())


@pytest.mark.parametrize("name", [*LEVELS, "cpu"])
@pytest.mark.sampled(3)
def test_the_walker_assembles_for_every_level(name: str) -> None:
    target = Target.parse(name)

    assert assemble(walk_ir(target), target)


@pytest.mark.parametrize("level", ["x86-64", "aarch64", "armv7-a", "riscv64", "wasm32"])
def test_llvm_knows_every_feature(level: str, capfd: pytest.CaptureFixture[str]) -> None:
    architecture = Target.parse(level).architecture
    target = Target.parse("+".join([level, *EXTRAS[architecture]]))
    assemble("define void @f() {\n  ret void\n}\n", target)

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("name", "register"), [("x86-64-v4", "zmm"), ("x86-64-v3", "ymm")])
def test_vectors_are_as_wide_as_the_target(name: str, register: str) -> None:
    text = "define void @f(ptr %p) {\n  %x = load <16 x float>, ptr %p, align 64\n"
    text += "  %y = fadd <16 x float> %x, %x\n  store <16 x float> %y, ptr %p\n  ret void\n}"

    assert register in assembly(text, Target.parse(name))


def test_the_same_text_gives_the_same_bytes_in_any_thread() -> None:
    text = walk_ir(HOST)
    made: list[bytes] = []
    threads = [threading.Thread(target=lambda: made.append(assemble(text, HOST))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {assemble(text, HOST)} == set(made) and len(made) == 4


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("  %y = fadd float %x, 1.0", "undefined value"), ("  %y = call float @f(float", "expect")],
)
def test_ir_that_does_not_parse_is_shown_with_its_lines(wrong: str, said: str) -> None:
    with pytest.raises(AssertionError) as raised:
        assemble(f"define float @f(float %q) {{\n{wrong}\n  ret float %q\n}}\n", HOST)

    assert said in str(raised.value)
    assert f"|{' '}{wrong}" in str(raised.value)


def test_ir_that_does_not_verify_is_shown_with_its_lines() -> None:
    text = "define i64 @f(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n"
    text += "  %x = add i64 1, 2\n  br label %b\nb:\n  ret i64 %x\n}\n"
    with pytest.raises(AssertionError) as raised:
        assemble(text, HOST)

    assert "does not dominate" in str(raised.value)
    assert ">    5 |   %x = add i64 1, 2" in str(raised.value)


def test_objects_installed_together_see_each_other() -> None:
    calls = "declare i64 @one()\ndefine i64 @two() {\n  %x = call i64 @one()\n"
    calls += "  %y = add i64 %x, 1\n  ret i64 %y\n}\n"
    code = Code.install([constant("one", 1), assemble(calls, HOST)])

    assert call(code, "two") == 2


def test_two_codes_may_use_the_same_names() -> None:
    codes = [Code.install([constant("same", value)], ["same"]) for value in range(3)]

    assert [call(code, "same") for code in codes] == [0, 1, 2]


@pytest.mark.parametrize("name", ["expf", "tanf", "erff", "fmodf"])
def test_names_of_libm_resolve(name: str) -> None:
    two = name == "fmodf"
    kind = "float, float" if two else "float"
    passed = "float %x, float %x" if two else "float %x"
    text = f"declare float @{name}({kind})\ndefine float @f(float %x) {{\n"
    text += f"  %y = call float @{name}({passed})\n  ret float %y\n}}\n"
    code = Code.install([assemble(text, HOST)])
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(code.address("f"))
    point, expected = (1.0, 0.0) if name == "fmodf" else (0.0, float(name == "expf"))

    assert expected == function(point)


def test_a_name_that_is_nowhere_is_a_mistake_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    text = "declare void @there_is_no_such_function()\ndefine void @f() {\n"
    text += "  call void @there_is_no_such_function()\n  ret void\n}\n"
    with pytest.raises(AssertionError, match="rejects"):
        Code.install([assemble(text, HOST)], ["f"])
    with pytest.raises(AssertionError, match="no symbol 'missing'"):
        Code.install([constant("f", 1)]).address("missing")
    with pytest.raises(AssertionError, match="rejects"):
        Code.install([b"not an object"], ["f"])

    assert "there_is_no_such_function" in capfd.readouterr().err


def test_looking_up_again_gives_the_same_address() -> None:
    code = Code.install([constant("f", 1), constant("g", 2)], ["g"])

    assert code.address("f") == code.address("f") != code.address("g") == code.address("g")


def test_dropped_code_leaves_no_handles_and_little_memory() -> None:
    resource = pytest.importorskip("resource")
    image = constant("f", 7)

    def peak() -> int:
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    def handle() -> int:
        with open(__file__) as file:
            return file.fileno()

    def install_and_drop(times: int) -> None:
        for _ in range(times):
            assert call(Code.install([image]), "f") == 7

    install_and_drop(20)
    before, first = peak(), handle()
    install_and_drop(500)

    # 10 KB a library are known to stay; ru_maxrss is in KB, on macOS in bytes.
    assert (peak() - before) / 500 < 40 * (1 if peak() < 1 << 24 else 1024)
    assert first == handle()
