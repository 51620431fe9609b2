// The status page. Whatever the server sends becomes text nodes: nothing here parses markup.
"use strict";

const sections = ["channels", "graph", "explain", "resources", "traffic", "changes", "clients", "peers", "served"];
const byName = name => document.querySelector(`.section[data-section="${name}"]`);

// ---- Text and elements

// visible shows characters that cannot be seen, or that would turn the text around.
const visible = text => String(text ?? "").replace(/[^\P{C}\n]|[\u2028\u2029]/gu, c => `\\u{${c.codePointAt(0).toString(16)}}`);

// h makes an element. Children are nodes, texts, lists of them, or nothing.
function h(tag, attributes, ...children) {
  const [kind, ...classes] = tag.split(".");
  const e = document.createElement(kind || "div");
  if (classes.length) e.className = classes.join(" ");
  for (const [k, v] of Object.entries(attributes ?? {})) if (v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : visible(v));
  add(e, children);
  return e;
}

function add(e, children) {
  for (const c of children) {
    if (Array.isArray(c)) add(e, c);
    else if (c instanceof Node) e.append(c);
    else if (c !== undefined && c !== null && c !== false && c !== "") e.append(visible(c));
  }
}

// name shows a name that comes from outside, whatever the direction of its letters.
const name = (text, empty = "(empty)") => text ? h("bdi.name", null, String(text).replaceAll("\n", "\\u{a}")) : h("span.soft", null, empty);

// names shows several.
const names = list => list.map((n, i) => [i > 0 && ", ", name(n)]);

