"""Profiles are what pprof reads: decoded here by the numbers of profile.proto, and by Go's own `go tool pprof` where Go is installed.
Run by ctest as tools/profile.

Usage: profile_test.py SCENE, which is tests/debuggers/scene.cpp.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from go_pprof import pprof, reason_to_skip  # beside this file
from protobuf import fields

SCENE = sys.argv.pop() if len(sys.argv) > 1 else None
RECEIVERS = 40
NO_PPROF = reason_to_skip()
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("DUNLIN_")}


def packed(data):
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    return values


class Decoded:
    """samples: [([(function, file, line)] innermost first, value, labels)]; values: all values of each"""

    def __init__(self, data):
        whole = fields(data)
        texts = [v.decode() for k, v in whole if k == 6]
        assert texts[0] == ""
        of = lambda number: [dict(fields(v)) for k, v in whole if k == number]
        self.type = [(texts[t[1]], texts[t[2]]) for t in of(1)]
        functions = {f[1]: (texts[f[2]], texts[f.get(4, 0)]) for f in of(5)}
        self.locations = {}
        for location in of(4):
            line = dict(fields(location[4]))
            self.locations[location[1]] = (*functions[line[1]], line[2])
            assert location[2] == 1  # the mapping
        self.mappings = of(3)
        self.samples, self.values = [], []
        for k, v in whole:
            if k == 2:
                sample = fields(v)
                places = [self.locations[i] for f, b in sample if f == 1 for i in packed(b)]
                values = [n for f, b in sample if f == 2 for n in packed(b)]
                labels = {texts[dict(fields(b))[1]]: texts[dict(fields(b))[2]] for f, b in sample if f == 3}
                self.samples.append((places, values[0], labels))
                self.values.append(values)


class Profile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="dunlin-profile-")
        cls.path = os.path.join(cls.folder, "goroutines.pb")
        subprocess.run([SCENE, str(RECEIVERS), "profile", cls.path], env=ENVIRONMENT, check=True, timeout=60)
        with open(cls.path, "rb") as file:
            cls.profile = Decoded(file.read())

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_counts_every_goroutine_once(self):
        self.assertEqual(self.profile.type, [("goroutine", "count")])
        self.assertEqual(sum(value for _, value, _ in self.profile.samples), RECEIVERS + 11)
        self.assertEqual(len(self.profile.mappings), 1)

    def test_stacks_and_labels(self):
        def with_function(name):
            return [s for s in self.profile.samples if any(name in function for function, _, _ in s[0])]

        receivers = [s for s in with_function("outer_receiver")]
        if not receivers:  # it has left by a tail call
            receivers = [s for s in with_function("receive_for_ever") if s[1] > 1]
        self.assertEqual(sum(value for _, value, _ in receivers), RECEIVERS)
        self.assertEqual(receivers[0][2]["state"], "chan receive")
        place = next(p for p in receivers[0][0] if "receive_for_ever" in p[0])
        self.assertEqual(place[1], "scene.cpp")
        self.assertGreater(place[2], 20)
        (sleeper,) = with_function("sleep_long")
        self.assertEqual((sleeper[1], sleeper[2]["name"], sleeper[2]["user"], sleeper[2]["state"]), (1, "sleeper", "anna", "sleep"))

    @unittest.skipIf(NO_PPROF, NO_PPROF)
    def test_go_tool_pprof_reads_it(self):
        top = pprof(self.folder, "-text", "-nodecount=100", self.path)
        self.assertIn("Type: goroutine", top)
        self.assertRegex(top, rf"of {RECEIVERS + 11} total")
        peek = pprof(self.folder, "-peek", "receive_for_ever", self.path)
        self.assertRegex(peek, rf"\b{RECEIVERS + 1}\b.*receive_for_ever")
        raw = pprof(self.folder, "-raw", self.path)
        self.assertIn("goroutine/count", raw)
        self.assertIn("state:[chan receive]", raw)
        self.assertIn("user:[anna]", raw)
        self.assertRegex(pprof(self.folder, "-traces", "-tagfocus", "name=sleeper", self.path), r"sleep_long")
        self.assertRegex(pprof(self.folder, "-tags", self.path), r"chan receive")


class Contention(unittest.TestCase):
    """Eight goroutines with a hot lock: its place is the first that both profiles show, for each P."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="dunlin-profile-")
        cls.paths = {}
        for processors in (1, 2, 8):
            cls.paths[processors] = [os.path.join(cls.folder, f"{kind}{processors}.pb") for kind in ("block", "mutex")]
            subprocess.run([SCENE, "contention", *cls.paths[processors], str(processors)], env=ENVIRONMENT, check=True,
                           timeout=60)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def each(self):
        for processors, paths in self.paths.items():
            for path in paths:
                with self.subTest(processors=processors, profile=os.path.basename(path)), open(path, "rb") as file:
                    yield path, Decoded(file.read())

    def test_most_of_the_delay_is_at_the_hot_lock(self):
        for path, profile in self.each():
            self.assertEqual(profile.type, [("contentions", "count"), ("delay", "nanoseconds")])
            delays = {}
            for (places, count, labels), values in zip(profile.samples, profile.values):
                self.assertEqual(len(values), 2)
                self.assertGreaterEqual(count, 1)
                delays[places[0][0].partition("(")[0]] = delays.get(places[0][0].partition("(")[0], 0) + values[1]
                if "work_under_lock" in places[0][0]:
                    self.assertIn(labels["kind"], ("even", "odd"))
                    self.assertIn("use_hot_lock", places[1][0])
                    self.assertEqual(labels.get("reason"), "sync.Mutex.Lock" if "block" in path else None)
            hot = delays["scene::work_under_lock"]
            self.assertGreater(hot, 8 * delays.get("scene::use_cold_lock", 0))
            # Seven of eight wait, and each has the lock for 0.4 ms 40 times.
            self.assertGreater(hot, 0.5 * 7 * 8 * 40 * 400_000)
            names = {labels.get("name") for places, _, labels in profile.samples if "work_under_lock" in places[0][0]}
            self.assertEqual(names, {None, "first"})

    @unittest.skipIf(NO_PPROF, NO_PPROF)
    def test_go_tool_pprof_shows_it_first(self):
        for path, _ in self.each():
            options = ["-focus", "lock"] if "block" in path else []  # main waits for all of them in its wait_group
            top = pprof(self.folder, "-text", *options, path)
            self.assertIn("Type: delay", top)
            first = top[top.index("flat%"):].splitlines()[1]
            self.assertRegex(first, r"work_under_lock")
            self.assertIn("Type: contentions", pprof(self.folder, "-text", "-sample_index=contentions", path))
            self.assertRegex(pprof(self.folder, "-peek", "work_under_lock", path), r"use_hot_lock")
            self.assertRegex(pprof(self.folder, "-tags", path), r"(?s)kind:.*even")
            self.assertIn("contentions/count delay/nanoseconds", pprof(self.folder, "-raw", path))
            # A profile against itself: nothing is left.
            self.assertRegex(pprof(self.folder, "-text", "-base", path, path), r"of \S+ total|flat%")


