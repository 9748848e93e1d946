#include "page.h"

namespace dunlin::inline v0_1::debug {

constinit const std::string_view page_html = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>dunlin</title>
<style>
  body { font: 14px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 1rem 1.5rem }
  body { color: #1d2530; background: #fff }
  h1 { font-size: 1.25rem; margin: 0 0 .3rem } h2 { font-size: 1rem; margin: 1.4rem 0 .4rem }
  header { display: flex; flex-wrap: wrap; align-items: baseline; gap: .2rem 1.2rem }
  a { color: #1f5fa8 } #when { color: #6a7480 } #when.bad { color: #b3261e; font-weight: 600 }
  .button { border: 1px solid #d5dae1; border-radius: .4rem; padding: .1rem .5rem; text-decoration: none }
  .tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin-top: .8rem }
  .tile { border: 1px solid #d5dae1; border-radius: .4rem; padding: .4rem .8rem; min-width: 6.5rem }
  .tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums } .tile span { color: #59636f }
  table { border-collapse: collapse; width: 100% }
  th { text-align: left; color: #59636f; font-weight: 500 } th, td { padding: .2rem .6rem .2rem 0; vertical-align: top }
  td.n { text-align: right; font-variant-numeric: tabular-nums; padding-right: 1.2rem; white-space: nowrap }
  tbody tr { border-top: 1px solid #e6e9ee } td { overflow-wrap: anywhere }
  code, pre { font: 12px/1.4 ui-monospace, monospace } pre { margin: .3rem 0; white-space: pre-wrap }
  summary { cursor: pointer }
  .lane { display: grid; grid-template-columns: 3rem 1fr 16rem; gap: .6rem; align-items: center; margin: .15rem 0 }
  .lane canvas { width: 100%; height: 1.3rem; background: #edf1f6; border-radius: .2rem }
  .lane span { overflow: hidden; white-space: nowrap; text-overflow: ellipsis }
  .columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(28rem, 1fr)); gap: 0 2rem }
  .quiet { color: #59636f } .red { color: #b3261e; font-weight: 600 }
  #graph svg { max-width: 100%; height: auto } #graph rect { fill: #edf1f6; stroke: #9aa5b1 }
  #graph text { font: 12px ui-monospace, monospace; fill: #1d2530 } #graph path { stroke: #59636f; fill: none }
  #graph .circle rect { stroke: #b3261e; stroke-width: 2 } #graph path.circle { stroke: #b3261e; stroke-width: 2 }
  .label { background: #edf1f6; border-radius: .3rem; padding: 0 .35rem; margin-right: .3rem }
  @media (prefers-color-scheme: dark) {
    body { color: #d7dde5; background: #14181d } a { color: #7db4f0 }
    .tile { border-color: #343c46 } tbody tr { border-color: #2a313a }
    .tile span, th, #when, .quiet { color: #97a2af } .label, .lane canvas { background: #262d36 }
    #graph rect { fill: #262d36; stroke: #5b6672 } #graph text { fill: #d7dde5 } #graph path { stroke: #97a2af }
    #when.bad { color: #ff8a80 }
  }
</style>
<header><h1>Goroutines</h1><span id="when" role="status">asks the program ...</span>
  <label><input type="checkbox" id="on" checked> refresh</label>
  <nav id="links"></nav></header>
<div class="tiles" id="states"></div>
<h2>Processors</h2>
<p class="quiet" id="window"></p>
<div id="lanes"></div>
<div class="columns">
<section><h2>Who computes</h2>
<table><thead><tr><th>share of a processor<th>who</tr></thead><tbody id="hogs"></tbody></table></section>
<section><h2>Locks that are waited for</h2>
<table><thead><tr><th>wait<th>longest<th>where<th>held by</tr></thead><tbody id="locks"></tbody></table></section>
</div>
<h2>Who waits for whom</h2>
<div id="graph"></div>
<h2>Longest waits</h2>
<table><thead><tr><th>waits for<th>for<th>where<th>who</tr></thead><tbody id="waits"></tbody></table>
<h2>By stack</h2>
<table><thead><tr><th>how many<th>state<th>longest wait<th>stack</tr></thead><tbody id="groups"></tbody></table>
<p id="more"></p>
<script>
"use strict";
const token = new URLSearchParams(location.search).get("token");
const at = (path, more) => {
  const query = new URLSearchParams(more);
  if (token) query.set("token", token);
  const text = query.toString().replaceAll("+", "%20");
  return path + (text ? "?" + text : "");
};
const el = (name, text, kind) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind;
  return e;
};
const $ = id => document.getElementById(id);
for (const [name, path, more] of [["dump", "/dump"], ["json", "/dump.json"], ["metrics", "/metrics"],
    ["goroutines", "/debug/pprof/goroutine", {debug: 1}], ["block", "/debug/pprof/block", {debug: 1}],
    ["mutex", "/debug/pprof/mutex", {debug: 1}], ["CPU for 5 s", "/debug/pprof/profile", {seconds: 5}],
    ["trace of 2 s", "/debug/pprof/trace", {seconds: 2}], ["recorder", "/trace"]]) {
  const a = el("a", name);
  a.href = at(path, more);
  a.className = "button";
  $("links").append(a, " ");
}
const time = ns => ns >= 60e9 ? (ns / 60e9).toFixed(1) + " min" : ns >= 1e9 ? (ns / 1e9).toFixed(1) + " s"
  : ns >= 1e6 ? (ns / 1e6).toFixed(0) + " ms" : (ns / 1e3).toFixed(0) + " \u00b5s";
const number = n => n.toLocaleString("en");
const what = g => g.reason || g.state;
const shown = 50;
const open = new Set();
let noTrace = "", refreshes = 0;

function describe(g) {
  const cell = el("td");
  if (g.name) cell.append(el("code", g.name), " ");
  for (const [key, value] of Object.entries(g.labels || {})) cell.append(el("span", key + "=" + value, "label"));
  return cell;
}

// ---- the flight recorder: tools/trace/dunlin_trace.py has the same numbers

const run = 4, park = 5, yielded = 6, queued = 7, preempted = 8, resumed = 9, end = 10, called = 11, callEnded = 12,
      taken = 13,
  released = 14, withText = new Set([20, 21, 23, 26]), nameOf = 20, none = 0xffff;

// {from, until, ns: per tick, slices: [{p, g, from, until, calls}], names}, or null.
function read(buffer) {
  const view = new DataView(buffer), text = new TextDecoder();
  if (buffer.byteLength < 8 || text.decode(new Uint8Array(buffer, 0, 8)) !== "DUNTRACE") return null;
  const names = new Map(), clocks = [], sources = [];
  let complete = 0;
  const u64 = at => Number(view.getBigUint64(at, true));
  for (let at = 8; at + 8 <= buffer.byteLength;) {
    const type = view.getUint32(at, true), size = view.getUint32(at + 4, true), from = at + 8;
    if (from + size > buffer.byteLength) break;
    if (type === 2) clocks.push([u64(from), u64(from + 8)]);
    if (type === 3) sources.push([view.getUint32(from, true), from + 16, from + size]);
    if (type === 5) complete = u64(from);
    if (type === 7) names.set(u64(from), text.decode(new Uint8Array(buffer, from + 8, size - 8)));
    at = from + size;
  }
  if (clocks.length < 2) return null;
  const [t0, n0] = clocks[0], [t1, n1] = clocks[clocks.length - 1];
  const perTick = t1 > t0 ? (n1 - n0) / (t1 - t0) : 1, until = t1;
  const events = [];
  for (const [source, from, to] of sources) {
    for (let at = from; at + 32 <= to; at += 32) {
      const e = {source, time: u64(at), g: u64(at + 8), arg: u64(at + 16), p: view.getUint16(at + 28, true),
        what: view.getUint8(at + 30), detail: view.getUint8(at + 31)};
      if (withText.has(e.what)) {
        const size = view.getUint32(at + 24, true);
        if (e.what === nameOf) names.set(e.g, text.decode(new Uint8Array(buffer, at + 32, size)));
        at += Math.ceil(size / 32) * 32;
      } else if (e.time >= complete) {
        events.push(e);
      }
    }
  }
  events.sort((a, b) => a.time - b.time);
  const slices = [], open = new Map(), below = new Map(), seen = new Set();
  const close = (source, time) => {
    const s = open.get(source);
    if (s) s.until = time, slices.push(s), open.delete(source);
  };
  const begin = (source, p, g, from, calls) => {
    if (p !== none) open.set(source, {p, g, from, until: from, calls});
  };
  for (const e of events) {
    const s = open.get(e.source);
    if (e.what === 1) continue;
    if (e.what === run) {
      if (s && e.detail === 1) below.set(e.g, s.g);  // on the stack of the one that waits for it
      close(e.source, e.time), begin(e.source, e.p, e.g, e.time, false);
    } else if (e.what === resumed) {
      close(e.source, e.time), begin(e.source, e.p, e.g, e.time, false);
    } else if (e.what === called || e.what === callEnded) {
      close(e.source, e.time), begin(e.source, e.p, e.g, e.time, e.what === called);
    } else if (e.what === end) {
      close(e.source, e.time);
      if (below.has(e.g)) begin(e.source, e.p, below.get(e.g), e.time, false), below.delete(e.g);
    } else if ([park, yielded, queued, preempted, released].includes(e.what)) {
      // It ran before what is kept.
      if (!s && e.g && e.p !== none && !seen.has(e.source)) begin(e.source, e.p, e.g, complete, false);
      close(e.source, e.time);
    } else if (e.what === taken) {
      const of = open.get(e.arg);
      if (of && of.p === e.p) close(e.arg, e.time);
    }
    seen.add(e.source);
  }
  for (const source of [...open.keys()]) close(source, until);
  const first = Math.max(complete, events.length ? events[0].time : until, until - 200e6 / perTick);
  return {from: first, until, ns: perTick, slices: slices.filter(s => s.until > first), names};
}

const colour = g => `hsl(${(g * 137) % 360} 55% 55%)`;
let dumped = new Map();  // goroutine -> what the dump says of it
function who(g, names) {
  const name = (names && names.get(g)) || (dumped.get(g) || {}).name;
  return "goroutine " + g + (name ? " \"" + name + "\"" : "");
}

function drawLanes(trace, dump) {
  const lanes = $("lanes"), shownLanes = Math.min(dump.processors.length, 64);
  while (lanes.children.length > shownLanes) lanes.lastChild.remove();
  while (lanes.children.length < shownLanes) {
    const lane = el("div", undefined, "lane"), canvas = el("canvas");
    canvas.width = 1200, canvas.height = 22;
    lane.append(el("b", "P" + lanes.children.length), canvas, el("span"));
    lanes.append(lane);
  }
  const length = trace ? trace.until - trace.from : 0;
  $("window").textContent = trace ? "the last " + time(length * trace.ns) + ", and what runs now"
    : "no time line: " + noTrace;
  const busy = new Map(), last = new Map();
  for (const lane of lanes.children) lane.children[1].getContext("2d").clearRect(0, 0, 1200, 22);
  for (const s of trace ? trace.slices : []) {
    const from = Math.max(s.from, trace.from);
    if (!s.calls) busy.set(s.g, (busy.get(s.g) || 0) + s.until - from);
    if (s.p >= shownLanes) continue;
    const c = lanes.children[s.p].children[1].getContext("2d"), x = (from - trace.from) / length * 1200;
    c.globalAlpha = s.calls ? .4 : 1;
    c.fillStyle = colour(s.g);
    c.fillRect(x, 0, Math.max((s.until - from) / length * 1200, .5), 22);
    last.set(s.p, s);
  }
  for (const p of dump.processors.slice(0, shownLanes)) {
    const lane = lanes.children[p.id], s = last.get(p.id);
    const now = s && s.until === trace.until ? who(s.g, trace.names) : "";
    lane.children[2].textContent = now || (p.queue ? "" : s ? "idle" : "no event");
  }
  // One that computes may have been given its processor without an event: the dump has seen it.
  for (const [g, about] of dumped) {
    const computes = (about.state === "running" && !about.reason || about.state === "preempted") && g !== dump.current;
    if (computes && !busy.has(g)) busy.set(g, 0);
  }
  const some = ([g, ticks]) => ticks > length / 10 || dumped.has(g) && /running|preempted/.test(dumped.get(g).state);
  const hogs = [...busy].filter(some).sort((a, b) => b[1] - a[1]).slice(0, 8);
  $("hogs").replaceChildren(...hogs.map(([g, ticks]) => {
    const row = el("tr"), about = dumped.get(g), cell = el("td", who(g, trace && trace.names));
    if (about && about.stack.length) cell.append(" in ", el("code", about.stack[0].function));
    row.append(el("td", (ticks ? (100 * ticks / length).toFixed(0) + " %" : ""), "n"), cell);
    return row;
  }));
}

function drawLocks(dump) {
  const locks = new Map();
  for (const g of dump.groups) {
    if (!g.object) continue;
    const l = locks.get(g.object) || {count: 0, longest: 0, where: g.waits_at, holder: g.holder};
    l.count += g.count;
    if (g.longest_wait_ns > l.longest) l.longest = g.longest_wait_ns, l.where = g.waits_at;
    locks.set(g.object, l);
  }
  const rows = [...locks.values()].sort((a, b) => b.count * b.longest - a.count * a.longest).slice(0, 10);
  $("locks").replaceChildren(...rows.map(l => {
    const row = el("tr");
    row.append(el("td", number(l.count), "n"), el("td", time(l.longest), "n"), el("td", l.where || ""),
      el("td", l.holder ? who(l.holder) : "none at the moment"));
    return row;
  }));
}

// Those that wait for a goroutine, and that one; in columns, each right of who waits for it.
function drawGraph(dump) {
  const nodes = new Map(), edges = [];
  const nodeOf = g => {
    const group = dumped.get(g), key = group && group.holder ? "waits" + dump.groups.indexOf(group) : "g" + g;
    const text = group && group.count > 1 ? number(group.count) + " goroutines" : who(g);
    if (!nodes.has(key)) nodes.set(key, {key, text, more: group ? what(group) : "", column: 0});
    return nodes.get(key);
  };
  for (const g of dump.groups.filter(g => g.holder).slice(0, 40)) edges.push([nodeOf(g.ids[0]), nodeOf(g.holder)]);
  const next = new Map(edges);
  for (const start of nodes.values()) {
    const seen = [start];
    for (let n = next.get(start); n; n = next.get(n)) {
      if (n === start) { for (const s of seen) s.circle = true; }
      if (seen.includes(n)) break;
      seen.push(n);
    }
  }
  for (let round = 0; round < nodes.size; ++round) {
    for (const [a, b] of edges) if (!(a.circle && b.circle)) b.column = Math.max(b.column, a.column + 1);
  }
  const box = el("div");
  box.innerHTML = "<svg></svg>";
  const space = box.firstChild.namespaceURI;
  const svgOf = (name, attributes) => {
    const e = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    return e;
  };
  const rows = [], wide = 250, high = 52;
  let column = 0;
  for (const n of nodes.values()) {
    if (n.circle) n.column = Math.max(n.column, column++ % 4);
    n.row = rows[n.column] = (rows[n.column] ?? -1) + 1;
    n.x = n.column * (wide + 60) + 6, n.y = n.row * (high + 18) + 6;
  }
  if (!nodes.size) {
    return $("graph").replaceChildren(el("p", "no goroutine waits for a lock that another one holds", "quiet"));
  }
  const columns = Math.max(...[...nodes.values()].map(n => n.column)) + 1;
  const most = Math.max(...rows.filter(r => r !== undefined)) + 1;
  const width = columns * (wide + 60), height = most * (high + 18) + 40;
  const svg = svgOf("svg", {viewBox: `0 0 ${width} ${height}`, width, height});
  const size = {markerWidth: 8, markerHeight: 8, refX: 7, refY: 4};
  const marker = svgOf("marker", {id: "tip", viewBox: "0 0 8 8", orient: "auto", ...size});
  marker.append(svgOf("path", {d: "M0 0L8 4L0 8"}));
  svg.append(marker);
  for (const [a, b] of edges) {
    const back = b.x <= a.x, y0 = a.y + high / 2, y1 = b.y + high / 2, under = Math.max(a.y, b.y) + high + 26;
    const middle = (a.x + b.x + wide) / 2, bow = `Q${middle} ${under} ${b.x + wide / 2} ${b.y + high}`;
    const d = back ? `M${a.x + wide / 2} ${a.y + high} ${bow}` : `M${a.x + wide} ${y0} L${b.x} ${y1}`;
    svg.append(svgOf("path", {d, "marker-end": "url(#tip)", class: a.circle && b.circle ? "circle" : ""}));
  }
  for (const n of nodes.values()) {
    const g = svgOf("g", {class: n.circle ? "circle" : ""});
    const t = svgOf("text", {x: n.x + 8, y: n.y + 21}), u = svgOf("text", {x: n.x + 8, y: n.y + 39});
    t.textContent = n.text.slice(0, 32), u.textContent = n.more.slice(0, 32);
    g.append(svgOf("rect", {x: n.x, y: n.y, width: wide, height: high, rx: 5}), t, u);
    svg.append(g);
  }
  const circle = [...nodes.values()].some(n => n.circle);
  const words = "They wait for each other in a circle: a deadlock, if none of them gives up";
  $("graph").replaceChildren(...(circle ? [el("p", words, "red")] : []), svg);
}

function draw(dump, metrics) {
  const states = new Map();
  for (const g of dump.groups) states.set(what(g), (states.get(what(g)) || 0) + g.count);
  const tiles = [["alive", dump.goroutines], ...[...states].sort((a, b) => b[1] - a[1])];
  for (const [name, pattern] of [["processors", /^dunlin_processors (\S+)/m], ["threads", /^dunlin_threads (\S+)/m],
      ["in run queues", /^dunlin_run_queue_length (\S+)/m]]) {
    const found = pattern.exec(metrics);
    if (found) tiles.push([name, Number(found[1])]);
  }
  drawLocks(dump);
  drawGraph(dump);
  $("states").replaceChildren(...tiles.map(([name, n]) => {
    const tile = el("div", undefined, "tile");
    tile.append(el("b", number(n)), el("span", name));
    return tile;
  }));
  const waiting = dump.groups.filter(g => g.longest_wait_ns !== undefined);
  waiting.sort((a, b) => b.longest_wait_ns - a.longest_wait_ns);
  $("waits").replaceChildren(...waiting.slice(0, 10).map(g => {
    const row = el("tr"), holder = g.holder ? " (goroutine " + g.holder + " has it)" : "";
    row.append(el("td", what(g) + holder), el("td", time(g.longest_wait_ns), "n"), el("td", g.waits_at || ""));
    const who = describe(g);
    who.append((g.count > 1 ? number(g.count) + " of them, goroutine " : "goroutine ") + g.ids[0]);
    row.append(who);
    return row;
  }));
  const groups = [...dump.groups].sort((a, b) => b.count - a.count);
  $("groups").replaceChildren(...groups.slice(0, shown).map(g => {
    const row = el("tr"), cell = describe(g), details = el("details");
    const key = what(g) + g.created_at + (g.name || "") + (g.waits_at || "");
    details.open = open.has(key);
    details.addEventListener("toggle", () => details.open ? open.add(key) : open.delete(key));
    details.append(el("summary", g.stack.length ? g.stack[0].function : "created at " + g.created_at));
    const frames = g.stack.map(f => f.function + (f.at ? "  at " + f.at : "") + "\n");
    details.append(el("pre", frames.join("") + "created at " + g.created_at));
    cell.append(details);
    row.append(el("td", number(g.count), "n"), el("td", what(g)),
      el("td", g.longest_wait_ns === undefined ? "" : time(g.longest_wait_ns), "n"), cell);
    return row;
  }));
  const hidden = groups.length - shown + dump.groups_left_out;
  $("more").textContent = hidden > 0 ? "and " + number(hidden) + " more groups: see dump" : "";
}

async function refresh() {
  try {
    const get = async path => {
      const reply = await fetch(at(path));
      if (!reply.ok) throw new Error((await reply.text()).trim());
      return reply;
    };
    const dump = await (await get("/dump.json")).json(), metrics = await (await get("/metrics")).text();
    dumped = new Map(dump.groups.flatMap(g => g.ids.map(id => [id, g])));
    draw(dump, metrics);
    const recorded = await fetch(at("/trace"));
    if (!recorded.ok) noTrace = (await recorded.text()).trim();
    drawLanes(recorded.ok ? read(await recorded.arrayBuffer()) : null, dump);
    document.body.dataset.refreshes = ++refreshes;
    $("when").textContent = "as of " + new Date().toLocaleTimeString();
    $("when").className = "";
  } catch (e) {
    $("when").textContent = "no answer: " + e.message;
    $("when").className = "bad";
  }
}
async function again() {
  if ($("on").checked && !document.hidden) await refresh();
  setTimeout(again, 2000);
}
refresh().then(() => setTimeout(again, 2000));
</script>
</html>
)html";

}  // namespace dunlin::debug
