"""How cost grows: families of curves over a number of goroutines, processors, channels, timers, connections.

A family is a list of curves, a curve a workload of the programs that is run with several sizes, each in a process of its own. What was measured goes into
growth.json, family by family: a family that was not run this time keeps what an earlier run has measured, with that run's machine and versions.
"""

import datetime
import resource
import statistics
import time
from dataclasses import dataclass, field, replace

from . import report, runner

# What 4,000,000 of them need decides where the curve ends; measured by parked-memory, page tables included.
GOROUTINE_BYTES = 4900
MEMORY_KEPT_FREE = 2**30
# A point that takes longer than this is taken once: its noise is small beside it.
LONG_RUN_S = 12
LOAD_SPARE_DESCRIPTORS = 64  # as in bench/load
CONNECTIONS_MAX = 100_000
PROCS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, eq=False)
class Curve:
    workload: str
    what: str
    units: dict  # of the metrics, the first of which is the main one
    sizes: tuple = ()
    n: int | None = None  # of all points of a curve over processors
    timeout_s: int = 300
    texts: dict = field(default_factory=dict)  # what a metric is, where `what` does not say it


@dataclass(frozen=True)
class Family:
    name: str
    title: str
    axis: str
    curves: tuple
    over_procs: bool = False
    peers: tuple = ("dunlin", "go")


def steps(first, last):
    """10, 30, 100, 300 ... last."""
    values = []
    power = first
    while power <= last:
        values += [v for v in (power, 3 * power) if v <= last]
        power *= 10
    return tuple(values if values and values[-1] == last else [*values, last])


