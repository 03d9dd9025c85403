#!/usr/bin/env python3
"""Prepares the pages of the documentation site: site.py OUT. Copies README and docs, turns links to files outside of docs into
plain text, and writes the reference of the C interface from the headers and of the Python package from its docstrings."""
import ast
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^)\s]+)\)")
REFERENCE = re.compile(r"^\[([^\]]+)\]: (\S+)$")  # at the end of a page


# ---- pages of the repository


def target_of(source, link):
    """Where a link of a repository file leads on the site; None: outside of it."""
    path, _, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:", link):
        return link
    file = (source.parent / path).resolve()
    try:
        inside = file.relative_to(ROOT).as_posix()
    except ValueError:
        return None
    if inside in PAGES:
        page = PAGES[inside]
    elif inside.startswith("docs/") and file.is_file():
        page = inside[len("docs/"):]
    else:
        return None
    up = "" if source.parent == ROOT else "../" * (len(source.relative_to(ROOT / "docs").parts) - 1)
    return up + page + ("#" + anchor if anchor else "")


def convert(source):
    def link(m):
        to = target_of(source, m.group(3))
        return f"{m.group(1)}[{m.group(2)}]({to})" if to else m.group(2)

    def reference(m):
        return f"[{m.group(1)}]: {target_of(source, m.group(2))}"

    lines, fence = [], False
    for line in source.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            fence = not fence
            line = re.sub(r"^(\s*```\w*) .*", r"\1", line)  # what follows the language is for the tests of the pages
        lines.append(line if fence else REFERENCE.sub(reference, LINK.sub(link, line)))
    return "\n".join(lines) + "\n"


# ---- C reference


def comment_text(text):
    lines = [re.sub(r"^ ?\* ?", "", line.rstrip()) for line in text.strip()[2:-2].strip().splitlines()]
    return "\n".join(line if line.startswith("    ") else line.strip() for line in lines).strip()


def as_markdown(text):
    """Indented parts of a comment are code; the rest is a paragraph."""
    return re.sub(r"[<>]", lambda m: {"<": "&lt;", ">": "&gt;"}[m.group()], text) if "    " not in text else \
        "\n".join(line if line.startswith("    ") else line.replace("<", "&lt;").replace(">", "&gt;") for line in text.splitlines())


def header_page(path):
    source = path.read_text(encoding="utf-8")
    head = re.match(r"/\*.*?\*/", source, re.S)
    out = [f"# {path.name}", "", as_markdown(comment_text(head.group())) if head else "", ""]
    token = re.compile(r"(/\*(?:.(?!\*/))*.?\*/)\s*|((?:typedef (?:struct|enum)[^;{]*\{.*?\n\} \w+;)|(?:typedef [^;{]+;)|(?:CLOOB_API [^;]+;))", re.S)
    comment = ""
    for m in token.finditer(source, head.end() if head else 0):
        if m.group(1):
            text = comment_text(m.group(1))
            if text.startswith("----"):
                out += ["", "## " + text.strip("- \n").capitalize(), ""]
                text = ""
            comment = text
            continue
        code = m.group(2)
        names = re.findall(r"\b(cloob_\w+)\s*(?=\()", code) if code.startswith("CLOOB_API") else re.findall(r"(cloob_\w+);?$", code)
        out += [f"### {names[0] if names else code.split()[-1].rstrip(';')}", "", "```c", code.replace("CLOOB_API ", ""), "```", ""]
        if comment:
            out += [as_markdown(comment), ""]
        comment = ""
    return "\n".join(out) + "\n"


# ---- Python reference


def signature(node):
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def document(node, title, level):
    text = ast.get_docstring(node)
    if not text:
        return []
    examples = re.sub(r"(?m)^(>>> .*|\.\.\. .*)$", r"    \1", text)
    return ["#" * level + " " + title, "", f"```python\n{signature(node)}\n```\n" if not isinstance(node, ast.ClassDef) else "", examples, ""]


def module_page(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = "cloob" if path.stem == "__init__" else f"cloob.{path.stem.lstrip('_')}"
    out = [f"# {name}", "", ast.get_docstring(tree) or "", ""]
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            out += document(node, node.name, 2)
            for part in getattr(node, "body", []) if isinstance(node, ast.ClassDef) else []:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                    out += document(part, f"{node.name}.{part.name}", 3)
    return "\n".join(out) + "\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main():
    out = pathlib.Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    for name, page in PAGES.items():
        write(out / page, convert(ROOT / name))
    for file in sorted((ROOT / "docs").rglob("*")):
        to = out / file.relative_to(ROOT / "docs")
        if file.suffix == ".md":
            write(to, convert(file))
        elif file.suffix in (".svg", ".png", ".jpg", ".gif"):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
    for header in sorted((ROOT / "include/cloob").glob("*.h*")):
        write(out / "c-interface" / f"{header.name.replace('.', '-')}.md", header_page(header))
    for module in sorted((ROOT / "python/cloob").glob("*.py")):
        text = module_page(module)
        if "\n## " in text:
            write(out / "python-interface" / f"{module.stem.strip('_') or 'cloob'}.md", text)
    print(f"{len(list(out.rglob('*.md')))} pages in {out}")


if __name__ == "__main__":
    main()
