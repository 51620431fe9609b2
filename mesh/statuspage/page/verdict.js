// The answer to "is it healthy?": the verdict on the process, and on a control plane in it, and the problems.

import {h, name, names as listed, show} from "./elements.js";
import {error, hidden, number, plural, since} from "./words.js";

const signs = {failing: "✕", degraded: "!", healthy: "✓", unknown: "?"};

// verdicts shows the bars. Each part leads to what it is about.
export function verdicts(o) {
  const bar = (v, whose) => v && h(`.verdict.${v.state}`, {"data-key": whose, role: "group", "aria-label": `${whose}: ${v.state}`},
    h("span.sign", {"aria-hidden": "true"}, signs[v.state]),
    h("p", null, o.plane && o.verdict && h("span.whose", null, whose), (v.parts ?? []).map((p, i) => [i > 0 && " · ",
      h("button.part", {type: "button", "data-goto": p.about}, p.text, p.at && [" ", since(p.at), " ago"])])));
  show(document.getElementById("verdicts"), bar(o.plane, "control plane"), bar(o.verdict, "client"));
  const worst = [o.plane, o.verdict].filter(Boolean).map(v => v.state);
  const state = ["failing", "degraded", "unknown", "healthy"].find(s => worst.includes(s));
  const title = state ? `${signs[state]} ${state} · xDS status` : "xDS status";
  if (document.title !== title) document.title = title;
}

// problems shows what is wrong, worst first.
export function problems(o) {
  const card = document.getElementById("problems");
  card.dataset.empty = o.problems.length === 0;
  card.querySelector(".tally").textContent = o.problems.length ? number(o.problems.length + (o.more ?? 0)) : "none";
  const problem = p => h(`li.problem.${p.severity}`, {"data-key": `${p.kind}\n${p.subject}\n${p.target ?? ""}`},
    h("p.head", null, h("span.sign", {"aria-hidden": "true"}, signs[p.severity]), h("strong", null, name(p.subject), p.others > 0 && ` and ${plural(p.others, "other client")}`),
      h("span.meta", null, p.since && [" for ", since(p.since)], p.target && o.channels > 1 && [" · ", name(p.target)], p.where && [" · ", h("code", null, p.where)])),
    error(p.text, p.severity === "failing" ? "" : ".warn"),
    h("p.actions", null, p.id && h("button.link", {type: "button", "data-cluster": p.id, "data-channel": p.channel}, "show"),
      p.method && h("button.link", {type: "button", "data-why": p.method, "data-target": p.target, "data-cluster": p.id, "data-channel": p.channel}, "why?"),
      p.kind === "resource" && h("button.link", {type: "button", "data-goto": "resources"}, "resources"),
      p.kind === "server" && h("button.link", {type: "button", "data-goto": "servers"}, "servers"),
      p.kind === "client" && h("button.link", {type: "button", "data-goto": "peers"}, "clients")));
  show(card.querySelector(".body"), o.problems.length === 0 && h("p.soft", null, "Nothing is known to be wrong."),
    h("ul", null, o.problems.map(problem)), o.more > 0 && h("p.soft", null, `and ${plural(o.more, "more problem")}`));
}

// plane shows what a control plane says about its documents.
export function plane(o) {
  const card = document.getElementById("plane"), c = o.plane?.configuration;
  card.dataset.empty = !c;
  if (!c) return;
  const p = c.published, row = (label, ...value) => [h("dt", null, label), h("dd", null, ...value)];
  show(card.querySelector(".body"), h("dl", null,
    row("Documents", c.place, " ", name(c.name), c.faulty_since ? [": with errors for ", since(c.faulty_since)] : ": valid", c.permissive && " (permissive)"),
    c.waiting && row("Waiting", c.waiting, c.waiting_until && ", until it is confirmed or time is up"),
    c.gone_since && row("Store", "does not answer for ", since(c.gone_since)),
    p ? row("Published", since(p.at), " ago: ", plural(p.changed, "resource"), " changed, ", `${number(p.removed)} removed`,
      (p.what ?? []).length > 0 && [" (", listed(p.what), p.more > 0 && ` and ${number(p.more)} more`, ")"], h("span.meta", null, ` · version ${p.version}`)) : row("Published", "nothing yet"),
    p?.reports && row("Reports", plural(p.errors ?? 0, "error"), ", ", plural(p.warnings ?? 0, "warning"),
      h("ul", null, p.reports.map((r, i) => h("li", null, error(r, i < (p.errors ?? 0) ? "" : ".warn"))), hidden((p.errors ?? 0) + (p.warnings ?? 0) - p.reports.length, "report"))),
    p && row("Serves", `${plural(p.services, "service")}, ${plural(p.policies, "policy", "policies")} of ${plural(p.documents, "document")}`)));
}
