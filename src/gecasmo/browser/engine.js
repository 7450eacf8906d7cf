// The compiled automaton of a click model, run on one page: the same sums as the kernels of Python.
//
// A page is an object with
//   size                         how many results it has
//   heads(coin, place, history)  the probability of a coin at a result, counted from 0
//   guards(place)                the yes/no columns there, by name
// where history = {last, clicks}: the rank of the nearest click above (0 for none), and how many
// clicks there are above. Observations are one object per result: {click: true, cart: false}.

const NO_HISTORY = { last: 0, clicks: 0 };

/** The automaton as arrays: edges by source, with numbers in the place of names. */
export function compile(automaton) {
  const coin = new Map(automaton.parameters.map((name, number) => [name, number]));
  const seen = new Set((automaton.observes ?? []).map(([name]) => name));
  const prepare = (edge, number) => ({
    number,
    from: edge.from,
    to: edge.to,
    symbol: new Set(edge.symbol),
    literals: edge.literals
      .filter(([name]) => !seen.has(name))
      .map(([name, heads]) => ({ coin: coin.get(name), name, heads })),
    guards: edge.guards.map(({ column, value }) => ({ column, value })),
    multiplicity: edge.multiplicity,
    isAway: edge.away ?? false,
  });
  const edges = automaton.edges.map(prepare);
  return {
    coins: automaton.parameters,
    signals: automaton.signals,
    pageSignals: new Set(automaton.page_signals ?? []),
    states: automaton.states,
    gone: automaton.gone ?? -1,
    initial: automaton.initial.map(prepare),
    edges,
    from: automaton.states.map((_, state) => edges.filter((edge) => edge.from === state)),
  };
}

/** The probability of an edge, whatever is seen; 0 where its guards do not hold. */
export function chance(edge, page, place, history) {
  if (edge.guards.length) {
    const guards = page.guards(place);
    for (const { column, value } of edge.guards) {
      if ((guards[column] ?? false) !== value) return 0;
    }
  }
  let product = edge.multiplicity;
  for (const { name, heads } of edge.literals) {
    const p = page.heads(name, place, history);
    product *= heads ? p : 1 - p;
  }
  return product;
}

/** How probable each state is before the first result. */
function begin(machine, page) {
  const state = new Float64Array(machine.states.length);
  for (const edge of machine.initial) state[edge.to] += chance(edge, page, 0, NO_HISTORY);
  return state;
}

/** The click history above each result of a page, given what was seen. */
export function histories(seen) {
  const found = [];
  let last = 0;
  let clicks = 0;
  seen.forEach((signals, place) => {
    found.push({ last, clicks });
    if (signals.click) {
      last = place + 1;
      clicks += 1;
    }
  });
  return found;
}

/** Whether an edge shows just what was seen at a result; signals of a page are seen at its end. */
function shows(machine, edge, seen, place) {
  const isLast = place === seen.length - 1;
  for (const signal of machine.signals) {
    const wanted = machine.pageSignals.has(signal)
      ? isLast && seen.some((signals) => signals[signal])
      : Boolean(seen[place][signal]);
    if (edge.symbol.has(signal) !== wanted) return false;
  }
  return true;
}

const total = (values) => values.reduce((sum, value) => sum + value, 0);

/**
 * Walk down a page with its signals seen: P(click) at each result given the signals above, the
 * log-likelihood, and for the way back the states before each result and the weights of all edges.
 * `impossible` is the first result at which what was seen cannot happen, or -1.
 */
export function filter(machine, page, seen) {
  const above = histories(seen);
  const click = new Float64Array(page.size);
  const states = [];
  const weights = [];
  let state = begin(machine, page);
  let logLikelihood = Math.log(total(state));
  for (let place = 0; place < page.size; place++) {
    const scale = total(state);
    state = state.map((value) => value / scale);
    states.push(state);
    const next = new Float64Array(machine.states.length);
    const kept = new Float64Array(machine.edges.length);
    for (const edge of machine.edges) {
      if (!state[edge.from]) continue;
      const weight = chance(edge, page, place, above[place]);
      if (!weight) continue;
      if (edge.symbol.has("click")) click[place] += state[edge.from] * weight;
      if (!shows(machine, edge, seen, place)) continue;
      kept[edge.number] = weight;
      next[edge.to] += state[edge.from] * weight;
    }
    weights.push(kept);
    const likelihood = total(next);
    if (!(likelihood > 0)) return { click, logLikelihood: -Infinity, impossible: place };
    logLikelihood += Math.log(likelihood);
    state = next;
  }
  return { click, logLikelihood, impossible: -1, states, weights };
}

/** Which coins an edge flips, and whether each came up heads at least once. */
function flips(edge) {
  const found = new Map();
  for (const { coin, heads } of edge.literals) found.set(coin, (found.get(coin) ?? false) || heads);
  return found;
}

/**
 * What happened behind each result, given everything seen on the page: the probability that it was
 * reached, that each coin was flipped there, and that it came up heads.
 */
