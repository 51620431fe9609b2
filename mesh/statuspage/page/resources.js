// A resource: its version, its errors and its ignored fields.

import {h, name} from "./elements.js";
import {badge, hidden, plural, since} from "./words.js";

// held says how old the version in use is.
export const held = r => r.from_disk ? ["from disk, ", since(r.updated), " old"] : [since(r.updated), " ago"];

// version says what is in use, and from which server unless that is the usual one.
export function version(r, usual) {
  const used = r.cached ? ["version ", name(r.version, "(none)"), r.updated && [" · ", held(r)]] : "no version in use";
  return [used, r.server && r.server !== usual && [" · from ", name(r.server)]];
}

export function failure(r) {
  if (!r.error) return null;
  const what = r.state === "NACKED" ? `Version ${r.error_version || "(none)"} was rejected` : "Last answer";
  return h("span.error", null, what, r.cached && "; the version above stays in use",
    r.error_time && [" (", since(r.error_time), " ago)"], ": ", r.error);
}

export function ignored(r) {
  if (!r.ignored) return null;
  const warnings = r.ignored.filter(f => f.severity === "warning").length, more = r.more_ignored ?? 0;
  return h("details.small", {"data-key": `ignored ${r.type}`},
    h("summary", null, plural(r.ignored.length + more, "ignored field") + (warnings ? `, ${warnings} that may matter` : "")),
    h("ul.fields", null, r.ignored.map(f => h("li", null,
      f.severity === "warning" && [h("span.badge.warn", null, "! matters"), " "], h("code", null, f.path), ": ", f.reason, f.places > 1 && ` (at ${f.places} places)`)), hidden(more, "field")));
}

// node is the box of a resource.
export function node(r, key) {
  return h(`.box${r.error ? ".bad" : ""}`, {"data-key": key, "data-node": key},
    h(".head", null, name(r.name), r.variant && h("code", null, r.variant), badge(r.state || "not requested")),
    h(".meta", null, version(r)), failure(r), ignored(r));
}
