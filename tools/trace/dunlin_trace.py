"""Reads a trace of dunlin's (src/observe/trace_file.cpp), puts it in order and checks that order. Used by dunlin-trace."""

import bisect
import collections
import json
import struct

# sched/machines/trace.h, kind
(EXISTING, CREATED, RUNNABLE, RUN, PARK, YIELD, QUEUED, PREEMPTED, RESUMED, END, CALL, CALL_END, TAKEN, RELEASED, STEAL, TIMERS, POLLED, WORLD_STOPS,
 WORLD_STARTS, NAME, REGION, REGION_END, TASK, TASK_OF, TASK_END, MESSAGE, PARENT_TASK, IN_PLACE, FROZEN) = range(1, 30)
WITH_TEXT = {NAME, REGION, TASK, MESSAGE}
OF_A_TURN = {EXISTING, CREATED, RUNNABLE, RUN, PARK, YIELD, QUEUED, PREEMPTED, RESUMED, END, CALL, CALL_END, FROZEN}
CAUSES = {1: "goroutine", 2: "a timer", 3: "a descriptor", 4: "a plain thread", 5: "the runtime"}
TAKEN_BECAUSE = {1: "blocking call", 2: "its thread slept", 3: "its slice was over", 4: "lent"}
NO_PROCESSOR = 0xffff
NEVER = 1 << 63  # later than any time
IN_PLACE_JOIN, BLOCKING_CALL = "runs a child in place", "blocking call"
OUTSIDE, MONITOR, CONTROL = 0xffffffff, 0xfffffffe, 0xfffffffd
EVENT = struct.Struct("<QQQIHBB")
# Two clocks of one machine may differ by so much, and the taker of a processor notes it after it has taken it.
TOLERANCE_NS = 20_000

Event = collections.namedtuple("Event", "time g arg turn p what detail source text")


class Unreadable(Exception):
    pass


