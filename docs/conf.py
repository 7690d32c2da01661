"""The site: guide, design pages, and the reference that is made of docstrings (`make docs`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

import tundish

sys.path.insert(0, str(Path(__file__).parent))
from pictures import draw, inline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "tundish"
version = release = tundish.__version__
extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"tundish {version}"
html_static_path = ["_static"]
html_css_files = ["tundish.css"]
html_favicon = "_static/icon.svg"
html_theme_options = {
    "light_logo": "logo-light.svg",
    "dark_logo": "logo-dark.svg",
    "sidebar_hide_name": True,
    "light_css_variables": {
        "color-brand-primary": "#b4480f",
        "color-brand-content": "#a8430e",
    },
    "dark_css_variables": {
        "color-brand-primary": "#ff8a4c",
        "color-brand-content": "#ff9b66",
    },
}
html_copy_source = False
html_show_copyright = False

myst_heading_anchors = 3  # [batch](batching.md#batch), as on GitHub

highlight_language = "none"  # of a block that does not say it
default_role = "py:obj"  # `map` in a docstring
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # the docstrings say it in words
autodoc_mock_imports = ["accelerate", "jax", "lightning", "orbax", "ray", "tensorflow", "torch"]
numpydoc_show_class_members = False
numpydoc_validation_checks = {
    "GL06",  # an unknown section
    "GL07",  # sections out of order
    "PR01",  # a parameter that is not told of
    "PR02",  # one that does not exist
    "PR03",  # parameters out of order
    "SS03",  # a summary without its point
}
numpydoc_validation_exclude = {
    r"tundish\.(Iterator|IteratorSpec|Optional|Ragged|Sparse|WorkerInfo|jax\.JaxIterator)$",  # made here
    r"tundish\.distribute\.(DistributedIterator|InputReplicationMode)$",  # made here; an enum
    r"tundish\.distribute\.cluster_resolver\.KubernetesExecutableLocation$",  # an enum
    r"tundish\.service\.ShardingPolicy$",  # an enum
    r"tundish\.orbax\.",  # Orbax calls them
    r"tundish\.progressbar\.ProgressIterator$",  # made by `progress`
    r"tundish\.loader\.watch\.",  # made here; dataclasses that tell of their attributes
    r"tundish\.debugging\.(DebugInfo|Dump|DumpRecord|Dumped\w+)$",  # as these
    r"tundish\.testing\.(Call|FailedElement|SlowElement)$",  # as these
    r"tundish\.experimental\.",  # other names of what has its docstring elsewhere
}

OPERATORS = Path(__file__).parent / "guide" / "operators"
SECTION = re.compile(r"^## (\w+)$", re.MULTILINE)
ELSEWHERE = re.compile(r"\]\((\.\./\.\./[A-Za-z/]+\.md)\)")
NAME = re.compile(r"(?:td\.|tundish\.|(?=(?:Dataset|Iterator)\.))([\w.]+)(?:\(.*\))?")
LOG = logging.getLogger(__name__)


def setup(app: Sphinx) -> None:
    """Join guide and reference."""
    app.connect("source-read", complete_source)
    app.connect("doctree-read", unlink_parameters)
    app.connect("autodoc-process-signature", show_what_comes_back)
    app.connect("doctree-resolved", link_names)
    app.connect("doctree-resolved", draw_pictures)
    app.connect("doctree-resolved", inline_drawings)
    app.connect("env-check-consistency", check_complete)
    app.connect("build-finished", write_llms)


def families() -> Iterator[tuple[str, str, list[str]]]:
    """The pages of operators in the order of their index: name, title, sections."""
    index = (OPERATORS / "README.md").read_text(encoding="utf-8")
    for page in dict.fromkeys(re.findall(r"\]\((\w+)\.md#", index)):
        text = (OPERATORS / f"{page}.md").read_text(encoding="utf-8")
        yield page, text.partition("\n")[0].lstrip("# "), SECTION.findall(text)


def complete_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """What a page has in the site, and not on disk."""
    text = ELSEWHERE.sub(r"](path:\1)", source[0])  # a file of the repository, not of the site
    if docname == "index":  # families in their order
        text = text.replace(
            "guide/operators/*", "\n".join(f"guide/operators/{page}" for page, *_ in families())
        )
    elif docname == "reference/dataset":  # the docstrings, by family
        for page, title, names in families():
            text += f"\n{title}\n{'-' * len(title)}\n\nSee :doc:`/guide/operators/{page}`.\n\n"
            text += "".join(f".. automethod:: tundish.Dataset.{name}\n" for name in names)
    elif docname in {f"guide/operators/{page}" for page, *_ in families()}:
        text = SECTION.sub(r"\g<0>\n\n`Dataset.\1`\n", text)  # becomes a link to the docstring
    source[0] = text


def unlink_parameters(app: Sphinx, doctree: nodes.document) -> None:
    """A name in a docstring that is a parameter of its function is not some method."""
    for described in doctree.findall(addnodes.desc):
        names = {
            p.astext().partition("=")[0] for p in described[0].findall(addnodes.desc_parameter)
        }
        for link in list(described.findall(addnodes.pending_xref)):
            if link.get("reftype") == "obj" and link["reftarget"] in names:
                link.replace_self(link.children)


def show_what_comes_back(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, back: str | None
) -> tuple[str, str | None]:
    """Add ``-> Dataset`` to a method that returns one."""
    gives = getattr(obj, "__annotations__", {}).get("return")
    return signature, "Dataset" if gives == "Self" and ".Dataset." in name else back


def link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make links of public names in a text: `Dataset.map`, `td.Options(workers=2)`, `SpecError`."""
    known = app.env.domains.python_domain.objects
    for literal in list(doctree.findall(nodes.literal)):
        said = NAME.fullmatch(literal.astext())
        entry = known.get(f"tundish.{said[1]}") if said else None
        entry = entry or known.get(f"tundish.errors.{literal.astext()}")
        if entry and not isinstance(literal.parent, (nodes.reference, nodes.title)):
            link = make_refnode(app.builder, docname, entry.docname, entry.node_id, literal.copy())
            link[0] += literal.children
            literal.replace_self(link)


