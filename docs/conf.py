"""Settings of Sphinx, which builds the site of this folder: `make docs`.

The pages are Markdown that can also be read in the repository.  A link to a file of the repository
outside this folder is shown as the path of the file, since the site holds no copy of it.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from pygments.lexers import CLexer, TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

import alpenglow

FOLDER = Path(__file__).resolve().parent

project = "Alpenglow"
author = "the Alpenglow authors"
copyright = author
version = release = alpenglow.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_static"]
nitpicky = False
default_role = "py:obj"
highlight_language = "none"

myst_heading_anchors = 6

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"Alpenglow {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"


LISTED = re.compile(r"^- \[[^\]]*\]\(([\w/-]+)\.md\)", re.MULTILINE)
"""A page in a list of the index."""

GENERATED = {"Reference": ["operators"]}
"""Pages that are built, and therefore not listed in the index."""


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Append to the index a hidden table of contents for each section, from the list there."""
    if page != "index":
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        pages = "\n".join([*LISTED.findall(section), *GENERATED.get(title, [])])
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


class RepositoryLinks(SphinxTransform):
    """Show links to files of the repository outside the site as code; warn if a file is missing."""

    default_priority = 400

    def apply(self, **_: object) -> None:
        page = Path(self.document["source"])
        for kind in (addnodes.pending_xref, addnodes.download_reference):
            for link in [*self.document.findall(kind)]:
                path = linked(link, page)
                if path is not None and not path.is_relative_to(FOLDER):
                    link.replace_self(mention(link, path))


def linked(link: nodes.Element, page: Path) -> Path | None:
    """Return the file that a relative link of a page names; None for other links."""
    target, _, _ = str(link.get("reftarget", "")).partition("#")
    if link.get("refdomain") == "doc":
        return Path(f"{target}.md") if target.startswith("/") else None
    return (page.parent / target).resolve() if target.startswith("..") else None


def mention(link: nodes.Element, path: Path) -> list[nodes.Node]:
    """Return the path as code, behind the text of the link if that says something else."""
    if not path.exists():
        logging.getLogger(__name__).warning("%s is missing", path, location=link)
    shown = path.relative_to(FOLDER.parent).as_posix()
    code, text = nodes.literal(shown, shown), link.astext()
    if shown.endswith(text.lstrip("./")):
        return [code]
    return [nodes.Text(f"{text} ("), code, nodes.Text(")")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the functions of this file, and lexers for languages that Pygments lacks."""
    app.connect("source-read", add_navigation)
    app.add_transform(RepositoryLinks)
    for name in ("kernel", "subgroups", "ld"):
        app.add_lexer(name, TextLexer)
    app.add_lexer("opencl", CLexer)
    return {"parallel_read_safe": True}
