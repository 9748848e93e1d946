"""What is measured: the workloads, their metrics, and the targets. The programs print these names and units.

To add a workload: an entry here, a function in a *_bench.cpp, its twin in each peer, then `./dev bench docs --write`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """At most `limit` times the median of the peer `against` ("P=1": of dunlin with one processor), or at most `limit`
    units when `against` is None."""

    limit: float
    against: str | None
    procs: tuple[int, ...]

    def text(self):
        if self.against is None:
            return f"<= {self.limit:g}"
        if self.limit < 1:
            return f"<= 1/{1 / self.limit:.4g} of {self.against}"
        return f"<= {self.limit:.4g} x {self.against}"


@dataclass(frozen=True)
class Metric:
    name: str
    unit: str
    targets: tuple[Target, ...] = ()
    own: bool = False  # the peers have nothing of the kind and do not print it

    def targets_for(self, procs):
        return tuple(t for t in self.targets if procs in t.procs)


BOTH = (1, 2)


@dataclass(frozen=True)
class NoRatio:
    """Figures that stand beside each other and are not compared: they are not of the same work."""

    peer: str | None  # None: any
    procs: tuple[int, ...] = BOTH


@dataclass(frozen=True)
class Workload:
    name: str
    what: str
    metrics: tuple[Metric, ...]
    timeout_s: int = 120
    procs: tuple[int, ...] | None = None  # only with these numbers of processors; None: with any
    needs: tuple[str, ...] = ()  # programs without which it is left out
    once: bool = False  # long: run only when it is named, one round, no warm-up
    no_ratios: tuple[NoRatio, ...] = ()

    def procs_of(self, procs_list):
        return [procs for procs in procs_list if self.procs is None or procs in self.procs]

    def has_ratio(self, peer, procs):
        return not any(none.peer in (None, peer) and procs in none.procs for none in self.no_ratios) or peer == "dunlin"


def go_part(n, procs=BOTH):
    """At most 1/n of Go's figure."""
    return Target(1 / n, "go", procs)


def at_most(limit, procs=BOTH):
    """At most `limit` units, whatever Go needs."""
    return Target(limit, None, procs)


AS_ALONE = Target(1.05, "P=1", (2,))  # two processors are no slower than one


def time_ns(*targets):
    return Metric("time", "ns", targets)


def time_ms(*targets):
    return Metric("time", "ms", targets)


def tick_metrics():
    return (Metric("p50", "ms", (at_most(1.5),)), Metric("p99", "ms"), Metric("max", "ms", (at_most(12),)))


def network(*time_targets):
    """What bench/load's program says of a server: time per request (1 / rate), its CPU time for each."""
    return (Metric("time", "us", time_targets), Metric("cpu", "us"))


def latency(p50=(), p99=()):
    return (Metric("p50", "us", p50), Metric("p99", "us", p99))


def kept_busy():
    """Of goroutines that work between their hand-overs: `of-ideal` is the time as a multiple of that of the work alone;
    `wait-p50` and `wait-p99`: how long those that could run have waited while a processor was idle."""
    return (
        Metric("time", "us", (Target(1.05, "go", BOTH), AS_ALONE)),
        Metric("of-ideal", "x", (at_most(1.25),)),
        Metric("wait-p50", "us", (at_most(5),), own=True),
        Metric("wait-p99", "us", own=True),
    )


