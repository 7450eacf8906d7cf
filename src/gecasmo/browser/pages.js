// A page of results as the engine reads it, and the orders that a page could have.

import { expect } from "./engine.js";

/** Where a value stands on an axis of a table of probabilities. */
function along(axis, place, history, page) {
  switch (axis.key) {
    case "rank":
      return place;
    case "last_click":
      return history.last;
    case "distance":
      return place - history.last; // rank - last click, counted from 1
    case "clicks_above":
      return history.clicks;
    case "page_length":
      return page.size - 1;
    case "doc":
      return page.docs[place];
    default:
      return page.column(axis.key, place);
  }
}

const shifted = (p, by) => {
  if (!by || p <= 0 || p >= 1) return p;
  const odds = (p / (1 - p)) * Math.exp(by);
  return odds / (1 + odds);
};

/**
 * Some documents of a query in an order, under a model.
 *
 * tables  by coin: {axes: [{key, values}], p: [...]}, the last axis running fastest
 * docs    numbers of documents, from the top
 * marks   one object per document of the query: the yes/no columns that hold for it
 * chosen  by column: the number of the value that is chosen for the page
 * shifts  by coin: what a slider adds to its logit
 * width   results in a row, where pages are grids
 */
export class ShownPage {
  constructor(tables, docs, { marks = [], chosen = {}, shifts = {}, width = 4 } = {}) {
    Object.assign(this, { tables, docs, marks, chosen, shifts, width });
    this.size = docs.length;
  }

  column(key, place) {
    const grid = { row: Math.floor(place / this.width), column: place % this.width };
    // A page that stands alone is the first of its task.
    const alone = { page_number: 0, page_rank: place, ...grid };
    return this.chosen[key] ?? alone[key] ?? 0;
  }

  heads(coin, place, history) {
    const { axes, p } = this.tables[coin];
    let number = 0;
    for (const axis of axes) {
      number = number * axis.values.length + along(axis, place, history, this);
    }
    return shifted(p[number], this.shifts[coin]);
  }

  guards(place) {
    const isLast = place === this.size - 1;
    return {
      "\0last result": isLast,
      first_on_page: place === 0,
      last_on_page: isLast,
      first_page: true,
      first_in_row: place % this.width === 0,
      last_in_row: isLast || (place + 1) % this.width === 0,
      ...this.marks[this.docs[place]],
    };
  }

  inOrder(docs) {
    return new ShownPage(this.tables, docs, this);
  }
}

/** What can be expected of a page: clicks, another signal, or results at which a coin is heads. */
export function worth(machine, page, needs, what) {
  const found = expect(machine, page, needs);
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  if (what in found.signals) return sum(found.signals[what]);
  return sum(found.heads[machine.coins.indexOf(what)]);
}

const MOST_TRIED = 7; // results of which all orders are tried: 5,040

function* permutations(items) {
  if (items.length < 2) {
    yield items;
    return;
  }
  for (let i = 0; i < items.length; i++) {
    const others = [...items.slice(0, i), ...items.slice(i + 1)];
    for (const rest of permutations(others)) yield [items[i], ...rest];
  }
}

/**
 * The order of a page that is worth most. Of short pages all orders are tried (`isProven`); longer
 * ones are improved by moving and exchanging results until nothing helps any more.
 */
export function bestOrder(machine, page, needs, what) {
  const value = (docs) => worth(machine, page.inOrder(docs), needs, what);
  const least = 1e-12; // rounding is no improvement
  let best = page.docs;
  let most = value(best);
  const consider = (docs) => {
    const found = value(docs);
    if (found <= most + least) return false;
    best = docs;
    most = found;
    return true;
  };
  if (page.size <= MOST_TRIED) {
    for (const docs of permutations(page.docs)) consider(docs);
    return { docs: best, worth: most, isProven: true };
  }
  for (let isBetter = true; isBetter; ) {
    isBetter = false;
    for (let i = 0; i < page.size; i++) {
      for (let j = 0; j < page.size; j++) {
        if (i === j) continue;
        const moved = [...best];
        moved.splice(j, 0, ...moved.splice(i, 1));
        const swapped = [...best];
        [swapped[i], swapped[j]] = [swapped[j], swapped[i]];
        isBetter = consider(moved) || isBetter;
        if (j > i) isBetter = consider(swapped) || isBetter;
      }
    }
  }
  return { docs: best, worth: most, isProven: false };
}
