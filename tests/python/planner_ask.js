/* node planner_ask.js FOLDER: answers questions for the planner of FOLDER (planner.js, planner.wasm), one JSON value
 * {args, files} per line of stdin, with {code, out, err} on a line of stdout, as the workers of the page do. */
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");
const folder = path.resolve(process.argv[2]);
const load = (file) => {
    const module = {exports: {}};
    vm.runInThisContext(`(function (module, exports, require, __filename, __dirname) {${fs.readFileSync(file)}\n})`, file)(
        module, module.exports, require, file, path.dirname(file));
    return module.exports;
};
const {tallyAsk} = load(path.join(__dirname, "../../wasm/ask.js"));
const create = load(path.join(folder, "planner.js"));
const planner = new WebAssembly.Module(fs.readFileSync(path.join(folder, "planner.wasm")));
(async () => {
    for (const line of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
        const {args, files} = JSON.parse(line);
        console.log(JSON.stringify(await tallyAsk(create, planner, args, files)));
    }
})().catch((problem) => {
    console.error(String(problem && problem.stack || problem).slice(0, 4000));
    process.exit(1);
});
