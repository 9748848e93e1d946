"""Writes a trace of dunlin's in Perfetto's format: protocol buffers, the messages of protos/perfetto/trace that are needed here."""

import dunlin_trace as dt

# TracePacket, TrackDescriptor, ProcessDescriptor, CounterDescriptor, TrackEvent: the numbers of their fields
PACKET = 1
TIMESTAMP, SEQUENCE, TRACK_EVENT, TRACK = 8, 10, 11, 60
UUID, TRACK_NAME, PROCESS, PARENT, COUNTER = 1, 2, 3, 5, 8
PID, PROCESS_NAME = 1, 6
TYPE, EVENT_TRACK, CATEGORY, NAME, VALUE, FLOW, FLOW_END = 9, 11, 22, 23, 30, 47, 48
BEGIN, END, INSTANT, COUNTS = 1, 2, 3, 4


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, n):
    return varint(field << 3) + varint(n)


def data(field, content):
    if isinstance(content, str):
        content = content.encode()
    return varint(field << 3 | 2) + varint(len(content)) + content


def fixed(field, n):
    return varint(field << 3 | 1) + n.to_bytes(8, "little")


class Writer:
    def __init__(self, out):
        self.out, self.tracks, self.waiting = out, 0, []

    def packet(self, content):
        self.out.write(data(PACKET, content + number(SEQUENCE, 1)))

    def track(self, name, parent=None, more=b""):
        self.tracks += 1
        self.packet(data(TRACK, number(UUID, self.tracks) + data(TRACK_NAME, name) + (number(PARENT, parent) if parent else b"") + more))
        return self.tracks

    def event(self, time, kind, track, name=None, category=None, flow=None, flow_end=None, value=None):
        content = number(TYPE, kind) + number(EVENT_TRACK, track)
        if category:
            content += data(CATEGORY, category)
        if name is not None:
            content += data(NAME, name)
        if value is not None:
            content += number(VALUE, value)
        if flow is not None:
            content += fixed(FLOW, flow)
        if flow_end is not None:
            content += fixed(FLOW_END, flow_end)
        # An end before what begins at the same moment.
        self.waiting.append((time, kind != END, len(self.waiting), number(TIMESTAMP, time) + data(TRACK_EVENT, content)))

    def finish(self):
        for _, _, _, content in sorted(self.waiting):
            self.packet(content)


def write(trace, out, most_goroutines):
    """The time line. Of more goroutines those that have had the most to do have tracks of their own."""
    w = Writer(out)
    program = trace.info["program"].rsplit("/", 1)[-1]
    root = w.track(program, more=data(PROCESS, number(PID, trace.info["pid"]) + data(PROCESS_NAME, program)))
    spans = {g: dt.spans_of(trace, g) for g in trace.chains}
    _processors(trace, w, root, spans)
    _goroutines(trace, w, root, spans, most_goroutines)
    _counters(trace, w, root, spans)
    w.finish()


def _flow_of(g, turn):
    return (g << 24 | turn & 0xffffff) & ((1 << 64) - 1)


def _processors(trace, w, root, spans):
    numbers = sorted({e.p for e in trace.events if e.p != dt.NO_PROCESSOR and e.what != dt.EXISTING})
    group = w.track("processors", root)
    tracks = {p: w.track(f"P{p}", group) for p in numbers}
    slices = [(s.begin, -s.end, g, s) for g, all_of in spans.items() for s in all_of if s.state in ("running", "calling") and s.p in tracks]
    starts = {}
    for e in trace.events:
        if e.what == dt.RUN:
            starts[e.g, e.time] = e.turn
    ends = {p: [] for p in numbers}  # children in place stand on their parents, and end before them
    for begin, end, g, s in sorted(slices, key=lambda x: x[:3]):
        stack = ends[s.p]
        while stack and stack[-1] <= begin:
            stack.pop()
        end = min(-end, stack[-1]) if stack else -end
        stack.append(end)
        turn = starts.get((g, begin))
        w.event(begin, BEGIN, tracks[s.p], trace.who(g), s.state, flow_end=_flow_of(g, turn) if turn is not None else None)
        w.event(end, END, tracks[s.p])
    for e in trace.events:
        if e.p not in tracks:
            continue
        if e.what == dt.RUNNABLE:
            w.event(e.time, INSTANT, tracks[e.p], f"wakes {trace.who(e.g)}", "wake", flow=_flow_of(e.g, e.turn + 1))
        elif e.what == dt.STEAL:
            w.event(e.time, INSTANT, tracks[e.p], f"steals {e.turn} from P{e.arg}", "steal")
        elif e.what == dt.TIMERS:
            w.event(e.time, INSTANT, tracks[e.p], f"{e.arg} timers", "timer")
        elif e.what == dt.POLLED:
            w.event(e.time, INSTANT, tracks[e.p], f"poll: {e.arg} ready", "poll")
        elif e.what == dt.TAKEN:
            w.event(e.time, INSTANT, tracks[e.p], f"taken from {trace.who(e.g)}: {dt.TAKEN_BECAUSE.get(e.detail, '?')}", "hand-off")


def _goroutines(trace, w, root, spans, most):
    busiest = sorted(spans, key=lambda g: -len(trace.chains[g]))[:most]
    left = len(spans) - len(busiest)
    group = w.track("goroutines" + (f" ({left} with fewer events are left out)" if left else ""), root)
    tracks = {}
    for g in sorted(busiest):
        created = next((e for e in trace.chains[g] if e.what in (dt.CREATED, dt.EXISTING)), None)
        track = tracks[g] = w.track(trace.who(g) + (f", from {trace.place(created.arg)}" if created else ""), group)
        for s in spans[g]:
            if s.state == "new" or s.end <= s.begin:
                continue
            w.event(s.begin, BEGIN, track, s.detail or s.state, s.state)
            w.event(s.end, END, track)
    of_regions, open_regions = {}, {}
    for e in trace.events:
        if e.g not in tracks:
            continue
        if e.what in (dt.REGION, dt.TASK):
            if e.g not in of_regions:
                of_regions[e.g] = w.track(f"{trace.who(e.g)}: regions", tracks[e.g])
            w.event(e.time, BEGIN, of_regions[e.g], e.text, "task" if e.what == dt.TASK else "region")
            open_regions[e.g] = open_regions.get(e.g, 0) + 1
        elif e.what in (dt.REGION_END, dt.TASK_END) and open_regions.get(e.g):
            open_regions[e.g] -= 1
            w.event(e.time, END, of_regions[e.g])
        elif e.what == dt.MESSAGE:
            category, _, text = e.text.partition("\0")
            w.event(e.time, INSTANT, tracks[e.g], text, category or "message")
    for g, count in open_regions.items():
        for _ in range(count):
            w.event(trace.end, END, of_regions[g])


def _counters(trace, w, root, spans):
    for state in ("running", "runnable", "waiting"):
        track = w.track(f"{state} goroutines", root, data(COUNTER, b""))
        changes = {}
        for all_of in spans.values():
            for s in all_of:
                if s.state == state:
                    changes[s.begin] = changes.get(s.begin, 0) + 1
                    changes[s.end] = changes.get(s.end, 0) - 1
        value = 0
        for time in sorted(changes):
            if changes[time]:
                value += changes[time]
                w.event(time, COUNTS, track, value=value)
