"""Copies what was measured into the documentation: docs/results.md, the list of what is lost in docs/where-we-lose.md, the tables of
docs/growth.md (and that of `work` in docs/benchmarks.md), and the plots that README shows. A run that is quick, short or of a busy machine is refused."""

import json
import shutil

from . import growth, plots, report
from .peers import ROOT

DOCS = ROOT / "docs"
PLOTS = "plots"
SHOWN = ("scheduler", "channels")  # by README; all others are drawn where they are wanted
ROUNDS_OF_RESULTS, ROUNDS_OF_CURVES = 5, 3  # at least
MOST_LOAD = 0.5
LOST_FROM = 1.05


def marks_of(name):
    return f"<!-- {name}: written by ./dev bench plots --publish -->\n", f"<!-- end of {name} -->\n"


def between_marks(text, name, content):
    """The text with this content between the marks of that name; raises ValueError if they are not there."""
    begin, end = marks_of(name)
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"docs have lost the marks around {name}")
    return before + begin + content + end + after


def refused(measured, least_rounds=ROUNDS_OF_CURVES):
    """Why a run, or a family of curves, is not published; empty: it is. A peer that cannot be built is left out of a run
    that is only looked at, not of one that is shown."""
    reasons = [f"{peer} is missing: {why}" for peer, why in measured.get("skipped", {}).items() if why.startswith("its build failed")]
    if "+changes" in measured.get("versions", {}).get(report.SUBJECT, ""):
        reasons.append("a tree that is not committed")
    if measured["quick"]:
        reasons.append("a quick run")
    if measured["rounds"] < least_rounds:
        reasons.append(f"{measured['rounds']} of {least_rounds} rounds")
    if measured["machine"]["load_before"] > MOST_LOAD:
        reasons.append(f"a busy machine (load average {measured['machine']['load_before']})")
    return ", ".join(reasons)


def growth_section(family):
    """What stands between the marks: the tables, folded away."""
    return "\n".join(["<details><summary>The figures</summary>", "", *growth.tables(family, load=True), "</details>", ""])


def results_page(doc):
    """latest.md, with the load instead of a warning: what may be published has passed refused()."""
    return report.markdown(doc, load=True).replace(
        "\n\n| workload", "\n\nWritten by `./dev bench plots --publish`; what each workload does: [benchmarks.md](benchmarks.md).\n\n| workload", 1)


def readme_block(doc):
    """The plots, under one line that says of which machine and tree."""
    m = doc["machine"]
    tree = doc["versions"][report.SUBJECT].partition(";")[0]
    drawn = plots.bars(doc)
    images = [f"![{title}: {report.SUBJECT} beside its peers](docs/{PLOTS}/ratios-{name}.svg)"
              for name, title, _ in plots.SUBJECTS if name in drawn and name in SHOWN]
    line = (f"{m['cpu']}, {m['cpus']} CPUs, Linux {m['kernel'].partition('-')[0]}; tree {tree}, {doc['when'][:10]}; "
            f"medians of {doc['rounds']} rounds: [all figures](docs/results.md).")
    return "\n\n".join([line, *images]) + "\n"


def losses(doc):
    """What stands between the marks in where-we-lose.md: each cell in which a peer needs less, beyond doubt and by a twentieth."""
    lines = ["| workload | metric | P | dunlin | times the figure of |", "|---|---|--:|--:|---|"]
    for row in doc["rows"]:
        ahead = {peer: ratio for peer, ratio in row["ratios"].items()
                 if ratio and ratio > LOST_FROM and (row.get("intervals", {}).get(peer) or (ratio,))[0] > 1}
        if ahead:
            worst_first = sorted(ahead.items(), key=lambda item: -item[1])
            figure = report.number(row["figures"][report.SUBJECT]["median"]) + (f" {row['unit']}" if row["unit"] else "")
            lines.append(f"| {row['workload']} | {row['metric']} | {row['procs']} | {figure} | "
                         + ", ".join(f"{peer} {report.number(ratio)}" for peer, ratio in worst_first) + " |")
    return "\n".join(lines) + "\n"


def publish(results, docs=DOCS):
    """(the names of the files that were written, a line for each run that was refused); the plots must have been drawn."""
    written, lines = [], []
    if (results / "latest.json").is_file():
        doc = json.loads((results / "latest.json").read_text())
        if reason := refused(doc, ROUNDS_OF_RESULTS):
            lines.append(f"results.md stays: {reason}")
        else:
            (docs / PLOTS).mkdir(parents=True, exist_ok=True)
            for name in SHOWN:
                svg = results / PLOTS / f"ratios-{name}.svg"
                if svg.is_file():
                    shutil.copyfile(svg, docs / PLOTS / svg.name)
                    written.append(f"{PLOTS}/{svg.name}")
            (docs / "results.md").write_text(results_page(doc))
            readme = docs.parent / "README.md"
            readme.write_text(between_marks(readme.read_text(), "figures", readme_block(doc)))
            lost = docs / "where-we-lose.md"
            lost.write_text(between_marks(lost.read_text(), "losses", losses(doc)))
            written += ["results.md", "../README.md", "where-we-lose.md"]
    if (results / "growth.json").is_file():
        for family in json.loads((results / "growth.json").read_text())["families"]:
            if reason := refused(family):
                lines.append(f"the figures of {family['name']} stay: {reason}")
                continue
            page = family.get("page", "growth.md")
            text = between_marks((docs / page).read_text(), family["name"], growth_section(family))
            (docs / page).write_text(text)
            written.append(page)
    return list(dict.fromkeys(written)), lines
