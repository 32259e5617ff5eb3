// Builds elements. Names of machines and models come from others, so text is only ever set as text.

export function el(tag, classes = "", ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

export const byId = (id) => document.getElementById(id);

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytes(count) {
  let unit = 0;
  while (count >= 1000 && unit < UNITS.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${count >= 10 || unit === 0 ? Math.round(count) : count.toFixed(1)} ${UNITS[unit]}`;
}

export function bar(parts) {
  const track = el("div", "bar");
  for (const [kind, share] of parts) {
    const part = el("span", kind);
    part.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
    track.append(part);
  }
  return track;
}
