"""What it costs to be looked at: workloads with the flight recorder, the CPU profile and the page, beside the same
without, in one run and in turn."""

import socket
import statistics
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass

from . import intervals, peers, runner, workloads

WORKLOADS = ("ping-pong", "bounded-pool", "echo-64")
PERIOD_S = 2  # as the page asks
RUN_S = 3  # so that a run has more than one answer of the page


@dataclass(frozen=True)
class Limit:
    """At most `part` more than without, or at most `ns` more an operation."""

    part: float = 0
    ns: float = 0

    def text(self):
        return f"+{self.ns:g} ns" if self.ns else f"+{self.part:.0%}"

    def holds(self, without, looked_at):
        """Both in the workload's unit; a workload with a limit in ns has that unit."""
        return looked_at <= without * (1 + self.part) + self.ns


LIMITS = {
    ("recorder", "echo-64"): Limit(part=0.03),
    ("recorder", "ping-pong"): Limit(ns=40),
    ("profile", None): Limit(part=0.02),
    ("page", "echo-64"): Limit(part=0.05),
    ("page", "bounded-pool"): Limit(part=0.05),
}


def limit_of(how, workload):
    return LIMITS.get((how, workload)) or LIMITS.get((how, None))


class Looker:
    """Asks the page, as a browser does that shows it, for as long as it lives; `answers` counts."""

    def __init__(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{s.getsockname()[1]}"
        self.answers = 0
        self._over = False
        self._now = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._over = True
        self._now.set()
        self._thread.join()

    def look_now(self):
        """A run begins: it is looked at from its beginning, however short it is."""
        self._now.set()

    def _look(self):
        while not self._over:
            self._now.clear()
            self._now.wait(PERIOD_S if self._all() else 0.02)  # between the runs there is no page

    def _all(self):
        try:
            for path in ("/dump.json", "/metrics", "/trace"):
                with urllib.request.urlopen(f"http://{self.address}{path}", timeout=10) as reply:
                    reply.read()
        except (OSError, urllib.error.URLError):
            return False
        self.answers += 1
        return True


def minutes(rounds, procs, quick):
    runs = (rounds + 1) * 4 * len(WORKLOADS) * len(procs)
    return runs * (1 if quick else RUN_S + 1) / 60


def measure(program, names, procs, rounds, quick, order, say):
    """{(workload, how): {metric: [values by round]}}; "off" is how nothing looks."""
    subject = peers.Dunlin()
    table = {w.name: w for w in workloads.WORKLOADS}
    values = {}
    with Looker() as looker:
        how_exactly = {"recorder": "recorder", "profile": "profile", "page": f"page={looker.address}"}
        for name in names:
            for round_number in range(rounds + 1):
                for how in runner.shuffled(["off", *how_exactly], order):
                    words = ["--seconds", "0.3" if quick else str(RUN_S), *(["--watched", how_exactly[how]] if how != "off" else [])]
                    before = looker.answers
                    looker.look_now()
                    for line in runner.run_program(program, subject, name, procs, words, table[name].timeout_s):
                        if round_number > 0:  # the first warms up
                            values.setdefault((name, how), {}).setdefault(line["metric"], []).append(line["value"])
                    if how == "page" and looker.answers == before:
                        raise ValueError(f"{name}: the page was never asked")
            say(f"{name}, P={procs}: done")
    return values


def rows(values, procs):
    for (name, how), metrics in values.items():
        if how == "off":
            continue
        for metric, looked_at in metrics.items():
            without = values[name, "off"][metric]
            yield {
                "workload": name, "metric": metric, "procs": procs, "how": how,
                "off": statistics.median(without), "on": statistics.median(looked_at),
                "interval": intervals.of_ratio(tuple(looked_at), tuple(without)),
                "limit": limit_of(how, name) if metric == "time" else None,
            }


def markdown(table):
    lines = ["| workload | P | metric | looked at by | without | with | ratio (95 %) | limit | |",
             "|---|---|---|---|---|---|---|---|---|"]
    for r in table:
        low_high = r["interval"]
        sure = f" ({low_high[0]:.3f} to {low_high[1]:.3f})" if low_high else ""
        verdict = "" if r["limit"] is None else "held" if r["limit"].holds(r["off"], r["on"]) else "MISSED"
        lines.append(f"| {r['workload']} | {r['procs']} | {r['metric']} | {r['how']} | {r['off']:.4g} | {r['on']:.4g} | "
                     f"{r['on'] / r['off']:.3f}{sure} | {r['limit'].text() if r['limit'] else ''} | {verdict} |")
    return "\n".join(lines) + "\n"
