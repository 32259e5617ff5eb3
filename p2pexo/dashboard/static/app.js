// Follows the cluster's snapshots for as long as the page is open, and starts the chat.

import { events, rememberKey, request } from "./api.js";
import * as chat from "./chat.js";
import { draw } from "./cluster.js";
import { byId } from "./dom.js";
import * as newcomers from "./newcomers.js";

const RETRY_MS = 1500;

async function follow() {
  let offered = null;
  const response = await request("/v1/cluster/events");
  for await (const { data } of events(response)) {
    if (!data) continue;
    const snapshot = JSON.parse(data);
    draw(snapshot);
    newcomers.draw(snapshot);
    tellLive("live", "on");
    const held = snapshot.members.map((member) => member.models.join()).join();
    if (held !== offered) await chat.fillModels();
    offered = held;
  }
}

function tellLive(text, state) {
  byId("live").textContent = text;
  byId("live").className = `live ${state}`;
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function untilKeyIsGiven() {
  const form = byId("key-form");
  form.hidden = false;
  tellLive("locked", "off");
  await new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      rememberKey(byId("key").value);
      resolve();
    };
  });
  form.hidden = true;
}

async function followForEver() {
  for (;;) {
    try {
      await follow();
      tellLive("reconnecting", "off");
    } catch (error) {
      if (error.status === 401) {
        await untilKeyIsGiven();
        continue;
      }
      tellLive("reconnecting", "off");
    }
    await pause(RETRY_MS);
  }
}

chat.start();
followForEver();
