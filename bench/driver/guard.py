"""./dev bench check: has a hot path become longer? Counts instructions, which do not depend on what else the machine does.

bench/guard/guard.cpp runs each path a fixed number of times under callgrind, with one processor. What it needs for one operation is compared with
bench/instructions.json, which `./dev bench check --record` writes. Another compiler or C library makes other instructions: then there is nothing to
compare with. The processor hardly matters (an Intel Xeon and an AMD EPYC differ by 0.03 %), but where threads sleep its speed may.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from driver import machine, peers

RECORD = peers.ROOT / "bench" / "instructions.json"
DUMPS = peers.ROOT / "build" / "guard"
LIMIT = 0.03
RUNS = 5  # the least of them counts: what a busy machine causes (processors handed on) comes on top; the monitor's own rounds are not counted
LONGEST_S = 300

# Which memcpy is taken would depend on the machine.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-ERMS,-FSRM"}


# Before a thread sleeps it looks for work for some microseconds: compared on the model of processor only that made the record.
SLEEPING = {"sleep", "pipe-echo"}


class GuardError(Exception):
    pass


@dataclass
class Row:
    name: str
    recorded: float | None
    now: float | None

    @property
    def growth(self):
        return self.now / self.recorded - 1 if self.recorded and self.now is not None else None

    @property
    def failed(self):
        return self.now is None or (self.growth is not None and self.growth > LIMIT + 1e-9)

    @property
    def remark(self):
        if self.now is None:
            return "not counted any more"
        if self.growth is None:
            return "new"
        if self.failed:
            return "GROWN"
        return "less" if self.growth < -LIMIT else ""


def compare(recorded, now):
    """The paths in the order of the program, then those that it does not have any more."""
    names = [*now, *(name for name in recorded if name not in now)]
    return [Row(name, recorded.get(name), now.get(name)) for name in names]


def table(rows):
    def figure(value):
        return "-" if value is None else f"{value:.1f}"

    yield f"{'instructions for one':24}{'recorded':>10}{'now':>10}{'growth':>9}"
    for row in rows:
        growth = "" if row.growth is None else f"{row.growth:+.1%}"
        yield f"{row.name:24}{figure(row.recorded):>10}{figure(row.now):>10}{growth:>9}  {row.remark}".rstrip()


def differences(recorded, here):
    """What the counts depend on and is not as it was: lines."""
    return [
        f"{key}: recorded with {recorded.get(key, 'nothing')}, here {here.get(key, 'nothing')}"
        for key in sorted({*recorded, *here})
        if recorded.get(key) != here.get(key)
    ]


def least(runs):
    """For each path the smallest count of any run."""
    return {name: min(run[name] for run in runs if name in run) for run in runs for name in run}


def count_of(dump):
    """What a dump of callgrind's says: (the path, its instructions)."""
    name = re.search(r"^desc: Trigger: Client Request: (\S+)$", dump, re.MULTILINE)
    total = re.search(r"^totals: (\d+)$", dump, re.MULTILINE)  # "summary" has what came before the first clearing
    if name is None or total is None:
        return None
    return name.group(1), int(total.group(1))


def run_once(program):
    """Instructions for one operation of each path; the dumps are left in DUMPS, one for each path."""
    DUMPS.mkdir(parents=True, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DUNLIN_")}
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        # Each thread by itself: a dump is of the one that runs the path, and the monitor's rounds are not in it.
        command = ["valgrind", "-q", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/out", program]
        try:
            done = subprocess.run(command, env={**environment, **ENVIRONMENT}, capture_output=True, text=True, timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            raise GuardError(f"valgrind has not come to an end in {LONGEST_S} s") from None
        if done.returncode != 0:
            raise GuardError(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}".rstrip())
        for dump in Path(folder).iterdir():
            found = count_of(dump.read_text())
            if found is not None:
                counts[found[0]] = found[1]
                shutil.copyfile(dump, DUMPS / f"{found[0]}.callgrind")
    operations = dict(line.split() for line in done.stdout.splitlines())
    if set(operations) != set(counts):
        raise GuardError(f"callgrind has counted {sorted(counts)}, and the program has done {sorted(operations)}")
    return {name: round(counts[name] / int(number), 2) for name, number in operations.items()}


def made_by():
    """What the counts depend on."""
    dunlin = peers.Dunlin()
    return {
        "architecture": platform.machine(),
        "compiler and flags": dunlin.version().partition("; ")[2],
        "libc": " ".join(platform.libc_ver()),
        "valgrind": peers.output_of(["valgrind", "--version"]),
    }


def record(program):
    counts = least([run_once(program) for _ in range(RUNS)])
    RECORD.write_text(json.dumps({"cpu": machine.describe()["cpu"], "made by": made_by(), "instructions": counts}, indent=1) + "\n")
    return counts


def check(program, recorded):
    """Runs again only if something seems to have grown."""
    runs = []
    while len(runs) < RUNS:
        runs.append(run_once(program))
        rows = compare(recorded, least(runs))
        if not any(row.failed for row in rows):
            break
    return rows


def main(say, build, recording):
    if shutil.which("valgrind") is None:
        say("guard skipped: no `valgrind` in PATH (Debian: apt-get install valgrind)")
        return 0
    directory = peers.Dunlin()._build_dir()
    if build:
        say("building dunlin_guard")
        peers.build_step(["cmake", "--preset", peers.PRESET])
        peers.build_step(["cmake", "--build", directory, "--target", "dunlin_guard"])
    program = directory / "bench" / "dunlin_guard"
    try:
        if recording:
            for name, count in record(program).items():
                print(f"{name:24}{count:10.1f}")
            say(f"written to {RECORD.relative_to(peers.ROOT)}")
            return 0
        if not RECORD.is_file():
            say("nothing is recorded: ./dev bench check --record")
            return 0
        old = json.loads(RECORD.read_text())
        other = differences(old["made by"], made_by())
        if other:
            say("guard skipped, since the record is of other code:")
            for line in other:
                say(f"  {line}")
            return 0
        recorded = old["instructions"]
        if old["cpu"] != machine.describe()["cpu"]:
            recorded = {name: count for name, count in recorded.items() if name not in SLEEPING}
        rows = check(program, recorded)
    except GuardError as error:
        say(f"guard failed: {error}")
        return 1
    for line in table(rows):
        print(line)
    failed = [row.name for row in rows if row.failed]
    if failed:
        say(f"more than {LIMIT:.0%} beyond the record: {', '.join(failed)}")
        say(f"callgrind_annotate {DUMPS.relative_to(peers.ROOT)}/{failed[0]}.callgrind shows where the instructions are")
        say("if they are worth it: ./dev bench check --record, and say in the commit what they buy")
    elif any(row.remark for row in rows):
        say("the record can be renewed: ./dev bench check --record")
    return 1 if failed else 0
