"""How cost grows: families of curves over a number of goroutines, processors, channels, timers, connections, and over
the work that goroutines do between their hand-overs.

A family is a list of curves, a curve a workload of the programs that is run with several sizes, each in a process of its own. What was measured goes into
growth.json, family by family: a family that was not run this time keeps what an earlier run has measured, with that run's machine and versions.
"""

import datetime
import random
import resource
import statistics
import time
from dataclasses import dataclass, field, replace

from . import intervals, report, runner

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
class Target:
    """At most `limit` times the figure of `against`, or at most `limit` units if that is None, from this size on."""

    metric: str
    limit: float
    against: str | None = None
    first: int = 0

    def text(self):
        what = f"{self.against}'s" if self.against else "the ideal" if self.metric == OF_IDEAL else "units"
        return f"at most {self.limit:g} of {what}"


@dataclass(frozen=True)
class Variant:
    """A peer once more, with another number of processors: a curve of its own."""

    name: str
    peer: str
    procs: int


class AtProcs:
    """A peer as a variant has it."""

    def __init__(self, variant, peer):
        self.name = variant.name
        self.procs = variant.procs
        self.procs_variable = peer.procs_variable
        self.environment = peer.environment


@dataclass(frozen=True)
class Family:
    name: str
    title: str
    axis: str
    curves: tuple
    over_procs: bool = False
    peers: tuple = ("dunlin", "go")
    procs: int = 1  # unless --procs says otherwise
    cpus_min: int = 1  # with fewer it would measure something else
    variants: tuple = ()
    targets: tuple = ()
    scale: float = 1  # what the axis shows for a size of 1
    none: int | None = None  # the size that stands for nothing
    head: str = "n"  # of the column with the sizes
    unit: str = ""  # of the sizes
    drawn: tuple = ()  # only these metrics; empty: all
    page: str = "growth.md"  # of the documentation


OF_IDEAL = "of-ideal"


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


# Work of each step in tenths of a microsecond; 1 stands for none.
WORK = (1, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
EVEN_AND_SKEWED = (("", ""), ("-skewed", "; 1 step in 10 takes ten times as long"))


def work_curve(workload, what):
    return Curve(workload, what, {"time": "us", OF_IDEAL: "x"}, WORK, timeout_s=60)


def work_family():
    """Two processors, and goroutines that work between their hand-overs: is the second one used?"""
    return Family(
        "work",
        "Work between hand-overs, from none to 1000 us, on two processors",
        "work of each step, us",
        (
            *(
                work_curve(f"fan-{n}{skewed}", f"a job for each of {n} workers{how}")
                for skewed, how in EVEN_AND_SKEWED
                for n in (2, 4, 8, 16)
            ),
            *(
                work_curve(f"pipe-{stages}-{capacity}{skewed}", f"{stages} stages, capacity {capacity}{how}")
                for skewed, how in EVEN_AND_SKEWED
                for stages in (2, 4)
                for capacity in (0, 1, 16)
            ),
        ),
        procs=2,
        cpus_min=2,
        variants=(Variant("dunlin P=1", "dunlin", 1),),
        targets=(
            Target("time", 1.05, "go"),
            Target("time", 1.05, "dunlin P=1"),
            Target(OF_IDEAL, 1.25, first=100),
        ),
        scale=0.1,
        none=1,
        head="work, us",
        unit=" us",
        drawn=(OF_IDEAL,),
        page="benchmarks.md",
    )


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
        work_family(),
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


def impossible(family, cpus):
    """Why this machine cannot run it, or None."""
    if cpus >= family.cpus_min:
        return None
    return f"left out: it needs {family.cpus_min} CPUs that work at the same time, and there {'is' if cpus == 1 else 'are'} {cpus} here"


def lacking(family, present):
    """A line for the peers that are not here, if targets are against them."""
    absent = {t.against for t in family.targets if t.against in family.peers} - set(present)
    return [f"{name} is not here, so {report.SUBJECT}'s targets against it are not measured." for name in sorted(absent)]


def with_variants(family, ready, procs):
    """The peers that are ready, and those of the family's variants that differ from them."""
    by_name = {peer.name: (peer, programs) for peer, programs in ready}
    wanted = [v for v in family.variants if v.peer in by_name and v.procs != procs]
    return [*ready, *((AtProcs(v, by_name[v.peer][0]), by_name[v.peer][1]) for v in wanted)]


def size_text(f, x):
    """A size as tables and reports show it."""
    return "none" if x == f.get("none") else f"{x * f.get('scale', 1):,.10g}"


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

    def add(self, point, peer, lines, procs=None):
        procs = procs or point.procs
        for line in lines:
            unit = point.curve.units.get(line["metric"])
            if unit is None or unit != line["unit"]:
                raise ValueError(f"metric {line['metric']!r} in {line['unit']!r} is not in driver/growth.py")
            if line["procs"] != procs:
                raise ValueError(f"ran with {line['procs']} processors instead of {procs}")
        for line in lines:
            self.samples.setdefault((point.curve.workload, line["metric"], point.x, peer), []).append(line["value"])


def takes_part(family, peer):
    return peer.name in family.peers or peer.name in [v.name for v in family.variants]


def measure(family, ready, rounds, quick, procs=1, progress=None, run=runner.run_program, order=None):
    """Round after round, within each every point of every peer, the peers in an order that is chosen anew for each point.
    Nothing warms up before but the largest size of the first peer: it makes the machine's memory known to its host. The
    programs have a repetition of their own that does not count."""
    measured = Measured()
    points = points_of(family, procs)
    takers = {
        (point, peer.name): (peer, next(p for p in programs if point.curve.workload in p.workloads))
        for point in points
        for peer, programs in ready
        if takes_part(family, peer) and any(point.curve.workload in p.workloads for p in programs)
    }
    order = order or random.Random(1)
    progress = progress or runner.Progress(rounds * len(takers))
    if family.name == "goroutines" and not quick and points and takers:
        peer, program = next(taker for (point, _), taker in takers.items() if point == points[-1])
        progress.line(f"{family.name}: one run of {points[-1].x:,} that does not count, so that the machine has the memory")
        _run(run, measured, points[-1], peer, program, quick, keep=False)
    for round_number in range(1, rounds + 1):
        for point in points:
            for peer, _ in runner.shuffled(ready, order):
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
    procs = getattr(peer, "procs", point.procs)
    try:
        lines = run(program, peer, point.curve.workload, procs, point.words + (["--quick"] if quick else []), point.curve.timeout_s)
        if keep:
            measured.add(point, peer.name, lines, procs)
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
        **judged(family, curves),
        "scale": family.scale,
        "none": family.none,
        "head": family.head,
        "drawn": list(family.drawn),
        "page": family.page,
        "name": family.name,
        "title": family.title,
        "axis": family.axis,
        "over_procs": family.over_procs,
        "procs": None if family.over_procs else procs,
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine,
        "versions": {peer: version for peer, version in versions.items() if peer in peers},
        "rounds": rounds,
        "quick": quick,
        "notes": notes,
        "failures": [f"{workload} {x:,} {peer}: {reason}" for (workload, x, peer), reason in measured.failures.items()],
        "curves": curves,
    }


