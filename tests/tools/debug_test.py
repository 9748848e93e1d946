"""The page of a program as others read it: Go's own `go tool pprof` over HTTP where Go is installed; a plain client.
Run by ctest as tools/debug.

Usage: debug_test.py SCENE, which is tests/debug/page_scene.cpp.
"""

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from go_pprof import pprof, reason_to_skip  # beside this file

NO_PPROF = reason_to_skip()
SCENE = sys.argv.pop() if len(sys.argv) > 1 else None
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("DUNLIN_")}


class Program:
    def __init__(self, *arguments, stderr=None, **environment):
        self.process = subprocess.Popen([SCENE, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=stderr, env={**ENVIRONMENT, **environment})
        self.url = self.process.stdout.readline().strip()

    def get(self, path, **headers):
        request = urllib.request.Request(self.url.rstrip("/") + path, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="dunlin-debug-")
        cls.program = Program("200")

    @classmethod
    def tearDownClass(cls):
        cls.program.close()
        shutil.rmtree(cls.folder)

    def test_json_is_what_the_page_reads(self):
        page = self.program.get("/").decode()
        dump = json.loads(self.program.get("/dump.json"))
        self.assertGreaterEqual(dump["goroutines"], 205)
        (even,) = [g for g in dump["groups"] if g.get("labels") == {"shard": "even"}]
        self.assertEqual((even["count"], even["reason"]), (100, "chan receive"))
        for member in ("count", "reason", "state", "longest_wait_ns", "waits_at", "ids", "stack", "created_at",
                       "labels"):
            self.assertIn(member, even)
            self.assertRegex(page, rf"\.{member}\b")

    def test_a_token_is_asked_for(self):
        program = Program("1", "secret")
        try:
            with self.assertRaises(urllib.error.HTTPError) as caught:
                program.get("/metrics")
            self.assertEqual(caught.exception.code, 401)
            caught.exception.close()
            self.assertIn(b"dunlin_goroutines", program.get("/metrics", Authorization="Bearer secret"))
            self.assertIn(b"dunlin_goroutines", program.get("/metrics?token=secret"))
        finally:
            program.close()

    def test_a_hundred_thousand_goroutines(self):
        program = Program("100000")
        try:
            began = time.monotonic()
            dump = json.loads(program.get("/dump.json"))
            took = time.monotonic() - began
            self.assertGreaterEqual(dump["goroutines"], 100_000)
            self.assertLess(len(dump["groups"]), 20)
            self.assertLess(took, 10)
        finally:
            program.close()

    def status(self, program, path):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            program.get(path)
        code = caught.exception.code
        caught.exception.close()
        return code

    def test_a_cpu_profile_takes_its_time_and_is_alone(self):
        program = Program("1", "", "compute")
        try:
            for seconds in ("0", "-1", "601", "soon"):
                self.assertEqual(self.status(program, "/debug/pprof/profile?seconds=" + seconds), 400)
            def ask(_):
                try:
                    return program.get("/debug/pprof/profile?seconds=3")
                except urllib.error.HTTPError as refused:
                    code = refused.code
                    refused.close()
                    return code

            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                refused, profile = sorted(pool.map(ask, range(2)), key=lambda answer: isinstance(answer, bytes))
            self.assertEqual(refused, 409)
            self.assertIn(b"computes", profile)
            self.assertIn(b"nanoseconds", profile)
        finally:
            program.close()

    def test_the_recorder_runs_while_it_is_asked_for(self):
        program = Program("1")
        try:
            for _ in range(2):
                self.assertTrue(program.get("/trace").startswith(b"DUNTRACE"))
            self.assertTrue(program.get("/debug/pprof/trace?seconds=1").startswith(b"DUNTRACE"))
            self.assertEqual(self.status(program, "/debug/pprof/trace?seconds=0"), 400)
        finally:
            program.close()

    def test_beside_a_trace_of_the_programs_own_there_is_no_recorder(self):
        program = Program("1", DUNLIN_TRACE=os.path.join(self.folder, "trace"))
        try:
            self.assertEqual(self.status(program, "/trace"), 409)
            self.assertEqual(self.status(program, "/debug/pprof/trace"), 409)
        finally:
            program.close()

    def test_the_environment_asks_for_a_page(self):
        with open(os.path.join(self.folder, "stderr"), "w+") as stderr:
            program = Program("1", stderr=stderr, DUNLIN_DEBUG="page=127.0.0.1:0", DUNLIN_PAGE_TOKEN="a b")
            try:
                stderr.seek(0)
                said = stderr.read()
                self.assertIn("DUNLIN_DEBUG=page=127.0.0.1:0: the page of this program is at http://127.0.0.1:", said)
                program.url = said[said.index("http://"):].split()[0]
                self.assertEqual(self.status(program, "/metrics"), 401)
                self.assertIn(b"dunlin_goroutines", program.get("/metrics?token=a%20b"))
            finally:
                program.close()
            stderr.seek(0)
            stderr.truncate()
            program = Program("1", stderr=stderr, DUNLIN_DEBUG="page=0.0.0.0:0")
            try:
                stderr.seek(0)
                self.assertIn("there is no page: ", stderr.read())  # without a token
            finally:
                program.close()

    @unittest.skipIf(NO_PPROF, NO_PPROF)
    def test_go_tool_pprof_reads_it_over_http(self):
        def top(path, *options):
            return pprof(self.folder, "-text", *options, self.program.url + path)

        goroutines = top("debug/pprof/goroutine")
        self.assertIn("Type: goroutine", goroutines)
        self.assertRegex(goroutines, r"\b200\b.*waits_for_orders")
        self.assertIn("contentions", top("debug/pprof/mutex", "-sample_index=contentions"))
        for profile in ("block", "mutex"):
            text = top("debug/pprof/" + profile)
            self.assertIn("Type: delay", text)
            self.assertRegex(text[text.index("flat%"):].splitlines()[1], r"has_hot_lock")


if __name__ == "__main__":
    unittest.main()
