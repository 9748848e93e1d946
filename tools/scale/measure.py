"""Runs workloads: on virtual CPUs, and on those of this machine."""

import json
import statistics
import subprocess
import time

QUIET = 0.04  # of a run, for which its threads waited for CPUs that others used: more, and it does not count
SLEEPERS = {"wakes", "timers"}


def simulate(program, workload, procs, *options):
    """What scale_simulated says. Raises RuntimeError if it fails."""
    done = subprocess.run([program, *options, workload, str(procs)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{workload} on {procs} virtual CPUs: {done.stderr.strip() or f'status {done.returncode}'}")
    return json.loads(done.stdout)


def simulate_often(program, workload, procs, most, seconds, *options):
    """The median of runs that begin a moment later each, so many, or as many as that time allows; the others' figures are its "spread"."""
    end, runs = time.monotonic() + seconds, []
    while not runs or (len(runs) < most and time.monotonic() < end):
        runs.append(simulate(program, workload, procs, "--later", str(1009 * len(runs)), *options))
    runs.sort(key=cpu_ns)
    middle = runs[len(runs) // 2]
    middle["spread"] = [cpu_ns(runs[0]), cpu_ns(runs[-1])]
    return middle


def cpu_ns(result):
    """Of one operation: the time of all CPUs, whether they had something to do or not."""
    return result["procs"] * result["ns"] / result["operations"]


def run_once(program, workload, procs):
    """(ns of CPUs for one operation, the part of the CPUs that its threads waited for). Where there is always something to do, what they
    waited for was used by others, and does not count."""
    done = subprocess.run([program, workload, str(procs)], capture_output=True, text=True, check=True)
    ns, operations, waited = map(int, done.stdout.split())
    had = procs * ns - (0 if workload in SLEEPERS else waited)
    return had / operations, waited / (procs * ns)


class Real:
    """Medians of the runs that were disturbed least, by turns with one processor and two."""

    def __init__(self, program, workload, wanted, patience):
        runs = {1: [], 2: []}
        end = time.monotonic() + patience
        while time.monotonic() < end and not all(self.enough(r, wanted) for r in runs.values()):
            for procs, done in runs.items():
                done.append(run_once(program, workload, procs))
        least = {p: sorted(r, key=lambda run: run[1])[:wanted] for p, r in runs.items()}
        self.ns = {p: statistics.median(ns for ns, _ in r) for p, r in least.items()}
        self.waited = max(statistics.median(waited for _, waited in r) for r in least.values())

    @staticmethod
    def enough(runs, wanted):
        return sum(waited <= QUIET for _, waited in runs) >= wanted
