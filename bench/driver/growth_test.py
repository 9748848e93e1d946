import unittest
from dataclasses import replace

from driver import growth, plots, publish
from driver.report_test import MACHINE


class Peer:
    procs_variable = "P"

    def __init__(self, name):
        self.name = name


class Program:
    workloads = frozenset({"grow-x"})


class Quiet:
    def running(self, text): ...

    def line(self, text): ...

    def advance(self, runs=1): ...


def family(**changes):
    curve = growth.Curve("grow-x", "", {"time": "ns", "memory": "B"}, (1, 10), texts={"time": "one of them"})
    return replace(growth.Family("x", "Things, from 1 to 10", "things", (curve,)), **changes)


def measured(runs, rounds=3, peers=("dunlin", "go")):
    """`runs(peer, n)` gives the value, or raises."""
    calls = []

    def run(program, peer, name, procs, words, timeout_s):
        n = int(words[words.index("--n") + 1])
        calls.append((peer.name, n, procs))
        return [{"metric": "time", "unit": "ns", "procs": procs, "value": runs(peer.name, n)}]

    ready = [(Peer(name), [Program()]) for name in peers]
    return growth.measure(family(), ready, rounds, False, progress=Quiet(), run=run), calls


def document(runs, f=None):
    f = f or family()
    return growth.document(f, measured(runs)[0], ["dunlin", "go"], MACHINE, {"dunlin": "1", "go": "2"}, [], 3, False, 1)


class Sizes(unittest.TestCase):
    def test_steps_are_those_of_a_logarithmic_axis_and_end_with_the_last(self):
        self.assertEqual(growth.steps(1, 100), (1, 3, 10, 30, 100))
        self.assertEqual(growth.steps(10, 500), (10, 30, 100, 300, 500))

    def test_every_curve_has_sizes_that_grow_and_names_a_unit_for_each_metric(self):
        for f in growth.families():
            for curve in f.curves:
                self.assertEqual(list(curve.sizes), sorted(set(curve.sizes)), f.name)
                self.assertLessEqual(set(curve.texts), set(curve.units), f.name)

    def test_goroutines_stop_at_what_memory_allows_and_a_line_says_so(self):
        goroutines = growth.choose(["goroutines"], growth.families())[0]
        whole, nothing = growth.fitting(goroutines, 10**12)
        self.assertEqual((whole.curves[0].sizes[-1], nothing), (4_000_000, []))
        part, notes = growth.fitting(goroutines, 8 * 10**9)
        self.assertEqual(part.curves[0].sizes[-1], 1_000_000)
        self.assertIn("4,000,000 need 19.6 GB", notes[0])
        self.assertIn("stops at 1,000,000", notes[0])

    def test_other_families_do_not_depend_on_memory(self):
        timers = growth.choose(["timers"], growth.families())[0]
        self.assertEqual(growth.fitting(timers, 0), (timers, []))

    def test_a_name_that_is_none_is_refused(self):
        with self.assertRaises(ValueError):
            growth.choose(["timer"], growth.families())


class Measure(unittest.TestCase):
    def test_the_peers_take_turns_at_each_point_of_each_round(self):
        _, calls = measured(lambda peer, n: n, rounds=2)
        self.assertEqual(calls, [("dunlin", 1, 1), ("go", 1, 1), ("dunlin", 10, 1), ("go", 10, 1)] * 2)

    def test_processors_are_the_axis_of_a_family_over_them(self):
        curve = growth.Curve("skynet", "", {"time": "ms"}, (1, 64), n=1000)
        points = growth.points_of(growth.Family("procs", "", "", (curve,), over_procs=True), procs=1)
        self.assertEqual([(p.procs, p.words) for p in points], [(1, ["--n", "1000"]), (64, ["--n", "1000"])])

    def test_what_has_failed_once_is_not_run_again_and_is_named(self):
        def fails(peer, n):
            if (peer, n) == ("go", 10):
                raise ValueError("exit status 1: no memory")
            return n

        _, calls = measured(fails)
        self.assertEqual(calls.count(("go", 10, 1)), 1)
        doc = document(fails)
        self.assertEqual(doc["failures"], ["grow-x 10 go: exit status 1: no memory"])
        self.assertIn("Failed: grow-x 10 go: exit status 1: no memory", growth.markdown({"families": [doc]}))

    def test_a_metric_or_unit_that_is_not_known_is_refused(self):
        point = growth.points_of(family(), 1)[0]
        for change in ({"metric": "speed"}, {"unit": "s"}, {"procs": 2}):
            with self.assertRaises(ValueError):
                growth.Measured().add(point, "go", [{"metric": "time", "unit": "ns", "procs": 1, "value": 1, **change}])


