"""tools/fuzz finds the seed that fails, and takes out of its program what is not needed to fail. Run by ctest as tools/fuzz."""

import os
import stat
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "fuzz")

# In place of tests/fuzz/fuzz: a program of three actors and nine steps, which fails with seed 5 while actor 2 and step 7 are in it.
PROGRAM = """#!{python} -IS
import sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
without = set(filter(None, options.get("--without", "").split(",")))
names = [n for n in ["a0", "a1", "a2"] + [str(i) for i in range(1, 10)] if n not in without]
if "--names" in sys.argv:
    print("\\n".join(names))
elif "--seed" in options:
    if options["--seed"] == "5" and {{"a2", "7"}} <= set(names):
        print("FAULT with", *names)
        sys.exit({status})
else:
    for seed in range(3, 6 if options["--procs"] == "{bad}" else 5):
        print("seed", seed, "P", options["--procs"], flush=True)
    if options["--procs"] == "{bad}":
        print("FAULT")
        sys.exit({status})
"""


class Fuzz(unittest.TestCase):
    def run_tool(self, *arguments, bad="none", status=1):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "fuzz")
            with open(program, "w", encoding="utf-8") as file:
                file.write(PROGRAM.format(python=sys.executable, bad=bad, status=status))
            os.chmod(program, os.stat(program).st_mode | stat.S_IXUSR)
            done = subprocess.run([sys.executable, TOOL, f"release={program}", *arguments], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def test_it_says_first_how_long_it_takes_and_then_what_it_has_played(self):
        status, said = self.run_tool("9")
        self.assertEqual(status, 0, said)
        self.assertIn("9 s in all", said.splitlines()[0])
        self.assertEqual(said.count("all right"), 3)

    def test_a_seed_that_fails_is_named_and_made_shorter(self):
        status, said = self.run_tool("9", bad="2")
        self.assertEqual(status, 1)
        self.assertIn("seed 5 fails at P = 2", said)
        self.assertIn("FAULT with a2 7\n", said)
        self.assertIn("./dev fuzz --seed 5", said)
        self.assertEqual(said.count("all right"), 2, "the others are played all the same")

    def test_one_seed_is_played_with_each_number_of_processors(self):
        self.assertEqual(self.run_tool("--seed", "4")[0], 0)
        status, said = self.run_tool("--seed", "5")
        self.assertEqual((status, said.count("FAILED")), (1, 3))

    def test_wrong_arguments_are_refused(self):
        for arguments in ([], ["0"], ["--seed"], ["--seed", "x"]):
            self.assertEqual(self.run_tool(*arguments)[0], 64, arguments)


if __name__ == "__main__":
    unittest.main()
