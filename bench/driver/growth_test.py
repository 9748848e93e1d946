import unittest
from dataclasses import replace

from driver import growth, plots, publish, report
from driver.report_test import MACHINE, Quiet


class Peer:
    procs_variable = "P"
    environment = {}

    def __init__(self, name):
        self.name = name


class Program:
    workloads = frozenset({"grow-x"})


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
    def test_the_peers_take_turns_at_each_point_of_each_round_in_orders_that_differ(self):
        _, calls = measured(lambda peer, n: n, rounds=20)
        turns = [calls[i : i + 2] for i in range(0, len(calls), 2)]
        for i, turn in enumerate(turns):
            n = (1, 10)[i % 2]
            self.assertEqual(sorted(turn), [("dunlin", n, 1), ("go", n, 1)])
        self.assertEqual({turn[0][0] for turn in turns}, {"dunlin", "go"})

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
        values = {1: iter([10, 11, 900]), 10: iter([10, 12, 90])}  # by rounds
        doc = document(lambda peer, n: next(values[n]) if peer == "dunlin" else 100)
        self.assertEqual(doc["curves"][0]["points"][0]["figures"]["dunlin"]["median"], 11)
        self.assertIn("| 1 | 11 | 100 | 0.11 [0.1 .. 9] |", growth.markdown({"families": [doc]}))

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
            {"workload": w, "metric": m, "procs": 1, "ratios": {"go": 0.5, "c": None}, "intervals": {"go": (0.4, 0.6)}}
            for w, m in (("spawn-join", "time"), ("spawn-million", "time"), ("spawn-million", "peak-rss"), ("new-one", "time"))
        ]
        self.assertEqual(
            plots.bars({"rows": rows}),
            {"scheduler": {1: [(w, {"go": 0.5}, {"go": (0.4, 0.6)}) for w in ("spawn-join", "spawn-million")]},
             "others": {1: [("new-one", {"go": 0.5}, {"go": (0.4, 0.6)})]}},
        )

    def test_a_ratio_is_told_as_a_part_where_it_is_small(self):
        self.assertEqual([plots.ratio_text(r) for r in (0.1, 0.913, 1.5, 3.14159, 0.00062, 999.7)], ["1/10", "0.91", "1.50", "3.14", "1/1613", "1000"])

    def test_a_figure_that_is_not_above_zero_has_no_place_on_a_logarithmic_axis(self):
        ((title, unit, peers),) = plots.panels(document(lambda peer, n: n - 1))
        self.assertEqual((title, unit), ("time: one of them", "ns"))
        self.assertEqual(peers, {"dunlin": [(10, 9, 9, 9)], "go": [(10, 9, 9, 9)]})

    def test_the_number_of_cpus_is_marked_where_processors_are_the_axis(self):
        doc = document(lambda peer, n: n)
        self.assertEqual(plots.marks(doc), [])
        self.assertEqual(plots.marks({**doc, "over_procs": True}), [(2, "CPUs")])


class Work(unittest.TestCase):
    """A family with a variant and targets."""

    family = family(
        curves=(growth.Curve("grow-x", "", {"time": "us", "of-ideal": "x"}, (1, 10, 100)),),
        procs=2,
        cpus_min=2,
        variants=(growth.Variant("dunlin P=1", "dunlin", 1),),
        targets=(
            growth.Target("time", 1.05, "go"),
            growth.Target("time", 1.05, "dunlin P=1"),
            growth.Target("of-ideal", 1.25, first=100),
        ),
        scale=0.1,
        none=1,
        head="work, us",
        unit=" us",
    )

    def measured(self, times, present=("dunlin", "go")):
        """`times(name, procs, n)` is the time; the ideal is n / procs / 10."""

        def run(program, peer, name, procs, words, timeout_s):
            n = int(words[1])
            value = times(peer.name, procs, n)
            lines = [("time", "us", value)] + ([("of-ideal", "x", value * 10 * procs / n)] if n > 1 else [])
            return [{"metric": m, "unit": u, "procs": procs, "value": v} for m, u, v in lines]

        ready = growth.with_variants(self.family, [(Peer(name), [Program()]) for name in present], 2)
        result = growth.measure(self.family, ready, 1, False, 2, progress=Quiet(), run=run)
        versions = {peer.name: "1" for peer, _ in ready}
        return growth.document(self.family, result, list(versions), MACHINE, versions, [], 1, False, 2)

    def test_the_variant_runs_with_its_own_number_of_processors_beside_the_others(self):
        doc = self.measured(lambda name, procs, n: n / procs / 10)
        figures = doc["curves"][0]["points"][1]["figures"]
        self.assertEqual({peer: f["median"] for peer, f in figures.items()}, {"dunlin": 0.5, "go": 0.5, "dunlin P=1": 1})
        self.assertEqual((doc["reached"], doc["missed"], doc["not_measured"]), (7, [], 0))

    def test_each_missed_cell_is_named(self):
        doc = self.measured(lambda name, procs, n: 8 if (name, n) == ("dunlin", 100) else n / procs / 10)
        self.assertEqual(doc["reached"], 5)
        self.assertEqual(
            doc["missed"], ["grow-x, 10 us: 1.6, at most 1.05 of go's", "grow-x, 10 us: 1.6, at most 1.25 of the ideal"]
        )
        text = growth.markdown({"families": [doc]})
        self.assertIn("- missed: grow-x, 10 us: 1.6, at most 1.05 of go's", text)
        self.assertIn("Targets: 5 cells reached, 2 missed, 0 not measured.", text)

    def test_slower_than_with_one_processor_is_missed(self):
        doc = self.measured(lambda name, procs, n: {"dunlin P=1": 1, "dunlin": 1.1}.get(name, 2))
        self.assertIn("grow-x, none: 1.1, at most 1.05 of dunlin P=1's", doc["missed"])

    def test_sizes_are_shown_as_the_axis_has_them(self):
        text = growth.markdown({"families": [self.measured(lambda name, procs, n: n)]})
        self.assertIn("| work, us | time, us: dunlin |", text)
        self.assertIn("\n| none | 1 | 1 | 1 |", text)
        self.assertIn("\n| 10 | 100 | 100 | 100 |", text)

    def test_without_go_what_is_asked_against_it_is_not_measured_and_a_line_says_so(self):
        doc = self.measured(lambda name, procs, n: n / procs / 10, present=("dunlin",))
        self.assertEqual((doc["missed"], doc["not_measured"]), ([], 3))
        self.assertEqual(len(growth.lacking(self.family, ["dunlin"])), 1)
        self.assertIn("go is not here", growth.lacking(self.family, ["dunlin"])[0])
        self.assertEqual(growth.lacking(self.family, ["dunlin", "go"]), [])

    def test_with_one_cpu_it_is_left_out_and_a_line_says_why(self):
        self.assertIn("needs 2 CPUs", growth.impossible(self.family, 1))
        self.assertIsNone(growth.impossible(self.family, 2))
        self.assertIsNone(growth.impossible(family(), 1))

    def test_the_variant_that_is_the_same_as_the_peer_is_left_out(self):
        self.assertEqual(len(growth.with_variants(self.family, [(Peer("dunlin"), [Program()])], 1)), 1)

    def test_the_plot_shows_the_multiple_of_the_ideal_over_microseconds(self):
        doc = {**self.measured(lambda name, procs, n: n / procs / 10), "drawn": ["of-ideal"]}
        ((title, unit, peers),) = plots.panels(doc)
        self.assertEqual((unit, [p[:2] for p in peers["dunlin"]]), (plots.OF_IDEAL, [(1.0, 1), (10.0, 1)]))


