"""The reference of the API (docs/api) names every public name, and the docstrings are complete."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError

DOCS = Path(__file__).resolve().parent.parent / "docs"
MODULES = {"errors", "functions", "ops", "train", "__version__"}
"""Modules and constants among the names of `alpenglow`."""

ENTRY = re.compile(
    r"^\.\. auto(?:class|function|exception):: alpenglow\.([\w.]+)(?:\(\))?\n"
    r"(?:   :members: (.*)\n)?",
    re.MULTILINE,
)
ROW = re.compile(r"^\| `([\w.]+)` \| .* \| (stable|provisional) \|$", re.MULTILINE)
MODEL = """\
<ir_version: 10, opset_import: ["": 21]>
tiny (float[batch, 8] x) => (float[batch, 4] y) {
    h = MatMul (x, w)
    r = Relu (h)
    y = MatMul (r, v)
}"""


def entries() -> dict[str, list[str]]:
    """Return the members of each class, and an empty list for each function, by name."""
    found: dict[str, list[str]] = {}
    for page in sorted((DOCS / "api").glob("*.md")):
        for name, members in ENTRY.findall(page.read_text()):
            assert name not in found, f"{name} is on two pages"
            found[name] = members.split(", ") if members else []
    return found


def resolved(name: str) -> Any:
    """Return the class, function or property of a name below `alpenglow`."""
    value: Any = ag
    for part in name.split("."):
        member = inspect.getattr_static if inspect.isclass(value) else getattr
        value = member(value, part)
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


NAMES = entries()
MEMBERS = [f"{name}.{member}" for name, members in NAMES.items() for member in members]
ERRORS = [name for name in NAMES if name.startswith("errors.")]
DOCUMENTED = [name for name in NAMES if name not in ERRORS]


def test_every_public_name_is_on_one_page() -> None:
    public = {name for name in ag.__all__ if name not in MODULES}
    public |= {f"train.{name}" for name in ag.train.__all__ if name not in public}
    public |= {
        f"errors.{name}"
        for name, cls in vars(ag.errors).items()
        if inspect.isclass(cls) and issubclass(cls, AlpenglowError)
    }

    assert public == set(NAMES)


def test_the_table_states_the_stability_of_every_name() -> None:
    rows = [name for name, _ in ROW.findall((DOCS / "api.md").read_text())]

    assert sorted(rows) == sorted([*DOCUMENTED, "errors"])


@pytest.mark.parametrize("name", [*NAMES, *MEMBERS])
def test_the_first_line_is_a_short_sentence(name: str) -> None:
    text = docstring(resolved(name))
    first = text.partition("\n\n")[0]

    assert first.endswith((".", ":"))
    assert "\n" not in first
    assert len(first) <= 90


@pytest.mark.parametrize("name", [*DOCUMENTED, *MEMBERS])
def test_every_parameter_and_result_is_described(name: str) -> None:
    value = resolved(name)
    if isinstance(value, property):
        return
    text = docstring(value)

    assert parameters(value) == described(text, "Args")
    if not inspect.isclass(value) and inspect.signature(value).return_annotation != "None":
        assert "Returns:\n" in text


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_name_has_an_example_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(tiny(), "model.onnx")
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    text = docstring(resolved(name))
    example = doctest.DocTestParser().get_doctest(text, {"ag": ag, "np": np}, name, None, None)
    printed: list[str] = []
    result = doctest.DocTestRunner(optionflags=flags).run(example, out=printed.append)

    assert "Example:\n" in text
    assert result.attempted
    assert not result.failed, "".join(printed)


def docstring(value: Any) -> str:
    """Return the cleaned docstring of a value itself, not of a class that it derives from."""
    return inspect.cleandoc(value.__doc__ or "")


def parameters(value: Any) -> set[str]:
    """Return the names of the parameters that a caller passes."""
    if value in (ag.Executable, ag.Session):
        return set()  # `compile` and `Executable.session` return these
    return set(inspect.signature(value).parameters) - {"self", "cls"}


def described(text: str, section: str) -> set[str]:
    """Return the names that a section of a docstring describes."""
    _, _, rest = text.partition(f"{section}:\n")
    return set(re.findall(r"^    (\w+): ", rest.partition("\n\n")[0], re.MULTILINE))


def tiny() -> onnx.ModelProto:
    """Return the model that examples compile."""
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    for name, shape in {"w": (8, 16), "v": (16, 4)}.items():
        array = rng.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model
