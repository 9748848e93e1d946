"""Runs workloads: on virtual CPUs, and on those of this machine."""

import json
import os
import statistics
import subprocess
import time

QUIET = 0.06  # of the CPUs' time, for others: more, and a run does not count


def simulate(program, workload, procs, *options):
    """What scale_simulated says. Raises RuntimeError if it fails."""
    done = subprocess.run([program, *options, workload, str(procs)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{workload} on {procs} virtual CPUs: {done.stderr.strip() or f'status {done.returncode}'}")
    return json.loads(done.stdout)


def cpu_ns(result):
    """Of one operation: the time of all CPUs, whether they had something to do or not."""
    return result["procs"] * result["ns"] / result["operations"]


def busy_seconds():
    """Of all CPUs since the start, what a host took included."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def run_once(program, workload, procs):
    """(ns of CPUs for one operation, the part of the machine that others used meanwhile)"""
    busy, own, begin = busy_seconds(), os.times(), time.monotonic()
    done = subprocess.run([program, workload, str(procs)], capture_output=True, text=True, check=True)
    seconds, after = time.monotonic() - begin, os.times()
    used = after.children_user + after.children_system - own.children_user - own.children_system
    others = max(busy_seconds() - busy - used, 0) / (seconds * os.cpu_count())
    ns, operations = map(int, done.stdout.split())
    return procs * ns / operations, others


class Real:
    """Medians of quiet runs, by turns with one processor and two."""

    def __init__(self, program, workload, wanted, patience):
        self.quiet = {1: [], 2: []}
        every = {1: [], 2: []}
        end = time.monotonic() + patience
        while time.monotonic() < end and min(map(len, self.quiet.values())) < wanted:
            for procs in (1, 2):
                ns, others = run_once(program, workload, procs)
                every[procs].append(ns)
                if others <= QUIET:
                    self.quiet[procs].append(ns)
        self.disturbed = min(map(len, self.quiet.values())) < 3
        # Disturbed runs say at least that it can be as fast as their fastest.
        self.ns = {p: min(every[p]) if self.disturbed else statistics.median(self.quiet[p]) for p in (1, 2)}
