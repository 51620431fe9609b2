// What is shown: the tab, the sections, and what is unfolded, searched for and paged to.

export const sections = ["peers", "clusters", "graph", "explain", "changes", "channels", "clients", "resources", "served"];
export const byName = name => document.querySelector(`.section[data-section="${name}"]`);

// params are what is unfolded, searched for and paged to: what is asked for, and the fragment of
// the page's address, so that a view can be linked to. Sections that are folded are listed.
export const params = new URLSearchParams(location.hash.slice(1));
export const folded = name => params.getAll("fold").includes(name);
export const tab = () => params.get("tab") || "overview";

export function remember(changes) {
  for (const [k, v] of Object.entries(changes)) if (v === "" || v === undefined) params.delete(k); else params.set(k, v);
  const hash = String(params);
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

// fold folds or unfolds a section.
export function fold(name, is) {
  const others = params.getAll("fold").filter(o => o !== name);
  params.delete("fold");
  for (const o of is ? [...others, name] : others) params.append("fold", o);
}