// morph makes one element like another, and keeps what is alike: the focus, the selection, and what
// is unfolded stay.
function morph(old, now) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  for (const a of [...old.attributes]) if (!now.hasAttribute(a.name) && a.name !== "open") old.removeAttribute(a.name);
  for (const a of now.attributes) if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
  const key = n => n.nodeType === Node.ELEMENT_NODE ? n.getAttribute("data-key") : null;
  const keyed = new Map([...old.childNodes].filter(key).map(n => [key(n), n]));
  let at = old.firstChild;
  for (const n of [...now.childNodes]) {
    const k = key(n);
    let same = k ? keyed.get(k) : at && !key(at) && at.nodeName === n.nodeName ? at : null;
    if (same && same.nodeName !== n.nodeName) same = null;
    if (!same) {
      old.insertBefore(n, at);
      continue;
    }
    if (same === at) at = at.nextSibling; else old.insertBefore(same, at);
    if (k) keyed.delete(k);
    morph(same, n);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// show replaces what an element contains.
function show(element, ...children) {
  const now = element.cloneNode(false);
  add(now, children);
  morph(element, now);
}

// ---- Words

let ahead = 0; // the server's clock minus ours, in milliseconds

function age(iso) {
  const seconds = Math.max(0, (Date.now() + ahead - Date.parse(iso)) / 1000);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

const since = iso => h("time", {datetime: iso, title: iso, "data-age": true}, age(iso));
const until = iso => `${Math.max(0, Math.ceil((Date.parse(iso) - Date.now() - ahead) / 1000))} s`;
const number = n => n.toLocaleString("en");
const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;
const percent = n => `${Math.round(n * 100) / 100} %`;
const rate = n => n === undefined ? "…" : n >= 100 ? n.toFixed(0) : n.toFixed(1);
const bytes = n => n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB` : `${n} B`;

// The states, with a sign and a colour each.
const good = new Set(["ACKED", "READY", "ready", "serving", "ACK", "HEALTHY", "xDS", "connected", "accepted", "server restored"]);
const bad = new Set(["NACKED", "NACKed", "NACK", "DOES_NOT_EXIST", "RECEIVED_ERROR", "TIMEOUT", "TRANSIENT_FAILURE", "SHUTDOWN", "UNHEALTHY",
  "failed", "unreachable", "error", "ejected", "server lost", "removed"]);
const warn = new Set(["CONNECTING", "REQUESTED", "DRAINING", "DEGRADED", "DNS", "connecting", "resolving", "undecided", "awaited", "mode"]);

function badge(state, more) {
  const [kind, sign] = good.has(state) ? ["good", "✓"] : bad.has(state) ? ["bad", "✕"] : warn.has(state) ? ["warn", "…"] : ["idle", "○"];
  return h(`span.badge.${kind}`, {title: more}, h("span", {"aria-hidden": "true"}, sign + " "), state);
}

const error = (text, kind = "") => text ? h(`span.error${kind}`, {tabindex: text.length > 400 ? 0 : undefined}, text) : null;
const set = (param, value, ...text) => h("button.link", {type: "button", "data-set": param, "data-value": value}, ...text);

// table shows rows of cells; labels head the columns, and the cells where there is no room.
function table(caption, labels, rows, numbers = []) {
  return h("table", null, h("caption", null, caption),
    h("thead", null, h("tr", null, labels.map((l, i) => h(numbers.includes(i) ? "th.num" : "th", {scope: "col"}, l)))),
    h("tbody", null, rows.map(({key, cells}) =>
      h("tr", {"data-key": key}, cells.map((c, i) => h(numbers.includes(i) ? "td.num" : "td", {"data-label": labels[i]}, c))))));
}

// pager leads through a list.
function pager(section, list) {
  const n = list.items.length;
  if (list.found <= n && list.from === 0) {
    return list.found < list.total && h("p.pager", null, `${list.found} of ${plural(list.total, "entry", "entries")}`);
  }
  const step = (label, to, off) =>
    h("button", {type: "button", "data-set": `${section}.from`, "data-value": to, disabled: off, "data-key": label}, label);
  const size = Math.max(n, pageSizes[section] ?? 0);
  pageSizes[section] = size;
  return h("nav.pager", {"aria-label": `pages of ${section}`},
    step("Previous", Math.max(0, list.from - size), list.from === 0),
    h("span", null, n ? `${number(list.from + 1)}–${number(list.from + n)} of ${number(list.found)}` : "none",
      list.found < list.total && ` (${number(list.total)} in all)`),
    step("Next", list.from + n, list.from + n >= list.found));
}

const pageSizes = {};

const empty = (list, none) => list.total === 0 ? h("p.soft", null, none) : list.found === 0 ? h("p.soft", null, "Nothing matches.") : null;

// ---- Resources

// held says how old the version in use is.
const held = r => r.from_disk ? ["from disk, ", since(r.updated), " old"] : [since(r.updated), " ago"];

// version says what is in use, and from which server unless that is the usual one.
function version(r, usual) {
  const used = r.cached ? ["version ", name(r.version, "(none)"), r.updated && [" · ", held(r)]] : "no version in use";
  return [used, r.server && r.server !== usual && [" · from ", name(r.server)]];
}

function failure(r) {
  if (!r.error) return null;
  const what = r.state === "NACKED" ? `Version ${r.error_version || "(none)"} was rejected` : "Last answer";
  return h("span.error", null, what, r.cached && "; the version above stays in use",
    r.error_time && [" (", since(r.error_time), " ago)"], ": ", r.error);
}

function ignored(r) {
  if (!r.ignored) return null;
  const text = plural(r.ignored, "ignored field") + (r.warnings ? `, ${r.warnings} that may matter` : "");
  return h(".small", null,
    h("button.link", {type: "button", "data-open": r.id, "aria-expanded": r.open ? "true" : "false"}, (r.open ? "▾ " : "▸ ") + text),
    r.open && h("ul.fields", null, (r.fields ?? []).map(f => h("li", null,
      f.warning && [h("span.badge.warn", null, "! matters"), " "], h("code", null, f.path), ": ", f.reason, f.places > 1 && ` (at ${f.places} places)`))));
}

// node is the box of a resource.
function node(r, key) {
  return h(`.box${r.error ? ".bad" : ""}`, {"data-key": key, "data-node": key},
    h(".head", null, name(r.name), r.variant && h("code", null, r.variant), badge(r.state || "not requested")),
    h(".meta", null, version(r)), failure(r), ignored(r));
}

// ---- Sections

const render = {
  overview(o) {
    hasPlane = o.plane;
    hasChannels = o.channels > 0 || o.clients > 0 || !o.plane;
    offer();
    const words = [plural(o.channels, "channel"), plural(o.resources, "resource"), o.troubled ? `${number(o.troubled)} with errors` : "none with errors",
      o.lost && plural(o.lost, "unreachable server")];
    show(document.getElementById("summary"), hasChannels ? words.filter(Boolean).join(" · ") : "a control plane without channels of its own");
  },

  channels(list, body) {
    tally("channels", list.total, list.total);
    const target = document.getElementById("explain").elements.target;
    if (!target.value && document.activeElement !== target) target.value = list.items[0]?.target ?? "";
    document.getElementById("targets").replaceChildren(...[...new Set(list.items.map(c => c.target))].map(t => h("option", {value: t})));
    const row = c => ({key: `c${c.number}`, cells: [
      [set("graph.channel", c.number, name(c.target)), h("span.meta", null, ` #${c.number}`)],
      badge(c.state),
      [badge(c.mode), h("span.meta", null, " for ", since(c.since))],
      number(c.clusters),
      [c.why || c.reason, c.waits > 0 && h(".meta", null, `A newer configuration waits for ${plural(c.waits, "cluster")}.`), error(c.error)],
    ]});
    show(body, empty(list, "No channel of the scheme xds has been used yet."),
      list.found > 0 && table("Channels", ["Target", "State", "Source", "Clusters", "Why"], list.items.map(row), [3]), pager("channels", list));
  },

  clients(list, body) {
    tally("clients", list.total, list.total);
    const server = s => h("li", null, "Server ", name(s.uri), " ",
      badge(s.error ? "unreachable" : s.connected ? "connected" : "connecting"), error(s.error));
    const client = c => h("li", {"data-key": c.node + c.bootstrap},
      h(".head", null, h("h3", null, "Node ", name(c.node)),
        h("p.meta", null, c.cluster && ["cluster ", name(c.cluster), " · "], "bootstrap ", name(c.bootstrap))),
      h("p.small", null, "For ", names(c.targets), c.more && ` and ${c.more} more`),
      h("p.small", null, "Resources: ", c.states.map((s, i) => [i > 0 && " ", badge(s.name), ` ${number(s.n)}`])),
      h("ul.plain.small", null, c.servers.map(server), (c.overrides ?? []).map((o, i) => item("Changed here", `overrides[${i}] `, h("code", null, o))),
        hidden(c.more_overrides, "override")));
    show(body, empty(list, "The process has no xDS client: no channel is in use."), h("ul.plain", null, list.items.map(client)), pager("clients", list));
  },

  graph(g, body) {
    const choices = g.channels.map(c => [String(c.number), `${c.target} (#${c.number})`]);
    options(document.querySelector('[data-param="graph.channel"]'), choices, String(g.channel));
    tally("graph", g.routes.total > 0 ? plural(g.routes.total, "route") : "");
    show(body,
      g.config?.waits > 0 && h("p.small", null, `A newer configuration waits for ${plural(g.config.waits, "cluster")}: `, names(g.config.waits_for)),
      g.config?.next && h("p.small", null, "The RouteConfiguration ", name(g.config.next), " takes over when it has arrived."),
      error(g.config?.error), g.why && h("p.soft", null, g.why), g.listener && lanes(g));
    drawEdges();
  },

  resources(list, body) {
    tally("resources", list.total, list.total);
    facets("resources", list);
    const row = r => ({key: r.id, cells: [
      badge(r.state),
      [h("span.meta", null, r.type, " "), name(r.name), r.variant && [" ", h("code", null, r.variant)],
        r.client && h("span.meta", null, " of ", name(r.client)), failure(r), ignored(r)],
      r.cached ? [name(r.version, "(none)"), h("span.meta", null, " ", held(r))] : h("span.meta", null, "none in use"),
      r.server && name(r.server),
      r.bytes && bytes(r.bytes),
    ]});
    show(body, empty(list, "No resource is watched."),
      list.found > 0 && table("Resources", ["State", "Name", "Version", "Server", "Size"], list.items.map(row), [4]),
      list.unread > 0 && h("p.soft", null, `${plural(list.unread, "resource")} still to be looked at for ignored fields …`), pager("resources", list));
  },

  traffic(list, body) {
    tally("traffic", list.total ? `${rate(list.rate)} RPC/s, ${number(list.in_flight)} in flight` : "", list.total);
    const most = Math.max(1, ...list.items.map(t => t.rate ?? 0));
    const row = t => ({key: `t${t.cluster}\n${t.service ?? ""}`, cells: [
      [name(t.cluster), t.service && h("span.meta", null, " ", name(t.service)), bar((t.rate ?? 0) / most)],
      rate(t.rate), number(t.in_flight), number(t.refused),
      (t.dropped ?? []).map((d, i) => [i > 0 && ", ", name(d.name), ` ${number(d.n)}`]),
    ]});
    show(body, empty(list, "No RPC has needed a cluster yet."),
      list.found > 0 && table("RPCs by cluster", ["Cluster", "RPC/s", "In flight", "Refused", "Dropped"], list.items.map(row), [1, 2, 3]),
      pager("traffic", list));
  },

  changes(list, body) {
    tally("changes", list.total, list.total);
    const change = c => h("li", {"data-key": `n${c.number}`, class: "fresh"},
      since(c.time), " ago ", badge(c.kind), " ", c.type && h("span.meta", null, c.type, " "),
      c.name || c.target ? name(c.name || c.target) : c.server && name(c.server),
      (c.from || c.to) && h("span.meta", null, " ", c.from && [name(c.from), " → "], name(c.to, "none")),
      c.detail && (bad.has(c.kind) ? error(c.detail) : h("span.meta", null, " ", c.detail)));
    show(body, empty(list, "Nothing has changed since the process began."),
      h("ol.plain.small.scroll", {tabindex: 0, "aria-label": "last changes"}, list.items.map(change)), pager("changes", list));
  },

  peers(list, body) {
    tally("peers", number(list.total) + (list.nacks ? `, ${list.nacks} with a NACK` : ""), list.total);
    const type = t => h("li", {"data-key": t.type}, badge(t.reply), " ", t.type, " ",
      h("span.meta", null, t.acked && ["version ", name(t.acked), " · "], t.wildcard ? "all resources" : plural(t.total, "name"),
        t.names.length > 0 && [": ", names(t.names), t.total > t.names.length && " …"]),
      error(t.nack), (t.errors ?? []).map(e => error(`Error sent for ${e.name}: ${e.error}`, ".warn")));
    const peer = p => h("li", {"data-key": `p${p.id}`},
      h(".head", null, h("h3", null, name(p.node, "(no node id)")),
        h("p.meta", null, `stream ${p.id} · ${p.protocol} · `, name(p.peer), p.cluster && [" · cluster ", name(p.cluster)], p.agent && [" · ", name(p.agent)])),
      h("ul.plain.small", null, p.types.map(type)));
    show(body, empty(list, "No client is connected."), h("ul.plain", null, list.items.map(peer)), pager("peers", list));
  },

  served(list, body) {
    tally("served", `${number(list.total)}, store version ${list.store_version}`, list.total);
    facets("served", list);
    const row = r => ({key: `${r.type}\n${r.name}\n${r.variant ?? ""}`, cells: [
      r.type, [name(r.name), r.variant && [" ", h("code", null, r.variant)]], name(r.version), bytes(r.bytes),
    ]});
    show(body, list.ambiguous > 0 && h("p.small", null, `${number(list.ambiguous)} choices between variants were ambiguous (xRFC TP2).`),
      empty(list, "The store is empty."),
      list.found > 0 && table("Resources served", ["Type", "Name", "Version", "Size"], list.items.map(row), [3]), pager("served", list));
  },
};

