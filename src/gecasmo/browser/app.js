// The page: what is shown, what one can do with it, and nothing of how it is worked out.

import { chance, compile, decode, expect, histories, historyOf, smooth } from "./engine.js";
import { ShownPage, bestOrder, worth } from "./pages.js";
import { drawAutomaton } from "./drawing.js";

const data = JSON.parse(document.getElementById("data").textContent);
const machine = compile(data.automaton);
const needs = historyOf(data.keys);
const by = (id) => document.getElementById(id);

const now = {
  query: 0, // number of the query
  docs: [], // numbers of the documents on the page, from the top
  seen: [], // what the user did, by document
  marks: [], // yes/no columns, by document
  chosen: {}, // by column, the number of its value
  shifts: {}, // by coin, what is added to its logit
  width: 4,
  at: 0, // the result that the automaton is shown for
  what: "click",
};

/** Make an element with attributes, listeners (onclick) and children. */
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const percent = (p) => (p > 0 && p < 0.0005 ? "<0.1 %" : `${(100 * p).toFixed(1)} %`);
const bar = (p, kind) => {
  const fill = make("i");
  fill.style.width = `${Math.max(0, Math.min(1, p)) * 100}%`;
  return make("span", { class: `bar ${kind}` }, fill, make("b", {}, percent(p)));
};
const spoken = (name) => name.replaceAll("_", " ");
const query = () => data.queries[now.query];
const tables = () => ({ ...data.coins, ...query().coins });
const shown = () => new ShownPage(tables(), now.docs, now);
const seen = () => now.docs.map((doc) => now.seen[doc]);
const flippedBelow = new Set(machine.edges.flatMap((edge) => edge.literals.map(({ name }) => name)));

// -- what changes the page ------------------------------------------------------------------------

function chooseQuery(number) {
  now.query = number;
  const n = query().docs.length;
  now.docs = Array.from({ length: Math.min(n, data.size) }, (_, doc) => doc);
  now.seen = Array.from({ length: n }, () => ({}));
  now.marks = Array.from({ length: n }, () => ({}));
  now.at = 0;
  update();
}

function move(from, to) {
  if (to < 0 || to >= now.docs.length || from === to) return;
  const docs = [...now.docs];
  docs.splice(to, 0, ...docs.splice(from, 1));
  now.docs = docs;
  now.at = to;
  update();
  by("page").tBodies[0].rows[to].focus();
  by("status").textContent = `${query().docs[docs[to]]} is now result ${to + 1}.`;
}

// -- the parts ------------------------------------------------------------------------------------

function showControls() {
  const names = data.queries.map(({ query: name }) => name);
  const box = make("input", {
    id: "query", list: "queries", autocomplete: "off", value: query().query, "aria-label": "Query",
    onchange: (event) => {
      const number = names.findIndex((name) => String(name) === event.target.value.trim());
      if (number >= 0) chooseQuery(number);
      else by("status").textContent = `No query of this page is called “${event.target.value}”.`;
    },
  });
  const list = make("datalist", { id: "queries" }, ...names.map((name) => make("option", { value: name })));
  const parts = names.length > 1 ? [make("label", {}, "Query ", box, list)] : [];
  for (const [column, values] of Object.entries(data.columns)) {
    const options = values.map((value, number) => make("option", { value: number }, value));
    const choose = make("select", {
      "data-column": column,
      onchange: (event) => { now.chosen[column] = Number(event.target.value); update(); },
    }, ...options);
    parts.push(make("label", {}, `${spoken(column)} `, choose));
  }
  if (data.view === "grids") {
    const width = make("input", {
      type: "number", min: 1, max: data.size, value: now.width,
      onchange: (event) => { now.width = Math.max(1, Number(event.target.value) || 1); update(); },
    });
    parts.push(make("label", {}, "results in a row ", width));
  }
  parts.push(make("button", { type: "button", id: "clear", onclick: () => {
    now.seen = now.seen.map(() => ({}));
    update();
  } }, "No clicks"));
  by("controls").replaceChildren(...parts);
}

