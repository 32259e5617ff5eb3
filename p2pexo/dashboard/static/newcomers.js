// Machines that wait to be let in, and where this node waits itself, each with the code to compare.

import { request } from "./api.js";
import { byId, el } from "./dom.js";

let drawn = "[]";

export function draw(snapshot) {
  const { newcomers, asking } = snapshot;
  // Buttons that are drawn anew under the pointer can't be pressed.
  const news = JSON.stringify([newcomers, asking]);
  if (news === drawn) return;
  drawn = news;
  const lines = [...(asking ? [waiting(asking)] : []), ...newcomers.map(newcomer)];
  byId("newcomers").hidden = lines.length === 0;
  byId("newcomers").replaceChildren(...lines);
}

function waiting({ cluster, code }) {
  return el("li", "", "This node waits to be let into ", el("strong", "", cluster), "; its code is ", digits(code), ". Approve it there.");
}

function newcomer({ peer, name, machine, address, at, code, looks_like }) {
  const problem = el("span", "reason");
  const decide = (label, quiet, verb, body) => {
    const button = el("button", quiet, label);
    button.onclick = () => send(peer, verb, body).catch((error) => problem.replaceChildren(` ${error.message}`));
    return button;
  };
  return el(
    "li",
    "",
    el("strong", "", name),
    ` (${machine}, ${address}) asks to join at ${at}. `,
    ...(looks_like ? [el("strong", "reason", mistakable(looks_like))] : []),
    `Does it show the code `,
    digits(code),
    " as well? ",
    decide("Let it in", "", "approve", { code }),
    " ",
    decide("Turn it away", "quiet", "deny"),
    problem,
  );
}

const mistakable = (member) => `Careful: it is another machine than the member ${member}, whose name looks the same. `;
const digits = (code) => el("strong", "digits", code);

function send(peer, verb, body) {
  const json = body ? { headers: { "content-type": "application/json" }, body: JSON.stringify(body) } : {};
  return request(`/v1/newcomers/${encodeURIComponent(peer)}/${verb}`, { method: "POST", ...json });
}
