"""Draws what bench/results holds as SVG: `python3 -m driver.plots RESULTS OUT`, in the folder bench.

Only this module needs matplotlib, and run.py starts it as a process of its own: the distribution's matplotlib belongs to the distribution's Python, which need
not be the first one in PATH. The same JSON gives the same bytes. The background is opaque and white, so that light and dark pages show the same picture.
"""

import fnmatch
import json
import re
import subprocess
import sys
from pathlib import Path

if __package__:
    from .report import SUBJECT
else:
    SUBJECT = "dunlin"

# The colours of Okabe and Ito, which those who see few colours can tell apart too.
COLOURS = {
    "dunlin": "#0072b2",
    "dunlin P=1": "#56b4e9",
    "go": "#e69f00",
    "go-gogc400": "#f5c971",
    "tokio": "#d55e00",
    "tokio-other": "#e8a27a",
    "boost.fiber": "#009e73",
    "onetbb": "#cc79a7",
    "threads": "#7f7f7f",
    "c": "#222222",
}
MORE_COLOURS = ("#f0e442", "#b05fa0", "#8c564b", "#9467bd")
MARKERS = {"dunlin": "o", "go": "s", "c": "D"}

# The plots of ratios: name, title, workloads. What none of them names goes into the last.
SUBJECTS = (
    ("scheduler", "The scheduler", ("yield*", "spawn-*", "wake-idle", "idle-cpu", "parked-memory", "live-stack-*", "start-up")),
    ("forkjoin", "Fork and join", ("fib*", "skynet-tg*", "nqueens*", "matmul*")),
    ("channels", "Channels and locks", ("ping-pong*", "buffered-*", "select*", "ring*", "skynet*", "prime-sieve*", "mutex*", "alloc-churn")),
    ("timers", "Timers", ("sleep*", "timer-*", "after-func-*", "deadlines")),
    ("work", "Work between hand-overs", ("tree", "bounded-pool", "actors", "scatter")),
    ("stalls", "Beside hogs and blocking calls", ("hogs-*", "blocking-*", "unannotated-*", "mixed-service", "open-loop")),
    ("network", "The network", ("echo-*", "idle-connections*", "http-*", "pipe-*")),
    ("others", "Others", ("*",)),
)
# Of these it is the amount that counts, and of the others the first metric.
MORE_METRICS = {
    "sleepers": ("late", "cpu"),
    "sleepers-million": ("late", "cpu"),
    "echo-64": ("time",),
    "hogs-wake": ("p50", "p99"),
    "mixed-service": ("p50", "p99"),
    "open-loop": ("time", "p99-30", "p99-80"),
    **{f"live-stack-{kib}": ("memory", "switch") for kib in (1, 4, 16, 64)},
}


class NoPlots(Exception):
    """With the line that says how to get them."""


