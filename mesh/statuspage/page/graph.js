// The graph of a channel's resources, from the Listener to the endpoints, and the lines between them.

import {h, name, names, shape} from "./elements.js";
import {failure, ignored, node, version} from "./resources.js";
import {params} from "./view.js";
import {badge, error, locality, pager, percent, plural, set, since, until} from "./words.js";

export function lanes(g) {
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
  const ids = new Map(g.clusters.map(c => [c.name, c.id]));
  for (const r of g.routes.items) edges.push({from: "host", to: `r${r.index}`});
  const clusters = lane("clusters", "Clusters", g.clusters.map(c => cluster(c, ids, g.listener.server)),
    g.more_clusters > 0 && note(`and ${plural(g.more_clusters, "more cluster")}`));
  const unfolded = g.clusters.filter(isUnfolded);
  const localities = lane("localities", "Localities", unfolded.length === 0 && g.clusters.some(c => c.endpoints > 0) && note("Choose a cluster to see its endpoints."));
  const endpoints = lane("endpoints", "Endpoints");
  for (const c of unfolded) places(c, localities, endpoints, unfolded.length > 1);
  const drawing = shape("svg", {"aria-hidden": "true", "data-key": "edges"});
  return h(".graph", {"data-key": `graph${g.channel}`}, drawing, first, routes, clusters, localities, endpoints);
}

let edges = [];

function route(r) {
  for (const d of r.to ?? []) if (d.id) edges.push({from: `r${r.index}`, to: `k${d.id}`, weight: d.mirror ? 0 : d.traffic ?? 0, mirror: d.mirror});
  return h(".box", {"data-key": `r${r.index}`, "data-node": `r${r.index}`},
    h(".head", null, h("button.link.kind", {type: "button", "data-set": "graph.route", "data-value": params.get("graph.route") === String(r.index) ? "" : r.index}, `route ${r.index}`), h("span.mono", null, r.match), r.name && h("span.meta", null, name(r.name))),
    r.action && h(".small", null, "→ ", r.action),
    h("ul.edges", null, (r.to ?? []).map(d => h("li", null, d.mirror ? "mirror → " : "→ ",
      d.id ? set("graph.cluster", d.id, name(d.cluster)) : d.cluster, (d.percent < 100 || d.mirror) && ` ${percent(d.percent)}`, d.traffic > 0 && h("span.meta", null, ` · ${percent(d.traffic)} of RPCs`)))));
}

const isUnfolded = c => c.priorities?.length > 0;

function cluster(c, ids, usual) {
  const chosen = c.id === params.get("graph.cluster");
  const members = (c.members ?? []).map((m, i) => ({name: m.cluster.name, id: ids.get(m.cluster.name), used: m.use.in_use, why: c.reasons[i]}));
  for (const m of members) edges.push({from: `k${c.id}`, to: `k${m.id}`, down: true, unused: !m.used});
  const r = c.resource ?? {}, a = c.assignment, troubled = r.error || a?.error || c.phase === "failed";
  // Notes repeat the errors of the resources, and always have the node id.
  const notes = c.notes && !r.error && !a?.error && !/^node id "[^"]*"$/.test(c.notes);
  return h(`.box${chosen ? ".chosen" : ""}${troubled ? ".bad" : ""}`, {"data-key": `k${c.id}`, "data-node": `k${c.id}`},
    h(".head", null, set("graph.cluster", chosen ? "" : c.id, name(c.name)), c.resource && badge(r.state || "not requested"), c.phase && badge(c.state)),
    h(".meta", null, [c.kind, c.policy].filter(Boolean).join(" · "), c.of && [" · member of ", name(c.of)]),
    h(".meta", null, version(r, usual)), failure(r), ignored(r),
    c.switching && h(".meta", null, "A newer version gets ready."),
    c.phase === "failed" && !r.error && error(c.error), notes && h(".meta", null, c.notes),
    c.kind && c.kind !== "aggregate" && h(".meta", null, plural(c.endpoints, "endpoint"), c.usable < c.endpoints && `, ${c.usable} usable`,
      a && [": ", a.name !== c.name && [name(a.name), " "], a.state !== "ACKED" && [badge(a.state || "not requested"), " "], version(a, usual)]),
    a && [failure(a), ignored(a)],
    members.length > 0 && h("ol.edges", null, members.map(m =>
      h("li", null, m.used ? "● in use: " : "○ ", m.id ? set("graph.cluster", m.id, name(m.name)) : name(m.name), m.why && h("span.meta", null, " ", m.why)))),
    !isUnfolded(c) && c.endpoints > 0 && set("graph.cluster", c.id, `Show ${plural(c.endpoints, "endpoint")}`));
}

function places(c, localities, endpoints, several) {
  for (const [n, p] of c.priorities.entries()) for (const [i, l] of p.localities.entries()) {
    const key = `l${c.id}.${p.number}.${i}`;
    edges.push({from: `k${c.id}`, to: key, unused: !p.use.in_use && c.phase});
    localities.append(h(".box", {"data-key": key, "data-node": key},
      h(".head", null, locality(l), l.state && badge(l.state)),
      h(".meta", null, several && [name(c.name), " · "],
        (c.priorities.length > 1 || p.number > 0) && `priority ${p.number}${p.use.in_use ? ", in use" : ""} · `, `weight ${l.weight}`),
      i === 0 && c.priorities.length > 1 && c.reasons[n] && h(".meta", null, c.reasons[n]),
      i === 0 && !p.localities.some(l => l.endpoints.some(e => e.error)) && error(p.use.error)));
    for (const [j, e] of l.endpoints.entries()) {
      const id = `${key}.${j}`;
      edges.push({from: key, to: id, unused: e.ejection || !p.use.in_use && c.phase});
      endpoints.append(h(`.box.endpoint${e.error && e.state !== "READY" ? ".bad" : ""}`, {"data-key": id, "data-node": id},
        h(".head", null, names(e.addresses), e.ejection ? badge("ejected") : badge(e.state || e.health)),
        several && h(".meta.narrow", null, name(c.name)),
        h(".meta", null, e.state && e.health !== "UNKNOWN" && `${e.health} · `, `weight ${e.weight}`, e.since && [" · for ", since(e.since)],
          e.ejection && ` · ejected for ${until(e.ejection.until)} more`, e.health_check && ` · health check: ${e.health_check}`),
        e.error && h(`span.error${e.state === "READY" ? ".warn" : ""}`, null, e.error_time && [since(e.error_time), " ago: "], e.error)));
    }
  }
  const some = c.priorities.some(p => p.localities.length);
  if (c.more > 0) endpoints.append(h("p.soft.small", {"data-key": `more${c.id}`}, some ? `and ${plural(c.more, "more endpoint")}` : plural(c.more, "endpoint")));
}

// drawEdges draws the lines between the boxes, where these stand side by side.
export function drawEdges() {
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
    return [shape("path", {d, class: unused ? "unused" : mirror ? "mirror" : "", "stroke-width": 1 + (weight ?? 10) / 14})];
  }));
}
