"""The pages of documentation: what they show runs, prints what they say, and is up to date.

``pytest --bless tests/test_docs.py`` rewrites what is printed and what is generated.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import models
from alpenglow.base.extensions import bring_operators
from alpenglow.ir.op import Op
from pages import BLOCK, assert_printed, with_outputs

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PROGRAMS = (
    "tour", "ago", "control-flow", "dynamic", "state", "host", "placement", "quantization",
    "add-an-operator", "add-a-pass", "add-a-machine", "add-a-front-end", "architecture",
    "coming-from", "export", "memory", "training", "tutorial-onnx", "how-it-works", "faq",
)  # fmt: skip


def python(*args: Path | str, folder: Path) -> str:
    """Run Python in a process of its own, in `folder`; return what it prints."""
    done = subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=folder,
        env={**os.environ, "ALPENGLOW_CACHE": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(
    0, "tour", "tutorial-onnx", "how-it-works", "add-an-operator", "ago", "architecture"
)
def test_a_page_prints_what_it_says(name: str, tmp_path: Path, bless: bool) -> None:
    page = DOCS / f"{name}.md"
    outputs = assert_printed(page, tmp_path, bless)
    if name.startswith("add-"):
        assert_again(page.read_text(), outputs, tmp_path)


@pytest.mark.models
@pytest.mark.rest
def test_the_examples_of_training_print_what_they_say(tmp_path: Path, bless: bool) -> None:
    (tmp_path / ".models").symlink_to(models.MODELS)
    assert_printed(DOCS / "training-examples.md", tmp_path, bless)


def assert_again(page: str, outputs: list[str | None], folder: Path) -> None:
    """Assert that the blocks are a program, too, which prints the same where they have run."""
    (folder / "mine.py").write_text("".join(block["code"] for block in BLOCK.finditer(page)))
    printed = python("mine.py", folder=folder)

    assert "\n".join(filter(None, outputs)) == "\n".join(map(str.rstrip, printed.splitlines()))


@pytest.mark.models
@pytest.mark.rest
def test_the_shell_commands_of_quantization_can_be_followed(tmp_path: Path) -> None:
    [script] = re.findall(
        r"^```sh\n(.*?)^```$", (DOCS / "quantization.md").read_text(), re.MULTILINE | re.DOTALL
    )
    fetching, commands = script.split("\n", 1)
    (tmp_path / ".models").symlink_to(models.MODELS)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=tmp_path,
        env={**os.environ, "ALPENGLOW_CACHE": str(tmp_path), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert fetching == "python tools/fetch_models.py mnist8 data"
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mnist8-int8.onnx").is_file()
    assert "3 of 3 layers are quantized" in done.stdout + done.stderr


def test_a_block_of_a_package_that_is_not_there_stays_as_it_is() -> None:
    text = "```python onnxruntime\nprint(1)\n```\n\n```text\n1\n```\n"

    assert with_outputs(text, [None]) == text
    assert with_outputs(text, ["2"]) == text.replace("```text\n1", "```text\n2")


def test_the_architecture_names_every_folder() -> None:
    source = ROOT / "src" / "alpenglow"
    folders = {p.parent.relative_to(source.parent).as_posix() for p in source.rglob("*.py")}
    # What an extra holds is said once for all extras.
    expected = {re.sub(r"(?<=/extras)(/\w+)/.*", r"\1", folder) for folder in folders}
    text = (DOCS / "architecture.md").read_text()
    rows = dict(re.findall(r"^\| `(alpenglow(?:/\w+)*)` \|(.*)$", text, re.MULTILINE))
    # A folder without a row is named in the row of the folder around it.
    inside = {f"{folder}/{n}" for folder, row in rows.items() for n in re.findall(r"`(\w+)`", row)}

    assert expected - {"alpenglow"} - rows.keys() <= inside
    assert rows.keys() <= expected


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.stem)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:[\w-]+/)+[\w.-]*\.(?:py|md|txt))`", page.read_text())
    roots = (ROOT, ROOT / "src" / "alpenglow", ROOT / "src")
    missing = [n for n in named if "PASS" not in n and not any((r / n).exists() for r in roots)]

    assert missing == []


KIND = re.compile(r"# .+\n\n\*(Tutorial|How-to|Reference|Explanation)\.\*  ")

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    code = r"^```.*?^```$|``.*?``|`[^`]*`"
    text = re.sub(code, "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text)
    targets = [(page.parent / file if file else page, anchor) for file, anchor in links]
    missing = [
        f"{target}#{anchor}"
        for target, anchor in targets
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]

    assert missing == []


TERMS = {
    "dynamic": ("dynamic shape", "dynamic dimension", "recompilation"),
    "state": ("KV cache",),
    "memory": ("peak memory", "rematerialization"),
    "bundles": ("workspace",),
    "architecture": ("thread pool",),
    "quantization": (
        "mixed precision", "weight-only quantization", "post-training quantization", "calibration",
    ),
    "training": ("quantization-aware training",),
    "host": ("dynamic batching",),
    "placement": ("throughput", "latency"),
    "how-it-works": (
        "constant folding", "operator fusion", "epilogue fusion", "tiling", "NCHWc",
        "dead code elimination", "common subexpression elimination", "flash attention",
        "autotuning", "static memory planning", "layout transformation",
        "intermediate representation", "lowering", "just-in-time", "ahead-of-time",
    ),
}  # fmt: skip
"""For each page the terms of the field that it explains."""


@pytest.mark.parametrize("term", [term for terms in TERMS.values() for term in terms])
def test_a_term_of_the_field_is_in_its_page_and_in_the_glossary(term: str) -> None:
    [page] = [page for page, terms in TERMS.items() if term in terms]
    rows = re.findall(rf"^\| {term}.*\((.+?)\.md", (DOCS / "glossary.md").read_text(), re.M | re.I)

    assert term.lower() in (DOCS / f"{page}.md").read_text().lower()
    assert rows == [page]


def test_the_index_lists_each_page_once_under_its_kind() -> None:
    sections = re.split(r"^## ", (DOCS / "index.md").read_text(), flags=re.MULTILINE)
    kinds = {"Tutorials": "Tutorial", "How-to guides": "How-to"}
    listed = [
        (kinds.get(title, title), page)
        for title, section in ((s.partition("\n")[0], s) for s in sections)
        for page in re.findall(r"^- \[[^]]+\]\(([^)]+)\): ", section, re.MULTILINE)
    ]
    pages = {p.relative_to(DOCS).as_posix(): p.read_text() for p in DOCS.rglob("*.md")}
    expected = {
        (kind[1] if (kind := KIND.match(text)) else "Decisions", page)
        for page, text in pages.items()
        if page not in ("index.md", "operators.md")
    }

    assert sorted(listed) == sorted(expected)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda p: p.stem)
def test_a_page_begins_with_its_kind_and_a_link_to_the_index(page: Path) -> None:
    if page.stem == "index":
        return
    first = page.read_text().split("\n\n")[1]

    assert KIND.match(page.read_text())
    assert "[index](index.md)" in first


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("*.md")), ids=lambda p: p.stem)
def test_a_decision_record_begins_with_its_status_and_date(page: Path) -> None:
    title, blank, status, *_ = page.read_text().splitlines()
    number = page.stem[:4].lstrip("0")
    kind = r"accepted|superseded by \[decision \d+\]\(\d{4}-[\w-]+\.md\)"

    assert title.startswith(f"# {number}. ") and blank == ""
    assert re.match(rf"Status: (?:{kind}), \d{{4}}-\d\d-\d\d\.", status)


def anchors(page: Path) -> set[str]:
    """Return the names by which GitHub links to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of generated pages.

    A process of its own makes them: here tests may have registered operators of theirs.
    """
    folder = tmp_path_factory.mktemp("pages")
    python(ROOT / "tools" / "make_docs.py", folder, folder=folder)
    return folder


def test_the_page_of_passes_is_up_to_date(generated: Path, bless: bool) -> None:
    expected = (generated / "passes.md").read_text()
    if bless:
        (DOCS / "passes.md").write_text(expected)

    assert expected == (DOCS / "passes.md").read_text()


def test_the_page_of_operators_describes_all_of_them(generated: Path) -> None:
    bring_operators()
    entries = {
        entry.partition("\n")[0]: entry.split("\n\n")
        for entry in (generated / "operators.md").read_text().split("\n### ")
    }
    core = {op.name for op in Op.registry.values() if op.__module__.startswith("alpenglow.ops.")}
    assert len(core) > 200

    for name in core:
        _, call, description, *_ = entries[name]
        assert call.startswith(f"`{name}(") and " — " in call, name
        assert description.strip(), name
