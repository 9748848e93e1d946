#!/usr/bin/env python3
"""Takes steps out of the protocols' real files, one at a time, and shows that a case of the simulation build fails.

Usage: mutate.py SOURCE BUILD [--sample N] [--only WORD] [--unseen] [--unchanged] [--seed N] [--jobs N]

SOURCE is the project, BUILD a build of its preset `sim`. The mutations are data: tests/mutation/*.txt, blocks of lines

    [what is taken out]
    file  src/platform/lock.cpp
    old   a part of one line, which stands in the file once; of several, with \\n for the end of each
    new   what stands there instead; missing: nothing
    case  the cases that must fail, by how their names begin, separated by blanks
    with  other files that are compiled again, because they include this one; separated by blanks
    hold  where else threads are kept, beside the place that is changed: a file and a part of a line, as above; several
          are separated by ;;
    harmless  why nothing can fail. Then nothing may
    unseen  why no case has failed yet, although one could: it may survive

A copy of the file is changed and compiled, with the cases' own file, before the rest of the build is linked to it. The
checkout and the build stay as they are. With --unchanged nothing is changed, and the cases with the same holds must not
fail: else what they notice is theirs. Prints a line each, and the survivors at the end. Ends with 1 if one survives
without a reason, or was noticed in spite of one, with 2 if a mutation cannot be made.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

KEYS = ("file", "old", "new", "case", "with", "hold", "harmless", "unseen")
CASE_SECONDS = 120
LINES_AROUND = 6  # of the place that is changed: there threads are kept from going on


class Fault(Exception):
    pass


def read_mutations(folder):
    mutations = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".txt"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\n")
                if line.startswith("#") or not line.strip():
                    continue
                if line.startswith("["):
                    mutations.append(
                        {"name": line.strip("[] "), "new": "", "with": "", "hold": "", "at": f"{name}:{number}"})
                    continue
                key, _, value = line.partition(" ")
                if key not in KEYS or not mutations:
                    raise Fault(f"{name}:{number}: not a line of a mutation: {line}")
                mutations[-1][key] = value.strip().replace(r"\n", "\n") if key in ("old", "new") else value.strip()
    for m in mutations:
        for key in ("file", "old", "case"):
            if not m.get(key):
                raise Fault(f"{m['at']}: [{m['name']}] has no {key}")
    return mutations


def found_once(source, mutation, path, code):
    """The text of the file, and where in it the code stands."""
    with open(os.path.join(source, path), encoding="utf-8") as file:
        text = file.read()
    found = list(wherever_lines_break(code).finditer(text))
    if len(found) != 1:
        raise Fault(f"{mutation['at']}: stands {len(found)} times in {path}: {code}")
    return text, found[0].start(), found[0].end()


def changed(source, mutation):
    """The file's text without the step; what follows keeps its lines, which places() names."""
    text, begin, end = found_once(source, mutation, mutation["file"], mutation["old"])
    lost = text[begin:end].count("\n") - mutation["new"].count("\n")
    return text[:begin] + mutation["new"] + max(lost, 0) * "\n" + text[end:]


def places(source, mutation):
    """Where threads are kept from going on: at what is changed, and where the mutation says; FILE:LINE-LINE."""
    named = [(mutation["file"], mutation["old"])]
    named += [part.split(maxsplit=1) for part in mutation["hold"].split(";;") if part.strip()]
    ranges = []
    for path, code in named:
        text, begin, end = found_once(source, mutation, path, code.replace(r"\n", "\n"))
        first, last = (text.count("\n", 0, at) + 1 for at in (begin, end))
        ranges.append(f"{path}:{max(first - LINES_AROUND, 1)}-{last + LINES_AROUND}")
    return ranges


WORD_ENDS, WORD_BEGINS = re.compile(r"\w$"), re.compile(r"^\w")


