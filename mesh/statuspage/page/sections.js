// The sections of the page, each made of one part of an answer.

import {h, name, names, show} from "./elements.js";
import {clusters, sparkline} from "./clusters.js";
import {drawEdges, lanes} from "./graph.js";
import {failure, held, ignored} from "./resources.js";
import {byName, params} from "./view.js";
import {bad, badge, bytes, empty, error, number, pager, plural, rate, seconds, set, share, since, table, until} from "./words.js";

// render has, for each part of an answer, the function that shows it in the body of its section.
export const render = {
  channels(list, body) {
    tally("channels", list.total, list.total);
    const target = document.getElementById("explain").elements.target;
    if (!target.value && document.activeElement !== target) target.value = list.items[0]?.target ?? "";
    // Of channels with one target, the number says which.
    const same = c => list.items.filter(other => other.target === c.target).length > 1;
    document.getElementById("targets").replaceChildren(...list.items.map(c => h("option", {value: same(c) ? `${c.target} #${c.number}` : c.target})));
    const row = c => ({key: `c${c.number}`, cells: [
      [set("graph.channel", c.number, name(c.target)), h("span.meta", null, ` #${c.number}`)],
      badge(c.state),
      [badge(c.mode), h("span.meta", null, " for ", since(c.since))],
      number(c.config?.clusters ?? 0),
      [c.why || c.reason, c.config?.waits > 0 && h(".meta", null, `A newer configuration waits for ${plural(c.config.waits, "cluster")}.`), error(c.config?.error)],
    ]});
    show(body, empty(list, "No channel of the scheme xds has been used yet."),
      list.found > 0 && table("Channels", ["Target", "State", "Source", "Clusters", "Why"], list.items.map(row), [3]), pager("channels", list));
  },

  clients(list, body) {
    tally("clients", list.total, list.total);
    const server = s => h("li", null, "Server ", name(s.uri), " ",
      badge(s.error ? "unreachable" : s.connected ? "connected" : "connecting"), error(s.error), s.next_attempt && h("span.meta", null, "next attempt in about ", until(s.next_attempt)));
    const client = c => h("li", {"data-key": c.node + c.bootstrap},
      h(".head", null, h("h3", null, "Node ", name(c.node)),
        h("p.meta", null, c.cluster && ["cluster ", name(c.cluster), " · "], "bootstrap ", name(c.bootstrap))),
      h("p.small", null, "For ", names(c.targets), c.more && ` and ${c.more} more`),
      h("p.small", null, "Resources: ", Object.entries(c.states).map(([state, n], i) => [i > 0 && " ", badge(state), ` ${number(n)}`])),
      h("ul.plain.small", null, c.servers.map(server)));
    show(body, empty(list, "The process has no xDS client: no channel is in use."), h("ul.plain", null, list.items.map(client)), pager("clients", list));
  },

  graph(g, body) {
    const choices = g.channels.map(c => [String(c.number), `${c.target} (#${c.number})`]);
    options(document.querySelector('[data-param="graph.channel"]'), choices, String(g.channel));
    tally("graph", g.routes.total > 0 ? plural(g.routes.total, "route") : "");
    show(body,
      g.config?.waits > 0 && h("p.small", null, `A newer configuration waits for ${plural(g.config.waits, "cluster")}: `, names(g.config.waits_for)),
      g.config?.next_routes && h("p.small", null, "The RouteConfiguration ", name(g.config.next_routes), " takes over when it has arrived."),
      error(g.config?.error), g.why && h("p.soft", null, g.why),
      g.choose && h("p.soft", null, `Choose a cluster above, or search: there are ${plural(g.routes.total, "route")}.`),
      g.chosen && h("p.small", null, "Of cluster ", name(g.chosen), " ", set("graph.cluster", "", "show all")), g.listener && !g.choose && lanes(g));
    drawEdges();
  },

  resources(list, body) {
    tally("resources", list.total, list.total);
    facets("resources", list);
    const row = r => ({key: [r.type, r.name, r.variant, r.server, r.client].join("\n"), cells: [
      badge(r.state),
      [h("span.meta", null, r.type, " "), name(r.name), r.variant && [" ", h("code", null, r.variant)],
        r.client && h("span.meta", null, " of ", name(r.client)), failure(r), ignored(r)],
      r.cached ? [name(r.version, "(none)"), h("span.meta", null, " ", held(r))] : h("span.meta", null, "none in use"),
      r.server && name(r.server),
      r.bytes && bytes(r.bytes),
    ]});
    show(body, empty(list, "No resource is watched."),
      list.found > 0 && table("Resources", ["State", "Name", "Version", "Server", "Size"], list.items.map(row), [4]),
      pager("resources", list));
  },

  clusters(list, body) {
    tally("clusters", Object.entries(list.states).map(([state, n]) => `${number(n)} ${state}`).join(", "), list.total);
    facets("clusters", list);
    show(body, clusters(list, params.get("graph.cluster")));
  },

  changes(list, body) {
    tally("changes", list.total, list.total);
    const change = c => h("li", {"data-key": `n${c.number}`, class: "fresh"},
      since(c.time), " ago ", badge(c.kind), " ", c.type && h("span.meta", null, c.type, " "),
      c.name || c.target ? name(c.name || c.target) : c.server && name(c.server),
      (c.from || c.to) && h("span.meta", null, " ", c.from && [name(c.from), " → "], name(c.to, "none")),
      c.detail && (bad.has(c.kind) ? error(c.detail) : h("span.meta", null, " ", c.detail)));
    const marks = list.items.map(c => ({ago: seconds(c.time), kind: bad.has(c.kind) ? "bad" : ""})).filter(m => m.ago < 60);
    show(body, list.started.length > 0 && [sparkline(list.started, list.failures, "RPCs a second in the last minute, and changes", marks),
      h("p.axis", null, h("span", null, "60 s ago"), h("span", null, marks.length > 0 ? `RPCs a second, and ${plural(marks.length, "change")} as lines` : "RPCs a second"), h("span", null, "now"))],
      empty(list, "Nothing has changed since the process began."),
      h("ol.plain.small.scroll", {tabindex: 0, "aria-label": "last changes"}, list.items.map(change)), pager("changes", list));
  },

  peers(list, body) {
    tally("peers", number(list.total) + (list.refusing ? `, ${number(list.refusing)} refusing` : ""), list.total);
    const type = t => h("li", {"data-key": t.type}, badge(t.state), " ", t.type, " ",
      h("span.meta", null, t.acked && ["version ", name(t.acked), " · "], t.wildcard ? "all resources" : plural(t.names, "name"),
        t.subscribed && [": ", names(t.subscribed), t.names > t.subscribed.length && " …"]),
      error(t.refused && `${t.refused}: ${t.error}`), (t.resource_errors ?? []).map(e => error(`Error sent for ${e.name}: ${e.error}`, ".warn")));
    const peer = p => h("li", {"data-key": `p${p.id}`},
      h(".head", null, badge(p.standing), " ", h("h3", null, name(p.node, "(no node id)")),
        h("p.meta", null, `stream ${p.id} · ${p.protocol} · `, name(p.address), p.cluster && [" · cluster ", name(p.cluster)], p.agent && [" · ", name(p.agent)])),
      h("ul.plain.small", null, p.types.map(type)));
    show(body, empty(list, "No client is connected."), destinations(list), h("ul.plain", null, list.items.map(peer)), pager("peers", list));
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

// destinations is what "dynxds top" shows, from bad to good.
function destinations(list) {
  if (list.destinations?.length > 0) return [
    table("Destinations, the worst first", ["Destination", "Clients", "In sync", "Behind", "Refusing", "Versions", "RPCs/s", "Errors"], list.destinations.map(d => ({key: d.name, cells: [
      name(d.name), number(d.clients), number(d.in_sync), number(d.behind), number(d.refusing), number(d.most_versions),
      d.rpcs ? rate(d.rpcs.started / Math.max(d.rpcs.seconds, 1)) : "-", d.rpcs?.ended > 0 ? share(d.rpcs) : "-",
    ]})), [1, 2, 3, 4, 5, 6, 7]),
    list.more_destinations > 0 && h("p.small", null, `and ${plural(list.more_destinations, "more destination")}`),
    list.partial > 0 && h("p.small", null, `of ${plural(list.partial, "client")} with many names, only some are counted here`),
  ];
}

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
    const counted = Object.entries(list[select.dataset.counts]).map(([name, n]) => [name, `${name} (${number(n)})`]);
    if (chosen && ![...fixed, ...counted].some(([v]) => v === chosen)) counted.push([chosen, `${chosen} (0)`]);
    select.replaceChildren(...fixed.map(([value, text]) => h("option", {value}, text)),
      ...counted.map(([value, text]) => h("option", {value, "data-n": "1"}, text)));
    select.value = chosen;
  }
}
