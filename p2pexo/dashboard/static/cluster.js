// Draws a snapshot of the cluster: who is there, who leads, and which machine runs which layers.

import { bar, byId, bytes, el } from "./dom.js";

export function draw(snapshot) {
  const leader = snapshot.members.find((member) => member.is_leader);
  byId("cluster-name").textContent = snapshot.open ? `${snapshot.cluster} · open` : snapshot.cluster;
  byId("machine-count").textContent = snapshot.members.length;
  byId("leader").textContent = leader ? leader.name : "electing…";
  byId("term").textContent = snapshot.term;
  byId("warnings").hidden = snapshot.warnings.length === 0;
  byId("warnings").replaceChildren(...snapshot.warnings.map((warning) => el("li", "", warning)));
  byId("rings").replaceChildren(...(snapshot.placements.length ? snapshot.placements.map(ring) : [noRings()]));
  byId("machines").replaceChildren(...snapshot.members.map(machine));
}

function noRings() {
  return el("p", "empty", "No model is running. Ask something, and one is loaded.");
}

function ring(placement) {
  const stages = placement.stages;
  const count = stages.length === 1 ? "1 stage" : `${stages.length} stages`;
  const chain = el("ol", "chain");
  stages.forEach((stage, index) => chain.append(stageBox(stage, index === stages.length - 1)));
  return el(
    "article",
    "card ring",
    el("header", "", el("h3", "", placement.model), pill(placement.state)),
    el("p", "fine", `${count} · epoch ${placement.epoch}${placement.by_user ? "" : " · placed on demand"}`),
    placement.reason ? el("p", "reason", placement.reason) : null,
    layerBar(stages),
    chain,
  );
}

// One strip for all layers of the model, so that the split is seen at a glance.
function layerBar(stages) {
  const strip = el("div", "layers");
  stages.forEach((stage, index) => {
    const layers = stage.end_layer - stage.first_layer;
    const part = el("span", `tint-${index % 6}`);
    part.style.flexGrow = layers;
    part.title = `${stage.node}: ${layers} layers`;
    strip.append(part);
  });
  return strip;
}

function stageBox(stage, isLast) {
  const box = el(
    "div",
    `stage tint-${stage.rank % 6}`,
    el("div", "stage-head", el("i", "swatch"), titled(el("strong", "", stage.node)), pill(stage.phase)),
    el("p", "stage-layers", layerRange(stage)),
    stage.phase === "loading" ? bar([["loaded", stage.progress]]) : null,
    stage.phase === "failed" ? null : el("p", "fine", memoryOf(stage)),
    stage.compute ? el("p", "fine", stage.compute) : null,
    stage.activity ? el("p", "fine", `busy ${Math.round(100 * stage.activity.busy_share)} %`) : null,
    stage.reason ? el("p", "reason", stage.reason) : null,
  );
  if (isLast && stage.rank === 0) return el("li", "", box);
  const link = el("div", "link", isLast ? el("span", "fine", "tokens back to stage 0") : linkText(stage.link));
  return el("li", isLast ? "last" : "", box, link);
}

// May break before the port, and not in the middle of it.
function linkText(link) {
  const port = link.lastIndexOf(":");
  if (port < 0) return el("span", "fine", link || "not linked");
  return el("span", "fine", link.slice(0, port), el("wbr"), link.slice(port));
}

// Names that are cut for want of room show whole when pointed at.
function titled(element) {
  element.title = element.textContent;
  return element;
}

const layerRange = (stage) =>
  stage.end_layer - stage.first_layer === 1
    ? `layer ${stage.first_layer}`
    : `layers ${stage.first_layer}–${stage.end_layer - 1}`;

function memoryOf(stage) {
  if (!stage.weight_bytes && !stage.resident_bytes) return "nothing loaded yet";
  return `${bytes(stage.weight_bytes)} weights · ${bytes(stage.resident_bytes)} resident`;
}

function machine(member) {
  const used = member.memory_total - member.memory_free;
  const reserved = Math.min(member.memory_reserved, used);
  return el(
    "article",
    `card machine ${member.state}`,
    el(
      "header",
      "",
      el("h3", "", member.name),
      member.is_leader ? el("span", "badge leader", "leader") : null,
      member.is_me ? el("span", "badge", "this node") : null,
      member.state === "alive" ? null : pill(member.state),
    ),
    el("p", "fine", member.machine),
    bar([["reserved", reserved / member.memory_total], ["used", (used - reserved) / member.memory_total]]),
    el("p", "memory", `${bytes(used)} of ${bytes(member.memory_total)} used`),
    el("p", "fine", `${bytes(member.memory_reserved)} of ${bytes(member.memory_budget)} reserved`),
    el("p", "fine", `${member.device.toUpperCase()} · version ${member.version}`),
  );
}

const pill = (state) => el("span", `pill ${state}`, state);
