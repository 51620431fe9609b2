// The status page: the stream of events that it follows, and what its reader does.

import {h, show} from "./elements.js";
import {explain} from "./explanation.js";
import {drawEdges} from "./graph.js";
import {render} from "./sections.js";
import {byName, folded, params, remember, sections} from "./view.js";
import {age, number, plural, setClock} from "./words.js";

let hasPlane = false, hasChannels = true, source = null, retry = 0, paused = false;

// overview is the event that says which sections there are.
function overview(o) {
  hasPlane = o.plane;
  hasChannels = o.channels > 0 || o.clients > 0 || !o.plane;
  offer();
  const words = [plural(o.channels, "channel"), plural(o.resources, "resource"), o.troubled ? `${number(o.troubled)} with errors` : "none with errors",
    o.lost && plural(o.lost, "unreachable server")];
  show(document.getElementById("summary"), hasChannels ? words.filter(Boolean).join(" · ") : "a control plane without channels of its own");
}

// offer shows the sections that the process has something for.
function offer() {
  let added = false;
  for (const name of sections) {
    const e = byName(name), has = name === "peers" || name === "served" ? hasPlane : hasChannels;
    if (e.hidden && has) added = true;
    e.hidden = !has;
    if (has && e.open === folded(name)) e.open = !folded(name);
  }
  if (added) connect();
}

// change changes what is shown.
function change(changes) {
  remember(changes);
  connect();
}

function query() {
  const q = new URLSearchParams(params);
  q.delete("show");
  q.append("show", "overview");
  for (const name of sections) if (name !== "explain" && !byName(name).hidden && byName(name).open) q.append("show", name);
  return q;
}

function connect() {
  clearTimeout(retry);
  source?.close();
  source = null;
  if (paused || document.hidden) return;
  source = new EventSource(`events?${query()}`);
  source.addEventListener("hello", e => {
    setClock(JSON.parse(e.data).now);
    link("on", "●", "live");
  });
  for (const [name, shown] of Object.entries({overview, ...render})) source.addEventListener(name, e => {
    shown(JSON.parse(e.data), byName(name)?.querySelector(".body"));
    document.body.setAttribute("data-ready", "");
  });
  source.onerror = () => {
    link("off", "✕", "not connected, trying again");
    // A browser tries again by itself, unless the answer was an error.
    if (source?.readyState === EventSource.CLOSED) retry = setTimeout(connect, 5000);
  };
}

function link(kind, sign, text) {
  const e = document.getElementById("live");
  if (e.className === kind && e.textContent.endsWith(text)) return;
  e.className = kind;
  show(e, h("span", {"aria-hidden": "true"}, sign), " " + text);
}

document.addEventListener("click", e => {
  const button = e.target.closest("[data-set], [data-open]");
  if (button?.dataset.set) {
    const changes = {[button.dataset.set]: button.dataset.value};
    if (button.dataset.set === "graph.channel") Object.assign(changes, {"graph.cluster": "", "graph.from": ""});
    change(changes);
    if (button.dataset.set === "graph.channel") byName("graph").scrollIntoView();
  } else if (button?.dataset.open) {
    const id = button.dataset.open, open = params.getAll("open");
    params.delete("open");
    for (const o of open.includes(id) ? open.filter(o => o !== id) : [...open, id].slice(-20)) params.append("open", o);
    change({});
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

document.addEventListener("toggle", e => {
  const name = e.target.dataset?.section;
  if (!name || e.target.hidden || e.target.open !== folded(name)) return;
  params.delete("show");
  for (const s of sections) if (s === name ? e.target.open : byName(s).open && !byName(s).hidden) params.append("show", s);
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
window.addEventListener("pagehide", () => source?.close());
new ResizeObserver(() => drawEdges()).observe(document.getElementById("main"));
setInterval(() => {
  for (const t of document.querySelectorAll("time[data-age]")) {
    const text = age(t.dateTime);
    if (t.textContent !== text) t.textContent = text;
  }
}, 1000);

for (const e of document.querySelectorAll("[data-param]")) if (params.has(e.dataset.param) && e.tagName === "INPUT") e.value = params.get(e.dataset.param);
connect();
