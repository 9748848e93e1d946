import random
import unittest

from driver import report, runner
from driver.workloads import Metric, NoRatio, Target, Workload

MACHINE = {
    "cpu": "a CPU",
    "cpus": 2,
    "memory_gib": 4,
    "kernel": "6.1",
    "architecture": "x86_64",
    "system": "a system",
    "load_before": 0.0,
}


def workload(*targets):
    return Workload("yield", "", (Metric("time", "ns", targets),))


def samples(**figures):
    result = runner.Samples()
    for peer, values in figures.items():
        for value in values:
            result.add({"metric": "time", "unit": "ns", "procs": 1, "value": value}, workload(), 1, peer)
    return result


def one_row(target, **figures):
    return report.rows([workload(*([target] if target else []))], [1], list(figures), samples(**figures))[0]


class Rows(unittest.TestCase):
    def test_the_ratio_is_that_of_the_medians_and_not_of_the_means(self):
        row = one_row(None, dunlin=[10, 11, 900], go=[100, 110, 120])
        self.assertEqual(row["ratios"], {"go": 0.1})
        self.assertEqual(row["figures"]["dunlin"]["max"], 900)

    def test_a_target_is_reached_at_its_limit_and_missed_above_it(self):
        target = Target(1 / 5, "go", (1,))
        self.assertEqual(one_row(target, dunlin=[20], go=[100])["verdict"], "reached")
        self.assertEqual(one_row(target, dunlin=[20.1], go=[100])["verdict"], "missed")

    def test_a_target_in_units_needs_no_peer(self):
        target = Target(4900, None, (1,))
        self.assertEqual(one_row(target, dunlin=[4900])["verdict"], "reached")
        self.assertEqual(one_row(target, dunlin=[4901])["verdict"], "missed")

    def test_a_target_against_an_absent_peer_is_neither_reached_nor_missed(self):
        self.assertEqual(one_row(Target(1 / 5, "go", (1,)), dunlin=[20])["verdict"], "not measured")

    def test_a_target_for_another_number_of_processors_does_not_count(self):
        self.assertIsNone(one_row(Target(1 / 5, "go", (2,)), dunlin=[99], go=[100])["verdict"])

    def test_of_two_targets_both_must_be_reached(self):
        both = (Target(1.05, "c", (1,)), Target(1 / 2, "go", (1,)))

        def verdict(**figures):
            return report.rows([workload(*both)], [1], list(figures), samples(**figures))[0]

        row = verdict(dunlin=[10], c=[10], go=[20])
        self.assertEqual((row["verdict"], row["target"]["text"]), ("reached", "<= 1.05 x c; <= 1/2 of go"))
        self.assertEqual(verdict(dunlin=[10], c=[10], go=[19])["verdict"], "missed")
        self.assertEqual(verdict(dunlin=[10], c=[9], go=[20])["verdict"], "missed")
        self.assertEqual(verdict(dunlin=[10], go=[20])["verdict"], "not measured")

    def test_a_workload_for_one_processor_has_no_row_for_two(self):
        only = Workload("yield", "", (Metric("time", "ns"),), procs=(1,))
        self.assertEqual([row["procs"] for row in report.rows([only], [1, 2], ["dunlin"], samples())], [1])

    def test_a_peer_at_zero_has_no_ratio(self):
        self.assertEqual(one_row(None, dunlin=[5], go=[0])["ratios"], {"go": None})


    def test_a_target_may_be_against_the_same_with_one_processor(self):
        two = workload(Target(1.05, report.ALONE, (2,)))

        def verdict(alone, both):
            taken = runner.Samples()
            for procs, value in ((1, alone), (2, both)):
                if value is not None:
                    taken.add({"metric": "time", "unit": "ns", "procs": procs, "value": value}, two, procs, "dunlin")
            return report.rows([two], [1, 2], ["dunlin"], taken)[1]["verdict"]

        self.assertEqual([verdict(10, 10.5), verdict(10, 10.6), verdict(None, 9)], ["reached", "missed", "not measured"])

    def test_figures_that_are_not_of_the_same_work_have_no_ratio(self):
        w = Workload("ping-pong", "", (Metric("time", "ns"),), no_ratios=(NoRatio("go", (1,)),))
        taken = samples()
        for peer, value in (("dunlin", 1), ("go", 2), ("c", 4)):
            taken.add({"metric": "time", "unit": "ns", "procs": 1, "value": value}, w, 1, peer)
        row = report.rows([w], [1], ["dunlin", "go", "c"], taken)[0]
        self.assertEqual((sorted(row["figures"]), row["ratios"]), (["c", "dunlin", "go"], {"c": 0.25}))
        all_of_them = Workload("ping-pong", "", (Metric("time", "ns"),), no_ratios=(NoRatio(None, (1,)),))
        self.assertEqual(report.rows([all_of_them], [1], ["dunlin", "go"], taken)[0]["ratios"], {})

    def test_each_ratio_has_an_interval_if_there_are_rounds_enough(self):
        row = one_row(None, dunlin=[10, 11, 12], go=[100, 100, 100])
        self.assertEqual(row["intervals"], {"go": (0.1, 0.12)})
        self.assertEqual(one_row(None, dunlin=[10], go=[100])["intervals"], {"go": None})


