"""Each mutation of tests/mutation can be made in this tree: its files exist, and what it takes out stands there once. Run by ctest as
tools/mutations; that a case notices each is ./dev mutate."""

import os
import sys
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FOLDER = os.path.join(ROOT, "tests", "mutation")
sys.dont_write_bytecode = True  # the checkout stays as it is
sys.path.insert(0, FOLDER)
import mutate  # noqa: E402


class Mutations(unittest.TestCase):
    def setUp(self):
        self.mutations = mutate.read_mutations(FOLDER)

    def test_what_each_takes_out_stands_in_its_file_once(self):
        self.assertTrue(self.mutations)
        for m in self.mutations:
            with self.subTest(m["at"]):
                mutate.changed(ROOT, m)

    def test_the_files_that_are_compiled_again_and_the_cases_exist(self):
        for m in self.mutations:
            for path in [*m["with"].split(), *mutate.case_files(m)]:
                self.assertTrue(os.path.isfile(os.path.join(ROOT, path)), f"{m['at']}: there is no {path}")

    def test_a_header_that_is_changed_is_part_of_what_is_compiled_again(self):
        for m in self.mutations:
            with self.subTest(m["at"]):
                mutate.check_takes_effect(ROOT, m)

    def test_a_header_that_nothing_includes_is_refused(self):
        with self.assertRaisesRegex(mutate.Fault, "no case includes"):
            mutate.check_takes_effect(ROOT, {"at": "x:1", "file": "src/nats/hand.h", "with": "", "case": "lock/two"})


if __name__ == "__main__":
    unittest.main()
