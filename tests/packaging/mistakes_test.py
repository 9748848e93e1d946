"""What the compilers say of mistakes (mistakes.txt): the right thing first, and in twelve lines at most.

Usage: mistakes_test.py INCLUDE SCRATCH COMPILER...   A compiler that is not there is left out.
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

LINES = 12
HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = "#include <dunlin/dunlin.hpp>\n#include <memory>\n#include <string>\nusing namespace std::chrono_literals;\n"


def mistakes():
    """(title, program, what the first line says)"""
    with open(os.path.join(HERE, "mistakes.txt"), encoding="utf-8") as file:
        for block in re.split(r"^== ", file.read(), flags=re.M)[1:]:
            title, _, rest = block.partition("\n")
            program, _, wanted = rest.partition("\n-- ")
            yield title, program + "\n", wanted.strip()


def main():
    include, scratch, *compilers = sys.argv[1:]
    os.makedirs(scratch, exist_ok=True)
    faults, tried = 0, 0

    def compile_one(job):
        compiler, flags, number, program = job
        path = os.path.join(scratch, f"{os.path.basename(compiler)}_{number}.cpp")
        with open(path, "w", encoding="utf-8") as file:
            file.write(program)
        # What is only warned of (deprecated) is in the table as well.
        command = [compiler, "-std=c++20", "-fsyntax-only", "-fdiagnostics-color=never", "-Werror=deprecated-declarations", "-I" + include, *flags,
                   path]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        return done.returncode, done.stderr.replace(include + "/", "")

    for compiler in compilers:
        if shutil.which(compiler) is None:
            print(f"{compiler} is not here")
            continue
        # The headers are read once. What is said of them names the files as it does without that.
        header = os.path.join(scratch, os.path.basename(compiler) + "_header.hpp")
        with open(header, "w", encoding="utf-8") as file:
            file.write(HEADER)
        clang = "clang" in os.path.basename(compiler)
        out = header + (".pch" if clang else ".gch")
        subprocess.run([compiler, "-std=c++20", "-Werror=deprecated-declarations", "-I" + include, "-x", "c++-header", header, "-o", out], check=True)
        table = list(mistakes())
        # What is right compiles: else every message below would be about that.
        jobs = [(compiler, ["-include-pch", out] if clang else ["-include", header], n, program)
                for n, program in enumerate(["int main() { dunlin::go([] {}); }\n"] + [program for _, program, _ in table])]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(compile_one, jobs))
        if results[0][0] != 0:
            sys.exit(f"{compiler}: what is right does not compile:\n{results[0][1]}")
        for (title, _, wanted), (status, text) in zip(table, results[1:]):
            tried += 1
            errors = [line for line in text.splitlines() if re.search(r"\berror:", line)]
            count = len(text.splitlines())
            if status == 0:
                fault = "compiles"
            elif not errors or not re.search(wanted, errors[0]):
                fault = f"does not say first: {wanted}"
            elif count > LINES:
                fault = f"{count} lines, {LINES} are allowed"
            else:
                print(f"{compiler}: {title}: {errors[0].partition('error: ')[2]}")
                continue
            faults += 1
            print(f"FAULT {compiler}: {title}: {fault}\n{text}")
    print(f"{tried} messages, {faults} faults")
    return 1 if faults or tried == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
