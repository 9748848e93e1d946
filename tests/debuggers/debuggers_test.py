"""Debuggers see goroutines: gdb with its script, lldb with its plug-in, both without on what dunlin-core has written; live processes and
cores, with symbols and stripped. Run by ctest as debuggers/gdb and debuggers/lldb.

Usage: debuggers_test.py gdb|lldb SCENE SCRIPTS; SCENE is tests/debuggers/scene.cpp. Status 77 if the debugger is not installed.
"""

import glob
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

WHICH, SCENE, SCRIPTS = sys.argv[1], *map(os.path.abspath, sys.argv[2:4])
sys.path.insert(0, SCRIPTS)
import dunlin_goroutines  # noqa: E402

RECEIVERS = 25
# Stacks close to each other: a debugger writes the holes of a core too.
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.startswith("DUNLIN_")}, "DUNLIN_STACK_SIZE": "239K"}


def lldb_environment():
    """Debian's lldb 14 looks for its own Python modules in a wrong place, and for Python's beside the first python3 in PATH."""
    version = re.search(r"version (\d+)", subprocess.run(["lldb", "--version"], capture_output=True, text=True).stdout)
    places = glob.glob(f"/usr/lib/llvm-{version[1]}/lib/python3*/*-packages") if version else []
    return {**os.environ, "PATH": "/usr/bin:/bin", **({"PYTHONPATH": ":".join(places)} if places else {})}


def run(*words, environment=None, limit=200):
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


def gdb(program, what, *commands):
    """What gdb says to these commands; `what` is a core or a process."""
    target = ["-p", str(what)] if isinstance(what, int) else ["-c", what]
    words = [w for c in commands for w in ("-ex", c)]
    return run("gdb", "-batch", "-nx", "-ex", "set width 0", "-iex", "set debuginfod enabled off", program, *target, *words)


def lldb(program, what, *commands):
    target = f"process attach -p {what}" if isinstance(what, int) else f"target create {program} --core {what}"
    plug_in = f"settings set target.process.python-os-plugin-path {SCRIPTS}/dunlin_lldb.py"
    words = [w for c in (target, plug_in, *commands) for w in ("-o", c)]
    return run("lldb", "-b", "-x", *words, environment=lldb_environment())


def plain_lldb(program, core, *commands):
    words = [w for c in commands for w in ("-o", c)]
    return run("lldb", "-b", "-x", "-o", f"target create {program} --core {core}", *words, environment=lldb_environment())


class Live:
    """The scene while it runs."""

    def __init__(self, program=SCENE, receivers=RECEIVERS):
        self.process = subprocess.Popen([program, str(receivers)], stdout=subprocess.PIPE, env=ENVIRONMENT)

    def __enter__(self):
        if self.process.stdout.readline() != b"ready\n":
            raise AssertionError("the scene was not set")
        return self.process.pid

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def make_core(folder, receivers=RECEIVERS, program=SCENE):
    """The core that the kernel writes of the scene."""
    with open("/proc/sys/kernel/core_pattern") as pattern:
        if pattern.read().startswith(("|", "/")):
            raise unittest.SkipTest("the kernel writes no core files into the working directory here (/proc/sys/kernel/core_pattern)")
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        raise unittest.SkipTest("core files are forbidden here (ulimit -H -c)")
    limits = lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    subprocess.run([program, str(receivers), "abort"], cwd=folder, env=ENVIRONMENT, capture_output=True, preexec_fn=limits, timeout=200)
    found = glob.glob(os.path.join(folder, "core*"))
    if not found:
        raise AssertionError("the kernel has written no core file")
    return found[0]


def may_attach():
    if WHICH == "lldb":
        return True
    with Live() as process:
        return "Operation not permitted" not in gdb(SCENE, process, "info threads")


