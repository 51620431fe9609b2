// The explanation of an RPC, which the form asks for.

import {h, name, show} from "./elements.js";
import {version} from "./resources.js";
import {badge, error, hidden, item, locality, percent, plural} from "./words.js";

const at = place => place && h("span.at", null, " ", place); // "file:line" of a policy
const json = value => typeof value === "string" ? value : JSON.stringify(value);
const notActedOn = text => error(text, ".warn");
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
  return `${c.kind}${c.name ? ` ${c.name}` : ""}: want ${c.want}, have ${c.have || "nothing"}${c.reason ? `; ${c.reason}` : ""}`;
}

function actionList(a) {
  return h("ul.fields", null,
    a.kind !== "forward" && item(a.kind.replace("_", " "), a.code, a.message && `: ${a.message}`),
    (a.destinations ?? []).map(d => destinationLine("to", d)),
    (a.mirrors ?? []).map(d => destinationLine("mirror to", d)),
    (a.filters ?? []).map(filterLine),
    a.timeout && item("timeout", a.timeout.value, level(a.timeout.level), at(a.timeout.at), notActedOn(a.timeout.ignored)),
    a.retry && item("retry", `${a.retry.max_attempts} attempts on ${(a.retry.on ?? []).join(", ")}; backoff ${a.retry.base_backoff} to ${a.retry.max_backoff}`,
      a.retry.hedged && `; hedged after ${a.retry.hedged}`, level(a.retry.level), at(a.retry.at), notActedOn(a.retry.ignored)),
    (a.hash_policies ?? []).map(p => item("hash", p.of, p.value && ` = ${p.value}`, p.reason && ` (${p.reason})`)),
    rewriteLine("path", a.path), rewriteLine("authority", a.authority), (a.headers ?? []).map(headerLine));
}

function destinationLine(label, d) {
  const own = [(d.filters ?? []).map(filterLine), (d.headers ?? []).map(headerLine), rewriteLine("authority", d.authority)].flat().filter(Boolean);
  return item(label, name(d.cluster, "(no cluster)"), ` ${percent(d.percent)}`, d.header && ` by the header ${d.header}`, at(d.at),
    error(d.error), notActedOn(d.ignored), own.length > 0 && h("ul.fields", null, own));
}

function filterLine(f) {
  return item("filter", name(f.name), f.disabled && " (disabled)", h("span.meta", null, ` ${f.type}`), level(f.level), at(f.at),
    f.ends && h("span.meta", null, ` ends ${percent(f.ends.percent)} with ${f.ends.code}`),
    !f.disabled && (f.override ?? f.config) && h("code", null, " ", json(f.override ?? f.config)), notActedOn(f.ignored));
}

function rewriteLine(label, r) {
  return r && item(label, name(r.from), " → ", name(r.to, "depends on the endpoint"), level(r.by), at(r.at), error(r.error), notActedOn(r.ignored));
}

const headerLine = d => item(`${d.side} header`, name(d.name), ` ${d.edit}`, at(d.at), notActedOn(d.ignored));

function clusterLine(c, left) {
  const s = c.settings, a = c.assignment;
  const settings = s && [s.policy, s.policy_config && json(s.policy_config), s.tls, `at most ${plural(s.max_requests, "RPC")} at a time`, s.outliers];
  return h("li", null, name(c.name), c.mirror ? " mirror" : c.of ? [" member of ", name(c.of)] : ` ${percent(c.share)}`,
    h("span.meta", null, " ", c.type), at(c.at), c.in_use && [" uses ", name(c.in_use), h("span.meta", null, " ", c.reason)],
    error(c.error), notActedOn(c.waits), notActedOn(c.unknown), resourceLine(c.resource),
    s && h("p.meta", null, settings.filter(Boolean).join(" · ")),
    (s?.ignored ?? []).map(notActedOn),
    a && [resourceLine(a.resource), !c.error && h("p.meta", null, a.reason), (a.drops ?? []).map(d => h("p.meta", null, `drops ${percent(d.percent)} (${d.category})`)),
      h("ul.fields", null, (a.priorities ?? []).map(priorityLine), hidden(left, "endpoint"))]);
}

function priorityLine(p) {
  return h("li", null, `priority ${p.priority}`, p.in_use && ", in use", " ", p.state && badge(p.state),
    h("ul.fields", null, p.localities.map(l => h("li", null,
      locality(l), ` ${percent(l.percent)} `, l.state && badge(l.state),
      h("ul.fields", null, l.endpoints.map(endpointLine))))));
}

function endpointLine(b) {
  return h("li", null, name(b.address), " ", badge(b.ejected ? "ejected" : b.state || b.health),
    h("span.meta", null, ` weight ${b.weight}${b.usable ? "" : ", gets no RPC"}`), error(b.last_error, b.state === "READY" ? ".warn" : ""));
}

export async function explain(form) {
  const out = document.getElementById("explanation");
  const [, target, channel] = /^(.*?)(?:\s+#(\d+))?$/.exec(form.target.value.trim());
  const query = new URLSearchParams({target, method: form.method.value.trim()});
  if (channel) query.set("channel", channel);
  for (const line of form.elements.header.value.split("\n")) if (line.trim()) query.append("header", line.trim());
  try {
    const answer = await fetch(`explain?${query}`);
    const body = await answer.text();
    show(out, answer.ok ? explanation(JSON.parse(body)) : error(body.trim()));
  } catch (e) {
    show(out, error(`The server did not answer: ${e.message}`));
  }
}
