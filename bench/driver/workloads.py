"""What is measured: the workloads, their metrics, and the targets. The programs print these names and units.

To add a workload: an entry here, a function in a *_bench.cpp, its twin in each peer, then `bench/run.py --update-docs`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """At most `limit` times the median of the peer `against`, or at most `limit` units when `against` is None."""

    limit: float
    against: str | None
    procs: tuple[int, ...]

    def text(self):
        if self.against is None:
            return f"<= {self.limit:g}"
        if self.limit < 1:
            return f"<= 1/{1 / self.limit:g} of {self.against}"
        return f"<= {self.limit:g} x {self.against}"


@dataclass(frozen=True)
class Metric:
    name: str
    unit: str
    targets: tuple[Target, ...] = ()

    def target(self, procs):
        return next((t for t in self.targets if procs in t.procs), None)


@dataclass(frozen=True)
class Workload:
    name: str
    what: str
    metrics: tuple[Metric, ...]
    timeout_s: int = 120


BOTH = (1, 2)


def go_part(n, procs=BOTH):
    """At most 1/n of Go's figure."""
    return Target(1 / n, "go", procs)


def time_ns(*targets):
    return Metric("time", "ns", targets)


def time_ms(*targets):
    return Metric("time", "ms", targets)


WORKLOADS = (
    Workload(
        "yield",
        "two goroutines yield to each other; time per yield",
        (time_ns(go_part(5)),),
    ),
    Workload(
        "yield1000",
        "a thousand goroutines yield in turn; time per yield",
        (time_ns(go_part(5)),),
    ),
    Workload(
        "spawn-join",
        "start one goroutine and wait for its value, one after the other: `spawn(f).get()`; Go: `go f()` and a channel",
        (time_ns(go_part(10)),),
    ),
    Workload(
        "spawn-join-wg",
        "the same with `wait_group::go` and `wait`, against the same, fastest Go form",
        (time_ns(go_part(10)),),
    ),
    Workload(
        "spawn-million",
        "start a million goroutines that do nothing, then wait for all through a wait group; time for each. "
        "`first` is the first million of the process, before anything is allocated",
        (time_ns(go_part(10, (1,)), go_part(2, (2,))), Metric("first", "ns"), Metric("peak-rss", "MB")),
    ),
    Workload(
        "fib",
        "fib(30) with one goroutine per call (1.3 million); `spawn` and `get`; Go: `go` and a channel",
        (time_ms(go_part(15)),),
    ),
    Workload(
        "skynet-tg",
        "a tree with ten branches per node and a million leaves, summed; one task_group per node; Go: one WaitGroup",
        (time_ms(),),
    ),
    Workload(
        "nqueens",
        "all places for 12 queens on a board of 12 x 12: one goroutine for each of 856,188 partial boards, one "
        "task_group per node; Go: one WaitGroup",
        (time_ms(),),
    ),
    Workload(
        "matmul",
        "a product of two matrices of 1024 x 1024, in quarters down to 32 x 32 (37,448 goroutines); two task_groups "
        "per node; Go: two WaitGroups",
        (time_ms(),),
    ),
    Workload(
        "parked-memory",
        "a million goroutines parked at once: bytes for each, resident and page tables (`memory` is their sum), and "
        "the time to create and to end each",
        (
            Metric("memory", "B", (Target(4900, None, BOTH),)),
            Metric("resident", "B"),
            Metric("page-tables", "B"),
            Metric("create", "ns"),
            Metric("end", "ns"),
        ),
    ),
    Workload(
        "sleepers",
        "100,000 goroutines sleep for random times from 0 to 1000 ms: how long after 1000 ms the last one ends, and "
        "the CPU time of the process",
        (Metric("late", "ms"), Metric("cpu", "s")),
    ),
    Workload(
        "sleep-overshoot",
        "one goroutine sleeps for 100 us, a thousand times: how much longer it took",
        (Metric("p50", "us"), Metric("p99", "us")),
    ),
    Workload(
        "wake-idle",
        "a plain thread starts a goroutine on an otherwise idle runtime: how long until it runs; Go: a C thread (cgo)",
        (Metric("p50", "us"), Metric("p99", "us")),
    ),
)


def markdown_table():
    """The table of docs/benchmarks.md."""
    lines = ["| workload | what it does | metrics | targets |", "|---|---|---|---|"]
    for w in WORKLOADS:
        metrics = ", ".join(f"{m.name} ({m.unit})" for m in w.metrics)
        targets = "; ".join(
            f"{m.name} {t.text()}" + ("" if t.procs == BOTH else f" (P={','.join(map(str, t.procs))})")
            for m in w.metrics
            for t in m.targets
        )
        lines.append(f"| `{w.name}` | {w.what} | {metrics} | {targets} |")
    return "\n".join(lines) + "\n"
