/* A worker of the planner's page: gets the compiled module once, then questions. */
"use strict";
let planner;
self.onmessage = async (event) => {
    const {id, module, args, files} = event.data;
    if (module) planner = module;
    if (!args) return;
    self.postMessage(Object.assign(await tallyAsk(tallyPlanner, planner, args, files), {id}));
};
