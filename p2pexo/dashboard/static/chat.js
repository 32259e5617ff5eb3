// A small chat with the models of the cluster, over the same API that everybody uses.

import { events, request } from "./api.js";
import { byId, el } from "./dom.js";

const messages = [];
let running = null;

export async function fillModels() {
  const { data } = await (await request("/v1/models")).json();
  const select = byId("model");
  const chosen = select.value;
  select.replaceChildren(...data.map((model) => option(model.id)));
  if (data.some((model) => model.id === chosen)) select.value = chosen;
}

function option(id) {
  const element = el("option", "", id.split("/").pop());
  element.value = id;
  element.title = id;
  return element;
}

export function start() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) running.abort();
    else ask();
  });
  byId("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) ask();
  });
  byId("question").addEventListener("input", grow);
  byId("clear").addEventListener("click", clear);
}

function grow() {
  const box = byId("question");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

function clear() {
  if (running) running.abort();
  messages.length = 0;
  byId("talk").replaceChildren();
  byId("status").textContent = "";
}

async function ask() {
  const content = byId("question").value.trim();
  if (!content || !byId("model").value) return;
  byId("question").value = "";
  grow();
  messages.push({ role: "user", content });
  if (messages.length === 1) byId("talk").replaceChildren();
  say("user", content);
  const bubble = say("assistant waiting", "");
  running = new AbortController();
  byId("send").textContent = "Stop";
  try {
    await answer(bubble);
  } catch (error) {
    if (error.name === "AbortError") byId("status").textContent = "Stopped.";
    else fail(bubble, error.message);
  } finally {
    if (bubble.textContent) messages.push({ role: "assistant", content: bubble.textContent });
    bubble.classList.remove("waiting");
    byId("send").textContent = "Send";
    running = null;
  }
}

async function answer(bubble) {
  const begun = performance.now();
  let firstToken = 0;
  byId("status").textContent = "Waiting for the first token…";
  for await (const { comment, data } of events(await post())) {
    if (comment && comment !== "keep-alive") byId("status").textContent = comment;
    if (!data || data === "[DONE]") continue;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    const text = chunk.choices[0]?.delta.content ?? "";
    if (text && !firstToken) {
      firstToken = performance.now();
      byId("status").textContent = "Answering…";
    }
    bubble.append(text);
    keepInView();
    if (chunk.usage) tellSpeed(chunk.usage, firstToken - begun, performance.now() - firstToken);
  }
}

function post() {
  return request("/v1/chat/completions", {
    method: "POST",
    signal: running.signal,
    body: JSON.stringify({
      model: byId("model").value,
      messages,
      stream: true,
      stream_options: { include_usage: true },
    }),
  });
}

function tellSpeed(usage, waitedMs, decodeMs) {
  const speed = usage.completion_tokens > 1 ? ((usage.completion_tokens - 1) * 1000) / decodeMs : 0;
  const rate = speed ? ` · ${speed.toFixed(1)} tokens/s` : "";
  byId("status").textContent = `${usage.completion_tokens} tokens${rate} · first after ${(waitedMs / 1000).toFixed(1)} s`;
}

function say(classes, text) {
  const bubble = el("div", `said ${classes}`, text);
  byId("talk").append(bubble);
  keepInView();
  return bubble;
}

function fail(bubble, message) {
  bubble.after(el("p", "said failed", message));
  if (!bubble.textContent) bubble.remove();
  byId("status").textContent = "";
  keepInView();
}

function keepInView() {
  const talk = byId("talk");
  talk.scrollTop = talk.scrollHeight;
}