class Cpu(unittest.TestCase):
    """Three quarters of the CPU time in one function, for two users."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="dunlin-profile-")
        cls.paths = {}
        for processors in (1, 2, 8):
            cls.paths[processors] = os.path.join(cls.folder, f"cpu{processors}.pb")
            subprocess.run([SCENE, "cpu", cls.paths[processors], str(processors)], env=ENVIRONMENT, check=True, timeout=100)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_time_is_where_it_was_spent_and_for_whom(self):
        for processors, path in self.paths.items():
            with self.subTest(processors=processors), open(path, "rb") as file:
                profile = Decoded(file.read())
                self.assertEqual(profile.type, [("samples", "count"), ("cpu", "nanoseconds")])
                by_function, by_user, whole = {}, {}, 0
                for (places, count, labels), (n, ns) in zip(profile.samples, profile.values):
                    self.assertEqual(ns, n * 5_000_000)
                    whole += ns
                    for name in ("expensive", "cheap"):
                        if any(name in place[0] for place in places):
                            by_function[name] = by_function.get(name, 0) + ns
                            by_user[labels["user"]] = by_user.get(labels["user"], 0) + ns
                            self.assertEqual(labels["name"], "worker")
                self.assertGreater(whole, 2 * 10**9)  # of three
                self.assertLess(whole, 5 * 10**9)
                # The rest is the runtime's: the monitor, and machines that search, the more the less of the CPUs they are given.
                self.assertGreater(sum(by_function.values()), 0.75 * whole)
                self.assertGreater(by_function["expensive"], 2 * by_function["cheap"])
                self.assertLess(by_function["expensive"], 4.5 * by_function["cheap"])
                self.assertEqual(set(by_user), {"anna", "bert"})

    @unittest.skipIf(NO_PPROF, NO_PPROF)
    def test_go_tool_pprof_shows_it(self):
        for path in self.paths.values():
            self.assertIn("Type: cpu", pprof(self.folder, "-text", path))
            self.assertIn("Duration:", pprof(self.folder, "-text", path))
            self.assertRegex(pprof(self.folder, "-peek", "expensive", path), r"multiply")
            self.assertRegex(pprof(self.folder, "-tags", path), r"(?s)user:.*anna")


if __name__ == "__main__":
    unittest.main()
