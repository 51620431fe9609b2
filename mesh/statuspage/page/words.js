// Numbers, times, states and lists in words, badges and tables.

import {h, name} from "./elements.js";

let ahead = 0; // the server's clock minus ours, in milliseconds

// setClock takes the server's time, which ages are counted by.
export function setClock(iso) {
  ahead = Date.parse(iso) - Date.now();
}

export const seconds = iso => Math.max(0, (Date.now() + ahead - Date.parse(iso)) / 1000);

export function age(iso) {
  const ago = seconds(iso);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (ago >= size) return `${Math.floor(ago / size)} ${unit}`;
  return `${Math.floor(ago)} s`;
}

export const since = iso => h("time", {datetime: iso, title: iso, "data-age": true}, age(iso));
export const until = iso => `${Math.max(0, Math.ceil((Date.parse(iso) - Date.now() - ahead) / 1000))} s`;
export const number = n => n.toLocaleString("en");
export const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;
export const percent = n => `${Math.round(n * 100) / 100} %`;

// share says how many of the RPCs that have ended have failed, as "dynxds status" writes it.
export function share({failed, ended}) {
  const p = 100 * failed / ended;
  return p > 0 && p < 0.1 ? "under 0.1 %" : p > 99.9 && p < 100 ? "over 99.9 %" : `${p === 0 || p === 100 ? p : p.toFixed(1)} %`;
}

export const rate = n => n === undefined ? "…" : n >= 100 ? n.toFixed(0) : n.toFixed(1);
export const bytes = n => n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB` : `${n} B`;

// The states, with a sign and a colour each.
const good = new Set(["in sync", "ACKED", "READY", "ready", "serving", "ACK", "HEALTHY", "xDS", "connected", "accepted", "server restored"]);
export const bad = new Set(["NACKED", "NACKed", "NACK", "DOES_NOT_EXIST", "RECEIVED_ERROR", "TIMEOUT", "TRANSIENT_FAILURE", "SHUTDOWN", "UNHEALTHY",
  "failed", "refusing", "unreachable", "error", "ejected", "server lost", "removed"]);
const warn = new Set(["behind", "late", "CONNECTING", "REQUESTED", "DRAINING", "DEGRADED", "DNS", "connecting", "resolving", "undecided", "awaited", "mode"]);

export function badge(state, more) {
  const [kind, sign] = good.has(state) ? ["good", "✓"] : bad.has(state) ? ["bad", "✕"] : warn.has(state) ? ["warn", "…"] : ["idle", "○"];
  return h(`span.badge.${kind}`, {title: more}, h("span", {"aria-hidden": "true"}, sign + " "), state);
}

export const error = (text, kind = "") => text ? h(`span.error${kind}`, {tabindex: text.length > 400 ? 0 : undefined}, text) : null;
export const set = (param, value, ...text) => h("button.link", {type: "button", "data-set": param, "data-value": value}, ...text);

// table shows rows of cells; labels head the columns, and the cells where there is no room.
export function table(caption, labels, rows, numbers = []) {
  return h("table", null, h("caption", null, caption),
    h("thead", null, h("tr", null, labels.map((l, i) => h(numbers.includes(i) ? "th.num" : "th", {scope: "col"}, l)))),
    h("tbody", null, rows.map(({key, cells, chosen}) =>
      h(chosen ? "tr.chosen" : "tr", {"data-key": key}, cells.map((c, i) => h(numbers.includes(i) ? "td.num" : "td", {"data-label": labels[i]}, c))))));
}

// pager leads through a list.
export function pager(section, list) {
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

export const empty = (list, none) => list.total === 0 ? h("p.soft", null, none) : list.found === 0 ? h("p.soft", null, "Nothing matches.") : null;

export const hidden = (n, what) => n > 0 && h("li.soft", null, `and ${plural(n, what)} more`);
export const locality = l => name([l.region, l.zone, l.sub_zone].filter(Boolean).join(" / "), "no locality");
