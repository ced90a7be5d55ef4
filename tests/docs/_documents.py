# SPDX-License-Identifier: Apache-2.0
"""What the documents hold: commands, snippets, links, quoted messages; runs none of it."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROGRAMS = ("lerobot-craft ", "lerobot-eval ", "make ")
# Read first: what they leave is what the other documents' commands go on from.
FIRST = ("README.md", "docs/quickstart.md", "docs/cheatsheet.md")


def english() -> list[Path]:
    """Return the documents whose commands are run here, those first that the others build on."""
    first = [ROOT / name for name in FIRST]
    # `tests/report/test_docs.py` runs the commands of the report's page, on folders made for it.
    others = [path for path in sorted(DOCS.glob("*.md")) if path not in first and path.name != "report.md"]
    return first + others


def translations() -> list[tuple[Path, Path]]:
    """Return each document with its translation."""
    pairs = [(DOCS / path.name, path) for path in sorted((DOCS / "zh").glob("*.md"))]
    return [(ROOT / "README.md", ROOT / "README.zh-CN.md"), *pairs]


def blocks(path: Path) -> list[str]:
    """Return a document's blocks of code, indented or fenced, without their margin."""
    found: list[list[str]] = [[]]
    fenced = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
            found.append([])
        elif fenced or line.startswith("    ") or (not line and found[-1]):
            found[-1].append(line if fenced else line.removeprefix("    "))
        elif found[-1]:
            found.append([])
    return ["\n".join(block).strip("\n") + "\n" for block in found if any(block)]


def commands(path: Path) -> list[str]:
    """Return a document's commands, each on one line and without its comment."""
    lines = [line for block in blocks(path) for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    bare = [re.sub(r"\s+", " ", re.sub(r"\s+#.*", "", line)).strip() for line in lines]
    return [line for line in bare if line.startswith(PROGRAMS)]


def snippets(path: Path) -> list[str]:
    """Return a document's blocks of Python without comments; the API's doctests have a runner of their own."""
    if path.name == "api.md":
        return []
    found = [block for block in blocks(path) if ".apply_(" in block or block.startswith("from lerobot_craft")]
    return [re.sub(r" *#.*", "", block) for block in found]


def numbers(path: Path) -> list[str]:
    """Return a document's decimal numbers, sorted: sentences have another order in another language."""
    return sorted(re.findall(r"\d+\.\d+", path.read_text(encoding="utf-8")))


def quotes(path: Path) -> list[str]:
    """Return the messages a document quotes."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("> ").strip() for line in lines if line.startswith("> ")]


@cache
def literals() -> tuple[str, ...]:
    """Return every text in the source, with … for what is filled in."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub(r"%[ds]", "…", node.value))
    return tuple(found)


def links(path: Path) -> list[Path]:
    """Return the files a document links to."""
    targets = re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    return [(path.parent / target).resolve() for target in targets]
