/* Asks the planner one question: runs a command of wasm/planner.c in an instance of its own, which has the given files
 * and nothing else. The page's workers and the tests use it.
 *
 * Resolves to {code, out, err}: the exit code of the command, and what it wrote. */
"use strict";
async function tallyAsk(createInstance, module, args, files) {
    const out = [], err = [];
    let code;
    const instance = await createInstance({
        print: (line) => out.push(line),
        printErr: (line) => err.push(line),
        quit: (status, how) => { throw how; },
        instantiateWasm: (imports, done) => {
            WebAssembly.instantiate(module, imports).then(done);
            return {};
        },
    });
    for (const [name, text] of Object.entries(files || {})) instance.FS.writeFile(name, text);
    try {
        code = instance.callMain(args);
    } catch (problem) { // how a program ends that calls exit(), and how one that is broken does
        if (problem && problem.name === "ExitStatus") code = problem.status;
        else {
            code = 4;
            err.push(`tally: the planner stopped: ${problem && problem.message || problem}`);
        }
    }
    return {code, out: out.length ? out.join("\n") + "\n" : "", err: err.length ? err.join("\n") + "\n" : ""};
}
if (typeof module === "object" && module.exports) module.exports = {tallyAsk};
