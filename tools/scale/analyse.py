"""What curves say: how much each CPU still does, and what CPUs wait for."""

import bisect
import re
import subprocess

from measure import cpu_ns

KNEE = 0.75  # of what a CPU does alone
LOCKS = re.compile(r"(lock|mutex|semaphore)[a-z_]*\.(h|cpp):")


def efficiency(curve):
    """(CPUs, what each does of what one alone does)"""
    alone = cpu_ns(curve[0])
    return [(r["procs"], alone / cpu_ns(r)) for r in curve]


def knee(curve):
    """The last number of CPUs of which each still does KNEE of what one does; None: all of them do."""
    last = None
    for procs, part in efficiency(curve):
        if part < KNEE:
            return last
        last = procs
    return None


def spent(result):
    """Parts of all CPUs' time, idle included."""
    whole = result["procs"] * result["ns"]
    parts = {what: ns / whole for what, ns in result["spent"].items()}
    parts["idle"] = max(1 - sum(parts.values()), 0)
    return parts


class Symbols:
    """Names of the program's static objects."""

    def __init__(self, program):
        self.at = []
        lines = subprocess.run(["nm", "-C", "--defined-only", program], capture_output=True, text=True, check=False).stdout
        for line in lines.splitlines():
            address, kind, name = line.split(" ", 2)
            if kind in "bBdDuvVrR":
                self.at.append((int(address, 16), re.sub(r"dunlin::v0_1::|\(anonymous namespace\)::", "", name)))
        self.at.sort()

    def name(self, text):
        if not text.startswith("@"):
            return text
        at = bisect.bisect_right(self.at, (int(text[1:], 16) + 7, "~")) - 1
        return self.at[at][1] if at >= 0 else text


def waits(result, symbols):
    """[(what, part of all CPUs' time, how)], the longest first. Searching for work is no wait for anything."""
    whole = result["procs"] * result["ns"]
    found = {}
    for place in result["places"]:
        spun = place["spun"] if LOCKS.search(place["at"]) else 0
        name = symbols.name(place["object"])
        what = place["at"] if name == "heap" else name
        if what == "membarrier":
            what += f" of {place['at']}"
        entry = found.setdefault(what, {"queued": 0, "moved": 0, "spun": 0, "kernel": 0, "places": []})
        for how in ("queued", "moved", "kernel"):
            entry[how] += place[how]
        entry["spun"] += spun
        if place["at"] != what:
            entry["places"].append(place["at"])
    rows = []
    for what, entry in found.items():
        ns = sum(entry[how] for how in ("queued", "moved", "spun", "kernel"))
        how = max(("queued", "moved", "spun", "kernel"), key=lambda h, e=entry: e[h])
        rows.append((what, ns / whole, how, entry["places"][:3]))
    return sorted(rows, key=lambda row: -row[1])


def idle_beside_queues(result):
    """(processors that were idle when the measurement ended, goroutines that stood in queues)"""
    return result["idle_at_end"], result["queued_at_end"]


def locks(result, symbols):
    """[(which, part of the time for which it was held)]"""
    return [(symbols.name(lock["object"]), lock["held"] / result["ns"]) for lock in result["locks"]]
