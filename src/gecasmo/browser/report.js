// The table of pairs: searched, sorted, and shown fifty at a time.

const data = JSON.parse(document.getElementById("data").textContent);
const AT_ONCE = 50;
const percents = new Set(["relevance", "ctr", "grade_probability"]);
const words = {
  query: "query", doc: "document", grade: "grade", relevance: "relevance", interval: "90 % interval",
  grade_probability: "sure", examinations: "looked at", impressions: "shown", ctr: "click rate",
};

/** The numbers of the rows whose query or document has all words of a text, in the chosen order. */
export function chosenRows(columns, n, text, sorted) {
  const parts = text.toLowerCase().split(/\s+/).filter(Boolean);
  const hay = (row) => `${columns.query?.[row] ?? ""} ${columns.doc?.[row] ?? ""}`.toLowerCase();
  const found = [];
  for (let row = 0; row < n; row++) {
    if (!parts.length || parts.every((part) => hay(row).includes(part))) found.push(row);
  }
  if (sorted.by) {
    const values = columns[sorted.by];
    const order = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null); // unknown ones last
      return (a < b ? -1 : a > b ? 1 : 0) * (sorted.isDown ? -1 : 1);
    };
    found.sort((a, b) => order(values[a], values[b]) || a - b);
  }
  return found;
}

function showPairs() {
  const { columns, n } = data;
  const shown = ["query", "doc", "grade", "grade_probability", "relevance", "interval", "examinations", "impressions", "ctr"]
    .filter((name) => name in columns || (name === "interval" && columns.low?.some((low) => low !== null)));
  const now = { text: "", first: 0, sorted: { by: "", isDown: true } };
  const table = document.getElementById("pairs");
  const sortedBy = (name) => (name === "interval" ? "low" : name);
  const make = (tag, text = "") => Object.assign(document.createElement(tag), { textContent: text });
  const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);
  const text = (name, row) => {
    if (name === "interval") return `${percent(columns.low[row])} to ${percent(columns.high[row])}`;
    const value = columns[name][row];
    if (percents.has(name)) return percent(value);
    if (value === null) return "–";
    // Of hundreds of looks nobody wants a tenth.
    return typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 }) : value;
  };
  const draw = () => {
    const rows = chosenRows(columns, n, now.text, now.sorted);
    now.first = Math.max(0, Math.min(now.first, rows.length - 1));
    const page = rows.slice(now.first, now.first + AT_ONCE);
    table.tBodies[0].replaceChildren(...page.map((row) => {
      const line = document.createElement("tr");
      line.append(...shown.map((name) => make("td", text(name, row))));
      return line;
    }));
    document.getElementById("found").textContent = `${rows.length.toLocaleString("en")} of ${data.told}`;
    const turn = (label, to) => {
      const button = make("button", label);
      button.type = "button";
      button.disabled = to < 0 || to >= rows.length;
      button.addEventListener("click", () => { now.first = to; draw(); });
      return button;
    };
    const place = rows.length ? `${now.first + 1} to ${now.first + page.length}` : "none";
    document.getElementById("printed").textContent = page.length < n ? `Pairs ${place} of ${rows.length.toLocaleString("en")}; the file has all.` : "";
    document.getElementById("paging").replaceChildren(
      turn("Back", now.first - AT_ONCE), make("span", place), turn("Next", now.first + AT_ONCE));
    for (const head of table.tHead.querySelectorAll("th")) {
      const isBy = sortedBy(head.dataset.name) === now.sorted.by;
      head.setAttribute("aria-sort", isBy ? (now.sorted.isDown ? "descending" : "ascending") : "none");
    }
  };
  const heads = document.createElement("tr");
  heads.append(...shown.map((name) => {
    const head = make("th");
    head.dataset.name = name;
    head.scope = "col";
    const button = make("button", words[name]);
    button.type = "button";
    button.addEventListener("click", () => {
      const by = sortedBy(name);
      now.sorted = { by, isDown: now.sorted.by === by ? !now.sorted.isDown : typeof columns[by][0] !== "string" };
      now.first = 0;
      draw();
    });
    head.append(button);
    return head;
  }));
  table.tHead.replaceChildren(heads);
  document.getElementById("search").addEventListener("input", (event) => {
    now.text = event.target.value;
    now.first = 0;
    draw();
  });
  draw();
}

if (data.columns) showPairs();