function showPage(posterior, expected) {
  const coins = machine.coins.filter((name) => flippedBelow.has(name) && name in data.keys);
  const others = machine.signals.slice(1);
  const heading = (text, span = 1) => make("th", { scope: span > 1 ? "colgroup" : "col", colspan: span }, text);
  by("page").tHead.replaceChildren(
    make("tr", {}, heading("", 4), heading("probability of a click", 2), heading("given everything seen", 1 + coins.length), heading("")),
    make("tr", {}, ...["", "", "result", "the user", "before", "given those above", "reached", ...coins.map(spoken), ""].map(
      (text) => heading(text))));
  const rows = now.docs.map((doc, place) => {
    const toggle = (holder, name, words) => make("button", {
      type: "button", "aria-pressed": String(Boolean(holder[doc][name])), "data-toggle": name,
      "aria-label": `${words}: ${query().docs[doc]}`,
      onclick: (event) => {
        event.stopPropagation();
        holder[doc] = { ...holder[doc], [name]: !holder[doc][name] };
        now.at = place;
        update();
        by("page").tBodies[0].rows[place].querySelector(`[data-toggle="${name}"]`).focus();
      },
    }, words);
    const doings = [toggle(now.seen, "click", "click"), ...others.map((name) => toggle(now.seen, name, spoken(name)))];
    const marks = data.guards.map((name) => toggle(now.marks, name, spoken(name)));
    const cell = (...content) => make("td", {}, ...content);
    const row = make("tr", {
      tabindex: 0, class: place === now.at ? "chosen" : "", "data-doc": query().docs[doc],
      "aria-label": `Result ${place + 1}, ${query().docs[doc]}`,
      onclick: () => { now.at = place; update(); },
      onkeydown: (event) => {
        const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
        if (!step || event.target !== row) return;
        event.preventDefault();
        if (event.altKey) move(place, place + step);
        else by("page").tBodies[0].rows[place + step]?.focus();
      },
    },
    make("td", { class: "handle", "aria-hidden": true }, "⠿"), cell(String(place + 1)),
    make("td", { class: "doc" }, query().docs[doc]), cell(...doings, ...marks),
    cell(bar(expected.signals.click[place], "clicks")), cell(bar(posterior.click[place], "clicks")),
    cell(bar(posterior.reached[place], "seen")),
    ...coins.map((name) => {
      const coin = machine.coins.indexOf(name);
      const [flipped, heads] = [posterior.flipped[place][coin], posterior.heads[place][coin]];
      // Given that the coin was flipped at all; elsewhere nothing is to be said of it.
      return cell(flipped > 1e-9 ? bar(heads / flipped, "heads") : "–");
    }),
    cell(make("button", { type: "button", "aria-label": `Remove ${query().docs[doc]}`, "data-remove": true,
      onclick: (event) => {
        event.stopPropagation();
        if (now.docs.length < 2) return;
        now.docs = now.docs.filter((other) => other !== doc);
        now.at = 0;
        update();
      } }, "×")));
    dragging(row, place);
    return row;
  });
  by("page").tBodies[0].replaceChildren(...rows);
  const absent = query().docs.map((_, doc) => doc).filter((doc) => !now.docs.includes(doc));
  const add = make("select", { id: "add", "aria-label": "Add a result",
    onchange: (event) => { now.docs = [...now.docs, Number(event.target.value)]; update(); } },
  make("option", { value: "" }, "add a result …"),
  ...absent.map((doc) => make("option", { value: doc }, query().docs[doc])));
  by("adding").replaceChildren(...(absent.length && now.docs.length < data.size ? [add] : []));
}

/** Let a row be dragged by mouse, pen or finger; it goes to where it is let go. */
function dragging(row, place) {
  row.addEventListener("pointerdown", (begin) => {
    if (begin.button !== 0 || begin.target.closest("button")) return;
    if (begin.pointerType === "touch" && !begin.target.closest(".handle")) return;
    const rowAt = (y) => [...by("page").tBodies[0].rows].findIndex((other) => {
      const { top, bottom } = other.getBoundingClientRect();
      return y >= top && y < bottom;
    });
    const follow = () => row.classList.add("dragged");
    const drop = (end) => {
      document.removeEventListener("pointermove", follow);
      row.classList.remove("dragged");
      const to = rowAt(end.clientY);
      if (to >= 0) move(place, to);
    };
    document.addEventListener("pointermove", follow);
    document.addEventListener("pointerup", drop, { once: true });
    document.addEventListener("pointercancel", () => document.removeEventListener("pointermove", follow), { once: true });
  });
}

function showStory() {
  const told = decode(machine, shown(), seen());
  if (!told) {
    by("story").replaceChildren(make("li", { class: "problem" }, "Under this model nobody does that."));
    return;
  }
  const falls = (edge) => edge.literals.map(({ name, heads }) => `${heads ? "" : "not "}${spoken(name)}`);
  const lines = told.edges.map((edge, place) => {
    const doc = query().docs[now.docs[place]];
    if (edge.from === machine.gone || edge.isAway) return make("li", { class: "unseen" }, `${doc}: not looked at`);
    const did = [...edge.symbol].map(spoken);
    return make("li", {}, `${doc}: ${[...falls(edge), ...did.map((name) => `→ ${name}`)].join(", ") || "passed by"}`
      + (edge.to === machine.gone ? ", then leaves" : ""));
  });
  const before = told.start && told.start.literals.length ? [make("li", {}, `At the start: ${falls(told.start).join(", ")}`)] : [];
  by("story").replaceChildren(...before, ...lines);
}

const worthNames = () => [...machine.signals.map((name) => [name, `${spoken(name)}s`]),
  ...machine.coins.filter((name) => flippedBelow.has(name) && name in data.keys)
    .map((name) => [name, `results with ${spoken(name)}`])];

