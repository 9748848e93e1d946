"""tools/scale: what it makes of results, and where a program is named, that program: the table of costs, and two curves of seconds.
Run by ctest as tools/scale, and in the simulation build as sim/scale.

Usage: scale_test.py [PROGRAM], which is tests/scale/simulated.cpp.
"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop() if len(sys.argv) > 1 and not sys.argv[-1].startswith("-") else None
sys.path.insert(0, str(ROOT / "tools" / "scale"))
import analyse  # noqa: E402
import measure  # noqa: E402
import page  # noqa: E402
import plot  # noqa: E402


def result(procs, ns, places=(), spent=None):
    return {"procs": procs, "ns": ns, "operations": 100 * procs, "steps": 1, "places": list(places), "locks": [], "idle_at_end": 0,
            "queued_at_end": 0, "spent": spent or {"work": procs * ns // 2}}


def place(at, thing, **ns):
    return {"at": at, "object": thing, "count": 1, "moved": 0, "queued": 0, "spun": 0, "kernel": 0, **ns}


class NoNames:
    @staticmethod
    def name(text):
        return text


class AnalysisTest(unittest.TestCase):
    def test_the_knee_is_the_last_number_at_which_each_cpu_does_three_quarters(self):
        curve = [result(1, 1000), result(2, 1100), result(4, 1300), result(8, 2000)]
        self.assertEqual(analyse.knee(curve), 4)
        self.assertIsNone(analyse.knee(curve[:3]))

    def test_what_is_not_spent_is_idle(self):
        self.assertAlmostEqual(analyse.spent(result(4, 1000))["idle"], 0.5)

    def test_waits_for_one_object_are_added_whatever_line_waits(self):
        r = result(2, 1000, [place("a.h:1", "scheduler.lock", queued=100), place("b.cpp:2", "scheduler.lock", moved=300),
                             place("c.cpp:3", "heap", queued=200)])
        waits = analyse.waits(r, NoNames)
        self.assertEqual([(what, round(part, 3), how) for what, part, how, _ in waits],
                         [("scheduler.lock", 0.2, "moved"), ("c.cpp:3", 0.1, "queued")])

    def test_searching_for_work_is_no_wait(self):
        r = result(2, 1000, [place("sched/data/run_queue.h:117", "processor.queue", spun=900), place("platform/lock.cpp:29", "heap", spun=100)])
        self.assertEqual(analyse.waits(r, NoNames)[0][:2], ("platform/lock.cpp:29", 0.05))

    def test_the_page_keeps_what_stands_around_the_marks(self):
        text = "a\n<!-- costs: written by ./dev scale --publish -->\nold\n<!-- end of costs -->\nb\n"
        self.assertEqual(page.replace(text, "costs", "new\n"), text.replace("old", "new"))
        with self.assertRaises(ValueError):
            page.replace("a\n", "costs", "new\n")

    def test_plots_are_svg(self):
        with tempfile.TemporaryDirectory() as folder:
            curve = [result(1, 1000), result(2, 1100)]
            plot.efficiencies({"a": analyse.efficiency(curve), "b": analyse.efficiency(curve)}, Path(folder) / "each.svg")
            plot.shares({"a": [(r["procs"], analyse.spent(r)) for r in curve]}, Path(folder) / "time.svg")
            for name in ("each.svg", "time.svg"):
                self.assertTrue(xml.etree.ElementTree.parse(Path(folder) / name).getroot().tag.endswith("svg"))


@unittest.skipUnless(PROGRAM, "no program named")
class SimulationTest(unittest.TestCase):
    def test_each_cost_has_figures_and_a_source(self):
        table = json.loads(subprocess.run([PROGRAM, "--costs"], capture_output=True, text=True, check=True).stdout)
        for row in table:
            self.assertGreater(row["here"], 0, row)
            self.assertGreater(row["server"], 0, row)
            self.assertRegex(row["source"], r"measured|assumed|derived|\d", row)
        text = (ROOT / "docs" / "scale.md").read_text().partition("<!-- end of costs -->")[0]
        names = set(re.findall(r"^\| `([a-z_]+)` \|", text, re.M))
        self.assertEqual({row["name"] for row in table}, names, "docs/scale.md has another table: ./dev scale --publish")

    def test_the_same_twice(self):
        self.assertEqual(*(measure.simulate(PROGRAM, "timers", 8, "--server") for _ in range(2)))

    def test_trees_gain_from_each_of_eight_cpus(self):
        curve = [measure.simulate(PROGRAM, "trees", p, "--server") for p in (1, 2, 4, 8)]
        for before, after in zip(curve, curve[1:]):
            self.assertGreater(after["operations"] / after["ns"], 1.6 * before["operations"] / before["ns"], after["procs"])

    def test_lines_that_take_longer_are_waited_for_longer(self):
        slow = measure.simulate(PROGRAM, "fan", 8, "--server", "--cost", "line_near=200")
        self.assertGreater(slow["spent"]["lines"], 2 * measure.simulate(PROGRAM, "fan", 8, "--server")["spent"]["lines"])

    def test_a_workload_of_another_name_is_refused(self):
        with self.assertRaises(RuntimeError):
            measure.simulate(PROGRAM, "nothing", 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
