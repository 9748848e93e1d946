"""Runs the programs in turn and keeps what they print."""

import json
import os
import subprocess
import sys
import time

from .report import SUBJECT


class Samples:
    """values[(workload, metric, procs, peer)] and, for what went wrong, failures[(workload, procs, peer)]."""

    def __init__(self):
        self.values = {}
        self.failures = {}

    def add(self, line, workload, procs, peer):
        expected = {m.name: m.unit for m in workload.metrics}
        if line["metric"] not in expected or line["unit"] != expected[line["metric"]]:
            raise ValueError(f"metric {line['metric']!r} in {line['unit']!r} is not in driver/workloads.py")
        if line["procs"] != procs:
            raise ValueError(f"ran with {line['procs']} processors instead of {procs}")
        self.values.setdefault((workload.name, line["metric"], procs, peer), []).append(line["value"])


def metrics_of(workload, peer):
    """The names of what this peer has to print."""
    return {m.name for m in workload.metrics if peer == SUBJECT or not m.own}


def run_program(program, peer, name, procs, words, timeout_s):
    """The lines that one run of one workload prints; raises ValueError with the reason if it fails."""
    command = [program.path, program.name_of(name), "--procs", str(procs), *words]
    env = {**os.environ, **peer.environment, peer.procs_variable: str(procs)}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ValueError(f"no end after {timeout_s} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ValueError(f"exit status {done.returncode}: {lines[0]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_once(program, peer, workload, procs, quick):
    """The same, and all metrics of the workload must be there."""
    lines = run_program(program, peer, workload.name, procs, ["--quick"] if quick else [], workload.timeout_s)
    not_printed = metrics_of(workload, peer.name) - {line["metric"] for line in lines}
    if not_printed:
        raise ValueError(f"did not print {', '.join(sorted(not_printed))}")
    return lines


SILENCE_MAX_S = 10


class Progress:
    """A line on stderr that says what runs: rewritten on a terminal, otherwise written when there was none for long."""

    def __init__(self, total):
        self.total = total
        self.done = 0
        self.start = self.last_line = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def running(self, text):
        if self.terminal:
            sys.stderr.write(f"\r\033[K[{self.done}/{self.total}, {self._elapsed()}] {text}")
            sys.stderr.flush()
        elif time.monotonic() - self.last_line > SILENCE_MAX_S:
            self.line(text)

    def advance(self, runs=1):
        self.done += runs

    def line(self, text):
        clear = "\r\033[K" if self.terminal else ""
        sys.stderr.write(f"{clear}[{self.done}/{self.total}, {self._elapsed()}] {text}\n")
        sys.stderr.flush()
        self.last_line = time.monotonic()

    def _elapsed(self):
        seconds = int(time.monotonic() - self.start)
        return f"{seconds // 60}:{seconds % 60:02}"


def shuffled(items, order):
    """All of them in an order that the generator `order` chooses: none always follows the same neighbour."""
    return order.sample(items, len(items))


def measure(workloads, peers_programs, procs_list, rounds, quick, order, after_each=lambda samples, measured: None, progress=None):
    """Every workload for every peer. Within a round the peers take turns, in an order that is chosen anew for each, so
    that drift of the machine, and what a program leaves behind for the next, meet all alike; round 0 warms up (page cache, guest memory, CPU clock) and is not kept. `after_each` has the samples and the workloads so far."""
    samples = Samples()
    takers = {
        (w.name, procs): takers_of(w.name, procs, peers_programs) for w in workloads for procs in w.procs_of(procs_list)
    }
    progress = progress or Progress(
        sum(
            (rounds + 1 if not w.once else 1) * len(takers[w.name, procs])
            for w in workloads
            for procs in w.procs_of(procs_list)
        )
    )
    for done, w in enumerate(workloads, 1):
        for round_number in range(1, 2) if w.once else range(rounds + 1):
            for procs in w.procs_of(procs_list):
                for peer, program in shuffled(takers[w.name, procs], order):
                    _take_turn(samples, progress, w, procs, peer, program, round_number, rounds, quick)
        for procs in w.procs_of(procs_list):
            progress.line(_summary(samples, w, procs, [peer for peer, _ in takers[w.name, procs]]))
        after_each(samples, workloads[:done])
    return samples


def takers_of(workload, procs, peers_programs):
    """The peers that have this workload for so many processors, each with its first program that has it."""
    able = ((peer, [p for p in programs if p.runs_with(workload, procs)]) for peer, programs in peers_programs)
    return [(peer, programs[0]) for peer, programs in able if programs]


def _take_turn(samples, progress, w, procs, peer, program, round_number, rounds, quick):
    if (w.name, procs, peer.name) not in samples.failures:
        round_name = f"round {round_number} of {rounds}" if round_number else "warm-up"
        progress.running(f"{w.name} P={procs} {round_name}: {peer.name}")
        try:
            lines = run_once(program, peer, w, procs, quick)
            if round_number > 0:
                for line in lines:
                    samples.add(line, w, procs, peer.name)
        except (ValueError, KeyError, OSError) as error:
            samples.failures[w.name, procs, peer.name] = str(error)
            progress.line(f"{w.name} P={procs} {peer.name} FAILED: {error}")
    progress.advance()


def _summary(samples, w, procs, peers):
    metric = w.metrics[0]
    parts = []
    for peer in peers:
        values = sorted(samples.values.get((w.name, metric.name, procs, peer.name), []))
        parts.append(f"{peer.name} {values[len(values) // 2]:.4g} {metric.unit}" if values else f"{peer.name} failed")
    return f"{w.name} P={procs} {metric.name}: {', '.join(parts)}"
