import os
import shutil
import tempfile
import unittest
from pathlib import Path

from driver import peers, runner


def program(folder, name, *listed):
    path = Path(folder) / name
    path.write_text("#!/bin/sh\n" + "".join(f"echo {line}\n" for line in listed))
    path.chmod(0o755)
    return peers.Program(path)


class Peer:
    def __init__(self, name):
        self.name = name


class Takers(unittest.TestCase):
    def test_what_is_listed_for_one_processor_is_not_run_with_two(self):
        with tempfile.TemporaryDirectory() as folder:
            fibers = program(folder, "fibers", "ring P=1", "mutex-8")
            self.assertEqual([fibers.runs_with("ring", procs) for procs in (1, 2)], [True, False])
            self.assertEqual([fibers.runs_with("mutex-8", procs) for procs in (1, 2)], [True, True])
            self.assertFalse(fibers.runs_with("fib", 1))

    def test_the_first_program_of_a_peer_that_has_the_workload_runs_it(self):
        with tempfile.TemporaryDirectory() as folder:
            plain, second = program(folder, "plain", "ring"), program(folder, "second", "ring", "fib")
            fibers = program(folder, "fibers", "ring P=1")
            go, boost = Peer("go"), Peer("boost.fiber")
            ready = [(go, [plain, second]), (boost, [fibers])]
            self.assertEqual(runner.takers_of("ring", 1, ready), [(go, plain), (boost, fibers)])
            self.assertEqual(runner.takers_of("ring", 2, ready), [(go, plain)])
            self.assertEqual(runner.takers_of("fib", 2, ready), [(go, second)])


class OtherForms(unittest.TestCase):
    def test_a_form_stands_in_for_the_workload_and_runs_under_its_own_name(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = program(folder, "whole", "mutex", "mutex-std", "million", "million-alone P=1")
            other = peers.OtherForms(whole, {"mutex": "mutex-std", "million": "million-alone", "fib": "fib-alone"})
            self.assertEqual(other.workloads, {"mutex", "million"})
            self.assertEqual([other.runs_with("million", procs) for procs in (1, 2)], [True, False])
            self.assertEqual((other.name_of("mutex"), whole.name_of("mutex")), ("mutex-std", "mutex"))

    def test_the_environment_of_a_peer_is_that_of_its_program(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "says"
            path.write_text('#!/bin/sh\n[ "$1" = --list ] && echo fib && exit\necho "[\\"$1\\", \\"$GOGC\\", \\"$GOMAXPROCS\\"]"\n')
            path.chmod(0o755)
            for peer, gogc in ((peers.Go(), ""), (peers.GoWithRareCollections(), "400")):
                said = runner.run_program(peers.Program(path), peer, "fib", 2, [], 10)
                self.assertEqual(said, [["fib", gogc, "2"]])


@unittest.skipUnless(shutil.which(os.environ.get("CXX", "g++")), "no compiler to ask")
class Missing(unittest.TestCase):
    def test_a_library_that_is_not_here_is_named_with_its_package(self):
        peer = peers.Cpp("nothing", "nothing", "no/such/header.hpp", "libnothing-dev")
        self.assertIn("libnothing-dev", peer._missing_header(peer.header, peer.package))
        self.assertIsNone(peer._missing_header("vector", "g++"))


if __name__ == "__main__":
    unittest.main()
