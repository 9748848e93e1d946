"""Copies what was measured into the documentation: docs/results.md, the tables of docs/growth.md (and that of `work` in
docs/benchmarks.md), and the plots of all in docs/plots."""

import json
import shutil

from . import growth, plots, report
from .peers import ROOT

DOCS = ROOT / "docs"
PLOTS = "plots"


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


def growth_section(family):
    """What stands between the marks: the plot, then the tables folded away."""
    return "\n".join(
        [
            f"![{family['title']}: cost beside {', '.join(p for p in family['versions'] if p != report.SUBJECT)}]({PLOTS}/growth-{family['name']}.svg)",
            "",
            "<details><summary>The figures</summary>",
            "",
            *growth.tables(family),
            "</details>",
            "",
        ]
    )


def results_page(doc):
    """latest.md with the plots in front of the table."""
    drawn = plots.bars(doc)
    head, _, table = report.markdown(doc).partition("\n\n| ")
    images = [
        f"![{title}: {report.SUBJECT} beside its peers]({PLOTS}/ratios-{name}.svg)" for name, title, _ in plots.SUBJECTS if name in drawn
    ]
    explained = "Written by `./dev bench plots --publish`; what each workload does: [benchmarks.md](benchmarks.md)."
    return "\n\n".join([head, explained, *images, "## All figures", "| " + table]) if table else head + "\n"


def publish(results, docs=DOCS):
    """The names of the files that were written; the plots must have been drawn."""
    written = []
    drawn = sorted((results / PLOTS).glob("*.svg"))
    (docs / PLOTS).mkdir(parents=True, exist_ok=True)
    for svg in drawn:
        shutil.copyfile(svg, docs / PLOTS / svg.name)
        written.append(f"{PLOTS}/{svg.name}")
    if (results / "latest.json").is_file():
        (docs / "results.md").write_text(results_page(json.loads((results / "latest.json").read_text())))
        written.append("results.md")
    if (results / "growth.json").is_file():
        for family in json.loads((results / "growth.json").read_text())["families"]:
            page = family.get("page", "growth.md")
            text = between_marks((docs / page).read_text(), family["name"], growth_section(family))
            (docs / page).write_text(text)
            written.append(page)
    return list(dict.fromkeys(written))
