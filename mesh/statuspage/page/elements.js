// Elements of the page, made and changed in place. Whatever the server sends becomes text nodes: nothing here parses markup.

// visible shows characters that cannot be seen, or that would turn the text around.
const visible = text => String(text ?? "").replace(/[^\P{C}\n]|[\u2028\u2029]/gu, c => `\\u{${c.codePointAt(0).toString(16)}}`);

// h makes an element. Children are nodes, texts, lists of them, or nothing.
export function h(tag, attributes, ...children) {
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
export const name = (text, empty = "(empty)") => text ? h("bdi.name", null, String(text).replaceAll("\n", "\\u{a}")) : h("span.soft", null, empty);

// names shows several.
export const names = list => list.map((n, i) => [i > 0 && ", ", name(n)]);

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
export function show(element, ...children) {
  const now = element.cloneNode(false);
  add(now, children);
  morph(element, now);
}

export function shape(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}
