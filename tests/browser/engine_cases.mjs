// Answers of the browser's engine to cases that Python has made: `node engine_cases.mjs cases.json`.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [cases, folder] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/${name}`).href);
const { compile, decode, expect, historyOf, smooth } = await load("engine.mjs");
const { ShownPage, bestOrder, worth } = await load("pages.mjs");

const answers = JSON.parse(readFileSync(cases, "utf-8")).map(({ data, pages }) => {
  const machine = compile(data.automaton);
  const needs = historyOf(data.keys);
  const [query] = data.queries;
  return pages.map(({ docs, seen, marks, width }) => {
    const page = new ShownPage({ ...data.coins, ...query.coins }, docs, { marks, width });
    const found = smooth(machine, page, seen);
    const story = decode(machine, page, seen);
    const expected = expect(machine, page, needs);
    const best = bestOrder(machine, page, needs, "click");
    return {
      logLikelihood: found.logLikelihood,
      conditional: [...found.click],
      marginal: [...expected.signals.click],
      reached: [...found.reached],
      flipped: Object.fromEntries(machine.coins.map((c, n) => [c, found.flipped.map((r) => r[n])])),
      heads: Object.fromEntries(machine.coins.map((c, n) => [c, found.heads.map((r) => r[n])])),
      startHeads: Object.fromEntries(machine.coins.map((c, n) => [c, found.startHeads[n]])),
      story: story.edges.map(({ literals, from, isAway }) => ({
        reached: from !== machine.gone && !isAway,
        falls: literals.map(({ name, heads }) => [name, heads]),
      })),
      expectedHeads: Object.fromEntries(machine.coins.map((c, n) => [c, [...expected.heads[n]]])),
      worth: worth(machine, page, needs, "click"),
      best: { docs: best.docs, worth: best.worth, isProven: best.isProven },
    };
  });
});
process.stdout.write(JSON.stringify(answers));
