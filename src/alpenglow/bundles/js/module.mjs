/* @NAME@: made by Alpenglow @VERSION@ for @TARGET@.
 *
 *   import { load } from "./@NAME@.mjs";
 *   const net = await load();
 *   const outputs = net.run({ NAME: typedArray, ... });  // { NAME: { data, type, shape }, ... }
 *
 * A module begins with @MEMORY@ bytes of memory and asks for no more.  Calls of one
 * loaded module come one after the other; load it once for each worker.
 */

/** What each entry point takes and gives; offsets count from the region `mutable`. */
export const entries = {
@ENTRIES@
};

const CONSTANTS = @CONSTANTS@, MUTABLE = @MUTABLE@, SCRATCH = @SCRATCH@;
/** What an entry point returns if an index was out of range; if there is no state, or no room in it
 * for the rows of a call. */
const OUT_OF_RANGE = @OUT_OF_RANGE@, NO_STATE = @NO_STATE@, NO_ROOM = @NO_ROOM@;
/** What stays from call to call, with room for so many rows, or null. */
const STATE = @STATE@;
const WEIGHTS = @WEIGHTS@, WEIGHTS_NBYTES = @NBYTES@;

/** Returns a loaded module; `wasm` and `weights` are bytes for hosts that have files elsewhere. */
export async function load({ wasm, weights } = {}) {
  const module = await WebAssembly.compile(wasm ?? (await bytes("@NAME@.wasm")));
  const instance = await WebAssembly.instantiate(module, {});
  const { memory } = instance.exports;
  if (WEIGHTS !== null) {
    const content = weights ?? (await bytes(WEIGHTS));
    if (content.byteLength !== WEIGHTS_NBYTES)
      throw new RangeError(
        `@NAME@: the weights are ${WEIGHTS_NBYTES} bytes, these are ${content.byteLength}`);
    new Uint8Array(memory.buffer, CONSTANTS).set(new Uint8Array(
      content.buffer ?? content, content.byteOffset ?? 0, content.byteLength));
  }
  const run = (inputs, entry = Object.keys(entries)[0]) => call(instance.exports, inputs, entry);
  if (STATE === null) return { run, instance };
  const reset = () => void instance.exports[`${STATE.name}_reset`](CONSTANTS, MUTABLE);
  const rows = () => Math.max(rowsOf(instance.exports), 0);
  const trim = (kept) => {
    const there = rows();
    if (!Number.isInteger(kept) || kept < 0 || kept > there)
      throw new RangeError(`@NAME@: trim to ${kept} rows, expected 0 to ${there}`);
    if (kept !== there) instance.exports[`${STATE.name}_trim`](MUTABLE, BigInt(kept));
  };
  reset();
  return { run, instance, reset, rows, trim, length: STATE.length };
}

/** Returns how many rows of state there are as a call begins; -1 if the state was lost. */
function rowsOf(exports) {
  return STATE?.length ? Number(exports[`${STATE.name}_length`](MUTABLE)) : 0;
}

function call(exports, inputs, entry) {
  if (!Object.hasOwn(entries, entry))
    throw new TypeError(`@NAME@: no entry point '${entry}', expected one of: ${Object.keys(entries)}`);
  const { inputs: wanted, outputs } = entries[entry];
  const known = wanted.filter((s) => !s.random).map((s) => s.name);
  for (const name of Object.keys(inputs))
    if (!wanted.some((s) => s.name === name))
      throw new TypeError(`${entry}: no input '${name}', expected one of: ${known.join(", ")}`);
  const { buffer } = exports.memory;
  const rows = rowsOf(exports);
  if (rows < 0) throw new Error(`${entry}: a call that failed lost the state; try: reset()`);
  const exact = (s) => (s.now ? sized(s, s.now(rows)) : s);
  for (const s of wanted.map(exact)) view(buffer, s).set(checked(entry, s, inputs[s.name]));
  const status = exports[entry](CONSTANTS, MUTABLE, SCRATCH);
  if (status === OUT_OF_RANGE) {
    const [index] = new BigInt64Array(buffer, MUTABLE + entries[entry].outOfRange, 1);
    throw new RangeError(`${entry}: index is ${index}, expected one within its axis`);
  }
  if (status === NO_STATE)
    throw new Error(`${entry}: a call that failed lost the state; try: reset()`);
  if (status === NO_ROOM)
    throw new RangeError(`${entry}: the state is full, expected at most ${rows} rows`);
  if (status !== 0)
    throw new Error(`${entry}: a region of memory is not aligned`);
  return Object.fromEntries(outputs.map(exact).map((s) => [
    s.name, { data: view(buffer, s).slice(), type: s.type, shape: [...s.shape] },
  ]));
}

/** Returns an input or output of another shape. */
function sized(s, shape) {
  return { ...s, shape, count: shape.reduce((x, y) => x * y, s.count / s.shape.reduce((x, y) => x * y, 1)) };
}

/* What shapes are computed by: quotients and remainders that are rounded down. */
const quotient_of = (x, y) => Math.floor(x / y), rest_of = (x, y) => x - y * quotient_of(x, y);
const larger_of = Math.max, smaller_of = Math.min;

function view(buffer, s) {
  return new globalThis[s.array](buffer, MUTABLE + s.offset, s.count);
}

/** Returns the elements of an input: a typed array, or { data, shape } as outputs are. */
function checked(entry, s, given) {
  if (given === undefined && s.random)
    return globalThis.crypto.getRandomValues(new globalThis[s.array](s.count));
  const what = `${entry}: input '${s.name}', ${s.type}[${s.shape}]`;
  if (given === undefined || given === null) throw new TypeError(`${what} is missing`);
  const data = ArrayBuffer.isView(given) ? given : given.data;
  if (data?.constructor?.name !== s.array)
    throw new TypeError(`${what}: expected a ${s.array}, found ${data?.constructor?.name}`);
  if (given !== data && given.shape !== undefined && String(given.shape) !== String(s.shape))
    throw new RangeError(`${what}: expected shape [${s.shape}], found [${given.shape}]`);
  if (data.length !== s.count)
    throw new RangeError(`${what}: expected ${s.count} elements, found ${data.length}`);
  return data;
}

/** Reads a file that lies beside this one. */
async function bytes(name) {
  const url = new URL(name, import.meta.url);
  if (url.protocol === "file:") return (await import("node:fs/promises")).readFile(url);
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return response.arrayBuffer();
}