def wherever_lines_break(code):
    """An expression for this code however its white space is: what a line is broken at does not count."""
    parts, before = [], " "
    for token in re.findall(r"\w+|\s+|[^\w\s]", code.strip()):
        if token.isspace():
            continue
        apart = r"\s+" if WORD_ENDS.search(before) and WORD_BEGINS.search(token) else r"\s*"
        parts.append(apart if parts else "")
        parts.append(re.escape(token))
        before = token
    return re.compile("".join(parts))


def files_included(source, path, seen):
    """`path` and all of the project's that it includes, into `seen`."""
    if path in seen or not os.path.isfile(os.path.join(source, path)):
        return
    seen.add(path)
    with open(os.path.join(source, path), encoding="utf-8") as file:
        names = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', file.read(), re.MULTILINE)
    for name in names:
        for folder in ("src", "include", "tests", os.path.dirname(path)):
            files_included(source, os.path.normpath(os.path.join(folder, name)), seen)


def includes(source, unit, header):
    seen = set()
    files_included(source, unit, seen)
    return header in seen


def check_takes_effect(source, mutation):
    """A header that nothing compiled again includes would be changed in vain."""
    if mutation["file"].endswith(".cpp"):
        return
    units = mutation["with"].split() + case_files(mutation)
    if not any(includes(source, unit, mutation["file"]) for unit in units):
        raise Fault(f"{mutation['at']}: no case includes {mutation['file']}: `with` must name files that do")


def case_files(mutation):
    return sorted({f"tests/sim/{name.split('/')[0]}_cases.cpp" for name in mutation["case"].split()})


