#!/usr/bin/env python3
"""Runs the benchmarks of dunlin and the same workloads in other runtimes, and writes a table of ratios.

    bench/run.py                    everything
    bench/run.py fib 'spawn-*'      some of it
    bench/run.py growth timers      how cost grows with the number of timers

The table goes to stdout and, with everything that was measured, to bench/results/latest.md and latest.json; progress
goes to stderr. docs/benchmarks.md explains the workloads and the figures.
"""

import argparse
import difflib
import fnmatch
import json
import os
import random
import shutil
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
from driver import growth, guard, machine, peers, plots, publish, report, runner, sight, workloads

RESULTS = peers.ROOT / "bench" / "results"
DOCS = peers.ROOT / "docs" / "benchmarks.md"
DOCS_BEGIN = "<!-- workloads: written by ./dev bench docs --write -->\n"
DOCS_END = "<!-- end of workloads -->\n"


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def procs_list(text):
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or any(not 1 <= v <= 1024 for v in values):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of processor counts such as 1,2")
    return values


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds")
    return int(text)


COMMANDS = ("measure", "growth", "sight", "check", "fetch", "plots", "list", "docs")


def add_measuring(parser, rounds, procs):
    parser.add_argument("--rounds", type=positive, help=f"rounds that count, after one warm-up (default {rounds})")
    parser.add_argument("--procs", type=procs_list, help=f"processor counts (default {procs})")
    parser.add_argument("--seed", type=int, help="of the order in which the peers take turns (default: chosen, and printed)")
    parser.add_argument("--peers", help="only these, for example dunlin,go (default: all that are there)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: does everything run?")
    parser.add_argument("--no-build", action="store_true", help="run what was built before")
    parser.add_argument("--check-targets", action="store_true", help="exit status 1 if a target is missed")


