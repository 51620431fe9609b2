// What is shown: the sections, and what is unfolded, searched for and paged to.

export const sections = ["channels", "graph", "explain", "resources", "traffic", "changes", "clients", "peers", "served"];
export const byName = name => document.querySelector(`.section[data-section="${name}"]`);

// params are what is unfolded, searched for and paged to: the query of the stream, and the fragment of
// the page's address, so that a view can be linked to.
export const params = new URLSearchParams(location.hash.slice(1));
export const folded = name => params.has("show") ? !params.getAll("show").includes(name) : false;

export function remember(changes) {
  for (const [k, v] of Object.entries(changes)) if (v === "" || v === undefined) params.delete(k); else params.set(k, v);
  const hash = String(params);
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}
