import os
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

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


class Fetched(unittest.TestCase):
    """Peers that are downloaded are left out until they are asked for, and say how."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        programs = mock.patch.object(peers.shutil, "which", return_value="/usr/bin/something")
        programs.start()
        self.addCleanup(programs.stop)

    def test_without_current_crates_the_peer_names_the_command(self):
        with mock.patch.object(peers.TokioNow, "crates", self.folder / "crates"):
            for peer in (peers.TokioNow(), peers.TokioNowOtherForms(), peers.TokioNowParkingLot()):
                self.assertIn("./dev bench fetch", peer.missing())

    def test_crates_that_lack_one_are_not_taken(self):
        for crate in ("tokio-1.54.1", "async-channel-2.5.0", "parking_lot-0.12.5", "hyper-util-0.1.21", "http-body-util-0.1.5"):
            (self.folder / crate).mkdir()
        with mock.patch.object(peers.TokioNow, "crates", self.folder):
            self.assertIn("librust-hyper-dev", peers.TokioNow().missing())
            (self.folder / "hyper-1.12.0").mkdir()
            self.assertIsNone(peers.TokioNow().missing())

    def test_fasthttp_is_the_fetched_one_or_the_distributions(self):
        here = {"modules": self.folder / "go.mod", "distribution": self.folder}
        with mock.patch.multiple(peers.Fasthttp, **here):
            self.assertIn("./dev bench fetch", peers.Fasthttp().missing())
            here["modules"].write_text("require github.com/valyala/fasthttp v1.78.0\n")
            self.assertIsNone(peers.Fasthttp().missing())
            self.assertIn("fasthttp v1.78.0", peers.Fasthttp().version())


if __name__ == "__main__":
    unittest.main()
