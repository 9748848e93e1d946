"""Sections of docs/scale.md, between their marks."""

import analyse
import measure
from measure import cpu_ns

PUBLISHED = "written by ./dev scale --publish"


def replace(text, name, content):
    """The page with this content between the marks of that name; raises ValueError if they are not there."""
    begin, end = f"<!-- {name}: {PUBLISHED} -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = text.partition(begin)
    _, also_found, after = rest.partition(end)
    if not found or not also_found:
        raise ValueError(f"docs/scale.md has lost the marks around {name}")
    return before + begin + content + end + after


def costs(table):
    lines = ["| | here | server | where from |", "|---|--:|--:|---|"]
    lines += [f"| `{row['name']}` | {row['here']:,} | {row['server']:,} | {row['source']} |" for row in table]
    return "\n".join(lines) + "\n"


def check(rows):
    """rows: (workload, real, simulated), each {CPUs: ns}, and the part of the time for which the real threads waited for CPUs."""
    lines = ["| | real, 1 | 2 | gain | simulated, 1 | 2 | gain | simulated / real |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for workload, real, simulated, waited in rows:
        gains = [2 * ns[1] / ns[2] for ns in (real, simulated)]
        mark = f" (waited for {waited:.0%})" if waited > measure.QUIET else ""
        lines.append(f"| {workload}{mark} | {real[1]:,.0f} | {real[2]:,.0f} | {gains[0]:.2f} | {simulated[1]:,.0f} | "
                     f"{simulated[2]:,.0f} | {gains[1]:.2f} | {gains[1] / gains[0]:.2f} |")
    return "\n".join(lines) + "\n"


def figure(result):
    """With how much it varies, where that is a tenth and more."""
    least, most = result.get("spread", (0, 0))
    ns = cpu_ns(result)
    return f"{ns:,.0f} ({least:,.0f} to {most:,.0f})" if most - least > 0.1 * ns else f"{ns:,.0f}"


def curves(by_workload):
    procs = [r["procs"] for r in next(iter(by_workload.values()))]
    lines = ["| | " + " | ".join(map(str, procs)) + " | knee |", "|---|" + "--:|" * (len(procs) + 1)]
    for workload, curve in by_workload.items():
        at = analyse.knee(curve)
        lines.append(f"| {workload} | " + " | ".join(figure(r) for r in curve) + f" | {at or '-'} |")
    return "\n".join(lines) + "\n"


def bottlenecks(by_workload, symbols, most=3):
    lines = ["| | CPUs | idle | longest wait | then | locks that are held |", "|---|--:|--:|---|---|---|"]
    for workload, curve in by_workload.items():
        at = analyse.knee(curve)
        procs = [r["procs"] for r in curve]
        shown = [procs[-1]] if at is None else sorted({min(2 * at, procs[-1]), procs[-1]})
        for result in (r for r in curve if r["procs"] in shown):
            found = [f"{what}, {part:.0%} {how}" for what, part, how, _ in analyse.waits(result, symbols)[:most]
                     if part > 0.005]
            held = [f"{which} {part:.0%}" for which, part in analyse.locks(result, symbols)[:1] if part > 0.2]
            idle = f"{analyse.spent(result)['idle']:.0%}"
            processors, queued = analyse.idle_beside_queues(result)
            if processors * 10 > result["procs"] and queued * 4 > processors:
                idle += f" ({processors} of them, and {queued} goroutines in queues)"
            lines.append(f"| {workload} | {result['procs']} | {idle} | {found[0] if found else '-'} | "
                         f"{'; '.join(found[1:]) or '-'} | {'; '.join(held) or '-'} |")
    return "\n".join(lines) + "\n"