export function smooth(machine, page, seen) {
  const walked = filter(machine, page, seen);
  const rows = () => Array.from({ length: page.size }, () => new Float64Array(machine.coins.length));
  const found = {
    ...walked,
    reached: new Float64Array(page.size),
    flipped: rows(),
    heads: rows(),
    startFlipped: new Float64Array(machine.coins.length),
    startHeads: new Float64Array(machine.coins.length),
  };
  if (walked.impossible >= 0) return found;
  let after = new Float64Array(machine.states.length).fill(1);
  for (let place = page.size - 1; place >= 0; place--) {
    const before = new Float64Array(machine.states.length);
    const state = walked.states[place];
    let sum = 0;
    for (const edge of machine.edges) {
      const weight = walked.weights[place][edge.number] * after[edge.to];
      before[edge.from] += weight;
      sum += state[edge.from] * weight;
    }
    for (const edge of machine.edges) {
      const weight = walked.weights[place][edge.number];
      const share = (state[edge.from] * weight * after[edge.to]) / sum;
      if (!share) continue;
      if (edge.from !== machine.gone && !edge.isAway) found.reached[place] += share;
      for (const [coin, heads] of flips(edge)) {
        found.flipped[place][coin] += share;
        if (heads) found.heads[place][coin] += share;
      }
    }
    after = before.map((value) => value / sum);
  }
  const shares = machine.initial.map((edge) => chance(edge, page, 0, NO_HISTORY) * after[edge.to]);
  const sum = total(shares);
  machine.initial.forEach((edge, number) => {
    for (const [coin, heads] of flips(edge)) {
      found.startFlipped[coin] += shares[number] / sum;
      if (heads) found.startHeads[coin] += shares[number] / sum;
    }
  });
  return found;
}

/** The most likely story: an edge for each result, and the one before the first. */
export function decode(machine, page, seen) {
  const above = histories(seen);
  let best = new Float64Array(machine.states.length).fill(-Infinity);
  const first = new Array(machine.states.length).fill(null);
  for (const edge of machine.initial) {
    const value = Math.log(chance(edge, page, 0, NO_HISTORY));
    if (value > best[edge.to]) {
      best[edge.to] = value;
      first[edge.to] = edge;
    }
  }
  const ways = [];
  for (let place = 0; place < page.size; place++) {
    const next = new Float64Array(machine.states.length).fill(-Infinity);
    const way = new Array(machine.states.length).fill(null);
    for (const edge of machine.edges) {
      if (best[edge.from] === -Infinity || !shows(machine, edge, seen, place)) continue;
      const value = best[edge.from] + Math.log(chance(edge, page, place, above[place]));
      if (value > next[edge.to]) {
        next[edge.to] = value;
        way[edge.to] = edge;
      }
    }
    ways.push(way);
    best = next;
  }
  let state = best.indexOf(Math.max(...best));
  if (best[state] === -Infinity) return null;
  const edges = [];
  for (let place = page.size - 1; place >= 0; place--) {
    edges.unshift(ways[place][state]);
    state = ways[place][state].from;
  }
  return { start: first[state], edges };
}

/** Which parts of the click history the coins of a page are keyed by. */
export function historyOf(keys) {
  const named = new Set(Object.values(keys).flat());
  return {
    last: named.has("last_click") || named.has("distance"),
    clicks: named.has("clicks_above"),
  };
}

/**
 * What is to be expected of a page when no click is known: for each result the probability of each
 * signal, of being reached, and of heads of each coin. The states carry as much of the click
 * history as coins are keyed by.
 */
export function expect(machine, page, needs) {
  const n = machine.states.length;
  const found = {
    signals: Object.fromEntries(machine.signals.map((name) => [name, new Float64Array(page.size)])),
    reached: new Float64Array(page.size),
    heads: machine.coins.map(() => new Float64Array(page.size)),
    startHeads: new Float64Array(machine.coins.length),
  };
  for (const edge of machine.initial) {
    const weight = chance(edge, page, 0, NO_HISTORY);
    for (const [coin, heads] of flips(edge)) if (heads) found.startHeads[coin] += weight;
  }
  let lifted = new Map([["0 0", { last: 0, clicks: 0, state: begin(machine, page) }]]);
  for (let place = 0; place < page.size; place++) {
    const next = new Map();
    for (const here of lifted.values()) {
      for (const edge of machine.edges) {
        if (!here.state[edge.from]) continue;
        const weight = here.state[edge.from] * chance(edge, page, place, here);
        if (!weight) continue;
        for (const signal of edge.symbol) found.signals[signal][place] += weight;
        if (edge.from !== machine.gone && !edge.isAway) found.reached[place] += weight;
        for (const [coin, heads] of flips(edge)) if (heads) found.heads[coin][place] += weight;
        const isClick = edge.symbol.has("click");
        const last = isClick && needs.last ? place + 1 : here.last;
        const clicks = isClick && needs.clicks ? here.clicks + 1 : here.clicks;
        const key = `${last} ${clicks}`;
        if (!next.has(key)) next.set(key, { last, clicks, state: new Float64Array(n) });
        next.get(key).state[edge.to] += weight;
      }
    }
    lifted = next;
  }
  return found;
}
