# SPDX-License-Identifier: Apache-2.0
"""Write docs/api.md from the docstrings of what each package exports; imports nothing of ours."""

import ast
import inspect
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lerobot_craft"
PACKAGES = (
    *("", "retention", "anchors", "surgery", "dual", "taps", "policies", "training"),
    *("evaluation", "drift", "merging", "comparison", "report", "errors"),
)
PAGE = ROOT / "docs" / "api.md"
INTRODUCTION = "# API reference\n\nWritten by `scripts/print_api.py` from the docstrings; a test keeps it so.\n"
SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")

type Definition = ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign | ast.TypeAlias


def main() -> None:
    """Write the page."""
    PAGE.write_text(reference(), encoding="utf-8")


def reference() -> str:
    """Return the page, package by package."""
    return "\n".join([INTRODUCTION, *(_package(name) for name in PACKAGES)])


def _package(name: str) -> str:
    path = SOURCE / name / "__init__.py" if name != "errors" else SOURCE / "errors.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = [f"## `{'.'.join(filter(None, ('lerobot_craft', name)))}`\n", _text(ast.get_docstring(tree) or "")]
    for exported, definition in sorted(_exports(tree).items(), key=lambda item: item[0].lower()):
        parts.append(_entry(exported, definition, level=3))
    return "\n".join(parts)


def _exports(tree: ast.Module) -> dict[str, Definition]:
    """Return what a package exports, found in the modules it is imported from, or here where there is no `__all__`."""
    names = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    if not names:
        return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found: dict[str, Definition] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = _definitions(ROOT / "src" / Path(*node.module.split(".")).with_suffix(".py"))
            found |= {alias.name: module[alias.name] for alias in node.names if alias.name in module}
    return {name: found[name] for name in names[0] if name in found}


def _definitions(path: Path) -> dict[str, Definition]:
    if not path.is_file():
        return {}
    found: dict[str, Definition] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found[ast.unparse(node.targets[0])] = node
        elif isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = node
        elif isinstance(node, ast.TypeAlias):
            found[ast.unparse(node.name)] = node
    return found


def _entry(name: str, node: Definition, level: int) -> str:
    heading = "#" * level
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        parts = [f"{heading} class `{name}{f'({bases})' if bases else ''}`\n", _text(ast.get_docstring(node) or "")]
        methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
        for method in methods:
            if method.name == "__init__":
                parts.insert(1, f"    {name}({_arguments(method)})\n")
            elif not method.name.startswith("_") and ast.get_docstring(method):
                parts.append(_entry(f"{name}.{method.name}", method, level + 1))
        return "\n".join(parts)
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        is_property = any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)
        signature = f"{name}{returns}" if is_property else f"{name}({_arguments(node)}){returns}"
        return f"{heading} `{name}`\n\n    {signature}\n\n{_text(ast.get_docstring(node) or '')}"
    kind = "type" if isinstance(node, ast.TypeAlias) else "constant"
    return f"{heading} {kind} `{name}`\n"


def _arguments(node: ast.FunctionDef) -> str:
    text = ast.unparse(node.args)
    return re.sub(r"^self(, )?|^cls(, )?", "", text)


def _text(docstring: str) -> str:
    """Return a Google docstring as Markdown: sections as lists, examples as code."""
    lines: list[str] = []
    in_section = in_example = False
    for line in inspect.cleandoc(docstring).splitlines():
        if SECTION.match(line):
            in_section, in_example = True, False
            lines += [f"**{line.removesuffix(':')}**", ""]
        elif line.startswith(">>>") or (in_example and line):
            in_example = True
            lines.append(f"    {line}")
        elif in_section and re.match(r"    \S", line):
            name, colon, text = line.strip().partition(": ")
            lines.append(f"- `{name}`: {text}" if colon else f"- {name}")
        else:
            in_example = False
            in_section = in_section and (not line or line.startswith(" "))
            lines.append(f"  {line.strip()}" if in_section and line else line)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main()
