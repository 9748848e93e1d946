"""A program that is compiled otherwise than the library is told so by the linker, and a compiler that cannot be used by one #error.

Usage: alike_test.py SOURCE SCRATCH COMPILER...   A compiler that is not there is left out.

The functions by which it is found out (dunlin/config.hpp) are all that is linked here: each way of compiling them with each way
of compiling a program, static and shared, a program without any library, and a program whose shared library is exchanged for another afterwards.
"""

import concurrent.futures
import itertools
import os
import re
import shutil
import subprocess
import sys

WAYS = {  # flags, and what the functions of the way are called
    "plain": ([], {"without_address_sanitizer", "without_thread_sanitizer", "without_GLIBCXX_DEBUG", "with_GLIBCXX_USE_CXX11_ABI_1"}),
    "address": (["-fsanitize=address"],
                {"with_address_sanitizer", "without_thread_sanitizer", "without_GLIBCXX_DEBUG", "with_GLIBCXX_USE_CXX11_ABI_1"}),
    "thread": (["-fsanitize=thread"],
               {"without_address_sanitizer", "with_thread_sanitizer", "without_GLIBCXX_DEBUG", "with_GLIBCXX_USE_CXX11_ABI_1"}),
    "debug": (["-D_GLIBCXX_DEBUG"],
              {"without_address_sanitizer", "without_thread_sanitizer", "with_GLIBCXX_DEBUG", "with_GLIBCXX_USE_CXX11_ABI_1"}),
    "strings": (["-D_GLIBCXX_USE_CXX11_ABI=0"],
                {"without_address_sanitizer", "without_thread_sanitizer", "without_GLIBCXX_DEBUG", "with_GLIBCXX_USE_CXX11_ABI_0"}),
}
REFUSED = {"-std=c++17": "needs C++20", "-m32": "64-bit", "-fno-exceptions": "needs exceptions", "-fno-rtti": "needs type information",
           "-stdlib=libc++": "libstdc++"}


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C", **more.get("env", {})})


def named(text):
    return set(re.findall(r"dunlin_must_be_built_(\w+?)_as_this_program_is", text))