class Document(unittest.TestCase):
    def test_the_table_has_medians_and_ratios(self):
        values = iter([10, 100, 10, 100, 11, 100, 12, 100, 900, 100, 90, 100])  # by rounds, sizes, peers
        doc = document(lambda peer, n: next(values))
        self.assertEqual(doc["curves"][0]["points"][0]["figures"]["dunlin"]["median"], 11)
        self.assertIn("| 1 | 11 | 100 | 0.11 |", growth.markdown({"families": [doc]}))

    def test_a_metric_that_small_sizes_do_not_have_leaves_a_gap(self):
        doc = document(lambda peer, n: n)
        self.assertEqual(doc["curves"][1]["points"][0]["figures"], {})

    def test_a_family_that_was_not_run_keeps_its_figures(self):
        old = {"families": [{"name": "timers", "title": "old"}, {"name": "procs", "title": "old"}]}
        names = [(f["name"], f["title"]) for f in growth.merged(old, [{"name": "timers", "title": "new"}])["families"]]
        self.assertEqual(names, [("procs", "old"), ("timers", "new")])


class Plots(unittest.TestCase):
    def test_each_workload_is_in_one_plot_and_shows_its_first_metric(self):
        rows = [
            {"workload": w, "metric": m, "procs": 1, "ratios": {"go": 0.5, "c": None}}
            for w, m in (("spawn-join", "time"), ("spawn-million", "time"), ("spawn-million", "peak-rss"), ("new-one", "time"))
        ]
        self.assertEqual(
            plots.bars({"rows": rows}),
            {"scheduler": {1: [("spawn-join", {"go": 0.5}), ("spawn-million", {"go": 0.5})]}, "others": {1: [("new-one", {"go": 0.5})]}},
        )

    def test_a_ratio_is_told_as_a_part_where_it_is_small(self):
        self.assertEqual([plots.ratio_text(r) for r in (0.1, 0.913, 1.5, 3.14159)], ["1/10", "0.91", "1.50", "3.14"])

    def test_a_figure_that_is_not_above_zero_has_no_place_on_a_logarithmic_axis(self):
        ((title, unit, peers),) = plots.panels(document(lambda peer, n: n - 1))
        self.assertEqual((title, unit), ("time: one of them", "ns"))
        self.assertEqual(peers, {"dunlin": [(10, 9, 9, 9)], "go": [(10, 9, 9, 9)]})

    def test_the_number_of_cpus_is_marked_where_processors_are_the_axis(self):
        doc = document(lambda peer, n: n)
        self.assertEqual(plots.marks(doc), [])
        self.assertEqual(plots.marks({**doc, "over_procs": True}), [(2, "CPUs")])


class Publish(unittest.TestCase):
    def test_a_section_is_replaced_between_its_marks_and_nothing_else(self):
        begin, end = publish.marks_of("timers")
        text = f"before\n{begin}old\n{end}after\n"
        self.assertEqual(publish.between_marks(text, "timers", "new\n"), f"before\n{begin}new\n{end}after\n")
        with self.assertRaises(ValueError):
            publish.between_marks(text, "procs", "new\n")

    def test_the_page_about_growth_has_a_place_for_every_family(self):
        text = (publish.DOCS / "growth.md").read_text()
        for f in growth.families():
            self.assertNotEqual(publish.between_marks(text, f.name, "changed\n"), text)

    def test_a_section_shows_the_plot_and_the_figures(self):
        section = publish.growth_section(document(lambda peer, n: n))
        self.assertIn("(plots/growth-x.svg)", section)
        self.assertIn("| 10 | 10 | 10 | 1 |", section)


if __name__ == "__main__":
    unittest.main()
