"""Curves as SVG, written by hand: needs nothing that has to be installed."""

from html import escape

COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8e5ea2", "#e08e0b", "#4a4e69", "#00a6a6", "#9c6644")
PARTS = {  # of the CPUs' time, from below
    "work": "#2e933c",
    "plain": "#95c98f",
    "locked": "#1b6ca8",
    "lines": "#d1495b",
    "spinning": "#e08e0b",
    "kernel": "#8e5ea2",
    "barriers": "#4a4e69",
    "interrupted": "#9c6644",
    "idle": "#dddddd",
}
FONT = 'font-family="DejaVu Sans, Verdana, sans-serif"'


class Drawing:
    def __init__(self, width, height):
        self.width, self.height = width, height
        self.parts = []

    def text(self, x, y, words, size=11, anchor="start", turn=0):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{turned}>{escape(words)}</text>')

    def line(self, points, colour, width=1.5, dash=""):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def dot(self, x, y, colour):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>')

    def box(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>')

    def save(self, path):
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}" {FONT}>'
        white = f'<rect width="{self.width}" height="{self.height}" fill="white"/>'
        path.write_text("\n".join([head, white, *self.parts, "</svg>", ""]))


def frame(d, left, top, width, height, title, procs, y_marks, y_of):
    """Axes: CPUs at equal distances, whatever doubles."""
    d.text(left, top - 8, title, 12)
    step = width / max(len(procs) - 1, 1)
    for value, words in y_marks:
        d.line([(left, y_of(value)), (left + width, y_of(value))], "#dddddd", 0.7)
        d.text(left - 6, y_of(value) + 4, words, 10, "end")
    for i, p in enumerate(procs):
        d.text(left + i * step, top + height + 15, str(p), 10, "middle")
    d.line([(left, top), (left, top + height), (left + width, top + height)], "black", 0.9)
    return lambda i: left + i * step


def efficiencies(curves, path):
    """curves: {name: [(CPUs, part)]}"""
    left, top, width, height = 60, 40, 560, 300
    d = Drawing(left + width + 150, top + height + 50)
    procs = [p for p, _ in next(iter(curves.values()))]
    y_of = lambda part: top + height * (1 - min(part, 1.2) / 1.2)
    x_of = frame(d, left, top, width, height, "What each CPU does, of what one alone does (1: as much)", procs,
                 [(v / 4, f"{v / 4:g}") for v in range(5)], y_of)
    ends = []
    for number, (name, points) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(x_of(procs.index(p)), y_of(part)) for p, part in points]
        d.line(places, colour, 1.8)
        for x, y in places:
            d.dot(x, y, colour)
        ends.append((places[-1][1], name, colour))
    # Names beside the curves' ends, none over another, the last one at the axis.
    above, heights = top + height + 14, []
    for y, _, _ in sorted(ends, reverse=True):
        above = min(y + 4, above - 14)
        heights.append(above)
    for (y, name, colour), at in zip(sorted(ends, reverse=True), heights):
        d.line([(left + width + 4, y), (left + width + 16, at - 4)], colour, 0.8)
        d.parts.append(f'<text x="{left + width + 19}" y="{at:.1f}" font-size="11" fill="{colour}">{escape(name)}</text>')
    d.text(left + width / 2, top + height + 36, "virtual CPUs, work for each the same", 11, "middle")
    d.save(path)


def shares(curves, path):
    """curves: {name: [(CPUs, {what: part})]}: what the CPUs did with their time."""
    columns, left, gap, width, height, top = 2, 46, 76, 300, 130, 44
    rows = -(-len(curves) // columns)
    top += 16
    d = Drawing(left + columns * (width + gap), top + rows * (height + 62) + 20)
    d.text(left, 18, "What the CPUs do with their time, by their number", 12)
    for number, (name, points) in enumerate(curves.items()):
        x0 = left + number % columns * (width + gap)
        y0 = top + number // columns * (height + 62)
        bar = width / len(points)
        d.text(x0, y0 - 7, name, 12)
        for i, (procs, parts) in enumerate(points):
            at = y0 + height
            for what, colour in PARTS.items():
                size = height * parts.get(what, 0)
                at -= size
                d.box(x0 + i * bar, at, bar * 0.86, size, colour)
            d.text(x0 + (i + 0.43) * bar, y0 + height + 14, str(procs), 10, "middle")
        for value in (0, 0.5, 1):
            d.text(x0 - 5, y0 + height * (1 - value) + 4, f"{value:g}", 10, "end")
    at = left
    for what, colour in PARTS.items():
        d.box(at, d.height - 18, 10, 10, colour)
        d.text(at + 13, d.height - 9, what, 10)
        at += 34 + 6.3 * len(what)
    d.save(path)