class Publish(unittest.TestCase):
    def test_a_section_is_replaced_between_its_marks_and_nothing_else(self):
        begin, end = publish.marks_of("timers")
        text = f"before\n{begin}old\n{end}after\n"
        self.assertEqual(publish.between_marks(text, "timers", "new\n"), f"before\n{begin}new\n{end}after\n")
        with self.assertRaises(ValueError):
            publish.between_marks(text, "procs", "new\n")

    def test_the_documentation_has_a_place_for_every_family(self):
        for f in growth.families():
            text = (publish.DOCS / f.page).read_text()
            self.assertNotEqual(publish.between_marks(text, f.name, "changed\n"), text)

    def test_a_run_that_is_quick_short_or_of_a_busy_machine_is_refused(self):
        fine = {"quick": False, "rounds": 3, "machine": {"load_before": 0.4}}
        self.assertEqual(publish.refused(fine), "")
        self.assertEqual(publish.refused({**fine, "quick": True}), "a quick run")
        self.assertEqual(publish.refused({**fine, "rounds": 1}), "1 of 3 rounds")
        self.assertEqual(publish.refused(fine, publish.ROUNDS_OF_RESULTS), "3 of 5 rounds")
        self.assertEqual(publish.refused({**fine, "skipped": {"tokio": "no cargo"}}), "")
        self.assertEqual(publish.refused({**fine, "skipped": {"tokio": "its build failed: E0425"}}),
                         "tokio is missing: its build failed: E0425")
        self.assertEqual(publish.refused({**fine, "versions": {"dunlin": "abc+changes; g++"}}), "a tree that is not committed")
        self.assertEqual(publish.refused({**fine, "machine": {"load_before": 2.4}}), "a busy machine (load average 2.4)")

    def test_what_is_lost_beyond_doubt_is_listed_the_worst_first(self):
        row = {"workload": "echo", "metric": "time", "unit": "us", "procs": 2, "figures": {"dunlin": {"median": 6.0}},
               "ratios": {"go": 1.2, "c": 1.5, "tokio": 1.3, "asio": 1.04, "threads": None},
               "intervals": {"go": (1.1, 1.3), "c": (1.4, 1.6), "tokio": (0.9, 1.7), "asio": (1.03, 1.05)}}
        won = {**row, "workload": "yield", "ratios": {"go": 0.5}}
        self.assertEqual(publish.losses({"rows": [row, won]}).splitlines()[2:], ["| echo | time | 2 | 6 us | c 1.5, go 1.2 |"])
        text = (publish.DOCS / "where-we-lose.md").read_text()
        self.assertNotEqual(publish.between_marks(text, "losses", "changed\n"), text)

    def test_what_is_published_says_the_load_and_does_not_disown_itself(self):
        doc = report.document([], {"cpu": "C", "cpus": 2, "memory_gib": 1, "kernel": "6.18.44-x", "architecture": "a", "system": "s",
                                   "load_before": 0.6}, {"dunlin": "abc; g++"}, {}, 3, False)
        page = publish.results_page(doc)
        self.assertIn("Load average before the run: 0.6.", page)
        self.assertIn("Written by `./dev bench plots --publish`", page)
        self.assertNotIn("quoting", page)
        self.assertIn("C, 2 CPUs, Linux 6.18.44; tree abc, ", publish.readme_block(doc))

    def test_the_readme_has_a_place_for_the_figures(self):
        text = (publish.DOCS.parent / "README.md").read_text()
        self.assertNotEqual(publish.between_marks(text, "figures", "changed\n"), text)

    def test_a_section_shows_the_figures(self):
        section = publish.growth_section(document(lambda peer, n: n))
        self.assertIn("| 10 | 10 | 10 | 1 [1 .. 1] |", section)


if __name__ == "__main__":
    unittest.main()
