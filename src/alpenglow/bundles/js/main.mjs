/* Runs @NAME@ once and prints what comes out.
 *
 * Arguments are files with the elements of the inputs, in order; inputs without one are zeros.
 */
import { readFile } from "node:fs/promises";

import { entries, load } from "./@NAME@.mjs";

const paths = process.argv.slice(2);
const inputs = {};
for (const s of Object.values(entries)[0].inputs) {
  const array = globalThis[s.array];
  const path = paths.shift();
  inputs[s.name] = new array(s.count);
  if (path === undefined) continue;
  const content = await readFile(path);
  inputs[s.name] = new array(Uint8Array.from(content).buffer);
}
const net = await load();
for (const [name, { data }] of Object.entries(net.run(inputs))) {
  const best = data.reduce((best, value, i) => (value > data[best] ? i : best), 0);
  const more = data.length > 8 ? " ..." : "";
  console.log(`${name}: ${data.slice(0, 8).join(" ")}${more}, largest at ${best}`);
}
