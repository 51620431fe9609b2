// The status page: what it asks for again and again, and what its reader does.

import {h, show} from "./elements.js";
import {explain} from "./explanation.js";
import {drawEdges} from "./graph.js";
import {render} from "./sections.js";
import {plane, problems, verdicts} from "./verdict.js";
import {byName, fold, folded, params, remember, sections, tab} from "./view.js";
import {age, setClock} from "./words.js";

let hasPlane = false, hasChannels = true, asking = null, again = 0, paused = false;

// overview shows the verdict and the problems, and which sections there are.
function overview(o) {
  hasPlane = Boolean(o.plane);
  hasChannels = o.channels > 0 || o.clients > 0 || !hasPlane;
  verdicts(o);
  problems(o);
  plane(o);
  offer();
}

// offer shows the sections of the tab that the process has something for.
function offer() {
  let changed = false;
  for (const name of sections) {
    const e = byName(name), has = e.dataset.tab === tab() && (name === "peers" || name === "served" ? hasPlane : hasChannels);
    if (e.hidden === has) changed = true;
    e.hidden = !has;
    if (has && e.open === folded(name)) e.open = !folded(name);
  }
  for (const id of ["problems", "plane"]) {
    const e = document.getElementById(id);
    e.hidden = tab() !== e.dataset.tab || e.dataset.empty === "true" && id === "plane";
  }
  for (const b of document.querySelectorAll('header [data-set="tab"]')) b.setAttribute("aria-current", String((b.dataset.value || "overview") === tab()));
  if (changed) connect();
}

// change changes what is shown.
function change(changes) {
  remember(changes);
  offer();
  connect();
}

// goto leads to what a part of the verdict is about.
function goTo(about) {
  const [section, tabbed, id] = {clusters: ["clusters", ""], rpcs: ["clusters", ""], changes: ["changes", ""], peers: ["peers", ""], servers: ["clients", "raw"],
    channels: ["channels", "raw"], resources: ["resources", "raw"], problems: ["", "", "problems"], plane: ["", "", "plane"]}[about] ?? [];
  if (tabbed === undefined) return;
  const changes = {tab: tabbed};
  if (about === "resources") changes["resources.state"] = "trouble";
  if (about === "rpcs") changes["clusters.sort"] = "errors";
  if (section) fold(section, false);
  change(changes);
  const e = section ? byName(section) : document.getElementById(id);
  e.scrollIntoView();
  (e.querySelector("summary, h2") ?? e).focus();
}

// choose shows a cluster of a channel in the graph.
function choose(data) {
  fold("graph", false);
  change({tab: "", "graph.channel": data.channel, "graph.cluster": data.cluster, "graph.route": "", "graph.q": "", "graph.from": ""});
}

function query() {
  const q = new URLSearchParams(params);
  for (const own of ["fold", "tab", "show"]) q.delete(own);
  q.append("show", "overview");
  for (const name of sections) if (name !== "explain" && !byName(name).hidden && byName(name).open) q.append("show", name);
  return q;
}

// connect asks for what is shown, from now on.
function connect() {
  clearTimeout(again);
  asking?.abort();
  if (paused || document.hidden) return;
  asking = new AbortController();
  ask(query(), {}, asking.signal);
}

// ask asks for the sections of which there are newer versions, shows them, and asks again a second later.
async function ask(q, versions, signal) {
  for (const [name, version] of Object.entries(versions)) q.set(`${name}.version`, version);
  let answer;
  try {
    const response = await fetch(`data?${q}`, {signal});
    if (!response.ok) throw new Error(response.status);
    answer = await response.json();
  } catch {
    if (signal.aborted) return;
    link("off", "✕", "not connected, trying again");
    again = setTimeout(ask, 5000, q, versions, signal);
    return;
  }
  if (signal.aborted) return;
  again = setTimeout(ask, 1000, q, answer.versions, signal);
  setClock(answer.now);
  link("on", "●", "live");
  for (const [name, shown] of Object.entries({overview, ...render})) if (name in answer) shown(answer[name], byName(name)?.querySelector(".body"));
  document.body.setAttribute("data-ready", "");
}

function link(kind, sign, text) {
  const e = document.getElementById("live");
  if (e.className === kind && e.textContent.endsWith(text)) return;
  e.className = kind;
  show(e, h("span", {"aria-hidden": "true"}, sign), " " + text);
}

document.addEventListener("click", e => {
  const button = e.target.closest("[data-set], [data-goto], [data-why], [data-cluster]"), data = button?.dataset;
  if (!data) return;
  if (data.goto) goTo(data.goto);
  else if (data.why) {
    choose(data);
    fold("explain", false);
    offer();
    const form = document.getElementById("explain");
    form.elements.target.value = data.target;
    form.elements.method.value = data.why;
    explain(form);
    byName("explain").scrollIntoView();
  } else if (data.cluster) {
    choose(data);
    byName("graph").scrollIntoView();
  } else if (data.set) {
    const changes = {[data.set]: data.value};
    if (data.set === "graph.channel") Object.assign(changes, {tab: "", "graph.cluster": "", "graph.route": "", "graph.from": ""});
    if (data.set === "graph.cluster") changes["graph.route"] = "";
    change(changes);
    if (data.set === "graph.channel") byName("graph").scrollIntoView();
    if (data.set === "tab") window.scrollTo(0, 0);
  }
});

let typing = 0;
document.addEventListener("input", e => {
  const param = e.target.dataset?.param;
  if (!param) return;
  clearTimeout(typing);
  const changes = {[param]: e.target.value, [`${param.split(".")[0]}.from`]: ""};
  for (const other of e.target.dataset.resets?.split(" ") ?? []) changes[other] = "";
  typing = setTimeout(() => change(changes), e.target.type === "search" ? 200 : 0);
});

// A click changes what is to be folded at once: until "toggle" comes, an overview would open the section again.
document.addEventListener("click", e => {
  const section = e.target.closest("button, a") ? undefined : e.target.closest("summary")?.parentElement;
  if (!section?.dataset.section) return;
  e.preventDefault();
  fold(section.dataset.section, section.open);
  change({});
});

document.addEventListener("toggle", e => {
  drawEdges(); // A box of the graph may have another height.
  const name = e.target.dataset?.section;
  if (!name || e.target.hidden || e.target.open !== folded(name)) return;
  fold(name, !e.target.open);
  change({});
}, true);

document.getElementById("explain").addEventListener("submit", e => {
  e.preventDefault();
  explain(e.target);
});

document.getElementById("pause").addEventListener("click", e => {
  paused = !paused;
  e.target.textContent = paused ? "Resume" : "Pause";
  e.target.setAttribute("aria-pressed", String(paused));
  connect();
  if (paused) link("", "‖", "paused");
});

document.addEventListener("keydown", e => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
  const searches = [...document.querySelectorAll('.section[open]:not([hidden]) input[type="search"]')];
  const next = searches.find(s => s.getBoundingClientRect().top > 60) ?? searches[0];
  if (next) {
    e.preventDefault();
    next.focus();
  }
});

document.addEventListener("visibilitychange", connect);
window.addEventListener("pagehide", () => asking?.abort());
new ResizeObserver(() => drawEdges()).observe(document.getElementById("main"));
setInterval(() => {
  for (const t of document.querySelectorAll("time[data-age]")) {
    const text = age(t.dateTime);
    if (t.textContent !== text) t.textContent = text;
  }
}, 1000);

for (const e of document.querySelectorAll("[data-param]")) if (params.has(e.dataset.param)) e.value = params.get(e.dataset.param);
connect();
