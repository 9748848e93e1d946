"""Breaks comments of C++ and paragraphs of Markdown that are wider than 120 columns. Used by tools/lint --fix; code, tables
and what stands in columns stay as they are.
"""

import re

COLUMNS = 120

ITEM = re.compile(r"\s*(?:[*+-]|\d+[.)])\s+")
LABEL = re.compile(r"\s+\S+(?: \S+)?\s{2,}(?=\S)")
IN_COLUMNS = re.compile(r"\S\s{2,}\S")
RULE = re.compile(r"(.*// -{3,} .*?) ?-{3,}$")


def filled(words, first, rest):
    """The words in lines of up to COLUMNS, the first of which begins with `first`, the others with `rest`."""
    lines, line, empty = [], first, True
    for word in words:
        if not empty and len(line) + 1 + len(word) > COLUMNS:
            lines.append(line)
            line, empty = rest, True
        line += word if empty else " " + word
        empty = False
    return [*lines, line]


# ---- Markdown ---------------------------------------------------------------------------------------------------------

FIXED = ("|", "#", "```", "<", "![", "---")


def words_of(text):
    """What a line may be broken between; short code stays whole."""
    kept = re.sub(r"`[^`]{1,60}`", lambda m: m[0].replace(" ", "\0"), text)
    return [word.replace("\0", " ") for word in kept.split()]


def is_prose(line):
    return bool(line.strip()) and not line.lstrip().startswith(FIXED) and not re.match(r"\[[^\]]+\]:", line)


def is_code(lines, i):
    return lines[i].startswith("    ") and not ITEM.match(lines[i]) and (i == 0 or not lines[i - 1].strip())


def paragraph(lines, i):
    """The end of the paragraph or list item that begins at line i."""
    quoted, end = lines[i].startswith("> "), i + 1
    while end < len(lines) and is_prose(lines[end]) and not ITEM.match(lines[end]) and lines[end].startswith(">") == quoted:
        end += 1
    return end


def filled_paragraph(block):
    if block[0].startswith("> "):
        return filled(words_of(" ".join(line[1:].strip() for line in block)), "> ", "> ")
    item = ITEM.match(block[0])
    first = item[0] if item else re.match(r"\s*", block[0])[0]
    text = " ".join([block[0][len(first):], *(line.strip() for line in block[1:])])
    return filled(words_of(text), first, " " * len(first))


def markdown(text):
    lines, out, i = text.split("\n"), [], 0
    fenced = generated = hidden = False
    while i < len(lines):
        line = lines[i]
        fence = line.lstrip().startswith("```")
        hidden = "<!--" in line or hidden
        generated = (generated or "written by ./dev" in line) and "<!-- end of" not in line
        if fence:
            fenced = not fenced
        if fenced or fence or generated or hidden or not is_prose(line):
            out.append(line)
            hidden = hidden and "-->" not in line
            i += 1
        elif is_code(lines, i):
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                out.append(lines[i])
                i += 1
        else:
            end = paragraph(lines, i)
            block = lines[i:end]
            wide = any(len(one) > COLUMNS for one in block) and not any(one.endswith("  ") for one in block)
            out += filled_paragraph(block) if wide else block
            i = end
    return "\n".join(out)


def wide_lines(text):
    """The numbers of the lines that markdown() would break and that are not one word."""
    before = set(text.split("\n"))
    after = set(markdown(text).split("\n"))
    return [n for n, line in enumerate(text.split("\n"), 1) if len(line) > COLUMNS and line in before - after]


# ---- C++ --------------------------------------------------------------------------------------------------------------

MARKER = re.compile(r"//[/!]?<?")


def hanging(body):
    """How far the lines after this one are indented, behind the marker."""
    found = LABEL.match(body) or ITEM.match(body)
    return len(found[0]) if found else len(body) - len(body.lstrip())


def goes_on(line, prefix, hang):
    """A line of the same paragraph."""
    if not line.startswith(prefix):
        return False
    body = line[len(prefix):]
    text = body.lstrip()
    return bool(text) and len(body) - len(text) == hang and not LABEL.match(body) and not ITEM.match(body) and \
        not IN_COLUMNS.search(text) and not text.startswith(("/", "-"))


def broken(line, following, column):
    """A comment that has a line of its own: its lines, with the following one, and whether that is among them."""
    prefix = line[:column] + MARKER.match(line, column)[0]
    body = line[len(prefix):]
    hang = hanging(body)
    if IN_COLUMNS.search(body[hang:]):
        return None
    lines = filled(body[hang:].split(), prefix + body[:hang], prefix + " " * hang)
    if len(lines) > 1 and goes_on(following, prefix, hang) and not line.endswith(":"):
        return [*lines[:-1], lines[-1] + " " + following[len(prefix):].strip()], True
    return lines, False


def lifted(lines, i, column):
    """A comment behind code: above the code, with the lines below that go on in its column."""
    code = lines[i][:column].rstrip()
    if code.lstrip().startswith(("}", "else")) or code.endswith("\\"):
        return None
    end, text = i + 1, [lines[i][column:]]
    while end < len(lines) and re.match(r" {%d}//" % column, lines[end]):
        text.append(lines[end][column:])
        end += 1
    indent = re.match(r"\s*", code)[0]
    marker = "/// " if text[0].startswith("///") else "// "
    words = " ".join(MARKER.sub("", one, count=1).strip() for one in text).split()
    return filled(words, indent + marker, indent + marker), code, end


def code(text, comments):
    """`comments`: the columns at which // begins, by line number."""
    lines, out, i = text.split("\n"), [], 0
    columns = [comments.get(n) for n in range(1, len(lines) + 1)]
    while i < len(lines):
        line, column = lines[i], columns[i]
        i += 1
        if len(line) <= COLUMNS or column is None or line.endswith("\\"):
            out.append(line)
        elif rule := RULE.fullmatch(line):
            out.append((rule[1] + " " + "-" * (COLUMNS - len(rule[1]) - 1)).rstrip())
        elif line[:column].strip():
            if (done := lifted(lines, i - 1, column)) is None:
                out.append(line)
                continue
            above, rest, i = done
            out += [*above, rest]
        else:
            following = lines[i] if i < len(lines) and columns[i] is not None else ""
            if (done := broken(line, following, column)) is None:
                out.append(line)
                continue
            more, joined = done
            if joined:
                out += more[:-1]
                lines[i] = more[-1]
            else:
                out += more
    return "\n".join(out)