WORKLOADS = (
    Workload(
        "yield",
        "two goroutines yield to each other; time per yield",
        (time_ns(go_part(6, (1,))),),
        no_ratios=(NoRatio(None, (2,)),),
    ),
    Workload(
        "yield1000",
        "a thousand goroutines yield in turn; time per yield",
        (time_ns(go_part(6, (1,)), go_part(5, (2,))),),
    ),
    Workload(
        "spawn-join",
        "start one goroutine and wait for its value, one after the other: `spawn(f).get()`; Go: `go f()` and a channel",
        (time_ns(go_part(15, (1,)), go_part(10, (2,))),),
    ),
    Workload(
        "spawn-join-wg",
        "the same with `wait_group::go` and `wait`, against the same, fastest Go form",
        (time_ns(go_part(15, (1,)), go_part(10, (2,))),),
    ),
    Workload(
        "spawn-million",
        "start a million goroutines that do nothing, then wait for all through a wait group; time for each. "
        "`first` is the first million of the process, before anything is allocated",
        (time_ns(go_part(15, (1,)), go_part(4, (2,)), AS_ALONE), Metric("first", "ns"), Metric("peak-rss", "MB")),
    ),
    Workload(
        "fib",
        "fib(30) with one goroutine per call (1.3 million); `spawn` and `get`; Go: `go` and a channel",
        (time_ms(go_part(20, (1,)), go_part(15, (2,))),),
    ),
    Workload(
        "skynet-tg",
        "a tree with ten branches per node and a million leaves, summed; one task_group per node, whose `go_n` starts all ten; "
        "Go: one WaitGroup",
        (time_ms(go_part(20, (1,))),),
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
        "suite-fib",
        "fib(39) as in runtime-benchmarks: one goroutine per call (102 million); only when named",
        (time_ms(),),
        timeout_s=1800,
        once=True,
    ),
    Workload(
        "suite-skynet",
        "`skynet-tg` with 100 million leaves, as in runtime-benchmarks; only when named",
        (time_ms(),),
        timeout_s=1800,
        once=True,
    ),
    Workload(
        "suite-nqueens",
        "`nqueens` with 14 queens (27 million goroutines), as in runtime-benchmarks; only when named",
        (time_ms(),),
        timeout_s=1800,
        once=True,
    ),
    Workload(
        "suite-matmul",
        "`matmul` with matrices of 2048 x 2048, which are made within the time, as in runtime-benchmarks; only when named",
        (time_ms(),),
        timeout_s=1800,
        once=True,
    ),
    Workload(
        "ping-pong",
        "one goroutine sends a number to another and gets it back increased, over two unbuffered channels; time per "
        "round trip",
        (time_ns(go_part(5, (1,)), go_part(3, (2,))),),
        no_ratios=(NoRatio("threads"),),
    ),
    Workload(
        "buffered-1-1",
        "one goroutine sends and one receives over a channel of capacity 128; time per value",
        (time_ns(go_part(3, (1,)), go_part(2, (2,))),),
    ),
    Workload(
        "buffered-4-4",
        "four goroutines send and four receive over one channel of capacity 128; time per value",
        (time_ns(go_part(3, (1,)), go_part(2, (2,))),),
    ),
    Workload(
        "select4",
        "one goroutine selects over four unbuffered channels, of which each has a sender; time per value",
        (time_ns(go_part(4, (1,)), go_part(3, (2,))),),
    ),
    Workload(
        "select4-buffered",
        "the same over channels of capacity 128",
        (time_ns(),),
    ),
    Workload(
        "ring",
        "503 goroutines in a ring hand on one number over unbuffered channels; time per hop",
        (time_ns(go_part(5, (1,)), go_part(4, (2,))),),
    ),
    Workload(
        "skynet",
        "a tree with ten branches per node and a million leaves, summed over one unbuffered channel per node",
        (time_ms(go_part(8, (1,)), go_part(6, (2,))), Metric("peak-rss", "MB")),
    ),
    Workload(
        "prime-sieve",
        "the first 1000 primes: each that is found becomes a goroutine that hands on what it does not divide, over "
        "unbuffered channels (517,383 values handed on)",
        (time_ms(),),
    ),
    Workload(
        "tree",
        "a job goes down a tree of workers, each of which splits it in two, to 16 leaves with 20 us of work each; time per "
        "job. `of-ideal`: that as a multiple of the work alone, spread over all processors. `wait-p50`, `wait-p99`: how long "
        "goroutines that could run have waited while a processor was idle",
        kept_busy(),
    ),
    Workload(
        "bounded-pool",
        "64 goroutines with a job of 20 us each, of which a semaphore lets four work at once; Go: a channel as the "
        "semaphore; time for all",
        kept_busy(),
    ),
    Workload(
        "actors",
        "16 goroutines with a mailbox of 16 letters each; a round brings each four letters, of 5 us of work, three of them "
        "from other actors; time per round",
        kept_busy(),
    ),
    Workload(
        "scatter",
        "a request to each of 8 workers with 10, 20 .. 80 us of work, until the slowest has answered; time per request",
        kept_busy(),
    ),
    Workload(
        "mutex",
        "one goroutine locks a mutex, counts and unlocks it; time for each",
        (time_ns(Target(0.7, "go", BOTH)),),
    ),
    Workload(
        "mutex-8",
        "eight goroutines do so with the same mutex, a million times together; time for each",
        (time_ns(Target(1, "go", BOTH), AS_ALONE, at_most(25, (2,))),),
    ),
    Workload(
        "parked-memory",
        "a million goroutines parked at once: bytes for each, resident and page tables (`memory` is their sum), and "
        "the time to create and to end each",
        (
            Metric("memory", "B", (at_most(4900),)),
            Metric("resident", "B"),
            Metric("page-tables", "B"),
            Metric("create", "ns"),
            Metric("end", "ns"),
        ),
    ),
    Workload(
        "alloc-churn",
        "one goroutine allocates values of 64 to 4096 bytes and sends them over a channel of capacity 128, and another one "
        "frees them; time per value",
        (Metric("time", "ns"), Metric("peak-rss", "MB")),
    ),
    *(
        Workload(
            f"live-stack-{kib}",
            f"10,000 goroutines with {kib} KiB of stack in use, in frames of 1 KiB: memory for each, with page tables, while "
            "they wait; `switch`: they yield in turn, time for each",
            (Metric("memory", "B"), Metric("switch", "ns")),
        )
        for kib in (1, 4, 16, 64)
    ),
    Workload(
        "start-up",
        "a process with an empty `run()`, from its start until it has ended, and the size of its file; Go: an empty `main`; "
        "threads: one that does nothing",
        (Metric("time", "us"), Metric("size", "kB")),
        procs=(1,),
    ),
    Workload(
        "sleepers",
        "100,000 goroutines sleep for random times from 0 to 1000 ms: how long after 1000 ms the last one ends, and "
        "the CPU time of the process",
        (Metric("late", "ms"), Metric("cpu", "s")),
    ),
    Workload(
        "sleepers-million",
        "the same with a million goroutines",
        (Metric("late", "ms", (Target(0.7, "go", BOTH),)), Metric("cpu", "s", (Target(0.7, "go", BOTH),))),
    ),
    Workload(
        "sleep-overshoot",
        "one goroutine sleeps for 100 us, a thousand times: how much longer it took",
        (Metric("p50", "us", (go_part(5, (1,)),)), Metric("p99", "us")),
    ),
    Workload(
        "timer-stop",
        "make a timer of an hour, take its channel and stop it; `unasked`: the same without taking the channel",
        (time_ns(go_part(8)), Metric("unasked", "ns")),
    ),
    Workload(
        "deadlines",
        "100,000 requests get a deadline (`with_timeout`), all of them pending at once, and each is cancelled; time for each "
        "with the channel that says when it is over; `unasked`: the same without it",
        (time_ns(), Metric("unasked", "ns")),
    ),
    Workload(
        "after-func-stop",
        "`after_func` in an hour and `stop`; Go: `AfterFunc`",
        (time_ns(go_part(8)),),
    ),
    Workload(
        "after-func-stop-100k",
        "the same beside 100,000 pending timers, half of them due earlier and half later",
        (time_ns(),),
    ),
    Workload(
        "wake-idle",
        "a plain thread starts a goroutine on an otherwise idle runtime: how long until it runs; Go: a C thread (cgo)",
        latency(p50=(at_most(3, (1,)), at_most(8, (2,)))),
    ),
    Workload(
        "hogs-wake",
        "two goroutines for each processor compute without a call, and one sleeps for 1 ms again and again: how much "
        "later than asked it runs",
        (Metric("p50", "ms", (go_part(15),)), Metric("p99", "ms", (go_part(3),))),
        no_ratios=(NoRatio("tokio"),),
    ),
    Workload(
        "hogs-fair",
        "four goroutines for each processor with the same 0.5 s of computing, started together: `spread` is how much "
        "earlier the first ends than the last, in percent of the last. `yielders`: beside them two goroutines yield "
        "after each 0.1 ms of the same work; units done by a hog for each unit of theirs when the first hog ends",
        (Metric("spread", "%", (at_most(15),)), Metric("yielders", "x")),
    ),
    Workload(
        "hogs-throughput",
        "two goroutines for each processor compute and nothing else happens; time per 100,000 steps. `relative` is "
        "that time as part of the time that the same work needs in as many threads on P CPUs, by turns with it",
        (Metric("time", "us"), Metric("relative", "x", (at_most(1.053),), own=True)),
    ),
    Workload(
        "idle-cpu",
        "10,000 goroutines wait for 10 s and nothing happens: CPU time in percent of one CPU",
        (Metric("cpu", "%", (at_most(0.1),)),),
    ),
    Workload(
        "blocking-trivial",
        "what `blocking()` adds to getppid(), and the call without it (`raw`); Go: `Syscall` and `RawSyscall`",
        (Metric("overhead", "ns", (go_part(3),)), Metric("raw", "ns")),
    ),
    Workload(
        "blocking-1ms",
        "a thousand goroutines, each in one `blocking()` nanosleep of 1 ms, in a fresh process: the time until all "
        "have ended; the same twenty times again (median), when there are threads; and the threads made",
        (
            time_ms(go_part(10, (1,)), go_part(5, (2,))),
            Metric("again", "ms", (go_part(10, (1,)), go_part(5, (2,)))),
            Metric("threads", "threads", (at_most(1100),)),
        ),
    ),
    Workload(
        "unannotated-sleep",
        "two goroutines for each processor sleep in the kernel for 5 ms again and again without `blocking()`, and one "
        "sleeps for 1 ms in the runtime: how much longer that takes; Go: cgo",
        tick_metrics(),
    ),
    Workload(
        "unannotated-pipe",
        "the same beside a pair of goroutines for each processor that send a byte to and fro through two pipes; Go: cgo",
        tick_metrics(),
    ),
    Workload(
        "unannotated-mutex",
        "the same beside two goroutines for each processor that lock one `std::mutex` and sleep in the kernel for 1 ms "
        "with it; Go: a pthread mutex, cgo",
        tick_metrics(),
    ),
    Workload(
        "echo-64",
        "64 connections, each with one message of 64 bytes under way that comes back; time per message (1 / rate) and "
        "the server's CPU time for it; c: a thread with an epoll for each processor, and nothing else",
        (*network(Target(1 / 0.97, "c", (1,)), go_part(1.2, (1,)), AS_ALONE), *latency(p99=(AS_ALONE,))),
    ),
    Workload(
        "echo-1000",
        "the same with 1000 connections",
        (
            Metric("time", "us", (Target(1 / 0.97, "c", (1,)), go_part(1.2, (1,)))),
            Metric("cpu", "us", (Target(1.03, "c", (1,)),)),
            *latency(),
        ),
        procs=(1,),
    ),
    Workload(
        "echo-think",
        "10,000 connections (or as many as there may be descriptors) that each send such a message, wait for it, and think for "
        "0 to 1000 ms before the next one: the server's CPU time for each message, and from when the thinking ended until it "
        "is back; `late`: how late the load itself was (p99)",
        (Metric("cpu", "us"), *latency(), Metric("late", "us"), Metric("connections", "connections")),
    ),
    Workload(
        "echo-syscalls",
        "system calls of the server for each message of `echo-64`, counted by strace",
        (Metric("calls", "calls", (at_most(2.3, (1,)),)),),
        procs=(1,),
        needs=("strace",),
    ),
    Workload(
        "echo-10m",
        "ten million messages as in `echo-64`, of which none may be lost, changed or answered twice; only when named",
        (*network(), *latency(), Metric("requests", "requests")),
        timeout_s=3600,
        once=True,
    ),
    Workload(
        "idle-connections",
        "20,000 connections (or as many as there may be descriptors) that do nothing: the server's resident memory for "
        "each, and how long a request takes on one of them",
        (Metric("memory", "B", (at_most(5000, (1,)),)), *latency(), Metric("connections", "connections")),
        procs=(1,),
    ),
    Workload(
        "http-hello",
        "`wrk` with 64 connections against `examples/http_server.cpp`; time per request (1 / rate). Both read each request "
        "with a library (Boost.Beast, Go's `http.ReadRequest`) and write an answer that is made once; fasthttp and hyper make "
        "each answer from its parts",
        network(Target(1.05, "go", (1,))),
        procs=(1,),
        needs=("wrk",),
    ),
    Workload(
        "dump-10k",
        "a plain thread dumps 10,000 parked goroutines; how long that holds up a goroutine that computes, by dump: `p50` "
        "and `p90`; `not-dumped-p90`: the same between the dumps, where only the machine holds it up",
        (
            Metric("p50", "ms", (at_most(15),)),
            Metric("p90", "ms", (at_most(15),)),
            Metric("not-dumped-p90", "ms"),
        ),
    ),
    Workload(
        "pipe-wake",
        "from a plain thread's write to a pipe until the goroutine runs that reads it, all of them having slept; c: a "
        "thread in epoll_wait; `relative`: the median as part of that of such a thread, by turns in one process",
        (*latency(), Metric("relative", "x", (at_most(1.15),), own=True)),
    ),
    Workload(
        "mixed-service",
        "a server under 2000 requests per second and processor, of which 92 % look something up, 4 % compute for 2 ms and "
        "4 % call a C library that sleeps for 1 to 5 ms, beside one goroutine for each processor that computes without "
        "end; time from when a request was due: `p50`, `p99` and `p99.9` of the lookups. `hogs`: time per 100,000 steps "
        "of those that compute; `late`: how late the load itself was (p99); Go: cgo",
        (
            Metric("p50", "us", (Target(2, "threads", BOTH),)),
            Metric("p99", "us", (go_part(4, (1,)), Target(1.2, "threads", BOTH))),
            Metric("p99.9", "us"),
            *(Metric(name, "us") for name in ("burst-p99", "library-p99", "all-p50", "all-p99", "all-p99.9")),
            Metric("hogs", "us", (Target(1.05, "threads", BOTH),)),
            Metric("late", "us"),
        ),
    ),
    Workload(
        "open-loop",
        "a server whose requests have 20 us of work each. `time`: per request when 64 connections are always busy, which is "
        "its capacity. Then requests are due at fixed times, at 30, 60, 80 and 90 % of that: p50, p99 and p99.9 from when "
        "each was due; `late`: how late the load itself was (p99); Go: cgo",
        (
            Metric("time", "us"),
            *(Metric(f"{q}-{percent}", "us") for percent in (30, 60, 80, 90) for q in ("p50", "p99", "p99.9")),
            Metric("late", "us"),
        ),
    ),
)


def markdown_table():
    """The table of docs/benchmarks.md."""
    lines = ["| workload | what it does | metrics | targets |", "|---|---|---|---|"]
    for w in WORKLOADS:
        metrics = ", ".join(f"{m.name} ({m.unit})" for m in w.metrics)
        targets = "; ".join(
            f"{m.name} {t.text()}" + ("" if t.procs == BOTH or w.procs else f" (P={','.join(map(str, t.procs))})")
            for m in w.metrics
            for t in m.targets
        )
        only = f" (P={','.join(map(str, w.procs))})" if w.procs else ""
        lines.append(f"| `{w.name}`{only} | {w.what} | {metrics} | {targets} |")
    return "\n".join(lines) + "\n"