class Scene(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="dunlin-debuggers-")
        cls.stripped = os.path.join(cls.folder, "scene.stripped")
        subprocess.run(["strip", "-s", SCENE, "-o", cls.stripped], check=True)
        cls.own_core = None
        cls.with_threads = os.path.join(cls.folder, "with-threads")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @property
    def core(self):
        """Made for the first test that wants it; skips those that do where none can be had."""
        cls = type(self)
        if cls.own_core is None:
            cls.own_core = make_core(cls.folder)
        return cls.own_core

    def convert(self, core=None):
        """dunlin-core; what it has said."""
        return run(sys.executable, os.path.join(SCRIPTS, "dunlin-core"), core or self.core, self.with_threads)

    def paragraph(self, text, what):
        """The paragraph of the goroutine with this name or number."""
        begin = re.search(r'^goroutine (\d+ "%s"|%s\b)' % (what, what), text, re.M)
        self.assertIsNotNone(begin, f"no {what} in\n{text}")
        return re.split(r"^goroutine ", text[begin.end():], maxsplit=1, flags=re.M)[0]

    def number_of(self, text, name):
        found = re.search(r'goroutine (\d+) "%s"' % name, text)
        self.assertIsNotNone(found, f"no {name} in\n{text}")
        return found[1]


@unittest.skipUnless(WHICH == "gdb", "of gdb")
class Gdb(Scene):
    SOURCE = f"source {SCRIPTS}/dunlin_gdb.py"
    preempted_seen = lists = 0

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        if cls.lists > 2 and cls.preempted_seen == 0:
            raise AssertionError("of four hogs on two processors none was shown as preempted, in any list")

    def check_list(self, text, symbols=True):
        self.assertIn(f"{RECEIVERS + 11} goroutines\n", text)
        # The receivers are one paragraph: the same stack, the same place.
        receivers = re.search(r"^goroutine \d+ \[chan receive.*\], and (\d+) like it: (.*)((?:\n    .*)*)", text, re.M)
        self.assertIsNotNone(receivers, text)
        self.assertEqual(int(receivers[1]), RECEIVERS - 1, text)
        self.assertIn(f" and {RECEIVERS - 11} more", receivers[2])
        self.assertRegex(receivers[3], r"waits at scene\.cpp:\d+")
        self.assertRegex(receivers[3], r"created at scene\.cpp:\d+")
        self.assertIn("[sleep", self.paragraph(text, "sleeper").splitlines()[0])
        self.assertIn("labels: user=anna", self.paragraph(text, "sleeper"))
        self.assertIn("[sync.Mutex.Lock", self.paragraph(text, "locker"))
        self.assertIn("[blocking call]", self.paragraph(text, "reader"))
        self.assertIn("[blocking call]", self.paragraph(text, "borrower"))
        self.assertRegex(self.paragraph(text, "reader"), r"on thread \d+ \(LWP \d+\)")
        hogs = "".join(self.paragraph(text, f"hog{i}") for i in range(4))
        self.assertEqual(hogs.count("[running]") + hogs.count("[preempted]"), 4, text)
        # Where other programs take the CPUs a hog that is to stop may still be on its way: in some look, not in each.
        type(self).lists += 1
        type(self).preempted_seen += hogs.count("[preempted]")
        if symbols:
            self.assertIn("receive_for_ever", receivers[3])
            self.assertIn("sleep_long", self.paragraph(text, "sleeper"))
            self.assertIn("wait_for_lock", self.paragraph(text, "locker"))
            self.assertIn("read_for_ever", self.paragraph(text, "reader"))
            self.assertIn("block_on_thread_stack", self.paragraph(text, "borrower"))
            self.assertEqual(hogs.count("burn_the_cpu"), 4, text)

    def check_stacks(self, what):
        """Of goroutines in each state, and the selected frame is the one before afterwards."""
        text = gdb(SCENE, what, self.SOURCE, "info goroutines")
        commands = [self.SOURCE]
        for name in ("sleeper", "locker", "reader", "borrower", "hog0", "hog1", "hog2", "hog3"):
            commands += [f"echo \\n== {name}\\n", f"goroutine {self.number_of(text, name)} bt"]
        sleeper = self.number_of(text, "sleeper")
        commands += ["echo \\n== after\\n", "info goroutines", "echo \\n== selected\\n", f"goroutine {sleeper}", "bt", "echo \\n== none\\n",
                     "goroutine none", "bt 1", "echo \\n== nobody\\n", "goroutine 4711 bt", "echo \\n== filtered\\n", "info goroutines sleeper"]
        parts = dict(re.findall(r"^== (\w+)\n(.*?)(?=^== |\Z)", gdb(SCENE, what, *commands), re.M | re.S))
        self.assertRegex(parts["sleeper"], r"(?s)#1 .*park.*sleep_long.*dunlin_goroutine_loop.*dunlin_context_entry")
        self.assertNotRegex(parts["sleeper"], r"(?m)^#0 ")  # that is another's
        self.assertRegex(parts["locker"], r"(?s)wait_for_lock.*dunlin_context_entry")
        self.assertRegex(parts["reader"], r"(?s)#0 .*read.*read_for_ever.*dunlin_context_entry")
        self.assertRegex(parts["borrower"], r"(?s)#1 .*call_on_thread_stack.*block_on_thread_stack.*dunlin_context_entry")
        for i in range(4):
            self.assertRegex(parts[f"hog{i}"], r"(?s)burn_the_cpu.*dunlin_context_entry")
        # A hog that stands is shown in the signal's handler. In a process one may be on its way into it, or out of it.
        stopped = [i for i in range(4) if "[preempted]" in self.paragraph(parts["after"], f"hog{i}").splitlines()[0]]
        for i in stopped:
            self.assertIn("<signal handler called>", parts[f"hog{i}"], parts["after"])
        if what == self.own_core:
            self.assertGreaterEqual(len(stopped), 1)
        self.assertIn("goroutines\n", parts["after"])
        self.assertIn("sleep_long", parts["selected"])
        self.assertNotIn("sleep_long", parts["none"])
        self.assertIn("#0 ", parts["none"])
        self.assertNotIn("#2 ", parts["none"])
        self.assertRegex(parts["nobody"] + gdb(SCENE, what, self.SOURCE, "goroutine 4711 bt"), "there is no goroutine 4711")
        self.assertIn("sleep_long", parts["filtered"])
        self.assertNotIn("wait_for_lock", parts["filtered"])

    def test_lists_goroutines_of_a_core(self):
        self.check_list(gdb(SCENE, self.core, self.SOURCE, "info goroutines"))

    def test_shows_stacks_in_a_core(self):
        self.check_stacks(self.core)

    def test_lists_goroutines_of_a_process(self):
        if not may_attach():
            self.skipTest("no process may be attached to here")
        with Live() as process:
            text = gdb(SCENE, process, self.SOURCE, "info goroutines")
            self.check_list(text)
            self.assertRegex(self.paragraph(text, "sleeper"), r"\[sleep, [\d.]+ (s|ms)\]")

    def test_shows_stacks_of_a_process(self):
        if not may_attach():
            self.skipTest("no process may be attached to here")
        with Live() as process:
            self.check_stacks(process)

    def test_needs_no_symbols(self):
        core = make_core(tempfile.mkdtemp(dir=self.folder), program=self.stripped)
        text = gdb(self.stripped, core, self.SOURCE, "info goroutines")
        self.check_list(text, symbols=False)
        stack = gdb(self.stripped, core, self.SOURCE, f"goroutine {self.number_of(text, 'sleeper')} bt")
        frames = re.findall(r"^#\d+ +0x\w+ in \?\? \(\)", stack, re.M)
        self.assertGreaterEqual(len(frames), 5, stack)  # as far as the stack's beginning, by the unwinding tables

    def test_locals_of_a_frame(self):
        text = gdb(SCENE, self.core, self.SOURCE, "info goroutines")
        number = self.number_of(text, "sleeper")
        stack = gdb(SCENE, self.core, self.SOURCE, f"goroutine {number} bt")
        frame = re.search(r"^#(\d+) .*sleep_long", stack, re.M)[1]
        self.assertIn("kept on the stack 9", gdb(SCENE, self.core, self.SOURCE, f"goroutine {number}", f"frame {frame}", "info locals"))

    def test_ten_thousand_goroutines_take_seconds(self):
        core = make_core(tempfile.mkdtemp(dir=self.folder), receivers=10_000)
        begin = time.monotonic()
        text = gdb(SCENE, core, self.SOURCE, "info goroutines")
        took = time.monotonic() - begin
        self.assertIn("10011 goroutines\n", text)
        self.assertIn(", and 9999 like it: ", text)
        self.assertLess(took, 20)

    def test_says_what_is_missing(self):
        self.assertIn("no process and no core file", run("gdb", "-batch", "-nx", SCENE, "-ex", self.SOURCE, "-ex", "info goroutines"))
        text = run("gdb", "-batch", "-nx", "-ex", self.SOURCE, "-ex", "starti", "-ex", "info goroutines", "-ex", "kill", "--args", "/bin/true")
        self.assertIn("no part of this program uses dunlin", text)

    def test_a_core_with_threads_needs_no_script(self):
        self.assertIn("goroutines are threads in", self.convert())
        text = gdb(SCENE, self.with_threads, "thread apply all bt")
        numbers = re.findall(r"LWP (10000\d+)", text)
        self.assertGreaterEqual(len(set(numbers)), RECEIVERS + 3, text)
        threads = re.split(r"^Thread ", text, flags=re.M)
        receivers = [t for t in threads if "LWP 10000" in t and "outer_receiver" in t and "dunlin_context_entry" in t]
        self.assertEqual(len(receivers), RECEIVERS, text)
        self.assertTrue(any("burn_the_cpu" in t for t in threads))  # the process's own threads are there still

    def test_a_core_of_another_version_is_refused(self):
        """A program whose table has the next version's number in it, and its core."""
        with open(SCENE, "rb") as file:
            program = file.read()
        at = program.index(dunlin_goroutines.MAGIC) + len(dunlin_goroutines.MAGIC)
        other = os.path.join(self.folder, "scene.other")
        with open(other, "wb") as file:
            file.write(program[:at] + struct.pack("<I", dunlin_goroutines.VERSION + 1) + program[at + 4:])
        os.chmod(other, 0o755)
        core = make_core(tempfile.mkdtemp(dir=self.folder), program=other)
        said = f"has a layout of version {dunlin_goroutines.VERSION + 1}, these scripts read {dunlin_goroutines.VERSION}"
        self.assertIn(said, gdb(other, core, self.SOURCE, "info goroutines"))
        self.assertIn(said, self.convert(core))

    def test_bad_cores_are_refused(self):
        def refused(content):
            path = os.path.join(self.folder, "bad")
            with open(path, "wb") as file:
                file.write(content)
            return self.convert(path)

        self.assertIn("not a 64-bit little-endian ELF file", refused(b"not a core"))
        with open(SCENE, "rb") as file:
            self.assertIn("is not a core file", refused(file.read()))
        with open(self.core, "rb") as file:
            head = file.read(100)
        self.assertIn("truncated", refused(head))
        self.assertIn("No such file", self.convert("/nowhere"))