class Order(unittest.TestCase):
    def orders(self, seed):
        """In which order the peers ran, round by round."""
        calls = []
        peers = [(type("Peer", (), {"name": name}), [Takes()]) for name in ("dunlin", "go", "c")]
        real, runner._take_turn = runner._take_turn, lambda _s, _p, _w, _procs, peer, *_: calls.append(peer.name)
        try:
            runner.measure([workload()], peers, [1], 9, False, random.Random(seed), progress=Quiet())
        finally:
            runner._take_turn = real
        return [tuple(calls[i : i + 3]) for i in range(0, len(calls), 3)]

    def test_all_of_them_has_a_turn_in_each_round_and_the_order_differs(self):
        rounds = self.orders(1)
        self.assertEqual(len(rounds), 10)  # with the one that warms up
        for turn in rounds:
            self.assertEqual(sorted(turn), ["c", "dunlin", "go"])
        self.assertGreater(len(set(rounds)), 2)

    def test_the_same_seed_gives_the_same_order(self):
        self.assertEqual(self.orders(7), self.orders(7))
        self.assertNotEqual(self.orders(7), self.orders(8))


class Quiet:
    def running(self, text): ...

    def line(self, text): ...

    def advance(self, runs=1): ...


class Takes:
    def runs_with(self, workload, procs):
        return True


class Document(unittest.TestCase):
    def markdown(self, rows, **changes):
        doc = report.document(rows, MACHINE, {"dunlin": "1", "go": "2"}, {}, rounds=5, quick=False)
        return report.markdown({**doc, **changes})

    def test_the_table_shows_medians_ratio_and_verdict(self):
        text = self.markdown([one_row(Target(1 / 5, "go", (1,)), dunlin=[20], go=[100])])
        self.assertIn("| yield | time, ns | 1 | 20 [20 .. 20] | **1/5** (100 [100 .. 100]) |", text)
        self.assertIn("| <= 1/5 of go | reached |", text)
        self.assertIn("Targets: 1 reached.", text)
        self.assertIn("**1/5** [1/5.26 .. 1/4.76] (100 ", self.markdown([one_row(None, dunlin=[19, 20, 21], go=[100, 100, 100])]))
        self.assertNotIn("Not for quoting", text)

    def test_a_run_that_failed_is_named_with_its_reason(self):
        taken = samples(go=[100])
        taken.failures["yield", 1, "dunlin"] = "exit status 2: fatal"
        text = self.markdown(report.rows([workload()], [1], ["dunlin", "go"], taken))
        self.assertIn("| failed |", text)
        self.assertIn("yield P=1 dunlin: exit status 2: fatal", text)

    def test_rows_of_workloads_that_were_not_measured_again_stay_in_their_place(self):
        def row(name, when, procs=1):
            return {"workload": name, "metric": "time", "procs": procs, "when": when}

        table = report.kept([row("b", 2)], [row("c", 1), row("b", 1), row("b", 1, procs=2), row("a", 1)], ["a", "b", "c"])
        self.assertEqual([(r["workload"], r["procs"], r["when"]) for r in table], [("a", 1, 1), ("b", 1, 2), ("b", 2, 1), ("c", 1, 1)])

    def test_figures_of_another_version_or_machine_are_not_kept(self):
        before = {"versions": {"dunlin": "1", "go": "2"}, "machine": MACHINE}
        self.assertTrue(report.may_keep(before, {"dunlin": "1", "tokio": "3"}, MACHINE))
        self.assertFalse(report.may_keep(before, {"dunlin": "2"}, MACHINE))
        self.assertFalse(report.may_keep(before, {"dunlin": "1"}, {**MACHINE, "cpu": "another"}))

    def test_a_short_run_says_that_it_is_not_for_quoting(self):
        self.assertIn("Not for quoting", self.markdown([], rounds=3))
        self.assertIn("Not for quoting", self.markdown([], quick=True))


class Lines(unittest.TestCase):
    def test_a_line_that_does_not_belong_to_the_workload_is_refused(self):
        for change in ({"metric": "speed"}, {"unit": "s"}, {"procs": 2}):
            line = {"metric": "time", "unit": "ns", "procs": 1, "value": 1, **change}
            with self.assertRaises(ValueError):
                runner.Samples().add(line, workload(), 1, "dunlin")

    def test_only_dunlin_has_to_print_a_metric_of_its_own(self):
        both = Workload("yield", "", (Metric("time", "ns"), Metric("relative", "x", own=True)))
        self.assertEqual(runner.metrics_of(both, "dunlin"), {"time", "relative"})
        self.assertEqual(runner.metrics_of(both, "go"), {"time"})


if __name__ == "__main__":
    unittest.main()
