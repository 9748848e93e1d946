"""Traces: what a chaotic program does is in order (OBS-03), files that are cut off, the recorder, and Perfetto's format: decoded here by the numbers of its
schema, and by protoc with perfetto_subset.proto, which lets no unknown field pass.
Run by ctest as tools/trace.

Usage: trace_test.py SCENE TOOLS, which are tests/tools/trace_scene.cpp and tools/trace.
"""

import collections
import io
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

TOOLS = sys.argv.pop() if len(sys.argv) > 2 else None
SCENE = sys.argv.pop() if len(sys.argv) > 1 else None
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("DUNLIN_")}
sys.path.insert(0, TOOLS or ".")
import dunlin_trace as dt  # noqa: E402
import dunlin_trace_perfetto as perfetto  # noqa: E402
from protobuf import fields  # noqa: E402, beside this file


class TraceTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = os.path.join(directory.name, "trace")
        self.directory = directory.name

    def run_scene(self, *arguments, trace=None, status=0):
        """trace "": the scene begins one by itself."""
        environment = ENVIRONMENT if trace == "" else dict(ENVIRONMENT, DUNLIN_TRACE=trace or self.file)
        result = subprocess.run([SCENE, *map(str, arguments)], env=environment, capture_output=True, text=True,
                                timeout=300, check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stderr

    def tool(self, *arguments, status=0):
        result = subprocess.run([sys.executable, os.path.join(TOOLS, "dunlin-trace"), *map(str, arguments)], capture_output=True, text=True, timeout=300,
                                check=False)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result.stdout

    # ---- the rules

    def test_what_a_chaotic_program_does_is_in_order(self):
        for processors in (1, 2, 8):
            with self.subTest(processors=processors):
                self.run_scene("chaos", processors)
                self.assertIn("in order", self.tool("check", self.file))
                kinds = collections.Counter(e.what for e in dt.Trace(self.file).events)
                for what in (dt.CREATED, dt.RUNNABLE, dt.RUN, dt.PARK, dt.YIELD, dt.END, dt.CALL, dt.CALL_END, dt.RELEASED, dt.TIMERS, dt.REGION, dt.REGION_END,
                             dt.TASK, dt.TASK_OF, dt.TASK_END, dt.MESSAGE):
                    self.assertTrue(kinds[what], what)
                if processors != 1:
                    self.assertTrue(kinds[dt.STEAL])
                self.assertEqual(kinds[dt.CREATED], kinds[dt.END])  # but for those that were there when it began: none
                self.assertEqual(kinds[dt.REGION], kinds[dt.REGION_END])

    def test_what_runs_leave_is_in_order(self):
        for processors in (1, 2, 8):
            with self.subTest(processors=processors):
                self.run_scene("ends", processors)
                self.assertIn("in order", self.tool("check", self.file))
                trace = dt.Trace(self.file)
                frozen = sum(e.what == dt.FROZEN for e in trace.events)
                self.assertGreaterEqual(frozen, 5 * 3 * 8)  # at least those that wait, compute and yield
                for g, chain in trace.chains.items():
                    self.assertIn(chain[-1].what, (dt.END, dt.FROZEN), trace.who(g))

    def test_each_wrong_order_is_found(self):
        self.run_scene("chaos", 2)

        def violations(change):
            trace = dt.Trace(self.file)
            change(trace)
            return " / ".join(dt.Check(trace).violations)

        def without(what):
            def change(trace):
                g = next(g for g, chain in trace.chains.items() if sum(e.what == dt.RUN for e in chain) > 2 and any(e.what == what for e in chain[2:-1]))
                i = next(i for i, e in enumerate(trace.chains[g]) if i >= 2 and e.what == what)
                del trace.chains[g][i]
            return change

        self.assertEqual(violations(lambda trace: None), "")
        for what, text in ((dt.RUN, "while it is runnable"), (dt.PARK, "runnable while it is running"), (dt.RUNNABLE, "run while it is waiting")):
            with self.subTest(without=what):
                self.assertIn(text, violations(without(what)))

        def on_two_threads(trace):
            def runs(e):
                return e.what == dt.RUN and e.detail == 0

            # The next one must be known to run on that thread right after it.
            events, i = next((events, i) for s, events in trace.by_source.items() if s < dt.CONTROL for i in range(len(events) - 2)
                             if runs(events[i]) and events[i + 1].what in (dt.PARK, dt.END) and runs(events[i + 2]) and
                             not trace.gap_between(events[i], events[i + 2]))
            del events[i + 1]

        self.assertIn("while it runs", violations(on_two_threads))

        def of_two_threads(trace):
            e = next(e for e in trace.events if e.p != dt.NO_PROCESSOR and e.what == dt.PARK)
            other = 12345
            ended = max(e.time for e in trace.events if e.what == dt.PARK)
            began = max(e.time for e in trace.events if e.what == dt.WORLD_STARTS and e.time < ended)
            trace.by_source[other] = [e._replace(source=other, time=began + 10 ** 6), e._replace(source=other, time=ended)]

        self.assertIn("is that of threads", violations(of_two_threads))

    # ---- waits that end for nothing

    def operations(self, trace):
        """(kind, [its PARK and RUN events]) of each region of trace_scene.cpp, waits()."""
        by_goroutine = collections.defaultdict(list)
        for e in trace.events:
            if e.what in (dt.REGION, dt.REGION_END, dt.PARK, dt.RUN):
                by_goroutine[e.g].append(e)
        for events in by_goroutine.values():
            kind, inside = None, []
            for e in events:
                if e.what == dt.REGION:
                    kind, inside = e.text, []
                elif e.what == dt.REGION_END:
                    yield kind, inside
                    kind = None
                elif kind:
                    inside.append(e)

    @staticmethod
    def futile(kind, events, reason):
        """What is wrong with the waits of one call: "", or a sentence.

        A waiter for a channel, a select, a shared_mutex or a semaphore is woken when it has what it waits for. So it is for a condition, and then waits for its
        mutex. A mutex may be taken by a caller that is awake, in between: then it waits again, but a waiter that has waited for a millisecond when it does so is
        handed the lock by the next unlock."""
        parks = [e for e in events if e.what == dt.PARK]
        if kind == "cond":
            waits = [i for i, e in enumerate(parks) if reason(e.detail) == "sync.Cond.Wait"]
            if waits not in ([], [0]):
                return "a wait for a condition has ended without a notification"
            parks = parks[len(waits):]  # none: notified when it had unlocked the mutex and not yet parked
        elif kind != "mutex":
            return "a wait has ended for nothing" if len(parks) > 1 else ""
        if not parks:
            return ""
        events = [e for e in events if e.time >= parks[0].time]
        late = [i for i, e in enumerate(events) if e.what == dt.RUN and e.time > parks[0].time + 10 ** 6 + dt.TOLERANCE_NS]
        again = sum(e.what == dt.PARK for e in events[late[0]:]) if late else 0
        return f"after a millisecond it has been woken in vain {again} times" if again > 1 else ""

    def test_no_waiter_is_woken_for_nothing(self):
        """Go's TestTraceFutileWakeup; OBS-04."""
        for processors in (1, 2, 8):
            with self.subTest(processors=processors):
                self.run_scene("futile", processors)
                self.assertIn("in order", self.tool("check", self.file))
                trace = dt.Trace(self.file)
                self.assertEqual(trace.lost, 0)
                calls, waited = collections.Counter(), collections.Counter()
                for kind, events in self.operations(trace):
                    calls[kind] += 1
                    waited[kind] += any(e.what == dt.PARK for e in events)
                    self.assertEqual(self.futile(kind, events, trace.reason), "", (kind, events))
                self.assertEqual(calls, {"chan": 4000, "select": 2000, "mutex": 160, "shared_mutex": 320, "semaphore": 160, "cond": 800})
                # Where nothing has room one side must wait; a lock is sure to be waited for where its holder yields to all others.
                for kind in calls if processors == 1 else ("chan", "select", "cond"):
                    self.assertTrue(waited[kind], kind)

    def test_a_wait_that_ends_for_nothing_is_found(self):
        names = ["chan receive", "sync.Cond.Wait", "sync.Mutex.Lock"]

        def of(kind, *steps):  # (microseconds, reason of a park; None: it runs)
            events = [dt.Event(us * 1000, 1, 0, 0, 0, dt.RUN if reason is None else dt.PARK, reason or 0, 0, None) for us, reason in steps]
            return self.futile(kind, events, lambda number: names[number])

        for kind in ("chan", "select", "semaphore", "shared_mutex"):
            self.assertEqual(of(kind, (0, 0), (9, None)), "")
            self.assertIn("for nothing", of(kind, (0, 0), (9, None), (10, 0), (11, None)))
        self.assertEqual(of("mutex", (0, 2), (9, None), (10, 2), (900, None), (901, 2), (1500, None), (1501, 2), (1600, None)), "")
        self.assertIn("in vain 2", of("mutex", (0, 2), (1500, None), (1501, 2), (1600, None), (1601, 2), (1700, None)))
        self.assertEqual(of("cond", (0, 1), (9, None), (10, 2), (20, None)), "")
        self.assertIn("without", of("cond", (0, 1), (9, None), (10, 1), (20, None)))
        self.assertIn("in vain", of("cond", (0, 1), (9, None), (10, 2), (1500, None), (1501, 2), (1502, None), (1503, 2)))

    # ---- processors, waits for the kernel, signals, stops

    def regions(self, trace):
        """(name, begin, end) of each region."""
        begun = {}
        for e in trace.events:
            if e.what == dt.REGION:
                begun[e.g] = e
            elif e.what == dt.REGION_END:
                yield begun[e.g].text, begun.pop(e.g).time, e.time

    def test_processors_that_come_and_go(self):
        """Go's TestTraceGOMAXPROCS; OBS-05. Nothing runs on one that there is not, and each that there is runs something."""
        self.run_scene("resize", 4)
        self.assertIn("in order", self.tool("check", self.file))
        trace, seen = dt.Trace(self.file), []
        for name, begin, end in self.regions(trace):
            n = int(name.split()[1])
            seen.append(n)
            runs = [e for e in trace.events if e.what == dt.RUN and begin < e.time < end]
            self.assertLessEqual(set(range(n)), {e.p for e in runs})
            self.assertLessEqual({e.p for e in runs if begin + dt.TOLERANCE_NS < e.time < end - dt.TOLERANCE_NS}, set(range(n)))
        self.assertEqual(seen, [1, 2, 4, 8, 8, 4, 2, 1])

    def test_waits_for_a_pipe(self):
        """Go's TestTraceWaitOnPipe; OBS-05. Some have waited since before the trace began."""
        for processors in (1, 2, 8):
            with self.subTest(processors=processors):
                self.run_scene("pipes", processors, self.file, trace="")
                self.assertIn("in order", self.tool("check", self.file))
                trace = dt.Trace(self.file)
                number = {name: g for g, name in trace.names.items()}
                for age in ("old", "new"):
                    first = {"old": dt.EXISTING, "new": dt.CREATED}[age]
                    for how in ("unannounced", "blocking", "descriptor"):
                        chain = trace.chains[number[f"{age} {how}"]]
                        self.assertEqual((chain[0].what, chain[-1].what), (first, dt.END), chain)
                    states = [(s.state, s.detail.split(" at ")[0]) for s in dt.spans_of(trace, number[f"{age} descriptor"])]
                    self.assertIn(("waiting", "IO wait"), states)
                    wake = [e for e in trace.chains[number[f"{age} descriptor"]] if e.what == dt.RUNNABLE][-1]
                    # also where the monitor has asked the kernel, since no machine did
                    self.assertEqual(dt.CAUSES[wake.detail], "a descriptor")
                calls = [e for e in trace.chains[number["new blocking"]] if e.what in (dt.CALL, dt.CALL_END)]
                self.assertEqual([e.what for e in calls], [dt.CALL, dt.CALL_END])
                self.assertGreater(calls[1].time, calls[0].time)
                spans = dt.spans_of(trace, number["old blocking"])
                self.assertEqual([(s.state, s.detail) for s in spans[:1]], [("calling", "blocking()")])
                ends = [e for e in trace.chains[number["old blocking"]] if e.what == dt.CALL_END]
                self.assertEqual(len(ends), 1)
                self.assertEqual(spans[0].end, next(e.time for e in trace.chains[number["old blocking"]][1:]))
                # With one processor the program can only have gone on with that of the thread that slept in the kernel.
                if processors == 1:
                    self.assertTrue(any(e.what == dt.TAKEN and e.g == number["new unannounced"] for e in trace.events))

    def test_signals_wake_from_outside(self):
        """Go's TestSignalTrace; OBS-05. Beginning and ending while they come: tests/runtime/trace_test.cpp."""
        for processors in (1, 2, 8):
            with self.subTest(processors=processors):
                self.run_scene("signals", processors)
                self.assertIn("in order", self.tool("check", self.file))
                trace = dt.Trace(self.file)
                chain = trace.chains[next(g for g, name in trace.names.items() if name == "listener")]
                waits = [e for e in chain if e.what == dt.PARK and trace.reason(e.detail) == "chan receive"]
                wakes = [e for e in chain if e.what == dt.RUNNABLE and dt.CAUSES[e.detail] == "a plain thread"]
                self.assertTrue(waits)
                self.assertEqual(len(wakes), len(waits))  # the library's thread of signals has ended each

    def test_each_stop_of_the_world_is_in_it(self):
        """Go's TestSchedPauseMetrics; OBS-07. There are no counters of them: a trace tells how many there were, and how long."""
        for processors in (1, 2, 8):
            with self.subTest(processors=processors):
                self.run_scene("pauses", processors)
                trace = dt.Trace(self.file)
                stops = [e for e in trace.events if e.what in (dt.WORLD_STOPS, dt.WORLD_STARTS)]
                counted = {}
                for name, begin, end in self.regions(trace):
                    inside = [e.what for e in stops if begin < e.time < end]
                    self.assertEqual(inside, [dt.WORLD_STOPS, dt.WORLD_STARTS] * (len(inside) // 2))
                    counted[name] = len(inside) // 2
                self.assertEqual(counted, {"nothing": 0, "set_max_procs": 1, "goroutine_profile": 1, "dump": 1, "set_wait_histograms": 1, "stats": 0})

    # ---- files

    def test_a_file_that_is_cut_off_is_read_up_to_there(self):
        self.run_scene("chaos", 2)
        with open(self.file, "rb") as f:
            whole = f.read()
        events = len(dt.Trace(self.file).events)
        for part in (9, 5, 2):
            with open(self.file, "wb") as f:
                f.write(whole[:len(whole) * part // 10])
            self.assertLess(0, len(dt.Trace(self.file).events))
            self.assertLess(len(dt.Trace(self.file).events), events)
            self.assertIn("cannot be checked", self.tool("check", self.file, status=1))
            self.tool("convert", self.file)
        for content in (b"", b"DUNTRACE", b"something else", whole[:100]):
            with open(self.file, "wb") as f:
                f.write(content)
            self.tool("check", self.file, status=2)

    def test_a_process_that_is_killed_leaves_what_was_full(self):
        self.run_scene("killed", 2, status=-signal.SIGKILL)
        self.assertLess(0, len(dt.Trace(self.file).events))

    def test_a_process_that_dies_of_itself_leaves_everything(self):
        for scene, status in (("crash", -signal.SIGABRT), ("deadlock", 2)):
            with self.subTest(scene=scene):
                self.run_scene(scene, 2, status=status)
                self.assertIn("in order", self.tool("check", self.file))
                self.assertEqual(dt.Trace(self.file).ended, "the process has died")
                recorded = os.path.join(self.directory, "recorded")
                text = self.run_scene(scene, 2, trace=f"recorder:{recorded}", status=status)
                self.assertIn(f"the flight recorder is in {recorded}", text)
                self.assertIn("in order", self.tool("check", recorded))
                self.assertLess(500, len(dt.Trace(recorded).events))

    def test_a_yield_in_a_world_that_is_to_stop_is_seen(self):
        for processors in (1, 2, 8):
            with self.subTest(processors=processors):
                self.run_scene("stops", processors)
                self.assertIn("in order", self.tool("check", self.file))

    def test_no_file_no_space(self):
        text = self.run_scene("chaos", 2, trace="/nonexistent/trace")
        self.assertIn("DUNLIN_TRACE=/nonexistent/trace", text)
        if os.path.exists("/dev/full"):
            text = self.run_scene("chaos", 2, trace="/dev/full")
            self.assertIn("the trace /dev/full ends here: No space left on device", text)
        for scene, status, why in (("slow", 0, ": No space left on device"), ("crash", -signal.SIGABRT, ": errno 28"), ("deadlock", 2, ": errno 28")):
            if os.path.exists("/dev/full"):
                with self.subTest(recorder=scene):
                    text = self.run_scene(scene, 2, trace="recorder:/dev/full", status=status)
                    self.assertIn("the flight recorder could not be written to /dev/full" + why, text)
        text = self.run_scene("crash", 2, trace="recorder:/nonexistent/trace", status=-signal.SIGABRT)
        self.assertIn("/nonexistent/trace: errno 2", text)

    def test_a_file_that_may_not_become_so_large(self):
        """The kernel sends SIGXFSZ for it, which ends a process: the trace ends, the program does not."""
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        result = subprocess.run([SCENE, "chaos", "2"], env=dict(ENVIRONMENT, DUNLIN_TRACE=self.file), capture_output=True, text=True, timeout=300,
                                check=False, preexec_fn=limit)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"the trace {self.file} ends here: File too large", result.stderr)
        self.assertLess(0, len(dt.Trace(self.file).events))

    # ---- the recorder

    def test_the_recorder_is_written_while_events_go_on(self):
        for processors in (1, 2, 8):
            self.run_scene("snapshots", processors, self.file, trace="recorder:" + self.file)
            for i in range(10):
                with self.subTest(processors=processors, i=i):
                    self.assertIn("in order", self.tool("check", f"{self.file}.{i}"))

    def test_a_recorder_too_small_for_its_threads_says_from_when_it_is_complete(self):
        for processors in (1, 2, 8):
            for round in range(4):
                with self.subTest(processors=processors, round=round):
                    self.run_scene("crowd", processors, self.file, trace="")
                    self.assertIn("in order", self.tool("check", self.file))
                    trace = dt.Trace(self.file)
                    self.assertGreater(trace.lost, 1000)
                    self.assertLess(len(trace.events), 500)  # what came after the last loss

    def test_exit_ends_a_trace_that_still_runs(self):
        self.run_scene("exit", 2, self.file, trace="")
        self.assertIn("in order", self.tool("check", self.file))
        self.assertEqual(dt.Trace(self.file).ended, "exit()")

    def test_a_slow_region_has_it_written_and_why_says_why(self):
        text = self.run_scene("slow", 2, trace="recorder:" + self.file)
        self.assertIn(f"a region was too slow: the flight recorder is in {self.file}", text)
        trace = dt.Trace(self.file)
        slowest = max((e for e in trace.events if e.what == dt.TASK), key=lambda e: next((x.time for x in trace.events if x.what == dt.TASK_END and x.arg == e.arg), trace.end) - e.time)
        text = self.tool("why", self.file, slowest.text)
        self.assertRegex(text, 'goroutine [0-9]+ "backup": running')  # the holder of the lock, two waits away
        self.assertRegex(text, "waited [0-9.]+ ms for (task join|runs a child in place)")
        self.tool("why", self.file, "nothing of this name", status=2)
        self.assertIn("runnable before it ran", self.tool("summary", self.file))

    # ---- Perfetto

    def test_perfetto_is_what_its_schema_says(self):
        self.run_scene("chaos", 2)
        self.tool("convert", self.file)
        with open(self.file + ".pftrace", "rb") as f:
            trace = fields(f.read())
        self.assertTrue(all(number == 1 for number, _ in trace))  # Trace.packet
        names, parents, depth, counters = {}, {}, collections.Counter(), set()
        flows, ends, last, seen = set(), set(), 0, collections.Counter()
        for _, raw in trace:
            packet = dict(fields(raw))
            self.assertEqual(packet[10], 1)  # trusted_packet_sequence_id
            if 60 in packet:  # track_descriptor
                track = dict(fields(packet[60]))
                self.assertNotIn(track[1], names)  # uuid
                names[track[1]] = track[2].decode()
                if 5 in track:  # parent_uuid
                    self.assertIn(track[5], names)
                    parents[track[1]] = track[5]
                if 8 in track:  # counter
                    counters.add(track[1])
                continue
            self.assertLessEqual(last, packet[8])  # timestamp
            last = packet[8]
            event = fields(packet[11])  # track_event
            one = dict(event)
            self.assertIn(one[11], names)  # track_uuid
            kind = one[9]  # type
            seen[kind] += 1
            if kind == 1:  # TYPE_SLICE_BEGIN
                self.assertIn(23, one)  # name
                depth[one[11]] += 1
            elif kind == 2:  # TYPE_SLICE_END
                depth[one[11]] -= 1
                self.assertLessEqual(0, depth[one[11]], names[one[11]])
            elif kind == 4:  # TYPE_COUNTER
                self.assertIn(one[11], counters)
                self.assertLess(one[30], 1 << 32)  # counter_value: not negative
            else:
                self.assertEqual(kind, 3)  # TYPE_INSTANT
            flows.update(v for n, v in event if n == 47)  # flow_ids
            ends.update(v for n, v in event if n == 48)  # terminating_flow_ids
        self.assertEqual([n for n, d in depth.items() if d != 0], [])
        self.assertLessEqual({"processors", "P0", "P1", "running goroutines"}, set(names.values()))
        self.assertEqual(names[parents[next(n for n, name in names.items() if name == "P0")]], "processors")
        for kind in (1, 2, 3, 4):
            self.assertLess(100, seen[kind])
        self.assertLess(1000, len(flows & ends))

    @unittest.skipIf(shutil.which("protoc") is None, "no protoc in PATH (Debian: apt-get install protobuf-compiler)")
    def test_perfetto_is_decoded_by_its_published_schema(self):
        def decoded(content):
            here = os.path.dirname(os.path.abspath(__file__))
            result = subprocess.run(["protoc", "--decode=perfetto.protos.Trace", "-I", here, os.path.join(here, "perfetto_subset.proto")], input=content,
                                    capture_output=True, timeout=300, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stdout.decode().splitlines()

        def unknown(lines):  # protoc prints by its number what the schema does not have, or not with this type, or no such value
            return [line for line in lines if re.match(r" *[0-9]+(:| \{)", line)]

        self.run_scene("chaos", 2)
        self.tool("convert", self.file)
        with open(self.file + ".pftrace", "rb") as f:
            content = f.read()
        lines = decoded(content)
        self.assertEqual(unknown(lines), [])
        count = collections.Counter(line.strip().split(":")[0] for line in lines)
        self.assertEqual(count["packet {"], len(fields(content)))
        self.assertEqual(count["packet {"], count["track_event {"] + count["track_descriptor {"])
        self.assertEqual(count["track_event {"], count["timestamp"])
        types = collections.Counter(line.strip() for line in lines if line.startswith("    type: "))
        self.assertEqual(sum(types.values()), count["track_event {"])
        for kind in ("SLICE_BEGIN", "SLICE_END", "INSTANT", "COUNTER"):
            self.assertLess(100, types["type: TYPE_" + kind])
        self.assertEqual(types["type: TYPE_SLICE_BEGIN"], types["type: TYPE_SLICE_END"])
        for name in ('name: "processors"', "counter {", "counter_value", "flow_ids", "terminating_flow_ids", "categories", "parent_uuid", "process_name"):
            self.assertTrue(count[name] or any(line.strip() == name for line in lines), name)
        # It would say so.
        for wrong in (perfetto.number(99, 1), perfetto.fixed(perfetto.TIMESTAMP, 1), perfetto.data(perfetto.TRACK_EVENT, perfetto.number(perfetto.TYPE, 9)),
                      perfetto.data(perfetto.TRACK, perfetto.data(7, b""))):
            out = io.BytesIO()
            perfetto.Writer(out).packet(wrong)
            self.assertEqual(len(unknown(decoded(out.getvalue()))), 1, wrong)


if __name__ == "__main__":
    unittest.main()