class Checks:
    def __init__(self, source, scratch, compiler):
        self.include, self.scratch, self.compiler = "-I" + os.path.join(source, "include"), scratch, compiler
        self.library = os.path.join(source, "src", "platform", "built_alike.cpp")
        self.faults, self.count = [], 0

    def expect(self, so, what, text=""):
        self.count += 1
        if not so:
            self.faults.append(f"{self.compiler}: {what}\n{text}")

    def file(self, name):
        return os.path.join(self.scratch, f"{os.path.basename(self.compiler)}_{name}")

    # Linked without the sanitizers' own libraries, which need not be here: their functions are missing then, too, and not looked at.
    def compile(self, way):
        flags = [self.compiler, "-std=c++20", self.include, *WAYS[way][0]]
        program = self.file("program.cpp")
        for done in (run(*flags, "-c", program, "-o", self.file(f"program_{way}.o")),
                     run(*flags, "-O2", "-ffunction-sections", "-fdata-sections", "-c", program, "-o", self.file(f"collected_{way}.o")),
                     run(*flags, "-fPIC", "-fvisibility=hidden", "-c", self.library, "-o", self.file(f"library_{way}.o"))):
            self.expect(done.returncode == 0, f"{way} does not compile", done.stderr)
        os.makedirs(self.file(way), exist_ok=True)
        done = run(self.compiler, "-shared", "-Wl,-soname,libdunlin_alike.so", self.file(f"library_{way}.o"), "-o",
                   os.path.join(self.file(way), "libdunlin_alike.so"))
        self.expect(done.returncode == 0, f"{way} cannot be shared", done.stderr)

    def link(self, pair):
        mine, its = pair
        missing = WAYS[mine][1] - WAYS[its][1]
        shared = os.path.join(self.file(its), "libdunlin_alike.so")
        for kind, objects in (("static", [self.file(f"program_{mine}.o"), self.file(f"library_{its}.o")]),
                              ("shared", [self.file(f"program_{mine}.o"), shared]),
                              ("collected", ["-Wl,--gc-sections", self.file(f"collected_{mine}.o"), self.file(f"library_{its}.o")])):
            done = run(self.compiler, *objects, "-o", self.file(f"linked_{kind}_{mine}_{its}"))
            self.expect(named(done.stderr) == missing, f"{kind}: a program {mine}, a library {its}: expected {missing}", done.stderr)
            self.expect("dunlin_must_be_linked" not in done.stderr, f"{kind}: a library is there, and is said to be missing", done.stderr)

    # Neither -ldunlin nor any file of it, or a static library before what uses it: the last that is said says so.
    def no_library(self):
        archive = self.file("libalike.a")
        run("ar", "rcs", archive, self.file("library_plain.o"))
        for what, objects in (("none", [self.file("program_plain.o")]), ("before", [archive, self.file("program_plain.o")])):
            done = run(self.compiler, *objects, "-o", self.file(f"linked_without_{what}"))
            names = re.findall(r"dunlin_must_be_\w+", done.stderr)
            self.expect(names and names[-1].startswith("dunlin_must_be_linked"), f"a library that is missing ({what}) is not said to be", done.stderr)

    def exchange(self):
        program = self.file("linked_shared_plain_plain")
        if not os.path.exists(program):
            return
        for way in WAYS:
            if "sanitize" in "".join(WAYS[way][0]):
                continue  # its own library would have to be there first
            done = run(program, env={"LD_LIBRARY_PATH": self.file(way)})
            missing = WAYS["plain"][1] - WAYS[way][1]
            self.expect(named(done.stderr) == missing and (done.returncode == 0) == (not missing), f"exchanged for {way}", done.stderr)

    # What it calls is of the version of the headers that it was compiled with, and of no other.
    def version(self, source):
        with open(os.path.join(source, "include", "dunlin", "config.hpp"), encoding="utf-8") as file:
            abi = re.search(r'^#define DUNLIN_ABI_NAME "(\w+)"$', file.read(), re.M)[1]
        path = self.file("calls.cpp")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#include <dunlin/dunlin.hpp>\nint main() { dunlin::run([] { dunlin::mutex m; m.lock(); m.unlock(); }); }\n")
        done = run(self.compiler, "-std=c++20", "-w", self.include, path, "-o", self.file("calls"))
        missing = set(re.findall(r"undefined reference to [`'](?:non-virtual thunk to )?(dunlin::\w+)", done.stderr))
        self.expect(missing == {f"dunlin::{abi}"}, f"a program wants {missing} of the library, expected dunlin::{abi}", done.stderr[:1000])

    def refuse(self, source):
        for flag, says in REFUSED.items():
            if flag.startswith("-stdlib") and "clang" not in self.compiler:
                continue
            for header in ("dunlin", "go", "net", "tls", "detail/spawn"):
                path = self.file("refused.cpp")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#include <dunlin/{header}.hpp>\n")
                done = run(self.compiler, "-std=c++20", flag, "-fsyntax-only", self.include, path)
                if flag.startswith("-stdlib") and "'version' file not found" in done.stderr:
                    continue  # no libc++ here
                errors = [line for line in done.stderr.splitlines() if "error:" in line]
                self.expect(done.returncode != 0 and errors and re.search("dunlin .*" + re.escape(says), errors[0]) and
                            len(done.stderr.splitlines()) <= 12, f"{header}.hpp with {flag}: expected {says}", done.stderr)


def main():
    source, scratch, *compilers = sys.argv[1:]
    os.makedirs(scratch, exist_ok=True)
    faults, count = [], 0
    for compiler in compilers:
        if shutil.which(compiler) is None:
            print(f"{compiler} is not here")
            continue
        checks = Checks(source, scratch, compiler)
        with open(checks.file("program.cpp"), "w", encoding="utf-8") as file:
            file.write("#include <dunlin/config.hpp>\nint main() {}\n")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(checks.compile, WAYS))
            list(pool.map(checks.link, itertools.product(WAYS, WAYS) if compiler == compilers[0] else [("debug", "plain"), ("plain", "thread")]))
        checks.no_library()
        checks.exchange()
        checks.version(source)
        checks.refuse(source)
        faults += checks.faults
        count += checks.count
    print("\n".join(faults))
    print(f"{count} checks, {len(faults)} faults")
    return 1 if faults or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