def make_parser():
    """The parser, and that of each command."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.partition("\n")[0],
                                     epilog="Without a command: measure. ./dev bench COMMAND --help has the options of each.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    of = {name: commands.add_parser(name, help=text, description=text) for name, text in (
        ("measure", "the workloads beside their peers (the default)"),
        ("growth", "how cost grows with numbers, as curves"),
        ("sight", "what it costs to be looked at: recorder, CPU profile, page"),
        ("check", "count the instructions of the hot paths: have they grown?"),
        ("fetch", "download the peers that distributions do not have, or not as new ones: current crates (Tokio, hyper), fasthttp"),
        ("plots", "draw the plots of the last results again, and measure nothing"),
        ("list", "print the workloads, their metrics and targets"),
        ("docs", "is the table of workloads in docs/benchmarks.md as they are?"))}
    of["measure"].add_argument("names", nargs="*", metavar="NAME", help="workloads, also as patterns (spawn-*); default: all")
    add_measuring(of["measure"], "5, quick 3", "1,2")
    of["measure"].add_argument("--keep", action="store_true", help="the results of workloads that are not measured now stay in the table")
    of["growth"].add_argument("names", nargs="*", metavar="FAMILY", help="families of curves; default: all")
    add_measuring(of["growth"], "3, quick 1", "the first of these; work: 2, the others: 1")
    of["sight"].add_argument("--rounds", type=positive, help="rounds that count, after one warm-up (default 7, quick 2)")
    of["sight"].add_argument("--procs", type=procs_list, help="processor counts (default 1,2)")
    of["sight"].add_argument("--seed", type=int, help="of the order within each round (default: chosen, and printed)")
    of["sight"].add_argument("--quick", action="store_true", help="a tenth of the work: does everything run?")
    of["sight"].add_argument("--no-build", action="store_true", help="run what was built before")
    of["check"].add_argument("--record", action="store_true", help="write what they are now")
    of["check"].add_argument("--no-build", action="store_true", help="run what was built before")
    of["plots"].add_argument("--publish", action="store_true", help="and copy tables and plots into docs/")
    of["docs"].add_argument("--write", action="store_true", help="write it")
    return parser, of


def parse_arguments(given):
    """The parser of the command, and its arguments."""
    if given[:1] == ["--check"]:  # the word of old, which scripts know
        given = ["check", *given[1:]]
    elif not given or (given[0] not in COMMANDS and given[0] not in ("-h", "--help")):
        given = ["measure", *given]
    parser, of = make_parser()
    arguments = parser.parse_args(given)
    return of[arguments.command], arguments


def choose_workloads(parser, names):
    if not names:
        return [w for w in workloads.WORKLOADS if not w.once]
    known = [w.name for w in workloads.WORKLOADS]
    curves = {curve.workload: family.name for family in growth.families() for curve in family.curves}
    for name in names:
        if family := next((curves[curve] for curve in curves if fnmatch.fnmatch(curve, name)), None):
            parser.error(f"{name!r} is drawn as curves: ./dev bench growth {family}")
        if not fnmatch.filter(known, name):
            near = difflib.get_close_matches(name, known)
            hint = f"did you mean {near[0]}?" if near else "./dev bench list prints them"
            parser.error(f"no workload {name!r}; {hint}")
    return [w for w in workloads.WORKLOADS if any(fnmatch.fnmatch(w.name, name) for name in names)]


def choose_peers(parser, names):
    if names is None:
        return list(peers.PEERS)
    wanted = names.split(",")
    known = {peer.name: peer for peer in peers.PEERS}
    for name in wanted:
        if name not in known:
            parser.error(f"no peer {name!r}; there are {', '.join(known)}")
    return [known[name] for name in wanted]


def prepare(chosen, build):
    """Builds the peers: those that are there with their programs, and those that are not with the reason."""
    ready, skipped = [], {}
    for peer in chosen:
        reason = peer.missing()
        if reason is not None:
            skipped[peer.name] = reason
            say(f"{peer.name} skipped: {reason}")
            continue
        try:
            if build:
                peer.build(say)
            programs = peer.programs()
            if not programs:
                raise peers.BuildError(f"{peer.name}: no program was built (run without --no-build)")
        except peers.BuildError as error:
            if peer.name == report.SUBJECT:
                raise
            # The others can do without it.
            skipped[peer.name] = f"its build failed: {str(error).strip().splitlines()[-1]}"
            say(f"{peer.name} skipped: its build failed: {error}")
            continue
        ready.append((peer, programs))
    return ready, skipped


def prepare_load(chosen, build):
    """Builds what loads the servers; the workloads that can run, and why the others cannot."""
    possible, skipped = [], {}
    for w in chosen:
        lacking = [name for name in w.needs if shutil.which(name) is None]
        if lacking:
            skipped[w.name] = f"no `{lacking[0]}` in PATH (Debian: apt-get install {lacking[0]})"
            say(f"{w.name} skipped: {skipped[w.name]}")
        else:
            possible.append(w)
    if build and shutil.which(os.environ.get("CC", "cc")) is not None:
        peers.LOAD.build(say)
    os.environ["DUNLIN_BENCH_LOAD"] = str(peers.LOAD.program)
    return possible, skipped


def list_workloads():
    for w in workloads.WORKLOADS:
        print(f"{w.name:16} {w.what}")
        for m in w.metrics:
            targets = "".join(f"; P={','.join(map(str, t.procs))}: {t.text()}" for t in m.targets)
            print(f"{'':18}{m.name} ({m.unit}){targets}")


def docs_text():
    """docs/benchmarks.md as it is, and as it should be."""
    text = DOCS.read_text()
    before, begin, rest = text.partition(DOCS_BEGIN)
    _, end, after = rest.partition(DOCS_END)
    if not begin or not end:
        sys.exit(f"bench: {DOCS.relative_to(peers.ROOT)} has lost the marks around its table of workloads")
    return text, before + begin + workloads.markdown_table() + end + after


def draw_plots():
    """False: there are none, and a line has said why."""
    try:
        files = plots.draw(RESULTS, RESULTS / publish.PLOTS)
    except plots.NoPlots as reason:
        say(str(reason))
        return False
    say(f"{len(files)} plots in {(RESULTS / publish.PLOTS).relative_to(peers.ROOT)}")
    return True


def redraw(arguments):
    if not draw_plots():
        return 1
    if arguments.publish:
        written, refused = publish.publish(RESULTS)
        for line in [*refused, f"written into docs: {' '.join(written) or 'nothing'}"]:
            say(line)
    return 0


def order_of_peers(arguments):
    """The seed, and the generator that shuffles with it."""
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1_000_000)
    say(f"the order of the peers within each round is that of --seed {seed}")
    return seed, random.Random(seed)


def possible_families(chosen):
    """Those that this machine can run; a line for each of the others."""
    cpus = machine.describe()["cpus"]
    for family in chosen:
        reason = growth.impossible(family, cpus)
        if reason is None:
            yield family
        else:
            say(f"{family.name} {reason}")


def measure_family(family, ready, rounds, arguments, order):
    """One family, as growth.json has it."""
    machine_before = machine.describe()
    procs = (arguments.procs or [family.procs])[0]
    family, notes = growth.fitting(family, growth.available_bytes())
    notes += growth.lacking(family, [peer.name for peer, _ in ready])
    for note in notes:
        say(f"{family.name}: {note}")
    entrants = growth.with_variants(family, ready, procs)
    measured = growth.measure(family, entrants, rounds, arguments.quick, procs, order=order)
    versions = {peer.name: peer.version() for peer, _ in ready if peer.name in family.peers}
    versions.update({v.name: versions[v.peer] for v in family.variants if v.name in [peer.name for peer, _ in entrants]})
    return growth.document(family, measured, list(versions), machine_before, versions, notes, rounds, arguments.quick, procs)


def run_growth(parser, arguments):
    try:
        chosen = list(possible_families(growth.choose(arguments.names, growth.families())))
    except ValueError as error:
        parser.error(str(error))
    if not chosen:
        return 0
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    wanted = [p for p in choose_peers(parser, arguments.peers) if any(p.name in f.peers for f in chosen)]
    try:
        prepare_load([], not arguments.no_build)
        ready, _ = prepare(wanted, not arguments.no_build)
    except peers.BuildError as error:
        say(f"build failed: {error}")
        return 1
    done = []
    _, order = order_of_peers(arguments)
    for family in chosen:
        done.append(measure_family(family, ready, rounds, arguments, order))
        # After each family, so that one that fails late costs nothing of the others.
        file = RESULTS / "growth.json"
        doc = growth.merged(json.loads(file.read_text()) if file.is_file() else None, done)
        RESULTS.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(doc, indent=1) + "\n")
        (RESULTS / "growth.md").write_text(growth.markdown(doc))
    print(growth.markdown({"families": done}), end="")
    draw_plots()
    missed = arguments.check_targets and any(f["missed"] for f in done)
    return 1 if missed or any(f["failures"] for f in done) else 0


def check_docs(write):
    present, wanted = docs_text()
    if write:
        DOCS.write_text(wanted)
    elif present != wanted:
        say("docs/benchmarks.md is out of date: ./dev bench docs --write")
        return 1
    return 0


def fetch_peers():
    failed = False
    for peer in (peers.TokioNow(), peers.Fasthttp()):
        try:
            peer.fetch(say)
        except peers.BuildError as error:
            failed = True
            say(f"{peer.name} cannot be had: {error}")
        except FileNotFoundError as error:
            failed = True
            say(f"{peer.name} cannot be had: no `{error.filename}` in PATH")
    return 1 if failed else 0


def measure_sight(arguments):
    subject = peers.Dunlin()
    rounds = arguments.rounds or (2 if arguments.quick else 7)
    procs = arguments.procs or [1, 2]
    try:
        prepare_load([], not arguments.no_build)
        if not arguments.no_build:
            subject.build(say)
        programs = subject.programs()
        if not programs:
            raise peers.BuildError("no program was built (run without --no-build)")
    except peers.BuildError as error:
        say(f"build failed: {error}")
        return 1
    _, order = order_of_peers(arguments)
    say(f"about {sight.minutes(rounds, procs, arguments.quick):.0f} minutes")
    table = []
    for p in procs:
        table += sight.rows(sight.measure(programs[0], sight.WORKLOADS, p, rounds, arguments.quick, order, say), p)
    text = sight.markdown(table)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "sight.md").write_text(text)
    print(text, end="")
    return 0


def count_instructions(arguments):
    try:
        return guard.main(say, not arguments.no_build, arguments.record)
    except peers.BuildError as error:
        say(f"build failed: {error}")
        return 1


def run_workloads(parser, arguments):
    chosen = choose_workloads(parser, arguments.names)
    procs = arguments.procs or [1, 2]
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    try:
        chosen, skipped = prepare_load(chosen, not arguments.no_build)
        ready, skipped_peers = prepare(choose_peers(parser, arguments.peers), not arguments.no_build)
        skipped.update(skipped_peers)
    except peers.BuildError as error:
        say(f"build failed: {error}")
        return 1
    if not ready:
        say("nothing to measure")
        return 1
    machine_before = machine.describe()
    file = RESULTS / "latest.json"
    versions = {peer.name: peer.version() for peer, _ in ready}
    before = {"rows": [], "versions": {}, "rounds": rounds, "quick": False, "machine": machine_before}
    if arguments.keep and file.is_file():
        last = json.loads(file.read_text())
        if report.may_keep(last, versions, machine_before):
            before = last
        else:
            say("the last results are of other versions or of another machine: not kept")
    versions = {**before["versions"], **versions}
    # The table says of itself what its worst part deserves.
    machine_before["load_before"] = max(machine_before["load_before"], before["machine"]["load_before"])
    quick = arguments.quick or before["quick"]
    seed, order = order_of_peers(arguments)

    def write(samples, measured):
        # After each workload, so that a run that is interrupted has not been for nothing.
        table = report.rows(measured, procs, [peer.name for peer, _ in ready], samples)
        table = report.kept(table, before["rows"], [w.name for w in workloads.WORKLOADS])
        doc = report.document(table, machine_before, versions, skipped, min(rounds, before["rounds"]), quick, seed)
        RESULTS.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(doc, indent=1) + "\n")
        (RESULTS / "latest.md").write_text(report.markdown(doc))
        return doc

    samples = runner.measure(chosen, ready, procs, rounds, arguments.quick, order, write)
    doc = write(samples, chosen)
    print(report.markdown(doc), end="")
    draw_plots()

    missed = [row for row in doc["rows"] if row["verdict"] == "missed"]
    if arguments.check_targets and any(row["verdict"] == "not measured" for row in doc["rows"]):
        say("targets that were not measured (a peer is missing or failed) do not count as missed")
    return 1 if samples.failures or (arguments.check_targets and missed) else 0


def main():
    parser, arguments = parse_arguments(sys.argv[1:])
    match arguments.command:
        case "measure":
            return run_workloads(parser, arguments)
        case "growth":
            return run_growth(parser, arguments)
        case "sight":
            return measure_sight(arguments)
        case "check":
            return count_instructions(arguments)
        case "fetch":
            return fetch_peers()
        case "plots":
            return redraw(arguments)
        case "list":
            list_workloads()
            return 0
        case _:
            return check_docs(arguments.write)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nbench: interrupted; what was measured is in bench/results")
