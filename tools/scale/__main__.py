"""The runtime on 1 to 256 virtual CPUs (docs/scale.md).

Usage: scale SIMULATED REAL [--most CPUS] [--no-check | --no-curves] [--patience SECONDS] [--publish] [WORKLOAD...]

SIMULATED and REAL are tests/scale/scale_simulated of the simulation build and tests/scale/scale_real. Says how long it will take, then prints
what the real CPUs of this machine do beside two virtual ones, a line for each point of each curve, and what CPUs waited for. Writes
build/scale/results.json and two plots. --publish: the tables go into docs/scale.md. Exit status: 0; 1 if a run fails; 2 if called wrongly.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import analyse
import measure
import page
import plot

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "scale"
SECONDS = {1: 1, 2: 3, 4: 5, 8: 10, 16: 20, 32: 25, 64: 35, 128: 50, 256: 110}  # of all workloads, on a CPU of 2025
CHECK_SECONDS = 3  # of one workload on a quiet machine
PATIENCE = 40
OFTEN, OFTEN_SECONDS = 5, 4  # times, a point; fewer where that takes longer
WANTED = 7
NOT_REAL = {"gathered"}  # two CPUs do not show what it is about


def arguments():
    parser = argparse.ArgumentParser(prog="scale", usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("simulated")
    parser.add_argument("real")
    parser.add_argument("--most", type=int, default=256)
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--no-check", action="store_true")
    parts.add_argument("--no-curves", action="store_true")
    parser.add_argument("--patience", type=int, default=PATIENCE)
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("workloads", nargs="*")
    return parser.parse_intermixed_args()


def check(a, workloads, before):
    """before: what earlier calls have found of real CPUs; what was disturbed less counts."""
    rows = []
    print("Beside this machine's CPUs: ns of CPUs for one operation, with 1 and 2 processors, and what the second one gains")
    for w in workloads:
        if w in NOT_REAL:
            continue
        simulated = {p: measure.cpu_ns(measure.simulate(a.simulated, w, p, "--compare")) for p in (1, 2)}
        now = measure.Real(a.real, w, WANTED, a.patience)
        ns, waited = now.ns, now.waited
        if w in before and before[w][1] < waited:
            ns, waited = {int(p): figure for p, figure in before[w][0].items()}, before[w][1]
        before[w] = [ns, waited]
        gains = [2 * of[1] / of[2] for of in (ns, simulated)]
        mark = f" (its threads waited for CPUs for {waited:.0%} of the time)" if waited > measure.QUIET else ""
        print(f"  {w:12} real {ns[1]:9,.0f} {ns[2]:9,.0f}, gain {gains[0]:.2f}; simulated {simulated[1]:9,.0f} {simulated[2]:9,.0f}, "
              f"gain {gains[1]:.2f}; {gains[1] / gains[0]:.2f}{mark}", flush=True)
        rows.append((w, ns, simulated, waited))
    return rows


def draw(a, workloads, procs, symbols):
    curves = {}
    for w in workloads:
        print(f"\n{w}: ns of CPUs for one operation, what each CPU does of what one does alone, and the longest wait")
        curves[w] = []
        for p in procs:
            begin = time.monotonic()
            r = measure.simulate_often(a.simulated, w, p, OFTEN, OFTEN_SECONDS, "--server")
            curves[w].append(r)
            part = analyse.efficiency(curves[w])[-1][1]
            found = analyse.waits(r, symbols)
            longest = f"{found[0][1]:4.0%} {found[0][0]}, {found[0][2]}" if found and found[0][1] > 0.005 else ""
            least, most = r["spread"]
            print(f"  {p:4} {measure.cpu_ns(r):10,.0f} ({least:,.0f} to {most:,.0f}) {part:6.2f}  idle {analyse.spent(r)['idle']:4.0%}  {longest}"
                  f"   ({r['steps'] / 1e6:.0f} million steps, {time.monotonic() - begin:.1f} s)", flush=True)
    return curves


def merged(names, now, before):
    """By workload, in their order: what was measured now, else earlier."""
    return {w: now.get(w) or before[w] for w in names if w in now or w in before}


def publish(costs, checked, curves, symbols):
    file = ROOT / "docs/scale.md"
    text = page.replace(file.read_text(), "costs", page.costs(costs))
    if checked:
        text = page.replace(text, "check", page.check(checked))
    if curves:
        text = page.replace(text, "curves", page.curves(curves))
        text = page.replace(text, "waits", page.bottlenecks(curves, symbols))
    file.write_text(text)
    print("docs/scale.md is written.")


def main():
    a = arguments()
    names = subprocess.run([a.simulated, "--workloads"], capture_output=True, text=True, check=True).stdout.split()
    workloads = a.workloads or names
    if unknown := set(workloads) - set(names):
        print(f"scale: no such workload: {' '.join(unknown)}; there are {' '.join(names)}", file=sys.stderr)
        return 2
    procs = [p for p in SECONDS if p <= a.most]
    seconds = 0 if a.no_curves else sum(SECONDS[p] for p in procs) * len(workloads) / len(names)
    if not a.no_check:
        seconds += len(workloads) * CHECK_SECONDS
    print(f"{len(workloads)} workloads on 1 to {procs[-1]} virtual CPUs: about {max(seconds, 5):.0f} s"
          f"{'' if a.no_check else f', and up to {a.patience} s more for each where this machine is not quiet'}\n", flush=True)
    costs = json.loads(subprocess.run([a.simulated, "--costs"], capture_output=True, text=True, check=True).stdout)
    symbols = analyse.Symbols(a.simulated)
    enough = (os.cpu_count() or 1) >= 2
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / "results.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    real = known.get("real", {})
    checked = check(a, workloads, real) if not a.no_check and enough else []
    curves = {} if a.no_curves else draw(a, workloads, procs, symbols)
    if curves:
        alike = {w: c for w, c in known.get("curves", {}).items() if [r["procs"] for r in c] == procs}
        curves = merged(names, curves, alike)
    if checked:
        rows = {row[0]: [row[0], *({int(p): ns for p, ns in of.items()} for of in row[1:3]), row[3]] for row in known.get("check", [])}
        checked = list(merged(names, {row[0]: row for row in checked}, rows).values())
    file.write_text(json.dumps({"costs": costs, "real": real, "check": checked, "curves": curves or known.get("curves", {})}))
    if curves:
        plot.efficiencies({w: analyse.efficiency(c) for w, c in curves.items()}, OUT / "scale-each.svg")
        plot.shares({w: [(r["procs"], analyse.spent(r)) for r in c] for w, c in curves.items()}, OUT / "scale-time.svg")
        print("\n" + page.bottlenecks(curves, symbols))
    if a.publish:
        publish(costs, checked, curves, symbols)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, OSError, subprocess.CalledProcessError) as e:
        print(f"scale: {e}", file=sys.stderr)
        sys.exit(1)