def draw_pictures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Show the typed pictures of the operators' pages as drawings."""
    if docname.startswith("guide/operators/") and app.builder.format == "html":
        for block in list(doctree.findall(nodes.literal_block)):
            if block.get("language") == "text":
                block.replace_self(nodes.raw("", draw(block.astext()), format="html"))


def inline_drawings(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put drawings that have dark colours into the page, so that the site's switch of themes reaches them."""
    for image in list(doctree.findall(nodes.image)) if app.builder.format == "html" else []:
        path = Path(app.srcdir, image["uri"])
        if path.suffix == ".svg" and path.exists():
            svg = path.read_text(encoding="utf-8")
            drawn = inline(svg, f"drawing-{path.stem}")
            if drawn != svg:
                image.replace_self(nodes.raw("", drawn, format="html"))


def write_llms(app: Sphinx, exception: Exception | None) -> None:
    """Write ``llms.txt``, the list of the guide's pages with their first sentences, for language models."""
    if exception is None and app.builder.format == "html":
        text = llms(app.env)
        (Path(app.outdir) / "llms.txt").write_text(text, encoding="utf-8")


def llms(env: BuildEnvironment) -> str:
    """Return the text of ``llms.txt`` (llmstxt.org): the pages in the order of the site, by section."""
    index = env.get_doctree("index")
    lines = [f"# {project}", "", f"> {tundish.__doc__.strip().splitlines()[0]}"]
    for tree in index.findall(addnodes.toctree):
        lines += ["", f"## {tree.get('caption')}", ""]
        for _, page in tree["entries"]:
            first = next(iter(env.get_doctree(page).findall(nodes.paragraph)), None)
            said = " ".join(first.astext().split()).partition(". ")[0].rstrip(".:") if first else ""
            title = env.titles[page].astext()
            lines.append(f"- [{title}]({page}.html)" + (f": {said}" if said else ""))
    return "\n".join(lines) + "\n"


def check_complete(app: Sphinx, env: BuildEnvironment) -> None:
    """Every public name has a place in the reference."""
    known = env.domains.python_domain.objects
    methods = [f"Dataset.{name}" for name in dir(tundish.Dataset) if not name.startswith("_")]
    for name in [*tundish.__all__, *methods]:
        if f"tundish.{name}" not in known:
            LOG.warning("tundish.%s is not in the reference", name)