def judged(family, curves):
    """Each cell against each target of the family: how many are reached, which are missed, how many were not measured."""
    reached, missed, unknown = 0, [], 0
    for curve in curves:
        for point in curve["points"]:
            for target in family.targets:
                if curve["metric"] != target.metric or point["x"] < target.first:
                    continue
                figure = _against(target, point["figures"])
                if figure is None:
                    unknown += 1
                elif figure <= target.limit:
                    reached += 1
                else:
                    size = size_text({"scale": family.scale, "none": family.none}, point["x"])
                    size += family.unit if size != "none" else ""
                    missed.append(f"{curve['workload']}, {size}: {figure:.3g}, {target.text()}")
    return {"reached": reached, "missed": missed, "not_measured": unknown}


def _against(target, figures):
    """dunlin's figure as the target looks at it, or None."""
    if report.SUBJECT not in figures or (target.against and target.against not in figures):
        return None
    return figures[report.SUBJECT]["median"] / (figures[target.against]["median"] if target.against else 1)


def verdicts(f):
    """The lines that name what was missed."""
    missed = f.get("missed", [])
    if not missed and not f.get("reached"):
        return []
    counts = f"Targets: {f['reached']} cells reached, {len(missed)} missed, {f['not_measured']} not measured."
    return [counts, "", *(f"- missed: {text}" for text in missed), *([""] if missed else [])]


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


def tables(f, load=False):
    """The lines of one family's tables, one for each workload; dunlin's ratio to the others stands behind each metric."""
    lines = [head_line(f), ""]
    for extra in filter(None, [report.load_line(f)[1] if load else warning(f), *f["notes"], *(f"Failed: {text}" for text in f["failures"])]):
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
            columns += [f"/ {peer}" for peer in others if _compares(c, peer, present)]
        lines += [f"`{workload}`: " + "; ".join(f"{c['metric']} ({c['what']})" if c["what"] else c["metric"] for c in curves), ""]
        lines += [f"| {'P' if f['over_procs'] else f.get('head', 'n')} | " + " | ".join(columns) + " |", "|--:|" + "--:|" * len(columns)]
        for i, point in enumerate(curves[0]["points"]):
            cells = []
            for c in curves:
                figures = c["points"][i]["figures"]
                cells += [_cell(figures, peer) for peer in present[c["metric"]]]
                cells += [_ratio(figures, peer) for peer in others if _compares(c, peer, present)]
            lines.append(f"| {size_text(f, point['x'])} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines + verdicts(f)


def _compares(curve, peer, present):
    """A figure that is itself a multiple of something gets no ratio."""
    return peer in present[curve["metric"]] and curve["metric"] != OF_IDEAL


def _cell(figures, peer):
    return report.number(figures[peer]["median"]) if peer in figures else "-"


def _ratio(figures, peer):
    if peer not in figures or report.SUBJECT not in figures or figures[peer]["median"] <= 0:
        return "-"
    ratio = report.number(figures[report.SUBJECT]["median"] / figures[peer]["median"])
    interval = intervals.of_ratio(tuple(figures[report.SUBJECT]["samples"]), tuple(figures[peer]["samples"]))
    return f"{ratio} [{report.number(interval[0])} .. {report.number(interval[1])}]" if interval else ratio


def markdown(doc):
    lines = ["# How cost grows", "", "What is measured, and where the knees come from: docs/growth.md.", ""]
    for f in doc["families"]:
        lines += [f"## {f['title']}", "", *[f"- {peer}: {version}" for peer, version in f["versions"].items()], "", *tables(f)]
    return "\n".join(lines).rstrip("\n") + "\n"