def draw(results, out):
    """Runs this module in a Python that has matplotlib; the names of the files."""
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        try:
            found = subprocess.run([python, "-c", "import matplotlib"], capture_output=True)
        except OSError:
            continue
        if found.returncode == 0:
            done = subprocess.run(
                [python, "-B", "-m", "driver.plots", results, out], cwd=Path(__file__).resolve().parents[1], capture_output=True, text=True
            )
            if done.returncode != 0:
                raise NoPlots(f"the plots failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
            return done.stdout.split()
    raise NoPlots("no plots: no matplotlib (Debian: apt-get install python3-matplotlib, then ./dev bench plots)")


# ---- what is drawn -----------------------------------------------------------------------------------------------------------------------------


def subject_of(workload):
    return next(name for name, _, patterns in SUBJECTS if any(fnmatch.fnmatch(workload, p) for p in patterns))


def bars(doc):
    """{subject: {procs: [(label, {peer: ratio}, {peer: interval})]}}: for each workload its first metric and those of
    MORE_METRICS."""
    result = {}
    seen = {}
    for row in doc["rows"]:
        first = seen.setdefault(row["workload"], row["metric"])
        if row["metric"] != first and row["metric"] not in MORE_METRICS.get(row["workload"], ()):
            continue
        ratios = {peer: r for peer, r in row["ratios"].items() if r is not None and r > 0}
        if ratios:
            more = row["workload"] in MORE_METRICS and len(MORE_METRICS[row["workload"]]) > 1
            label = f"{row['workload']}, {row['metric']}" if more else row["workload"]
            result.setdefault(subject_of(row["workload"]), {}).setdefault(row["procs"], []).append((label, ratios, row.get("intervals", {})))
    return result


def ratio_text(ratio):
    """1/7.4 below one half, two digits near one, x above."""

    def three_digits(x):
        return f"{x:.3g}" if x < 99.95 else f"{x:.0f}"

    if ratio < 0.5:
        return f"1/{three_digits(1 / ratio)}"
    return f"{ratio:.2f}" if ratio < 1.95 else three_digits(ratio)


def panels(family):
    """The axes of one family: (title, unit, {label: {peer: [(x, median, min, max)]}}). Curves over processors have an axis each, so have metrics."""
    result = []
    for curve in family["curves"]:
        if curve["metric"] == "connections" or (family.get("drawn") and curve["metric"] not in family["drawn"]):
            continue
        peers = {}
        for point in curve["points"]:
            for peer, figure in point["figures"].items():
                if figure["median"] > 0:  # the axis is logarithmic
                    x = point["x"] * family.get("scale", 1)
                    peers.setdefault(peer, []).append((x, figure["median"], max(figure["min"], 1e-12), figure["max"]))
        if peers:
            name = curve["metric"] if curve["workload"].startswith("grow-") and not family["over_procs"] else curve["workload"]
            result.append((f"{name}: {curve['what']}" if curve["what"] else name, unit_text(curve), peers))
    return result


OF_IDEAL = "time, as a multiple of the ideal"


def unit_text(curve):
    return OF_IDEAL if curve["metric"] == "of-ideal" else curve["unit"]


def marks(family):
    """(x, text) of the upright lines."""
    return [(family["machine"]["cpus"], "CPUs")] if family["over_procs"] else []


# ---- drawing -----------------------------------------------------------------------------------------------------------------------------------


def colour_of(peer, peers):
    unknown = [p for p in peers if p not in COLOURS]
    return COLOURS.get(peer) or MORE_COLOURS[unknown.index(peer) % len(MORE_COLOURS)]


def prepare_matplotlib():
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "dunlin",
            "svg.fonttype": "path",  # the letters are drawn: where this font is not installed they would run into each other
            "font.family": "DejaVu Sans",  # it comes with matplotlib
            "font.size": 9,
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "axes.facecolor": "white",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10,
            "grid.color": "#dddddd",
            "grid.linewidth": 0.6,
        }
    )
    import matplotlib.pyplot as plt

    return plt


def compact(svg):
    """A line for each part of the picture: matplotlib breaks a path after each of its points."""
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"\s+", " ", tag[0]), svg)
    svg = re.sub(r">\s+<", "><", svg)
    return re.sub(r'(?=<g id="(?!(?:DejaVu|glyph)))', "\n", svg) + "\n"


def save(plt, figure, path):
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(compact(path.read_text(encoding="utf-8")), encoding="utf-8")
    plt.close(figure)
    return path.name


def arrange(figure, title, handles, names):
    """The axes between the title above them and the legend below, in as many rows as its names need: two inches for each."""
    width, height = figure.get_size_inches()
    columns = max(min(len(names), int(width / 2)), 1)
    rows = -(-len(names) // columns)
    height += 0.2 * max(rows - 1, 0)
    figure.set_size_inches(width, height)
    if names:
        figure.legend(handles, names, loc="lower center", ncols=columns, frameon=False)
    figure.suptitle(title, fontsize=10, y=1 - 0.12 / height, va="top")
    figure.tight_layout(rect=(0, (0.15 + 0.2 * rows) / height, 1, 1 - 0.35 / height))


def draw_ratios(plt, doc, out):
    from matplotlib.ticker import FuncFormatter, NullFormatter

    peers = [peer for peer in doc["versions"] if peer != SUBJECT]
    files = []
    for name, title, _ in SUBJECTS:
        by_procs = bars(doc).get(name)
        if not by_procs:
            continue
        present = [p for p in peers if any(p in ratios for rows in by_procs.values() for _, ratios, _ in rows)]
        lines = max(sum(len(ratios) + 0.7 for _, ratios, _ in rows) for rows in by_procs.values())
        figure, axes = plt.subplots(1, len(by_procs), figsize=(5.4 * len(by_procs), 1.2 + 0.2 * lines), squeeze=False)
        every = [r for rows in by_procs.values() for _, ratios, _ in rows for r in ratios.values()]
        low, high = min([*every, 0.5]) / 2.2, max([*every, 2]) * 2.2
        for ax, (procs, rows) in zip(axes[0], sorted(by_procs.items())):
            y, ticks = 0.0, []
            for label, ratios, intervals in rows:
                top = y
                for peer in [p for p in present if p in ratios]:
                    ratio = ratios[peer]
                    least, most = intervals.get(peer) or (ratio, ratio)
                    ax.barh(y, ratio - 1, left=1, height=0.85, color=colour_of(peer, peers), zorder=2)
                    ax.plot((least, most), (y, y), color="black", linewidth=0.8, zorder=3)
                    ax.annotate(
                        ratio_text(ratio),
                        (min(ratio, least) if ratio < 1 else max(ratio, most), y),
                        xytext=(-3 if ratio < 1 else 3, 0),
                        textcoords="offset points",
                        ha="right" if ratio < 1 else "left",
                        va="center",
                        fontsize=7,
                    )
                    y += 1
                ticks.append(((top + y - 1) / 2, label))
                y += 0.7
            ax.set_xscale("log")
            ax.set_xlim(low, high)
            ax.set_ylim(y - 0.5, -1)
            ax.set_yticks([t for t, _ in ticks], [label for _, label in ticks])
            ax.tick_params(axis="y", length=0)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}" if v >= 1 else f"1/{1 / v:g}"))
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.grid(axis="x")
            ax.set_axisbelow(True)
            ax.axvline(1, color="black", linewidth=0.9, zorder=3)
            ax.set_title(f"P = {procs}")
        handles = [plt.Rectangle((0, 0), 1, 1, color=colour_of(peer, peers)) for peer in present]
        title = f"{title}: what {SUBJECT} needs, as a part of what its peer needs (left of 1: less; the line: 95 % interval)"
        arrange(figure, title, handles, [f"{SUBJECT} / {peer}" for peer in present])
        files.append(save(plt, figure, out / f"ratios-{name}.svg"))
    return files


