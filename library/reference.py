#!/usr/bin/env python3
"""reference: include/grapevine.h as a page, docs/library_reference.md.
    library/reference.py           write the page
    library/reference.py --check   fail if it is not what the header says
The header is the only source: a comment that begins a line, and the declarations under it up to an
empty line or the next such comment, are a section each.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include" / "grapevine.h"
PAGE = ROOT / "docs" / "library_reference.md"


def text_of(comment):
    """The comment's lines without what makes them one; indented ones stay so, as code."""
    lines = comment.removeprefix("/*").removesuffix("*/").split("\n")
    return "\n".join(re.sub(r"^ \* ?", "", line).rstrip() for line in lines).strip("\n ")


def sections(body):
    """(comment or "", declarations) one after the other."""
    comment, code, depth, in_comment = "", [], 0, False
    for line in body.split("\n"):
        begins = depth == 0 and line.startswith("/*")
        if (begins or (depth == 0 and not line.strip() and not in_comment)) and code:
            yield comment, "\n".join(code)
            comment, code = "", []
        if begins or in_comment:
            comment += line + "\n"
            in_comment = "*/" not in line
        elif line.strip():
            code.append(line)
            depth += line.count("{") - line.count("}")
    if code:
        yield comment, "\n".join(code)


def title_of(code):
    """The type, or the calls."""
    code = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
    named = re.search(r"\b(?:enum|struct) (gv_\w+) \{", code) or re.search(r"#define (\w+)", code) or \
        re.search(r"\b(gv_\w+);", code)
    if named:
        return f"`{named[1]}`"
    return ", ".join(f"`{name}()`" for name in re.findall(r"\b(gv_\w+)\(", code)) or "Limits"


def page():
    text = HEADER.read_text()
    intro = text_of(text[:text.index("*/") + 2]).replace("grapevine: be a member", "Be a member", 1)
    body = text[text.index('extern "C" {\n#endif\n') + 20:text.rindex("#ifdef __cplusplus")]
    out = ["# The C library, call by call", "",
           "This page is made of `include/grapevine.h` by `library/reference.py`; change the header instead. How to use the library is in "
           "[library.md](library.md).", "", intro, ""]
    for comment, code in sections(body):
        out += [f"## {title_of(code)}", "", "```c", code, "```", ""]
        if comment:
            out += [text_of(comment.strip()), ""]
    return "\n".join(out).rstrip("\n") + "\n"


def main():
    if sys.argv[1:] == ["--check"]:
        if PAGE.is_file() and PAGE.read_text() == page():
            return 0
        print("docs/library_reference.md is not what include/grapevine.h says: run library/reference.py", file=sys.stderr)
        return 1
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
