// The explanation of an RPC, which the form asks for: the lines that the command prints.

import {h, show} from "./elements.js";
import {error} from "./words.js";

const styles = ["", ".heading", ".good", ".doubtful", ".bad"]; // as package styled has them

export async function explain(form) {
  const out = document.getElementById("explanation");
  const [, target, channel] = /^(.*?)(?:\s+#(\d+))?$/.exec(form.target.value.trim());
  const query = new URLSearchParams({target, method: form.method.value.trim()});
  if (channel) query.set("channel", channel);
  for (const line of form.elements.header.value.split("\n")) if (line.trim()) query.append("header", line.trim());
  try {
    const answer = await fetch(`explain?${query}`);
    const body = await answer.text();
    show(out, answer.ok ? h(".explained", null, JSON.parse(body).map(l => h(`div${styles[l.style]}`, null, l.text || " "))) : error(body.trim()));
  } catch (e) {
    show(out, error(`The server did not answer: ${e.message}`));
  }
}
