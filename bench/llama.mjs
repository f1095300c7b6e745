// The process of llama.cpp in the benchmark of decoding: as decoders.py, by node-llama-cpp.
//
//     node llama.mjs FOLDER THREADS STEPS LENGTH
//
// It is run in the folder that node-llama-cpp is installed in.  What its library calls for each
// token is called here without what stands around it, which is worth 1 % of a step.  Attention in
// one kernel is faster for prompts, and slower for a token after many: both are run, and the
// faster counts.

import {createRequire} from "node:module";
import {createInterface} from "node:readline";
import {pathToFileURL} from "node:url";

const BATCH = 512; // tokens at a time, llama.cpp's own choice

const require = createRequire(`${process.cwd()}/package.json`);
const {getLlama, getModuleVersion, LlamaLogLevel} = await import(
    pathToFileURL(require.resolve("node-llama-cpp"))
);

const folder = process.argv[2];
const [threads, steps, length] = process.argv.slice(3).map(Number);
const llama = await getLlama({
    gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads
});
const model = await llama.loadModel({modelPath: `${folder}/model.gguf`});
const sampler = new llama._bindings.AddonSampler(model._model);
sampler.applyConfig({temperature: 0});

async function begun(flashAttention) {
    const context = await model.createContext({
        contextSize: length, batchSize: BATCH, threads, flashAttention
    });
    context.getSequence(); // the first one, number 0
    return context._ctx;
}

async function next(context, tokens, past) {
    let last;
    for (let start = 0; start < tokens.length; start += BATCH) {
        const part = tokens.slice(start, start + BATCH);
        const wanted = start + BATCH < tokens.length ? [] : [part.length - 1];
        context.initBatch(part.length);
        [last] = context.addToBatch(
            0, past + start, Uint32Array.from(part), Uint32Array.from(wanted)
        );
        await context.decodeBatch();
    }
    return context.sampleToken(last, sampler);
}

async function run(context, prompt) {
    context.disposeSequence(0);
    const tokens = [], seconds = [];
    let ids = prompt, past = 0, begin = performance.now();
    for (let step = 0; step <= steps; step++) {
        const token = await next(context, ids, past);
        const end = performance.now();
        tokens.push(token);
        seconds.push((end - begin) / 1e3);
        begin = end;
        past += ids.length;
        ids = [token];
    }
    const later = seconds.slice(1).sort((a, b) => a - b);
    const middle = (later[(later.length - 1) >> 1] + later[later.length >> 1]) / 2;
    return [seconds[0], middle, tokens[0]];
}

const contexts = [await begun(true), await begun(false)];
const features = llama.systemInfo.match(/\w+(?= = 1)/g).filter((name) => /AVX|AMX/.test(name));
console.log(JSON.stringify(
    `llama.cpp ${llama.llamaCppRelease.release} in node-llama-cpp ${await getModuleVersion()}` +
    ` (${features.join(", ")}; the faster with flash attention or without)`
));
for await (const line of createInterface({input: process.stdin})) {
    const prompt = JSON.parse(line);
    const [flash, plain] = [await run(contexts[0], prompt), await run(contexts[1], prompt)];
    console.log(JSON.stringify(
        [Math.min(flash[0], plain[0]), Math.min(flash[1], plain[1]), plain[2]]
    ));
}
process.exit(0);