def scale_logarithmically(ax, figures):
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    ax.set_yscale("log")
    low, high = min(f[1] for f in figures), max(f[1] for f in figures)
    if high < 10 * low:  # a flat curve shall look flat
        middle = (low * high) ** 0.5
        low, high = middle / 3.2, middle * 3.2
    ax.set_ylim(low / 1.6, high * 1.6)
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def scale_to_ideal(ax, figures):
    ax.set_ylim(0, max(2.2, 1.1 * max(f[1] for f in figures)))
    ax.axhline(1, color="black", linewidth=0.9)


def draw_growth(plt, doc, out):
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    files = []
    for family in doc["families"]:
        drawn = panels(family)
        if not drawn:
            continue
        columns = 1 if len(drawn) == 1 else 2 if len(drawn) < 10 else 3
        rows = -(-len(drawn) // columns)
        figure, axes = plt.subplots(rows, columns, figsize=(5.4 * columns, 0.7 + 3.0 * rows), squeeze=False)
        peers = [peer for peer in family["versions"] if any(peer in p for _, _, p in drawn)]
        for ax in axes.flat[len(drawn) :]:
            ax.set_visible(False)
        for ax, (title, unit, by_peer) in zip(axes.flat, drawn):
            for peer in [p for p in peers if p in by_peer]:
                x, median, least, most = zip(*by_peer[peer])
                colour = colour_of(peer, peers)
                ax.fill_between(x, least, most, color=colour, alpha=0.18, linewidth=0)
                ax.plot(x, median, color=colour, marker=MARKERS.get(peer, "^"), markersize=3.5, linewidth=1.5)
            ax.set_xscale("log", base=2 if family["over_procs"] else 10)
            ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            ax.xaxis.set_minor_formatter(NullFormatter())
            figures = [f for points in by_peer.values() for f in points]
            if unit == OF_IDEAL:
                scale_to_ideal(ax, figures)
            else:
                scale_logarithmically(ax, figures)
            ax.grid(which="major")
            for at, text in marks(family):
                ax.axvline(at, color="#888888", linewidth=0.9, linestyle="--")
                ax.annotate(text, (at, 1), xycoords=("data", "axes fraction"), xytext=(3, -8), textcoords="offset points", fontsize=7)
            ax.set_title(title)
            ax.set_xlabel(family["axis"])
            ax.set_ylabel(unit)
        handles = [plt.Line2D([], [], color=colour_of(p, peers), marker=MARKERS.get(p, "^"), markersize=4) for p in peers]
        arrange(figure, family["title"], handles, peers)
        files.append(save(plt, figure, out / f"growth-{family['name']}.svg"))
    return files


def main(results, out):
    plt = prepare_matplotlib()
    results, out = Path(results), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for name, drawing in (("latest.json", draw_ratios), ("growth.json", draw_growth)):
        if (results / name).is_file():
            files += drawing(plt, json.loads((results / name).read_text()), out)
    for old in set(p.name for p in out.glob("*.svg")) - set(files):
        if old.startswith(("ratios-", "growth-")):
            (out / old).unlink()
    print(*files)


if __name__ == "__main__":
    main(*sys.argv[1:])