@unittest.skipUnless(WHICH == "lldb", "of lldb")
class Lldb(Scene):
    def check(self, text):
        threads = re.split(r"\n(?=[ *]+thread #)", text[text.index("(lldb) thread backtrace all"):])
        of = lambda what: [t for t in threads if what in t and "dunlin_context_entry" in t]
        self.assertEqual(len(of("receive_for_ever")), RECEIVERS + 1, text)  # and the child
        for function in ("sleep_long", "wait_for_lock", "read_for_ever", "block_on_thread_stack"):
            self.assertEqual(len(of(function)), 1, f"{function} in\n{text}")
        self.assertEqual(len([t for t in threads if "burn_the_cpu" in t]), 4, text)

    def test_goroutines_of_a_core_are_threads(self):
        text = lldb(SCENE, self.core, "thread list", "thread backtrace all")
        self.check(text)
        self.assertRegex(text, r"tid = 10000\d+, .*name = 'goroutine \d+ \"sleeper\" \[sleep\]', queue = 'scene.cpp:\d+'")

    def test_goroutines_of_a_process_are_threads(self):
        with Live() as process:
            text = lldb(SCENE, process, "thread backtrace all")
            if "attach failed" in text:
                self.skipTest("no process may be attached to here")
            self.check(text)

    def test_a_core_with_threads_needs_no_plug_in(self):
        self.assertIn("goroutines are threads in", self.convert())
        self.check(plain_lldb(SCENE, self.with_threads, "thread backtrace all"))

    def test_needs_no_symbols(self):
        core = make_core(tempfile.mkdtemp(dir=self.folder), program=self.stripped)
        text = lldb(self.stripped, core, "thread list")
        self.assertRegex(text, r"name = 'goroutine \d+ \"sleeper\" \[sleep\]'")


if __name__ == "__main__":
    if shutil.which(WHICH) is None or shutil.which("strip") is None:
        print(f"skipped: no {WHICH} in PATH (Debian: apt-get install {WHICH})")
        sys.exit(77)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
