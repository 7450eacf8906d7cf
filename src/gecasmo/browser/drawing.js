// The automaton as a picture: states on a ring, and an arrow for each pair of states that a user
// can go between.

const SVG = "http://www.w3.org/2000/svg";
const MOST_STATES = 12; // more are unreadable: the table of edges has to do

function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Where the states stand: one or two side by side, more on a ring. */
function places(n, width, height) {
  if (n === 1) return [{ x: width / 2, y: height / 2 + 20 }];
  if (n === 2) return [0.22, 0.78].map((share) => ({ x: share * width, y: height / 2 }));
  return Array.from({ length: n }, (_, i) => {
    const angle = (2 * Math.PI * i) / n - Math.PI / 2;
    return {
      x: width / 2 + Math.cos(angle) * width * 0.33,
      y: height / 2 + Math.sin(angle) * height * 0.3,
    };
  });
}

function arrow(from, to, centre) {
  const R = 26;
  if (from === to) {
    const dx = from.x - centre.x;
    const dy = from.y - centre.y || -1;
    const far = Math.hypot(dx, dy) < 30 ? 1 : Math.hypot(dx, dy);
    const [ux, uy] = far === 1 ? [0, -1] : [dx / far, dy / far];
    const [px, py] = [-uy, ux];
    const at = (along, across) => `${from.x + ux * along + px * across} ${from.y + uy * along + py * across}`;
    return `M ${at(R * 0.8, -14)} C ${at(R + 50, -34)} ${at(R + 50, 34)} ${at(R * 0.8 + 4, 16)}`;
  }
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const far = Math.hypot(dx, dy);
  const [ux, uy] = [dx / far, dy / far];
  const bend = Math.min(50, far * 0.22);
  const middle = [(from.x + to.x) / 2 - uy * bend, (from.y + to.y) / 2 + ux * bend];
  const start = [from.x + ux * R, from.y + uy * R];
  const end = [to.x - ux * (R + 6), to.y - uy * (R + 6)];
  return `M ${start.join(" ")} Q ${middle.join(" ")} ${end.join(" ")}`;
}

/**
 * Draw the automaton into a container. `tell(edges)` is called when somebody points at an arrow,
 * with the edges that it stands for, or with none. Returns a function that, given the probability
 * of each edge, sets how strong the arrows are, and what they say when somebody points at them.
 */
export function drawAutomaton(container, machine, tell) {
  container.replaceChildren();
  const n = machine.states.length;
  if (n > MOST_STATES) {
    const words = document.createElement("p");
    words.textContent = `${n} states are too many to draw; the table below lists what can happen.`;
    container.append(words);
    return () => {};
  }
  const width = 460;
  const height = n === 1 ? 170 : n === 2 ? 190 : 330;
  const spots = places(n, width, height);
  const centre = { x: width / 2, y: height / 2 };
  const head = element("marker", {
    id: "head", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7,
    orient: "auto-start-reverse", markerUnits: "userSpaceOnUse",
  }, element("path", { d: "M 0 0 L 8 4 L 0 8 z", class: "head" }));
  const picture = element("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Automaton with ${n} states: ${machine.states.join(", ")}`,
  }, element("defs", {}, head));
  const arrows = [];
  for (let from = 0; from < n; from++) {
    for (let to = 0; to < n; to++) {
      const edges = machine.edges.filter((edge) => edge.from === from && edge.to === to);
      if (!edges.length) continue;
      const d = arrow(spots[from], spots[to], centre);
      const line = element("path", { d, class: "arrow", "marker-end": "url(#head)" });
      const told = element("title");
      const wide = element("path", { d, class: "reach", tabindex: 0 }, told);
      for (const name of ["pointerenter", "focus"]) wide.addEventListener(name, () => tell(edges));
      for (const name of ["pointerleave", "blur"]) wide.addEventListener(name, () => tell([]));
      picture.append(line, wide);
      arrows.push({ line, wide, told, edges, words: `${machine.states[from]} to ${machine.states[to]}` });
    }
  }
  machine.states.forEach((name, state) => {
    const { x, y } = spots[state];
    const circle = element("circle", { cx: x, cy: y, r: 26, class: state === machine.gone ? "gone" : "state" });
    const words = element("text", { x, y: y + 42, class: "name" });
    words.textContent = name.length > 24 ? `${name.slice(0, 22)}…` : name;
    const number = element("text", { x, y: y + 5, class: "number" });
    number.textContent = state === machine.gone ? "✕" : String(state + 1);
    circle.append(element("title", {}, name));
    picture.append(circle, number, words);
  });
  container.append(picture);
  return (chances) => {
    for (const { line, wide, told, edges, words } of arrows) {
      const sum = edges.reduce((all, edge) => all + chances[edge.number], 0);
      const ways = `${edges.length} ${edges.length === 1 ? "way" : "ways"}`;
      told.textContent = `${words}: ${(100 * sum).toFixed(1)} %, ${ways}`;
      wide.setAttribute("aria-label", told.textContent);
      line.style.strokeWidth = String(1 + 5 * sum);
      line.style.opacity = String(0.25 + 0.75 * Math.min(1, sum * 1.5));
    }
  };
}
