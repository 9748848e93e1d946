import unittest

from driver import guard

RECORDED = {"yield": 100.0, "spawn-join": 500.0}


def failed(recorded, now):
    return [row.name for row in guard.compare(recorded, now) if row.failed]


class Compare(unittest.TestCase):
    def test_five_percent_more_fails_and_names_the_path(self):
        self.assertEqual(failed(RECORDED, {"yield": 105.0, "spawn-join": 500.0}), ["yield"])

    def test_three_percent_is_allowed_and_a_little_more_is_not(self):
        self.assertEqual(failed(RECORDED, {"yield": 103.0, "spawn-join": 515.0}), [])
        self.assertEqual(failed(RECORDED, {"yield": 103.2, "spawn-join": 515.0}), ["yield"])

    def test_growth_is_that_of_one_path_and_not_of_the_sum(self):
        self.assertEqual(failed(RECORDED, {"yield": 110.0, "spawn-join": 400.0}), ["yield"])

    def test_a_path_that_is_gone_fails(self):
        self.assertEqual(failed(RECORDED, {"yield": 100.0}), ["spawn-join"])

    def test_a_new_path_does_not_fail_and_is_said_to_be_new(self):
        rows = guard.compare(RECORDED, {**RECORDED, "select-4": 900.0})
        self.assertEqual([(row.name, row.remark) for row in rows if row.remark], [("select-4", "new")])
        self.assertFalse(any(row.failed for row in rows))

    def test_less_is_said_and_does_not_fail(self):
        row = guard.compare({"yield": 100.0}, {"yield": 90.0})[0]
        self.assertEqual((row.remark, row.failed), ("less", False))

    def test_the_table_shows_both_figures_and_the_growth(self):
        text = "\n".join(guard.table(guard.compare({"yield": 100.0}, {"yield": 105.0, "fib": 7.0})))
        self.assertRegex(text, r"(?m)^yield +100\.0 +105\.0 +\+5\.0% +GROWN$")
        self.assertRegex(text, r"(?m)^fib +- +7\.0 +new$")


class Runs(unittest.TestCase):
    def test_the_least_of_the_runs_counts(self):
        self.assertEqual(guard.least([{"yield": 101.0, "fib": 7.0}, {"yield": 100.0, "fib": 8.0}]), {"yield": 100.0, "fib": 7.0})

    def test_one_run_is_enough_if_nothing_has_grown_and_what_has_is_counted_again(self):
        self.assertEqual(self.runs_of(99.0, 200.0), (1, False))
        self.assertEqual(self.runs_of(105.0, 100.0, 200.0), (2, False))
        self.assertEqual(self.runs_of(*[105.0] * guard.RUNS), (guard.RUNS, True))

    def runs_of(self, *counts):
        left = [{"yield": count} for count in counts]
        done = []

        def run_once(_):
            done.append(left.pop(0))
            return done[-1]

        real, guard.run_once = guard.run_once, run_once
        try:
            rows = guard.check("program", {"yield": 100.0})
        finally:
            guard.run_once = real
        return len(done), rows[0].failed


class Record(unittest.TestCase):
    def test_another_compiler_is_named_and_the_same_is_not(self):
        here = {"architecture": "x86_64", "compiler and flags": "g++ 12; -O2"}
        self.assertEqual(guard.differences(here, dict(here)), [])
        self.assertEqual(
            guard.differences(here, {**here, "compiler and flags": "g++ 13; -O2"}),
            ["compiler and flags: recorded with g++ 12; -O2, here g++ 13; -O2"],
        )
        self.assertEqual(guard.differences(here, {**here, "libc": "2.36"}), ["libc: recorded with nothing, here 2.36"])

    def test_a_dump_is_read_by_its_trigger_and_total(self):
        dump = "version: 1\ndesc: Trigger: Client Request: yield\n\nevents: Ir\nsummary: 34\nfn=(1) main\n3 12\ntotals: 12\n"
        self.assertEqual(guard.count_of(dump), ("yield", 12))
        self.assertIsNone(guard.count_of("desc: Trigger: Program termination\ntotals: 99\n"))


if __name__ == "__main__":
    unittest.main()
