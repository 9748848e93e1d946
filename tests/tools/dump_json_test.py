"""Dumps as JSON, asked for by a signal, read with Python's reader. Run by ctest as tools/dump_json.

Usage: dump_json_test.py SCENE, which is tests/debuggers/scene.cpp.
"""

import json
import os
import re
import signal
import subprocess
import sys
import unittest

SCENE = sys.argv.pop() if len(sys.argv) > 1 else None
RECEIVERS = 150


def dumps(count, receivers=RECEIVERS):
    """What `count` signals print, as text."""
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith("DUNLIN_")}, "DUNLIN_DEBUG": "dumpsignal=USR1,dumpformat=json"}
    process = subprocess.Popen([SCENE, str(receivers)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    try:
        assert process.stdout.readline() == b"ready\n"
        result = []
        for _ in range(count):
            process.send_signal(signal.SIGUSR1)
            text = b""
            while b"goroutines_left_out" not in text:
                line = process.stderr.readline()
                assert line, text
                text += line
            result.append(text.decode())  # it must be UTF-8
        return result
    finally:
        process.kill()
        process.communicate()


class DumpJson(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.texts = dumps(3)
        cls.all = [json.loads(text) for text in cls.texts]

    def group(self, dump, name):
        return next(g for g in dump["groups"] if g.get("name") == name)

    def test_every_goroutine_is_counted_once(self):
        for dump in self.all:
            self.assertEqual(dump["version"], 1)
            self.assertEqual(dump["goroutines"], RECEIVERS + 11)
            self.assertEqual(sum(g["count"] for g in dump["groups"]), RECEIVERS + 11)
            self.assertEqual((dump["groups_left_out"], dump["goroutines_left_out"]), (0, 0))
            ids = [i for g in dump["groups"] for i in g["ids"]]
            self.assertEqual(len(ids), len(set(ids)))

    def test_those_alike_are_one_group_with_a_hundred_numbers_at_most(self):
        for dump in self.all:
            receivers = next(g for g in dump["groups"] if g["count"] == RECEIVERS)
            self.assertEqual(len(receivers["ids"]), 100)
            self.assertEqual((receivers["state"], receivers["reason"]), ("waiting", "chan receive"))
            self.assertRegex(receivers["waits_at"], r"^scene\.cpp:\d+")
            self.assertRegex(receivers["created_at"], r"^scene\.cpp:\d+")
            self.assertTrue(any("receive_for_ever" in f["function"] for f in receivers["stack"]), receivers)
            for frame in receivers["stack"]:
                self.assertRegex(frame["pc"], r"^0x[0-9a-f]+$")

    def test_names_labels_and_what_is_no_text(self):
        for dump in self.all:
            sleeper = self.group(dump, "sleeper")
            self.assertEqual(sleeper["labels"], {"user": "anna", "odd": "\"\\\x01\ufffd\u00e9"})
            self.assertEqual(sleeper["reason"], "sleep")

    def test_a_mutex_and_its_holder(self):
        for dump in self.all:
            locker = self.group(dump, "locker")
            self.assertRegex(locker["object"], r"^0x[0-9a-f]+$")
            self.assertEqual(locker["holder"], 1)  # main

    def test_states_and_stacks_of_those_that_compute(self):
        for dump in self.all:
            hogs = [self.group(dump, f"hog{i}") for i in range(4)]
            self.assertTrue(all(h["state"] in ("running", "preempted") for h in hogs), hogs)
        seen = [any("burn_the_cpu" in f["function"] for f in self.group(d, f"hog{i}")["stack"]) for d in self.all for i in range(4)]
        self.assertIn(True, seen)
        self.assertEqual(self.group(self.all[0], "reader")["reason"], "blocking call")

    def test_the_longest_waits_come_first(self):
        for dump in self.all:
            waits = [g["longest_wait_ns"] for g in dump["groups"] if g["state"] == "waiting"]
            self.assertGreater(waits[0], 0)
            for before, after in zip(waits, waits[1:]):
                self.assertGreaterEqual(before, after - 10_000_000)  # each is measured when it is written
            # Of those that do not wait for something there is no time.
            waits = ["longest_wait_ns" in g and g["longest_wait_ns"] > 0 for g in dump["groups"]]
            self.assertEqual(waits, sorted(waits, reverse=True))

    def test_what_is_left_out_is_counted(self):
        dump = json.loads(dumps(1, receivers=-1500)[0])  # each of a name of its own
        self.assertEqual(len(dump["groups"]), 1000)
        self.assertEqual(sum(g["count"] for g in dump["groups"]) + dump["goroutines_left_out"], dump["goroutines"])
        self.assertEqual(dump["goroutines"], 1511)
        self.assertEqual(dump["groups_left_out"], dump["goroutines_left_out"])


if __name__ == "__main__":
    unittest.main()
