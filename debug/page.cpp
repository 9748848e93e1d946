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
  .tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin-top: .8rem }
  .tile { border: 1px solid #d5dae1; border-radius: .4rem; padding: .4rem .8rem; min-width: 6.5rem }
  .tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums } .tile span { color: #59636f }
  table { border-collapse: collapse; width: 100% }
  th { text-align: left; color: #59636f; font-weight: 500 } th, td { padding: .2rem .6rem .2rem 0; vertical-align: top }
  td.n { text-align: right; font-variant-numeric: tabular-nums; padding-right: 1.2rem; white-space: nowrap }
  tbody tr { border-top: 1px solid #e6e9ee } td { overflow-wrap: anywhere }
  code, pre { font: 12px/1.4 ui-monospace, monospace } pre { margin: .3rem 0; white-space: pre-wrap }
  summary { cursor: pointer }
  .label { background: #edf1f6; border-radius: .3rem; padding: 0 .35rem; margin-right: .3rem }
  @media (prefers-color-scheme: dark) {
    body { color: #d7dde5; background: #14181d } a { color: #7db4f0 }
    .tile { border-color: #343c46 } tbody tr { border-color: #2a313a }
    .tile span, th, #when { color: #97a2af } .label { background: #262d36 } #when.bad { color: #ff8a80 }
  }
</style>
<header><h1>Goroutines</h1><span id="when" role="status">asks the program ...</span>
  <label><input type="checkbox" id="on" checked> refresh</label>
  <nav id="links"></nav></header>
<div class="tiles" id="states"></div>
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
  return path + (query.toString() ? "?" + query : "");
};
const el = (name, text, kind) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind;
  return e;
};
const $ = id => document.getElementById(id);
for (const [name, path, more] of [["dump", "/dump"], ["json", "/dump.json"], ["metrics", "/metrics"],
    ["goroutine", "/debug/pprof/goroutine", {debug: 1}], ["block", "/debug/pprof/block", {debug: 1}],
    ["mutex", "/debug/pprof/mutex", {debug: 1}]]) {
  const a = el("a", name);
  a.href = at(path, more);
  $("links").append(a, " ");
}
const time = ns => ns >= 60e9 ? (ns / 60e9).toFixed(1) + " min" : ns >= 1e9 ? (ns / 1e9).toFixed(1) + " s"
  : ns >= 1e6 ? (ns / 1e6).toFixed(0) + " ms" : (ns / 1e3).toFixed(0) + " \u00b5s";
const number = n => n.toLocaleString("en");
const what = g => g.reason || g.state;
const shown = 50;
const open = new Set();

function describe(g) {
  const cell = el("td");
  if (g.name) cell.append(el("code", g.name), " ");
  for (const [key, value] of Object.entries(g.labels || {})) cell.append(el("span", key + "=" + value, "label"));
  return cell;
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
    draw(dump, metrics);
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