function showWorth() {
  const options = worthNames().map(([value, words]) => make("option", { value, selected: value === now.what }, words));
  const select = make("select", { id: "what", "aria-label": "What counts",
    onchange: (event) => { now.what = event.target.value; update(); } }, ...options);
  const best = make("button", { type: "button", id: "best", onclick: () => {
    const page = shown();
    const before = worth(machine, page, needs, now.what);
    const found = bestOrder(machine, page, needs, now.what);
    now.docs = found.docs;
    update();
    by("worth-told").textContent = `${before.toFixed(4)} before, ${found.worth.toFixed(4)} now. ` + (found.isProven
      ? "All orders were tried: none is worth more."
      : "No move and no exchange of two results adds anything.");
  } }, "Best order");
  by("worth").replaceChildren(make("label", {}, "expected ", select), best);
  const value = worth(machine, shown(), needs, now.what);
  by("worth-told").textContent = `${value.toFixed(4)} expected on this page, whatever was clicked.`;
}

function showCoins() {
  const rows = Object.keys(data.keys).map((name) => {
    const key = data.keys[name].join(", ") || "one for all";
    const here = shown().heads(name, Math.min(now.at, now.docs.length - 1), histories(seen())[now.at]);
    const value = make("output", { "data-coin": name }, percent(here));
    const slider = make("input", {
      type: "range", min: -4, max: 4, step: 0.1, value: now.shifts[name] ?? 0, "aria-label": spoken(name), "data-slider": name,
      oninput: (event) => { now.shifts[name] = Number(event.target.value); update("coins"); },
    });
    const reset = make("button", { type: "button", "aria-label": `${spoken(name)} as it was`,
      onclick: () => { delete now.shifts[name]; update(); } }, "reset");
    return make("div", { class: "coin" }, make("span", { title: `by ${key}` }, spoken(name)), slider, value, reset);
  });
  by("coins").replaceChildren(...rows);
}

function showCoinValues() {
  for (const output of by("coins").querySelectorAll("output")) {
    output.textContent = percent(shown().heads(output.dataset.coin, now.at, histories(seen())[now.at]));
  }
}

function point(edges) {
  const chosen = new Set(edges.map(({ number }) => String(number)));
  for (const row of by("edges").tBodies[0].rows) row.classList.toggle("pointed", chosen.has(row.dataset.edge));
}

const strength = drawAutomaton(by("automaton"), machine, point);

function showEdges() {
  by("at").textContent = `${now.at + 1} (${query().docs[now.docs[now.at]]})`;
  const page = shown();
  const history = histories(seen())[now.at];
  const chances = machine.edges.map((edge) => chance(edge, page, now.at, history));
  strength(chances);
  by("edges").tHead.replaceChildren(make("tr", {}, ...["from", "coins", "shows", "to", "probability"].map(
    (text) => make("th", { scope: "col" }, text))));
  const possible = machine.edges.filter((edge) => chances[edge.number] > 0).slice(0, 80);
  by("edges").tBodies[0].replaceChildren(...possible.map((edge) => make("tr", { "data-edge": edge.number },
    make("td", {}, machine.states[edge.from]),
    make("td", {}, edge.literals.map(({ name, heads }) => {
      const p = page.heads(name, now.at, history);
      return `${heads ? "" : "not "}${spoken(name)} ${percent(heads ? p : 1 - p)}`;
    }).join(" × ") || "always"),
    make("td", {}, [...edge.symbol].map(spoken).join(", ") || "nothing"),
    make("td", {}, machine.states[edge.to]), make("td", {}, percent(chances[edge.number])))));
}

/** Work everything out again; a slider that is being moved must not be replaced under the hand. */
function update(from = "") {
  const page = shown();
  const posterior = smooth(machine, page, seen());
  showPage(posterior, expect(machine, page, needs));
  by("status").textContent = "";
  if (posterior.impossible >= 0) {
    by("status").append(make("span", { class: "problem" },
      `Under this model, what is seen at result ${posterior.impossible + 1} cannot happen.`));
  } else {
    by("status").textContent = `Log-likelihood of what was seen: ${posterior.logLikelihood.toFixed(4)}.`;
  }
  showStory();
  showWorth();
  if (from === "coins") showCoinValues();
  else showCoins();
  showEdges();
}

by("name").textContent = data.name;
by("about").textContent = [data.about, data.is_fitted ? "" : "Not fitted: its numbers are made up."].filter(Boolean).join(" ");
by("program").textContent = data.program || "This model has no program.";
by("made").textContent = [
  data.left_out ? `${data.left_out.toLocaleString("en")} more queries of the fit are not on this page.` : "",
  data.numbers.length ? `Numbers such as ${data.numbers.join(", ")} are taken as not recorded.` : "",
  "Made by gecasmo; this page fetches nothing and sends nothing.",
].filter(Boolean).join(" ");
chooseQuery(0);
showControls();
// For tests, and for the curious.
window.gecasmo = { data, machine, now, needs, shown, seen, smooth, expect, decode, worth, bestOrder };