class Build:
    def __init__(self, source, build):
        self.source, self.build = os.path.abspath(source), os.path.abspath(build)
        self.commands = {}
        with open(os.path.join(self.build, "compile_commands.json"), encoding="utf-8") as file:
            for entry in json.load(file):
                if "sim_cases" in entry["command"] or "/src/" in entry["file"]:
                    self.commands.setdefault(os.path.relpath(entry["file"], self.source), entry)
        self.library = os.path.join(self.build, "libdunlin.a")
        self.shared = [self.object_of(f"tests/sim/{name}.cpp") for name in ("cases", "whole", "heap")]

    def object_of(self, unit):
        entry = self.commands[unit]
        words = shlex.split(entry["command"])
        return os.path.join(entry["directory"], words[words.index("-o") + 1])

    def compile(self, unit, overlay):
        entry = self.commands.get(unit)
        if entry is None:
            raise Fault(f"{unit} is not part of {self.build}")
        words = shlex.split(entry["command"])
        output = os.path.join(overlay, unit.replace("/", "_") + ".o")
        words[words.index("-o") + 1] = output
        for option in ("-MF", "-MT"):
            if option in words:
                del words[words.index(option):words.index(option) + 2]
        words = [w for w in words if w != "-MD"]
        copy = os.path.join(overlay, unit)
        if os.path.exists(copy):
            words[words.index("-c") + 1] = copy
        first = 2 if os.path.basename(words[0]) == "ccache" else 1
        words[first:first] = ["-I" + os.path.join(overlay, "src"), "-I" + os.path.join(overlay, "include"), "-w"]
        done = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Fault(f"{unit} cannot be compiled:\n{done.stderr[-2000:]}")
        return output

    def link(self, objects, program):
        words = ["g++", "-o", program, *objects, *self.shared, self.library, "-lpthread"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise Fault(f"cannot be linked:\n{done.stderr[-2000:]}")


def try_mutation(build, mutation, seed, unchanged):
    """(noticed, by what, seconds to build it, seconds of its cases)"""
    begin = time.monotonic()
    overlay = tempfile.mkdtemp(prefix="dunlin-mutation-")
    try:
        path = os.path.join(overlay, mutation["file"])
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as file:
            text = found_once(build.source, mutation, mutation["file"], mutation["old"])[0]
            file.write(text if unchanged else changed(build.source, mutation))
        units, cases = mutation["with"].split(), case_files(mutation)
        if mutation["file"].endswith(".cpp"):
            units.append(mutation["file"])
            objects = [build.object_of(u) for u in cases]  # what they include is as it was
        else:
            again = {u for u in cases if includes(build.source, u, mutation["file"])}
            units += again
            objects = [build.object_of(u) for u in cases if u not in again]
        program = os.path.join(overlay, "cases")
        build.link(objects + [build.compile(u, overlay) for u in sorted(set(units))], program)
        built = time.monotonic()
        holds = [word for place in places(build.source, mutation) for word in ("--hold", place)]
        words = [program, "--quiet", "--first", "--seed", str(seed), *holds, *mutation["case"].split()]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=CASE_SECONDS)
            noticed, text = done.returncode != 0, (done.stdout + done.stderr)
            if done.returncode == 2:
                raise Fault(f"{mutation['at']}: {text}")
            lines = text.splitlines()  # the case and the way, then what failed
            what = f"{lines[0].split(' ')[0]}: {lines[1]}" if len(lines) > 1 else f"ended with {done.returncode}"
            what = what if noticed else ""
        except subprocess.TimeoutExpired:
            noticed, what = False, f"no case has failed in {CASE_SECONDS} s"
        return noticed, what, built - begin, time.monotonic() - built
    finally:
        shutil.rmtree(overlay)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("build")
    parser.add_argument("--sample", type=int, help="only so many, spread over the list")
    parser.add_argument("--only", help="those whose name, file or list contains this")
    parser.add_argument("--unseen", action="store_true", help="only those that say so")
    parser.add_argument("--unchanged", action="store_true", help="the cases alone, with the places where threads are kept")
    parser.add_argument("--seed", type=int, default=1, help="of the orders that are drawn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    build = Build(arguments.source, arguments.build)
    mutations = read_mutations(os.path.join(arguments.source, "tests/mutation"))
    for m in mutations:
        changed(build.source, m)  # all can be made, whichever are tried
        places(build.source, m)
        check_takes_effect(build.source, m)
    if arguments.only:
        mutations = [m for m in mutations if any(arguments.only in m[key] for key in ("name", "file", "at"))]
    if arguments.unseen:
        mutations = [m for m in mutations if "unseen" in m]
    if arguments.sample:
        step = max(1, len(mutations) // arguments.sample)
        mutations = mutations[::step][:arguments.sample]
    if not mutations:
        raise Fault("no such mutation")
    survivors, wrong, tried = [], [], 0

    def attempt(m):
        try:
            return try_mutation(build, m, arguments.seed, arguments.unchanged)
        except Fault as fault:
            return None, str(fault), 0, 0  # the list is at fault; the others are tried all the same

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for m, (noticed, what, building, trying) in zip(mutations, pool.map(attempt, mutations)):
            if noticed is None:
                print(f"CANNOT BE TRIED  {m['file']}: {m['name']}: {what}", flush=True)
                wrong.append(m)
                continue
            tried += 1
            print(f"{'noticed ' if noticed else 'SURVIVES'} {building:4.1f} s + {trying:5.1f} s  {m['file']}: {m['name']}{': ' + what[:150] if what else ''}",
                  flush=True)
            if not noticed:
                survivors.append(m)
            if arguments.unchanged:
                may = not noticed
            else:
                may = noticed != ("harmless" in m) or (not noticed and "unseen" in m)
            if not may:
                wrong.append(m)
    print(f"{len(mutations)} mutations, {tried} tried, {tried - len(survivors)} noticed, in {time.monotonic() - begin:.0f} s")
    for m in survivors:
        print(f"survivor: {m['file']}: {m['name']}: {m.get('harmless') or m.get('unseen', 'no reason is known')}")
    return bool(wrong)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fault as fault:
        print(f"mutate: {fault}", file=sys.stderr)
        sys.exit(2)