class Trace:
    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        if data[:8] != b"DUNTRACE":
            raise Unreadable(f"{path} is no trace of dunlin's")
        self.info, self.places, self.names = {}, {}, {}
        self.clocks, self.lost, self.ended, self.truncated = [], 0, None, False
        self.since = self.until = None
        raw = collections.defaultdict(list)  # source: [(first time, bytes)]
        at = 8
        while at < len(data):
            if at + 8 > len(data):
                self.truncated = True
                break
            kind, size = struct.unpack_from("<II", data, at)
            content = data[at + 8:at + 8 + size]
            at += 8 + size
            if len(content) != size:
                self.truncated = True
                if kind != 3:
                    break
                content = content[:16 + (len(content) - 16) // EVENT.size * EVENT.size] if len(content) >= 16 else b""
                if not content:
                    break
            self._block(kind, content, raw)
        if not self.info or not self.clocks:
            raise Unreadable(f"{path} ends before its first events")
        if self.ended is None:
            self.truncated = True
        self.reasons, self.states = self.info["reasons"], self.info["states"]
        self.partial = self.since is not None
        self._events(raw)

    def _block(self, kind, content, raw):
        if kind == 1:
            self.info = json.loads(content)
        elif kind == 2:
            self.clocks.append(struct.unpack("<qqq", content))
        elif kind == 3:
            source, _, low, high = struct.unpack_from("<IIII", content)
            lost = low | high << 32
            self.lost += lost
            if len(content) > 16:
                raw[source].append((struct.unpack_from("<Q", content, 16)[0], content[16:], lost))
            elif lost:
                raw[source].append((None, b"", lost))  # its last events
        elif kind == 4:
            file_line, _, function = content[8:].partition(b"\0")
            file, _, line = file_line.decode(errors="replace").rpartition(":")
            self.places[struct.unpack_from("<Q", content)[0]] = (file, line, function.decode(errors="replace"))
        elif kind == 5:
            self.since, self.until = struct.unpack("<QQ", content)
        elif kind == 6:
            self.ended = content.decode(errors="replace")
        elif kind == 7:
            self.names[struct.unpack_from("<Q", content)[0]] = content[8:].decode(errors="replace")

    def _ns(self):
        """A function from ticks to nanoseconds of the monotonic clock."""
        if not self.info["cycles"]:
            return lambda t: t
        points = sorted(set((c[0], c[1]) for c in self.clocks))
        if len(points) < 2 or points[-1][0] == points[0][0]:
            return lambda t: t  # one reading: ticks they stay
        xs = [p[0] for p in points]

        def convert(t):
            i = min(max(bisect.bisect_right(xs, t) - 1, 0), len(points) - 2)
            (x0, y0), (x1, y1) = points[i], points[i + 1]
            return y0 + (t - x0) * (y1 - y0) // (x1 - x0)
        return convert

    def _events(self, raw):
        ns = self._ns()
        self.by_source = {}
        self.gaps = []  # (begin, end, thread): events of it were lost between
        for source, blocks in raw.items():
            blocks.sort(key=lambda b: NEVER if b[0] is None else b[0])
            events, seen = [], set()
            for first, content, lost in blocks:
                i = 0
                if lost:
                    self.gaps.append((events[-1].time if events else 0, NEVER if first is None else ns(first), source))
                while i < len(content):
                    time, g, arg, turn, p, what, detail = EVENT.unpack_from(content, i)
                    one = content[i:i + EVENT.size]
                    i += EVENT.size
                    text = None
                    if what in WITH_TEXT:
                        text = content[i:i + turn].decode(errors="replace")
                        i += -(-turn // EVENT.size) * EVENT.size
                    if self.since is not None:
                        if time <= self.since or time > self.until or one in seen:
                            continue
                        seen.add(one)  # a chunk may have been written twice, open and full
                    if what == NAME:
                        self.names[g] = text
                    events.append(Event(ns(time), g, arg, turn, p, what, detail, source, text))
            self.by_source[source] = events
        self.events = sorted((e for events in self.by_source.values() for e in events), key=lambda e: e.time)
        self.begin = self.events[0].time if self.events else 0
        self.end = self.events[-1].time if self.events else 0
        # By goroutine, in the order of turns; in one turn: the run, what its machine has noted, and last what made it runnable.
        chains = collections.defaultdict(list)
        for events in self.by_source.values():
            for order, e in enumerate(events):
                if e.what in OF_A_TURN:
                    rank = 0 if e.what in (EXISTING, CREATED, RUN) else 2 if e.what == RUNNABLE else 3 if e.what == FROZEN else 1
                    # One that runs a child in place may go on, in the same turn, on the thread where the child has ended.
                    chains[e.g].append((e.turn, rank, e.time, order, e))
        # By goroutine, its children that have run on its stack: (begin, end, child).
        ends = {e.g: e.time for e in self.events if e.what == END}
        self.children = collections.defaultdict(list)
        for e in self.events:
            if e.what == IN_PLACE:
                self.children[e.arg].append((e.time, ends.get(e.g, self.end), e.g))
        self.chains = {g: [x[4] for x in sorted(chain, key=lambda x: x[:4])] for g, chain in chains.items()}

    def gap_between(self, a, b):
        return a is not None and any(begin <= b.time and end >= a.time for begin, end, _ in self.gaps)

    def place(self, key, short=True):
        file, line, function = self.places.get(key, ("", "", ""))
        if not file:
            return function or "an unknown place"
        return f"{file.rsplit('/', 1)[-1] if short else file}:{line}"

    def who(self, g):
        name = self.names.get(g)
        return f"goroutine {g}" + (f' "{name}"' if name else "")

    def reason(self, number):
        return self.reasons[number] if number < len(self.reasons) else f"reason {number}"

    def is_in_call(self, existing):
        """A goroutine that was in a blocking() when the trace began."""
        return self.states[existing.detail] == "running" and self.reason(existing.p) == BLOCKING_CALL


# ---- intervals ------------------------------------------------------------------------------------------------------

Span = collections.namedtuple("Span", "begin end state detail by p source")  # state: running, runnable, waiting, preempted, calling, in place


def spans_of(trace, g):
    """What a goroutine did when, in order, without holes. `by`: the event that has ended a wait."""
    result, state, since, detail, p, source = [], None, None, "", NO_PROCESSOR, None

    def close(time, by=None):
        time = max(time, since)
        if state is not None and state != "dead":
            result.append(Span(since, time, state, detail, by, p, source))
        return time

    for e in trace.chains.get(g, ()):
        if e.what == EXISTING:
            name = trace.states[e.detail]
            state, since = "calling" if trace.is_in_call(e) else name, e.time
            detail = "blocking()" if state == "calling" else trace.reason(e.p) if name == "waiting" else ""
        elif e.what == CREATED:
            state, since, detail = "new", e.time, ""
        elif e.what == RUNNABLE:
            since = close(e.time, e) if since is not None else e.time
            state, detail = "runnable", ""
        elif e.what == RUN:
            since = close(e.time) if since is not None else e.time
            state, detail, p, source = "running", "", e.p, e.source
        elif e.what == PARK:
            since = close(e.time) if since is not None else e.time
            state, detail = "waiting", trace.reason(e.detail) + " at " + trace.place(e.arg)
        elif e.what in (YIELD, QUEUED, PREEMPTED):
            since = close(e.time) if since is not None else e.time
            state, detail = "preempted" if e.what == PREEMPTED else "runnable", ""
        elif e.what in (RESUMED, CALL_END):
            since = close(e.time) if since is not None else e.time
            state, detail, p = "running", "", e.p
        elif e.what == CALL:
            since = close(e.time) if since is not None else e.time
            state, detail = "calling", "blocking()"
        elif e.what in (END, FROZEN):
            since = close(e.time) if since is not None else e.time
            state = "dead"
    if since is not None:
        close(trace.end)
    children = trace.children.get(g)
    return list(_without_children(result, children)) if children else result


def _without_children(spans, children):
    """While a child ran in place, it is waited for."""
    i = 0
    for s in spans:
        if s.state != "running":
            yield s
            continue
        at = s.begin
        while i < len(children) and children[i][0] < s.end:
            begin, end, child = children[i]
            i += 1
            if begin >= at:
                if begin > at:
                    yield s._replace(begin=at, end=begin)
                by = Event(end, 0, child, 0, NO_PROCESSOR, RUNNABLE, 1, 0, None)
                yield Span(begin, min(end, s.end), "waiting", IN_PLACE_JOIN, by, s.p, s.source)
                at = min(end, s.end)
        if at < s.end:
            yield s._replace(begin=at)


# ---- the rules ------------------------------------------------------------------------------------------------------

class Check:
    """OBS-03: what each goroutine, each thread and each processor goes through is possible."""

    def __init__(self, trace):
        self.trace, self.violations = trace, []
        self.frozen = {e.g: e.time for e in trace.events if e.what == FROZEN}
        for g, chain in trace.chains.items():
            self._goroutine(g, chain)
        for source, events in trace.by_source.items():
            if source < CONTROL:
                self._machine(source, events)
        self._processors()

    def _say(self, e, text):
        self.violations.append(f"at {(e.time - self.trace.begin) / 1e6:.6f} ms: {text}")

    def _goroutine(self, g, chain):
        """One state at a time, each change legal, turns without a gap; a wake for each wait, and no more."""
        partial, state, turn, previous = self.trace.partial or bool(self.trace.gaps), None, None, None
        legal = {EXISTING: {None}, CREATED: {None}, RUNNABLE: {"new", "waiting"}, RUN: {"runnable"}, PARK: {"running"}, YIELD: {"running"},
                 QUEUED: {"running", "calling"}, PREEMPTED: {"running", "calling"}, RESUMED: {"preempted"}, END: {"running"}, CALL: {"running", "calling"},
                 CALL_END: {"running", "calling"}, FROZEN: {"new", "runnable", "running", "waiting", "preempted", "calling"}}
        after = {CREATED: "new", RUNNABLE: "runnable", RUN: "running", PARK: "waiting", YIELD: "runnable", QUEUED: "runnable", PREEMPTED: "preempted",
                 RESUMED: "running", END: "dead", CALL: "calling", CALL_END: "running", FROZEN: "frozen"}
        names = {v: k for k, v in globals().items() if isinstance(v, int) and k.isupper()}
        who = self.trace.who(g)
        for e in chain:
            if partial and (turn is None or self.trace.gap_between(previous, e)):
                state = None  # what came before is not known
            known = state is not None or (not partial and e.what not in (EXISTING, CREATED))
            if state is None and not partial and e.what not in (EXISTING, CREATED):
                self._say(e, f"{who}: {names[e.what].lower()} is its first event")
            elif known and state not in legal[e.what]:
                self._say(e, f"{who}: {names[e.what].lower()} while it is {state}")
            elif e.what == RUN and turn is not None and e.turn != turn + 1 and not partial:
                self._say(e, f"{who}: runs for the {e.turn}. time after the {turn}.")
            if e.what == RUN and previous is not None and previous.what == RUNNABLE and known and previous.time > e.time + TOLERANCE_NS:
                self._say(e, f"{who}: runs {previous.time - e.time} ns before it is made runnable")
            turn = e.turn
            if e.what == EXISTING:
                state = self.trace.states[e.detail]
                if state == "waiting" and self.trace.reason(e.p) == IN_PLACE_JOIN:
                    state = "running"
                elif self.trace.is_in_call(e):
                    state = "calling"
            elif partial and state is None and e.what not in (RUN, CREATED):
                state = None
            else:
                state = after[e.what]
            previous = e

    def _machine(self, source, events):
        """A thread runs one goroutine at a time, or one on top of those that wait for it."""
        stack, known, previous = [], not (self.trace.partial or self.trace.gaps), None
        for e in events:
            if self.trace.gap_between(previous, e):
                stack, known = [], False
            previous = e
            if e.what == RUN:
                if e.detail == 1:
                    stack.append(e.g)
                    continue
                stack = [g for g in stack if self.frozen.get(g, NEVER) > e.time]
                if stack and known:
                    self._say(e, f"thread {source} runs {self.trace.who(e.g)} while it runs {self.trace.who(stack[-1])}")
                stack = [e.g]
                known = True
            elif e.what in (PARK, YIELD, QUEUED):
                if stack and stack[-1] != e.g and known:
                    self._say(e, f"{self.trace.who(e.g)} leaves thread {source}, which runs {self.trace.who(stack[-1])}")
                stack = []
            elif e.what == END:
                if stack and stack[-1] != e.g and known:
                    self._say(e, f"{self.trace.who(e.g)} ends on thread {source}, which runs {self.trace.who(stack[-1])}")
                stack = stack[:-1]

    def _processors(self):
        """A processor is a thread's alone."""
        holds = []  # (processor, begin, end, thread)
        breaks = collections.defaultdict(list)
        for e in self.trace.events:
            if e.what == TAKEN:
                breaks[e.arg, e.p].append(e.time)
            elif e.what == WORLD_STARTS:
                breaks["world"].append(e.time)
        for source, events in self.trace.by_source.items():
            if source >= CONTROL:
                continue
            now, first, last = None, 0, 0
            for e in events:
                p = None if e.p == NO_PROCESSOR else e.p
                if now is not None and (p != now or self._between(breaks[source, now], last, e.time) or self._between(breaks["world"], last, e.time)):
                    holds.append((now, first, last, source))
                    now = None
                if now is None and p is not None:
                    now, first = p, e.time
                last = e.time
                if e.what == RELEASED and now is not None:
                    holds.append((now, first, last, source))
                    now = None
            if now is not None:
                holds.append((now, first, last, source))
        holds.sort()
        p, end, a = None, 0, None  # of those before, the one that ends last
        for q, begin, until, b in holds:
            if p == q and a != b and begin < end - TOLERANCE_NS:
                self.violations.append(f"at {(begin - self.trace.begin) / 1e6:.6f} ms: processor {p} is that of threads {a} and {b}, for {min(end, until) - begin} ns")
            if p != q or until > end:
                p, end, a = q, until, b

    @staticmethod
    def _between(times, low, high):
        i = bisect.bisect_left(times, low - TOLERANCE_NS)
        return i < len(times) and times[i] <= high + TOLERANCE_NS
