// The table of clusters, and the lines of RPCs in the last minute.

import {h, name, shape} from "./elements.js";
import {empty, number, pager, plural, rate, share, since, table} from "./words.js";

export const healths = {failing: ["bad", "✕"], degraded: ["warn", "!"], healthy: ["good", "✓"], unknown: ["idle", "?"], idle: ["idle", "○"]};

const health = (state, more) => h(`span.badge.${healths[state][0]}`, {title: more}, h("span", {"aria-hidden": "true"}, healths[state][1] + " "), state);
const mean = list => list.reduce((sum, n) => sum + n, 0) / list.length;
const ms = n => n < 0.1 ? "< 0.1 ms" : n >= 1000 ? `${(n / 1000).toFixed(1)} s` : n >= 10 ? `${n.toFixed(0)} ms` : `${n.toFixed(1)} ms`;

// told are the clusters whose errors stand among the problems.
const told = c => c.health === "failing" || c.health === "degraded";

// none is what is counted for a cluster without RPCs.
const none = {minute: {ended: 0, failed: 0}, retries: 0, hedges: 0};

export function clusters(list, chosen) {
  const row = c => {
    const {minute, retries, hedges} = c.rpcs ?? none;
    return {key: `c${c.channel}${c.id}`, chosen: c.id === chosen, cells: [
      [health(c.health, c.error), c.since && h("span.meta", null, " for ", since(c.since))],
      [h("button.link", {type: "button", "data-cluster": c.id, "data-channel": c.channel}, name(c.name)), list.targets && h(".meta", null, name(c.target)),
        c.error && !told(c) && h(`.cause.${healths[c.health][0]}`, {title: c.error}, c.error)],
      c.started.some(n => n > 0) && sparkline(c.started, c.failures, `RPCs a second in the last minute, ${plural(minute.failed, "failure")}`),
      c.started.some(n => n > 0) && rate(mean(c.started.slice(-10))),
      minute.ended ? h(minute.failed ? "span.failed" : "span", {title: `${number(minute.failed)} of ${number(minute.ended)} RPCs of the last minute`}, share(minute)) : null,
      minute.p99_ms !== undefined && [ms(minute.p50_ms), h("span.meta", null, " / "), ms(minute.p99_ms)],
      retries + hedges ? [number(retries), hedges > 0 && ` + ${plural(hedges, "hedge")}`] : null,
      endpoints(c.endpoints),
    ]};
  };
  return [empty(list, "No channel has a cluster yet."),
    list.found > 0 && table("Clusters", ["State", "Cluster", "RPCs, 60 s", "RPC/s", "Errors", "p50 / p99", "Retries", "Endpoints"], list.items.map(row), [3, 4, 5, 6]),
    pager("clusters", list), (list.splits ?? []).map(s => split(s, list.targets)), list.more_splits > 0 && h("p.soft", null, `and ${plural(list.more_splits, "more route")} with several clusters`)];
}

// split compares the clusters of a route.
function split(s, targets) {
  const row = ({name: of, minute: m}) => ({key: `s${s.target}\n${s.route}\n${of}`, cells: [
    name(of), rate(m.started / Math.max(m.seconds, 1)), m.ended ? h(m.failed ? "span.failed" : "span", null, share(m)) : null,
    m.p99_ms !== undefined && [ms(m.p50_ms), h("span.meta", null, " / "), ms(m.p99_ms)]]});
  return h(".split", {"data-key": `s${s.target}\n${s.route}`}, h("h3", null, "Route ", name(s.route), targets && h("span.meta", null, " of ", name(s.target))),
    table("Clusters of the route", ["Cluster", "RPC/s", "Errors", "p50 / p99"], s.clusters.map(row), [1, 2, 3]));
}

// endpoints says how many are ready, and how many are not for a reason.
function endpoints(e) {
  const parts = [[e.failing, "failing"], [e.ejected, "ejected"], [e.unhealthy, "unhealthy"], [e.connecting, "connecting"]].filter(([n]) => n > 0);
  if (e.all === 0 || e.idle === e.all) return e.all > 0 && h("span.meta", null, `${number(e.all)} idle`);
  return [h("span", {title: "ready of all"}, `${number(e.ready)} of ${number(e.all)}`), parts.length > 0 && h("span.meta", null, " ", parts.map(([n, what]) => `${number(n)} ${what}`).join(", "))];
}

// sparkline draws the RPCs of each second, those that failed in red, and marks seconds of the last minute.
export function sparkline(started, failed, label, marks = []) {
  const seconds = 60, most = Math.max(1, ...started), first = seconds - started.length;
  const column = (i, n, kind) => n > 0 && shape("rect", {class: kind, x: first + i, y: (20 - Math.max(1, 19 * n / most)).toFixed(1), width: 0.9, height: Math.max(1, 19 * n / most).toFixed(1)});
  const columns = [];
  for (let i = 0; i < started.length; i++) columns.push(column(i, Math.max(started[i], failed[i]), "all"), column(i, failed[i], "failures"));
  return h(".spark", null, shape("svg", {viewBox: "0 0 60 20", preserveAspectRatio: "none", role: "img", "aria-label": label},
    shape("rect", {class: "base", x: 0, y: 19.6, width: 60, height: 0.4}), ...columns.filter(Boolean),
    ...marks.map(m => shape("rect", {class: `mark ${m.kind}`, x: Math.max(0, Math.min(59.8, seconds - m.ago)).toFixed(1), y: 0, width: 0.15, height: 20}))));
}