def descriptor_limit():
    """How many connections one process may have, as far as this one's children can raise it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = CONNECTIONS_MAX if hard == resource.RLIM_INFINITY else hard - LOAD_SPARE_DESCRIPTORS
    return max(1, min(CONNECTIONS_MAX, most))


def families():
    connections = descriptor_limit()
    return (
        Family(
            "goroutines",
            "Goroutines, from 10 to 4,000,000",
            "goroutines that wait on one channel",
            (
                Curve(
                    "grow-goroutines",
                    "",
                    {"wake": "ns", "life": "ns", "first": "ns", "memory": "B"},
                    (*steps(10, 1_000_000), 2_000_000, 4_000_000),
                    texts={
                        "wake": "a value for the one that has waited longest",
                        "life": "started, waited, ended; memory used before",
                        "first": "started and waiting, in a new process",
                        "memory": "resident and page tables, all waiting",
                    },
                ),
            ),
        ),
        Family(
            "procs",
            "Processors, from 1 to 64",
            "processors (P)",
            (
                Curve("spawn-join", "start one goroutine and wait for it", {"time": "ns"}, PROCS),
                Curve("grow-pairs", "64 pairs play ping-pong, a round trip", {"time": "ns"}, PROCS, n=64),
                Curve("mutex-8", "eight goroutines, one mutex: lock and unlock", {"time": "ns"}, PROCS),
                Curve("yield1000", "a thousand goroutines yield", {"time": "ns"}, PROCS),
                Curve("skynet", "a tree of 100,000 leaves over channels", {"time": "ms", "peak-rss": "MB"}, PROCS, n=100_000),
            ),
            over_procs=True,
        ),
        Family(
            "channels",
            "Channels, from 1 to 10,000",
            "channels",
            (
                Curve("grow-channels", "a value goes round a ring, a hop", {"time": "ns", "memory": "B"}, steps(1, 10_000), texts={"memory": "a channel of capacity 1"}),
                Curve("grow-select", "one goroutine selects over all of them", {"time": "ns"}, steps(1, 10_000)),
            ),
        ),
        Family(
            "timers",
            "Timers, from 10 to 1,000,000",
            "pending timers",
            (
                Curve(
                    "grow-timers",
                    "",
                    {"time": "ns", "create": "ns", "fire": "ns", "memory": "B"},
                    steps(10, 1_000_000),
                    texts={
                        "time": "one more is made and stopped",
                        "create": "each of them is made",
                        "fire": "CPU time of each, all due within 100 ms",
                        "memory": "each of them",
                    },
                ),
            ),
        ),
        Family(
            "connections",
            f"Connections, from 1 to {connections:,}",
            "connections",
            (
                Curve(
                    "grow-echo",
                    "each with a message of 64 bytes under way",
                    {"time": "us", "cpu": "us", "p50": "us", "p99": "us"},
                    steps(1, connections),
                    texts={
                        "time": "echo of 64 bytes, 1 / rate",
                        "cpu": "CPU time of the server for each echo",
                        "p50": "delay of an echo, all busy, median",
                        "p99": "delay of an echo, all busy, 99th percentile",
                    },
                ),
                Curve(
                    "grow-idle",
                    "all idle but one",
                    {"memory": "B", "p50": "us", "p99": "us", "connections": "connections"},
                    tuple(n for n in (10, 100, 1000, 10_000) if n < connections) + (connections,),
                    texts={
                        "memory": "each connection, idle, resident",
                        "p50": "delay of an echo, others idle, median",
                        "p99": "delay of an echo, others idle, 99th percentile",
                    },
                ),
            ),
            peers=("dunlin", "go", "c"),
        ),
    )


def choose(names, known):
    """The families of these names, all if there are none; raises ValueError."""
    for name in names:
        if name not in [f.name for f in known]:
            raise ValueError(f"no family {name!r}; there are {', '.join(f.name for f in known)}")
    return [f for f in known if not names or f.name in names]


def available_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))


def fitting(family, free_bytes):
    """The family with the sizes that there is memory for, and a line for what was left out."""
    if family.name != "goroutines":
        return family, []
    (curve,) = family.curves
    most = (free_bytes - MEMORY_KEPT_FREE) // GOROUTINE_BYTES
    sizes = tuple(n for n in curve.sizes if n <= most)
    if sizes == curve.sizes:
        return family, []
    note = (
        f"It stops at {max(sizes, default=0):,} goroutines: {curve.sizes[-1]:,} need {curve.sizes[-1] * GOROUTINE_BYTES / 1e9:.1f} GB "
        f"while they wait, and {free_bytes / 1e9:.1f} GB were free here."
    )
    return replace(family, curves=(replace(curve, sizes=sizes),)), [note]


@dataclass(frozen=True)
class Point:
    curve: Curve
    x: int
    procs: int

    @property
    def words(self):
        n = self.curve.n if self.curve.n is not None else self.x
        return ["--n", str(n)]


def points_of(family, procs):
    return [
        Point(curve, x, x if family.over_procs else procs)
        for curve in family.curves
        for x in curve.sizes
    ]


class Measured:
    """samples[(workload, metric, x, peer)] and failures[(workload, x, peer)] of one family."""

    def __init__(self):
        self.samples = {}
        self.failures = {}
        self.finished = set()  # (workload, x, peer) that need no further round

    def add(self, point, peer, lines):
        for line in lines:
            unit = point.curve.units.get(line["metric"])
            if unit is None or unit != line["unit"]:
                raise ValueError(f"metric {line['metric']!r} in {line['unit']!r} is not in driver/growth.py")
            if line["procs"] != point.procs:
                raise ValueError(f"ran with {line['procs']} processors instead of {point.procs}")
        for line in lines:
            self.samples.setdefault((point.curve.workload, line["metric"], point.x, peer), []).append(line["value"])


def measure(family, ready, rounds, quick, procs=1, progress=None, run=runner.run_program):
    """Round after round, within each every point of every peer in turn. Nothing warms up before but the largest size of the first peer: it
    makes the machine's memory known to its host. The programs have a repetition of their own that does not count."""
    measured = Measured()
    points = points_of(family, procs)
    takers = {
        (point, peer.name): (peer, next(p for p in programs if point.curve.workload in p.workloads))
        for point in points
        for peer, programs in ready
        if peer.name in family.peers and any(point.curve.workload in p.workloads for p in programs)
    }
    progress = progress or runner.Progress(rounds * len(takers))
    if family.name == "goroutines" and not quick and points and takers:
        peer, program = next(taker for (point, _), taker in takers.items() if point == points[-1])
        progress.line(f"{family.name}: one run of {points[-1].x:,} that does not count, so that the machine has the memory")
        _run(run, measured, points[-1], peer, program, quick, keep=False)
    for round_number in range(1, rounds + 1):
        for point in points:
            for peer, _ in ready:
                if (point, peer.name) in takers:
                    key = (point.curve.workload, point.x, peer.name)
                    progress.running(f"{family.name}: {point.curve.workload} {point.x:,}, round {round_number} of {rounds}: {peer.name}")
                    if key not in measured.failures and key not in measured.finished:
                        _run(run, measured, point, peer, takers[point, peer.name][1], quick)
                        if key in measured.failures:
                            progress.line(f"{point.curve.workload} {point.x:,} {peer.name} FAILED: {measured.failures[key]}")
                    progress.advance()
        progress.line(f"{family.name}: round {round_number} of {rounds} is done")
    return measured


def _run(run, measured, point, peer, program, quick, keep=True):
    key = (point.curve.workload, point.x, peer.name)
    start = time.monotonic()
    try:
        lines = run(program, peer, point.curve.workload, point.procs, point.words + (["--quick"] if quick else []), point.curve.timeout_s)
        if keep:
            measured.add(point, peer.name, lines)
    except (ValueError, KeyError, OSError) as error:
        measured.failures[key] = str(error)
    if keep and time.monotonic() - start > LONG_RUN_S:
        measured.finished.add(key)