function bar(share) {
  const svg = shape("svg", {viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true"},
    shape("rect", {class: "back", width: 100, height: 4, rx: 2}), shape("rect", {width: Math.round(100 * share), height: 4, rx: 2}));
  return h(".bar", null, svg);
}

function shape(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// tally shows how much there is in a section. Short lists need no search.
function tally(section, text, length = 100) {
  const tools = byName(section).querySelector(".tools");
  tools.hidden = length < 8 && !tools.contains(document.activeElement) && ![...params.keys()].some(k => k.startsWith(`${section}.`));
  byName(section).querySelector(".tally").textContent = typeof text === "number" ? number(text) : text;
}

// options fills a choice, and keeps what is chosen.
function options(select, list, chosen) {
  if (document.activeElement === select && select.options.length) return; // it may be open
  select.replaceChildren(...list.map(([value, text]) => h("option", {value}, text)));
  select.value = chosen;
}

// facets fills the choices of a section with what there is of each.
function facets(section, list) {
  for (const select of byName(section).querySelectorAll("[data-counts]")) {
    const fixed = [...select.options].filter(o => !o.dataset.n).map(o => [o.value, o.textContent]);
    if (document.activeElement === select) continue;
    const chosen = params.get(select.dataset.param) ?? "";
    const counted = (list[select.dataset.counts] ?? []).map(c => [c.name, `${c.name} (${number(c.n)})`]);
    if (chosen && ![...fixed, ...counted].some(([v]) => v === chosen)) counted.push([chosen, `${chosen} (0)`]);
    select.replaceChildren(...fixed.map(([value, text]) => h("option", {value}, text)),
      ...counted.map(([value, text]) => h("option", {value, "data-n": "1"}, text)));
    select.value = chosen;
  }
}

// ---- The graph

function lanes(g) {
  edges = [];
  const first = h(".lane", {"data-key": "listener"}, h("h3", null, "Listener"), node(g.listener, "listener"));
  let source = "listener";
  if (g.route_config) {
    first.append(h("h3", null, "RouteConfiguration"), node(g.route_config, "routes"));
    source = "routes";
    edges.push({from: "listener", to: "routes", down: true});
  }
  if (g.host) {
    first.append(h(".box", {"data-key": "host", "data-node": "host"}, h("span.kind", null, "Virtual host "), name(g.host.name),
      h(".meta", null, "for ", names(g.host.domains), g.host.others > 0 && ` · ${plural(g.host.others, "other host")} for other channels`)));
    edges.push({from: source, to: "host", down: true});
  }
  const lane = (key, title, ...boxes) => h(".lane", {"data-key": key}, h("h3", null, title), boxes);
  const note = text => h("p.soft.small", null, text);
  const routes = lane("routes-lane", "Routes", g.routes.items.map(route),
    g.routes.found === 0 && note(g.routes.total ? "No route matches the search." : "none"), pager("graph", g.routes));
  for (const r of g.routes.items) edges.push({from: "host", to: `r${r.index}`});
  const clusters = lane("clusters", "Clusters", g.clusters.map(c => cluster(c, g.listener.server)),
    g.more_clusters > 0 && note(`and ${plural(g.more_clusters, "more cluster")}`));
  const unfolded = g.clusters.filter(c => c.unfolded);
  const localities = lane("localities", "Localities", g.clusters.length > 0 && unfolded.length === 0 && note("Choose a cluster to see its endpoints."));
  const endpoints = lane("endpoints", "Endpoints");
  for (const c of unfolded) places(c, localities, endpoints, unfolded.length > 1);
  const drawing = shape("svg", {"aria-hidden": "true", "data-key": "edges"});
  return h(".graph", {"data-key": `graph${g.channel}`}, drawing, first, routes, clusters, localities, endpoints);
}

let edges = [];

function route(r) {
  for (const d of r.to ?? []) if (d.id) edges.push({from: `r${r.index}`, to: `k${d.id}`, weight: d.mirror ? 0 : d.percent, mirror: d.mirror});
  return h(".box", {"data-key": `r${r.index}`, "data-node": `r${r.index}`},
    h(".head", null, h("span.kind", null, `route ${r.index}`), h("span.mono", null, r.match), r.name && h("span.meta", null, name(r.name))),
    r.action && h(".small", null, "→ ", r.action),
    h("ul.edges", null, (r.to ?? []).map(d => h("li", null, d.mirror ? "mirror → " : "→ ",
      d.id ? set("graph.cluster", d.id, name(d.cluster)) : d.cluster, (d.percent < 100 || d.mirror) && ` ${percent(d.percent)}`))));
}

function cluster(c, usual) {
  for (const m of c.members ?? []) edges.push({from: `k${c.id}`, to: `k${m.id}`, down: true, unused: !m.in_use});
  const live = c.live, r = c.resource, a = c.assignment, troubled = r.error || a?.error || live?.phase === "failed";
  // Notes repeat the errors of the resources, and always have the node id.
  const notes = live?.notes && !r.error && !a?.error && !/^node id "[^"]*"$/.test(live.notes);
  return h(`.box${c.chosen ? ".chosen" : ""}${troubled ? ".bad" : ""}`, {"data-key": `k${c.id}`, "data-node": `k${c.id}`},
    h(".head", null, set("graph.cluster", c.chosen ? "" : c.id, name(c.name)), badge(r.state || "not requested"), live && badge(live.state)),
    h(".meta", null, [c.kind, c.policy].filter(Boolean).join(" · "), c.of && [" · member of ", name(c.of)]),
    h(".meta", null, version(r, usual)), failure(r), ignored(r),
    live?.switching && h(".meta", null, "A newer version gets ready."),
    live?.phase === "failed" && !r.error && error(live.why), notes && h(".meta", null, live.notes),
    c.kind && c.kind !== "aggregate" && h(".meta", null, plural(c.endpoints, "endpoint"), c.usable < c.endpoints && `, ${c.usable} usable`,
      a && [": ", a.name !== c.name && [name(a.name), " "], a.state !== "ACKED" && [badge(a.state || "not requested"), " "], version(a, usual)]),
    a && [failure(a), ignored(a)],
    (c.members ?? []).length > 0 && h("ol.edges", null, c.members.map(m =>
      h("li", null, m.in_use ? "● in use: " : "○ ", set("graph.cluster", m.id, name(m.name)), m.why && h("span.meta", null, " ", m.why)))),
    !c.unfolded && c.endpoints > 0 && set("graph.cluster", c.id, `Show ${plural(c.endpoints, "endpoint")}`));
}

function places(c, localities, endpoints, several) {
  c.priorities ??= [];
  for (const p of c.priorities) for (const [i, l] of p.localities.entries()) {
    const key = `l${c.id}.${p.number}.${i}`;
    edges.push({from: `k${c.id}`, to: key, unused: !p.in_use && c.live});
    localities.append(h(".box", {"data-key": key, "data-node": key},
      h(".head", null, name(l.name), l.state && badge(l.state)),
      h(".meta", null, several && [name(c.name), " · "],
        (c.priorities.length > 1 || p.number > 0) && `priority ${p.number}${p.in_use ? ", in use" : ""} · `, `weight ${l.weight}`),
      i === 0 && p.why && c.priorities.length > 1 && h(".meta", null, p.why),
      i === 0 && !p.localities.some(l => l.endpoints.some(e => e.error)) && error(p.error)));
    for (const [j, e] of l.endpoints.entries()) {
      const id = `${key}.${j}`;
      edges.push({from: key, to: id, unused: e.ejected || !p.in_use && c.live});
      endpoints.append(h(`.box.endpoint${e.error && e.state !== "READY" ? ".bad" : ""}`, {"data-key": id, "data-node": id},
        h(".head", null, names(e.addresses), e.ejected ? badge("ejected") : badge(e.state || e.health)),
        several && h(".meta.narrow", null, name(c.name)),
        h(".meta", null, e.state && e.health !== "UNKNOWN" && `${e.health} · `, `weight ${e.weight}`, e.since && [" · for ", since(e.since)],
          e.ejected && ` · ejected for ${until(e.ejected)} more`, e.health_check && ` · health check: ${e.health_check}`),
        e.error && h(`span.error${e.state === "READY" ? ".warn" : ""}`, null, e.error_time && [since(e.error_time), " ago: "], e.error)));
    }
    const left = l.total - l.endpoints.length;
    if (left > 0) endpoints.append(h("p.soft.small", {"data-key": `${key}+`}, `and ${plural(left, "more endpoint")}`));
  }
  if (c.more > 0 && !c.priorities.some(p => p.localities.length)) endpoints.append(h("p.soft.small", null, plural(c.more, "endpoint")));
}

// drawEdges draws the lines between the boxes, where these stand side by side.
function drawEdges() {
  const graph = document.querySelector(".graph"), svg = graph?.querySelector("svg");
  if (!svg || getComputedStyle(svg).display === "none") return;
  const frame = graph.getBoundingClientRect();
  const boxes = new Map([...graph.querySelectorAll("[data-node]")].map(b => [b.getAttribute("data-node"), b.getBoundingClientRect()]));
  svg.replaceChildren(...edges.flatMap(({from, to, down, weight, unused, mirror}) => {
    const a = boxes.get(from), b = boxes.get(to);
    if (!a || !b) return [];
    let d;
    if (down) {
      const y1 = a.bottom - frame.top, y2 = b.top - frame.top;
      d = y2 - y1 < 60 ? `M${b.right - frame.left - 16} ${y1}V${y2}` : `M${a.left - frame.left} ${y1 - 12}h-9V${y2 + 14}h9`;
    } else {
      const x1 = a.right - frame.left, x2 = b.left - frame.left, mid = (x1 + x2) / 2;
      const y1 = (a.top + a.bottom) / 2 - frame.top, y2 = (b.top + b.bottom) / 2 - frame.top;
      d = `M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}`;
    }
    return [shape("path", {d, class: unused ? "unused" : mirror ? "mirror" : "", "stroke-width": 1 + (weight ?? 20) / 40})];
  }));
}

// ---- The explanation of an RPC

const at = place => place && h("span.at", null, " ", place); // "file:line" of a policy
const json = value => typeof value === "string" ? value : JSON.stringify(value);
const item = (label, ...value) => h("li", null, h("span.soft", null, label, " "), ...value);
const notActedOn = text => error(text, ".warn");
const hidden = (n, what) => n > 0 && h("li.soft", null, `and ${plural(n, what)} more`);
const level = text => text && h("span.meta", null, ` (${text})`);

// part is a heading and a list, or nothing if the list is empty.
function part(title, tag, list, show, ...rest) {
  return (list ?? []).length > 0 && h("div", null, h("h3", null, title), h(tag, null, list.map(show), ...rest));
}

function explanation(x) {
  const e = x.explanation;
  return h(".explained", null,
    h("p.outcome", null, e.outcome, e.code && [" ", h("span.badge.bad", null, "✕ ", e.code)]),
    (e.notes ?? []).map(notActedOn),
    h("div", null, resourceLine(e.listener), resourceLine(e.route_config)),
    part("Virtual hosts", "ul", e.virtual_hosts, hostLine, hidden(x.hosts_left, "virtual host")),
    part("Routes tried, in order", "ol", e.routes, routeLine, hidden(x.routes_left, "route")),
    e.routes_left > 0 && h("p.small.soft", null, `Not reached: ${plural(e.routes_left, "route")} after these.`),
    part("Clusters", "ul", e.clusters, c => clusterLine(c, x.endpoints_left?.[c.name])));
}

function resourceLine(r) {
  return r && h("p.small", null, r.type, " ", name(r.name), " ", r.state && badge(r.state), " ", h("span.meta", null, version(r)), at(r.at),
    (r.ignored ?? []).length > 0 && h("span.meta", null, ` · ${plural(r.ignored.length, "ignored field")}`), error(r.error), (r.faults ?? []).map(notActedOn));
}

function hostLine(v) {
  return h("li", null, v.chosen ? "✓ " : "✕ ", name(v.name), h("span.meta", null, " ", v.reason), at(v.at));
}

function routeLine(r) {
  const taken = r.share > 0;
  return h("li", null, taken ? "✓ " : "✕ ", h("span.meta", null, `route ${r.index}: `), h("span.mono", null, r.match), r.name && [" ", name(r.name)],
    taken && r.share < 100 && ` ${percent(r.share)}`, at(r.at),
    r.left_out && h("span.meta", null, " is left out: ", r.left_out),
    r.failed && h("span.meta", null, " — ", condition(r.failed)),
    taken && r.action && actionList(r.action));
}

function condition(c) {
  return c.reason || `${c.kind}${c.name ? ` ${c.name}` : ""}: want ${c.want}, have ${c.have || "nothing"}`;
}

function actionList(a) {
  return h("ul.fields", null,
    a.kind !== "forward" && item(a.kind.replace("_", " "), a.code, a.message && `: ${a.message}`),
    (a.destinations ?? []).map(d => destinationLine("to", d)),
    (a.mirrors ?? []).map(d => destinationLine("mirror to", d)),
    (a.filters ?? []).map(filterLine),
    a.timeout && item("timeout", a.timeout.value, level(a.timeout.level), at(a.timeout.at), notActedOn(a.timeout.ignored)),
    a.retry && item("retry", `${a.retry.max_attempts} attempts on ${(a.retry.on ?? []).join(", ")}; backoff ${a.retry.base_backoff} to ${a.retry.max_backoff}`,
      level(a.retry.level), at(a.retry.at), notActedOn(a.retry.ignored)),
    (a.changed ?? []).map(changeLine),
    (a.hash_policies ?? []).map(p => item("hash", p.of, p.value && ` = ${p.value}`, p.reason && ` (${p.reason})`)),
    rewriteLine("path", a.path), rewriteLine("authority", a.authority), (a.headers ?? []).map(headerLine));
}

// changeLine is a setting that the bootstrap overrides.
function changeLine(c) {
  return item("changed here", `${c.setting}: received `, h("code", null, json(c.received)), ", in use ", h("code", null, json(c.used)), level(c.by.join(", ")));
}

function destinationLine(label, d) {
  const own = [(d.filters ?? []).map(filterLine), (d.headers ?? []).map(headerLine), rewriteLine("authority", d.authority)].flat().filter(Boolean);
  return item(label, name(d.cluster, "(no cluster)"), ` ${percent(d.percent)}`, d.header && ` by the header ${d.header}`, at(d.at),
    error(d.error), notActedOn(d.ignored), own.length > 0 && h("ul.fields", null, own));
}

function filterLine(f) {
  return item("filter", name(f.name), f.disabled && " (disabled)", h("span.meta", null, ` ${f.type}`), level(f.level), at(f.at),
    f.config && h("code", null, " ", json(f.config)), notActedOn(f.ignored));
}

function rewriteLine(label, r) {
  return r && item(label, name(r.from), " → ", name(r.to, "depends on the endpoint"), level(r.by), at(r.at), error(r.error), notActedOn(r.ignored));
}

const headerLine = d => item(d.side, d.edit, notActedOn(d.ignored));

function clusterLine(c, left) {
  const s = c.settings, a = c.assignment;
  const settings = s && [s.policy, s.policy_config && json(s.policy_config), s.tls, `at most ${plural(s.max_requests, "RPC")} at a time`, s.outliers];
  return h("li", null, name(c.name), c.mirror ? " mirror" : c.of ? [" member of ", name(c.of)] : ` ${percent(c.share)}`,
    h("span.meta", null, " ", c.type, " ", c.reason), at(c.at), error(c.error), resourceLine(c.resource),
    s && h("p.meta", null, settings.filter(Boolean).join(" · ")),
    (s?.ignored ?? []).map(notActedOn),
    c.changed && h("ul.fields", null, c.changed.map(changeLine)),
    a && [resourceLine(a.resource), h("p.meta", null, a.reason), (a.drops ?? []).map(d => h("p.meta", null, `drops ${percent(d.percent)} (${d.category})`)),
      h("ul.fields", null, (a.priorities ?? []).map(priorityLine), hidden(left, "endpoint"))]);
}

function priorityLine(p) {
  return h("li", null, `priority ${p.priority}`, p.in_use && ", in use", " ", p.state && badge(p.state),
    h("ul.fields", null, p.localities.map(l => h("li", null,
      name([l.region, l.zone, l.sub_zone].filter(Boolean).join(" / "), "no locality"), ` ${percent(l.percent)} `, l.state && badge(l.state),
      h("ul.fields", null, l.endpoints.map(endpointLine))))));
}

function endpointLine(b) {
  return h("li", null, name(b.address), " ", badge(b.ejected ? "ejected" : b.state || b.health),
    h("span.meta", null, ` weight ${b.weight}${b.usable ? "" : ", gets no RPC"}`), error(b.last_error, b.state === "READY" ? ".warn" : ""));
}

async function explain(form) {
  const out = document.getElementById("explanation");
  const query = new URLSearchParams({target: form.target.value.trim(), method: form.method.value.trim()});
  for (const line of form.elements.header.value.split("\n")) if (line.trim()) query.append("header", line.trim());
  try {
    const answer = await fetch(`explain?${query}`);
    const body = await answer.text();
    show(out, answer.ok ? explanation(JSON.parse(body)) : error(body.trim()));
  } catch (e) {
    show(out, error(`The server did not answer: ${e.message}`));
  }
}

// ---- What is shown, and the stream that follows it

let hasPlane = false, hasChannels = true, source = null, retry = 0, paused = false;

// params are what is unfolded, searched for and paged to: the query of the stream, and the fragment of
// the page's address, so that a view can be linked to.
let params = new URLSearchParams(location.hash.slice(1));
const folded = name => params.has("show") ? !params.getAll("show").includes(name) : false;

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

function remember(changes) {
  for (const [k, v] of Object.entries(changes)) if (v === "" || v === undefined) params.delete(k); else params.set(k, v);
  const hash = String(params);
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
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
    ahead = Date.parse(JSON.parse(e.data).now) - Date.now();
    link("on", "●", "live");
  });
  for (const name of Object.keys(render)) source.addEventListener(name, e => {
    render[name](JSON.parse(e.data), byName(name)?.querySelector(".body"));
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
