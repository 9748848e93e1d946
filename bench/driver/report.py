"""From samples to the table of ratios, as Markdown and as JSON."""

import datetime
import statistics

from . import intervals

SUBJECT = "dunlin"
ALONE = "P=1"  # the same with one processor, as something that a target is against


def rows(workloads, procs_list, peers, samples):
    """One row per workload, metric and P: the medians of all peers, dunlin's ratio to each, the target's verdict."""
    result = []
    for w in workloads:
        for metric in w.metrics:
            for procs in w.procs_of(procs_list):
                figures = _figures(w, metric, procs, peers, samples)
                compared = {peer: f for peer, f in figures.items() if w.has_ratio(peer, procs)}
                result.append(
                    {
                        "workload": w.name,
                        "metric": metric.name,
                        "unit": metric.unit,
                        "procs": procs,
                        "figures": figures,
                        "ratios": _ratios(compared),
                        "intervals": _intervals(compared),
                        "failures": {
                            peer: samples.failures[w.name, procs, peer]
                            for peer in peers
                            if (w.name, procs, peer) in samples.failures
                        },
                        **_verdict(metric.targets_for(procs), {**figures, **_alone(w, metric, samples)}),
                    }
                )
    return result


def _figures(w, metric, procs, peers, samples):
    figures = {}
    for peer in peers:
        values = samples.values.get((w.name, metric.name, procs, peer))
        if values and (w.name, procs, peer) not in samples.failures:
            figures[peer] = {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": values}
    return figures


def _alone(w, metric, samples):
    """dunlin's figure with one processor, for targets against that."""
    alone = _figures(w, metric, 1, [SUBJECT], samples)
    return {ALONE: alone[SUBJECT]} if SUBJECT in alone else {}


def _intervals(figures):
    """How sure each ratio is, see intervals.py."""
    if SUBJECT not in figures:
        return {}
    own = tuple(figures[SUBJECT]["samples"])
    return {
        peer: intervals.of_ratio(own, tuple(figure["samples"])) for peer, figure in figures.items() if peer != SUBJECT
    }


def _ratios(figures):
    """dunlin / peer; None where the peer's figure is not above 0 (a difference of memory or time can be)."""
    if SUBJECT not in figures:
        return {}
    own = figures[SUBJECT]["median"]
    return {
        peer: own / figure["median"] if figure["median"] > 0 else None
        for peer, figure in figures.items()
        if peer != SUBJECT
    }


def _verdict(targets, figures):
    """Of several targets the worst counts."""
    if not targets:
        return {"target": None, "verdict": None}
    verdicts = [_verdict_of_one(target, figures) for target in targets]
    return {
        "target": {
            "text": "; ".join(t.text() for t in targets),
            "parts": [
                {"limit": t.limit, "against": t.against, "verdict": verdict} for t, verdict in zip(targets, verdicts)
            ],
        },
        "verdict": next(v for v in ("missed", "not measured", "reached") if v in verdicts),
    }


def _verdict_of_one(target, figures):
    needed = [SUBJECT] + ([target.against] if target.against else [])
    if any(peer not in figures for peer in needed):
        return "not measured"
    allowed = target.limit * (figures[target.against]["median"] if target.against else 1)
    return "reached" if figures[SUBJECT]["median"] <= allowed else "missed"


def kept(table, earlier, order):
    """The rows of this run, and those of an earlier one for what this one has not measured, in the order of the workloads' names given."""
    measured = {(row["workload"], row["procs"]) for row in table}
    rest = [row for row in earlier if (row["workload"], row["procs"]) not in measured]
    metrics = {name: i for i, name in enumerate(dict.fromkeys(row["metric"] for row in rest + table))}
    place = {name: i for i, name in enumerate(order)}
    return sorted(rest + table, key=lambda row: (place.get(row["workload"], len(place)), metrics[row["metric"]], row["procs"]))


def may_keep(before, versions, machine):
    """Figures of another program, or of another machine, do not belong into the same table."""
    same = all(before["versions"].get(peer, version) == version for peer, version in versions.items())
    return same and all(before["machine"].get(key) == machine.get(key) for key in ("cpu", "cpus", "kernel"))


def document(table, machine, versions, skipped, rounds, quick, seed=None):
    """All of one run, as it is written to latest.json."""
    return {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine,
        "versions": versions,
        "skipped": skipped,
        "rounds": rounds,
        "quick": quick,
        "seed": seed,
        "rows": table,
    }


def number(value):
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _ratio(value):
    if value is None:
        return "-"
    return f"1/{number(1 / value)}" if 0 < value < 0.95 else number(value)


def _beside(row, peer):
    figure = _figure(row, peer)
    if peer not in row["ratios"]:
        return figure
    interval = row.get("intervals", {}).get(peer)
    sure = f" [{_ratio(interval[0])} .. {_ratio(interval[1])}]" if interval else ""
    return f"**{_ratio(row['ratios'][peer])}**{sure} ({figure})"


def markdown(doc, load=False):
    """The table under what it is of; with the load of the machine instead of a warning."""
    m = doc["machine"]
    present = {peer for row in doc["rows"] for peer in (*row["figures"], *row["failures"])}
    others = [peer for peer in doc["versions"] if peer != SUBJECT and (peer in present or not doc["rows"])]
    lines = [
        "# Benchmarks: dunlin beside " + (", ".join(others) or "no peer"),
        "",
        f"{m['cpu']}, {m['cpus']} CPUs, {m['memory_gib']} GiB; Linux {m['kernel']} {m['architecture']}, {m['system']}; "
        f"{doc['when']}",
        "",
        *[f"- {peer}: {version}" for peer, version in doc["versions"].items()],
        *[f"- {peer} skipped: {reason}" for peer, reason in doc["skipped"].items()],
        "",
        f"Medians, {doc['rounds']} round{'s' if doc['rounds'] > 1 else ''} after a warm-up, the peers in random order within "
        f"each round{_seed(doc)}, [min .. max]. In front of a peer's figure stands the ratio dunlin / peer with its 95 % interval: "
        "below 1 dunlin needs less.",
        *(load_line(doc) if load else _warnings(doc)),
        "",
        f"| workload | metric | P | {SUBJECT} | " + "".join(f"{p} | " for p in others) + "target |  |",
        "|---|---|--:|--:|" + "--:|" * len(others) + "---|---|",
    ]
    for row in doc["rows"]:
        cells = [row["workload"], f"{row['metric']}, {row['unit']}", str(row["procs"])]
        cells += [_figure(row, SUBJECT)] + [_beside(row, peer) for peer in others]
        cells += [row["target"]["text"] if row["target"] else "", row["verdict"] or ""]
        lines.append("| " + " | ".join(cells) + " |")
    judged = [row["verdict"] for row in doc["rows"] if row["verdict"]]
    if judged:
        counts = ", ".join(f"{judged.count(v)} {v}" for v in ("reached", "missed", "not measured") if v in judged)
        lines += ["", f"Targets: {counts}."]
    failures = {
        f"{row['workload']} P={row['procs']} {peer}: {reason}"
        for row in doc["rows"]
        for peer, reason in row["failures"].items()
    }
    if failures:
        lines += ["", "Failed:", "", *[f"- {text}" for text in sorted(failures)]]
    return "\n".join(lines) + "\n"


def _seed(doc):
    return f" (seed {doc['seed']})" if doc.get("seed") is not None else ""


def load_line(measured):
    return ["", f"Load average before the run: {measured['machine']['load_before']}."]


def _warnings(doc):
    reasons = []
    if doc["quick"]:
        reasons.append("a quick run, with a tenth of the work")
    if doc["rounds"] < 5:
        reasons.append("fewer than five rounds")
    if doc["machine"]["load_before"] > 0.5:
        reasons.append(f"the machine was busy (load average {doc['machine']['load_before']} before the run)")
    return ["", f"**Not for quoting**: {'; '.join(reasons)}."] if reasons else []


def _figure(row, peer):
    if peer in row["failures"]:
        return "failed"
    if peer not in row["figures"]:
        return "-"
    f = row["figures"][peer]
    return f"{number(f['median'])} [{number(f['min'])} .. {number(f['max'])}]"