def document(family, measured, peers, machine, versions, notes, rounds, quick, procs):
    """One family, as it is written to growth.json."""
    curves = []
    for curve in family.curves:
        for metric, unit in curve.units.items():
            points = []
            for x in curve.sizes:
                figures = {}
                for peer in peers:
                    values = measured.samples.get((curve.workload, metric, x, peer))
                    if values:
                        figures[peer] = {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": values}
                points.append({"x": x, "figures": figures})
            curves.append({"workload": curve.workload, "what": curve.texts.get(metric, curve.what), "metric": metric, "unit": unit, "points": points})
    return {
        "name": family.name,
        "title": family.title,
        "axis": family.axis,
        "over_procs": family.over_procs,
        "procs": None if family.over_procs else procs,
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine,
        "versions": {peer: version for peer, version in versions.items() if peer in family.peers},
        "rounds": rounds,
        "quick": quick,
        "notes": notes,
        "failures": [f"{workload} {x:,} {peer}: {reason}" for (workload, x, peer), reason in measured.failures.items()],
        "curves": curves,
    }


def merged(before, families_now):
    """The families of an earlier file, those of now in their places."""
    now = {f["name"]: f for f in families_now}
    order = [f.name for f in families()]
    all_of_them = {**{f["name"]: f for f in (before or {}).get("families", [])}, **now}
    return {"families": sorted(all_of_them.values(), key=lambda f: order.index(f["name"]) if f["name"] in order else len(order))}


# ---- tables ------------------------------------------------------------------------------------------------------------------------------------


def head_line(f):
    m = f["machine"]
    on = "" if f["over_procs"] else f"; P = {f['procs']}"
    return (
        f"{m['cpu']}, {m['cpus']} CPUs, {m['memory_gib']} GiB; Linux {m['kernel']} {m['architecture']}, {m['system']}; {f['when']}; "
        f"{f['rounds']} round{'s' if f['rounds'] > 1 else ''}, medians{on}"
    )


def warning(f):
    reasons = []
    if f["quick"]:
        reasons.append("a quick run, with a tenth of the work")
    if f["machine"]["load_before"] > 0.5:
        reasons.append(f"the machine was busy (load average {f['machine']['load_before']} before the run)")
    return f"**Not for quoting**: {'; '.join(reasons)}." if reasons else ""


def tables(f):
    """The lines of one family's tables, one for each workload; dunlin's ratio to the others stands behind each metric."""
    lines = [head_line(f), ""]
    for extra in filter(None, [warning(f), *f["notes"], *(f"Failed: {text}" for text in f["failures"])]):
        lines += [extra, ""]
    peers = list(f["versions"])
    others = [peer for peer in peers if peer != report.SUBJECT]
    workloads = list(dict.fromkeys(c["workload"] for c in f["curves"]))
    for workload in workloads:
        curves = [c for c in f["curves"] if c["workload"] == workload and c["metric"] != "connections"]
        present = {c["metric"]: [p for p in peers if any(p in point["figures"] for point in c["points"])] for c in curves}
        columns = []
        for c in curves:
            columns += [f"{c['metric']}, {c['unit']}: {peer}" for peer in present[c["metric"]]]
            columns += [f"/ {peer}" for peer in others if peer in present[c["metric"]]]
        lines += [f"`{workload}`: " + "; ".join(f"{c['metric']} ({c['what']})" if c["what"] else c["metric"] for c in curves), ""]
        lines += [f"| {'P' if f['over_procs'] else 'n'} | " + " | ".join(columns) + " |", "|--:|" + "--:|" * len(columns)]
        for i, point in enumerate(curves[0]["points"]):
            cells = []
            for c in curves:
                figures = c["points"][i]["figures"]
                cells += [_cell(figures, peer) for peer in present[c["metric"]]]
                cells += [_ratio(figures, peer) for peer in others if peer in present[c["metric"]]]
            lines.append(f"| {point['x']:,} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def _cell(figures, peer):
    return report.number(figures[peer]["median"]) if peer in figures else "-"


def _ratio(figures, peer):
    if peer not in figures or report.SUBJECT not in figures or figures[peer]["median"] <= 0:
        return "-"
    return report.number(figures[report.SUBJECT]["median"] / figures[peer]["median"])


def markdown(doc):
    lines = ["# How cost grows", "", "What is measured, and where the knees come from: docs/growth.md.", ""]
    for f in doc["families"]:
        lines += [f"## {f['title']}", "", *[f"- {peer}: {version}" for peer, version in f["versions"].items()], "", *tables(f)]
    return "\n".join(lines).rstrip("\n") + "\n"
