"""A program of goroutines under valgrind's memcheck: no error where there is none, and the right one where there is. Run by ctest as tools/valgrind.

Usage: valgrind_test.py PROGRAM, which is tests/valgrind/valgrind.cpp. Status 77 if there is no valgrind.
"""

import os
import re
import shutil
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else None


def under_valgrind(mode):
    """(status, what valgrind and the program have said)"""
    # One processor more than valgrind has, so that stacks are left on one thread and entered on another.
    environment = {**os.environ, "DUNLIN_MAXPROCS": "2"}
    command = ["valgrind", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite", PROGRAM, mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


class Valgrind(unittest.TestCase):
    def test_a_program_without_a_fault_has_no_errors_no_leaks_and_no_warnings(self):
        status, text = under_valgrind("clean")
        self.assertEqual(status, 0, text)
        self.assertIn("ERROR SUMMARY: 0 errors", text)
        # Of system calls that it does not know, of stacks that it believes to be switched.
        self.assertNotRegex(text, re.compile("warning", re.IGNORECASE))

    def test_a_write_behind_a_block_is_reported_with_the_stacks_of_both_goroutines(self):
        status, text = under_valgrind("block")
        self.assertEqual(status, 99, text)
        self.assertIn("ERROR SUMMARY: 1 errors", text)
        fault, _, allocation = text.partition("is 0 bytes after a block of size 11 alloc'd")
        self.assertRegex(fault, r"Invalid write of size 1\n.* at .*fill\(.*valgrind\.cpp:\d+")
        self.assertRegex(fault, r"by .*dunlin_goroutine_loop.*\n.*by .*dunlin_context_entry")
        self.assertRegex(allocation, r"by .*ask_for_a_block\(.*valgrind\.cpp:\d+")

    def test_a_value_that_was_never_set_is_reported_on_a_stack_that_was_used_before(self):
        status, text = under_valgrind("value")
        self.assertEqual(status, 99, text)
        self.assertRegex(text, r"depends on uninitialised value\(s\)\n.* at .*decide_by\(.*valgrind\.cpp:\d+")

    def test_an_overflow_of_a_stack_is_the_report_of_always(self):
        status, text = under_valgrind("stack")
        self.assertNotEqual(status, 0)
        self.assertRegex(text, r"fatal: stack overflow in goroutine \d+: its stack of \d+ bytes is full")


if __name__ == "__main__":
    if shutil.which("valgrind") is None:
        print("skipped: no valgrind in PATH (Debian: apt-get install valgrind)")
        sys.exit(77)
    unittest.main()
