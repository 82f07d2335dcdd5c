/* The page of `tally report` and `tally watch`: draws the JSON in #data (schema tally.report/1). On a live page the data
 * is fetched again when the server has news. */
"use strict";
(() => {
    const T = Tally, el = T.el;
    const number = (text) => text === undefined || text === null ? NaN : Number(text);
    const page = document.getElementById("page");
    let data = JSON.parse(document.getElementById("data").textContent);
    let axis = "step", smoothing = 0, isLogY = false, chosen = 0, memoryBy = "purpose", timeBy = "op"; // as last chosen
    const curves = [];

    // ---- Figures of a run ----

    const settings = (run) => run.settings || {};
    const stepOf = (run) => {
        const steps = run.steps.step;
        return steps.length ? steps[steps.length - 1] : 0;
    };
    const kindOf = (run, side, kind) => (run[side] || {})[kind];
    const stepFlops = (run) => {
        const kind = kindOf(run, "receipt", "step") || kindOf(run, "price", "step");
        const ranks = ["dp", "tp", "cp", "pp"].reduce((n, k) => n * (number(settings(run)[k]) || 1), 1);
        return kind && kind.totals ? number(kind.totals.flops) * ranks : NaN;
    };
    const isDone = (run) => Boolean(run.receipt) && stepOf(run) >= settings(run).steps;
    const last = (list) => list && list.length ? list[list.length - 1] : NaN;
    const mean = (list) => {
        const values = (list || []).filter(T.isNumber);
        return values.length ? values.reduce((a, b) => a + b, 0) / values.length : NaN;
    };

    // Tokens per second, without the first two steps, in which pools grow and libraries load.
    const speedOf = (run) => {
        const {tokens, time_s: time} = run.steps, from = tokens.length > 2 ? 1 : -1, end = tokens.length - 1;
        const spent = from < 0 ? last(time) : time[end] - time[from], done = from < 0 ? last(tokens) : tokens[end] - tokens[from];
        return spent > 0 ? done / spent : mean(run.steps.rate);
    };

    const loss = (x) => T.isNumber(x) ? x.toFixed(4) : "–";

    function verdict(run) {
        if (run.differences === 0)
            return el("p", {class: "verdict good", "data-verdict": "tally"}, "Price and receipt agree to the byte: 0 differences.");
        if (run.differences > 0)
            return el("div", {}, el("p", {class: "verdict bad", "data-verdict": "differs"},
                `Price and receipt differ in ${T.grouped(run.differences)} place${run.differences > 1 ? "s" : ""}.`),
            run.difference_table ? el("pre", {}, run.difference_table) : null);
        return el("p", {class: "verdict warn", "data-verdict": "open"}, `Not finished: step ${T.grouped(stepOf(run))} of ` +
            `${T.grouped(settings(run).steps)}. The receipt is compared with the price after the last step.`);
    }

    function summary(host, run) {
        const s = settings(run), steps = run.steps, kind = kindOf(run, "receipt", "step") || kindOf(run, "price", "step") || {};
        const held = run.held_out.loss, best = held.length ? Math.min(...held) : NaN;
        const facts = [
            T.fact("Steps", T.grouped(stepOf(run)), "of " + T.grouped(s.steps || 0)),
            T.fact("Tokens", T.grouped(last(steps.tokens) || 0)),
            T.fact("Loss", loss(last(steps.loss)), "last logged step"),
        ];
        if (held.length)
            facts.push(T.fact("Held-out loss", loss(last(held)), T.isNumber(last(run.held_out.bits_per_byte))
                ? T.digits(last(run.held_out.bits_per_byte), 4) + " bits per byte" : "lowest " + loss(best)));
        facts.push(T.fact("Time of steps", T.seconds(last(steps.time_s))),
            T.fact("Speed", T.isNumber(speedOf(run)) ? T.grouped(speedOf(run)) : "–", "tokens/s"));
        const of = run.ranks ? " on rank 0" : "";
        if (kind.peak_bytes) facts.push(T.fact("Peak memory", T.bytes(number(kind.peak_bytes)),
            T.exact(kind.peak_bytes) + " bytes" + of));
        if (kind.totals) facts.push(T.fact("FLOPs of a step", T.amount(number(kind.totals.flops), "FLOP"),
            T.exact(kind.totals.flops) + of));
        if (run.n_skipped) facts.push(T.fact("Skipped steps", T.grouped(run.n_skipped), "loss or gradient not finite"));
        host.append(verdict(run), el("dl", {class: "facts"}, facts));
        if (run.changes.length)
            host.append(el("ul", {}, run.changes.map((c) => el("li", {}, `From step ${T.grouped(c.step)}: ${c.text}`))));
        if (run.n_damaged) host.append(el("p", {class: "verdict warn"}, `${run.n_damaged} damaged lines of the log are left out.`));
    }

    // ---- Curves ----

    const AXES = {
        step: {label: "step", name: "Step", format: (x) => T.count(x), exact: T.grouped, of: (run, i) => run.steps.step[i]},
        tokens: {label: "tokens", name: "Tokens", format: (x) => T.count(x), exact: T.grouped, of: (run, i) => run.steps.tokens[i]},
        time: {label: "time in steps", name: "Time", format: T.seconds, of: (run, i) => run.steps.time_s[i]},
        flops: {label: "FLOP", name: "FLOP", format: (x) => T.count(x), of: (run, i) => run.steps.step[i] * stepFlops(run)},
    };
    // The value of the x axis at a step that may not be logged.
    function along(run, step) {
        const steps = run.steps.step;
        let low = 0, high = steps.length - 1;
        if (axis === "step") return step;
        if (high < 0) return NaN;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (steps[middle] < step) low = middle + 1;
            else high = middle;
        }
        return AXES[axis].of(run, low);
    }
    function seriesOf(key, hasHeldOut) {
        const list = [];
        data.runs.forEach((run, r) => {
            if (!run.steps[key]) return;
            const xs = run.steps.step.map((_, i) => AXES[axis].of(run, i));
            const name = data.runs.length > 1 ? run.name : key === "loss" ? "training loss" : key;
            list.push({name, color: T.color(r), x: xs, y: run.steps[key] || [], low: run.steps[key + "_low"],
                high: run.steps[key + "_high"]});
            if (!hasHeldOut || !run.held_out.step.length) return;
            const sets = Object.entries(run.held_out.sets || {}), isAlone = data.runs.length === 1;
            const held = sets.length ? sets.map(([set, losses]) => ["held-out loss, " + set, losses])
                : [["held-out loss", run.held_out.loss]];
            held.forEach(([what, y], k) => list.push({name: isAlone ? what : run.name + ", " + what,
                color: T.color(isAlone ? 1 + k : r), isPoints: true, x: run.held_out.step.map((s) => along(run, s)), y}));
        });
        return list;
    }
    // A first loss of 11 must not flatten the rest, which is read at 3.1.
    function clip(shown, low, high) {
        const values = shown.flatMap((s) => s.y.filter(T.isNumber)).sort((a, b) => a - b);
        if (values.length < 50) return [low, high];
        const top = values[Math.floor(values.length * 0.98)];
        return [low, Math.min(high, top + (top - low) * 0.15)];
    }
    const canBeLog = (key) => key !== "lr" && key !== "reward_margin"; // a margin may be negative
    const hasPairs = (run) => (settings(run).preference || "none") !== "none";
    function curveSpec(title, note, key, label, format, hasHeldOut) {
        return {title, note, x: AXES[axis], y: {label, format, log: isLogY && canBeLog(key),
            isFromZero: !["loss", "norm", "reward_margin"].includes(key), clip: key === "loss" || key === "norm" ? clip : null},
        series: seriesOf(key, hasHeldOut), smoothing, key, hasHeldOut, height: key === "loss" ? undefined : 230};
    }
    function addCurve(host, ...parts) {
        const spec = curveSpec(...parts), chart = T.lines(host, spec);
        curves.push({chart, spec});
    }
    function redrawCurves() {
        for (const {chart, spec} of curves) {
            const hidden = new Set(spec.series.filter((s) => s.isHidden).map((s) => s.name));
            const series = seriesOf(spec.key, spec.hasHeldOut);
            for (const s of series) s.isHidden = hidden.has(s.name);
            chart.update({x: AXES[axis], series, smoothing: ["loss", "norm", "rate", "reward_margin", "reward_accuracy"].includes(spec.key) ? smoothing : 0,
                y: {...spec.y, log: isLogY && canBeLog(spec.key)}});
        }
    }
    function drawCurves(host) {
        const options = [["step", "Steps"], ["tokens", "Tokens"], ["time", "Time"]];
        if (data.runs.every((run) => T.isNumber(stepFlops(run)))) options.push(["flops", "FLOPs"]);
        host.append(el("div", {class: "controls"},
            T.choice("Over", options, axis, (value) => { axis = value; redrawCurves(); }),
            T.choice("Scale", [["linear", "Linear"], ["log", "Log"]], isLogY ? "log" : "linear", (value) => {
                isLogY = value === "log";
                redrawCurves();
            }),
            T.range("Smoothing", {id: "smoothing", min: 0, max: 0.99, step: 0.01, value: smoothing}, (v) => v.toFixed(2),
                (v) => { smoothing = v; redrawCurves(); })));
        const wide = Math.max(...data.runs.map((run) => run.bucket_steps));
        addCurve(host, "Loss", wide > 1 ? `Each point is the mean of up to ${T.grouped(wide)} logged steps; the band goes from `
            + "the lowest to the highest." : "", "loss", data.runs.every(hasPairs) ? "nats per pair" : "nats per token", T.plain, true);
        const pair = el("div", {class: "pair"});
        host.append(pair);
        addCurve(pair, "Learning rate", "", "lr", "learning rate", T.plain, false);
        addCurve(pair, "Gradient norm", "before clipping", "norm", "norm", T.plain, false);
        addCurve(pair, "Speed", "", "rate", "tokens/s", (x) => T.count(x), false);
        if (data.runs.some((run) => run.steps.reward_margin)) {
            addCurve(pair, "Reward margin", "of the chosen over the rejected answer", "reward_margin", "margin", T.plain, false);
            addCurve(pair, "Reward accuracy", "share of pairs whose margin is above 0", "reward_accuracy", "share", T.plain, false);
        }
        if (data.runs.some((run) => (run.steps.noise_scale || []).some(T.isNumber)))
            addCurve(pair, "Gradient noise scale", "the critical batch size, smoothed over about 100 steps", "noise_scale", "tokens",
                (x) => T.count(x), false);
        if (data.runs.some((run) => (run.steps.wait_s || []).some((w) => w > 0)))
            addCurve(pair, "Waiting for data", "in a step", "wait_s", "seconds", T.seconds, false);
        if (data.runs.some((run) => run.steps.exposed_s)) {
            addCurve(pair, "Communication", "in a step, also behind computation", "communication_s", "seconds", T.seconds, false);
            addCurve(pair, "Exposed communication", "that the step waits for", "exposed_s", "seconds", T.seconds, false);
        }
    }

    // ---- Memory over a step ----

    const collapse = (path) => path.split(".").map((part) => /^\d+$/.test(part) ? "*" : part).join(".");
    const groupOf = (path) => collapse(path).split(".").slice(0, 3).join(".") || "(outside modules)";
    const shapeText = (t) => t[5] ? "(" + t[5].join(", ") + ") " + t[4] : "no shape";

    /* Plays the list of events. Moment 0 is the beginning, moment i the state after event i. */
    function play(memory) {
        const n = memory.events.length + 1, purposes = memory.purposes;
        const groups = [...new Set(memory.tensors.map((t) => groupOf(memory.paths[t[1]])))];
        const small = memory.least_bytes > 1 ? "smaller tensors" : null;
        if (small) groups.push(small);
        const by = {purpose: purposes.map(() => new Float64Array(n)), module: groups.map(() => new Float64Array(n))};
        const groupIndex = memory.tensors.map((t) => groups.indexOf(groupOf(memory.paths[t[1]])));
        const purpose = memory.tensors.map((t) => t[2]), call = new Int32Array(n).fill(-1);
        const lives = memory.tensors.map(() => []), nowP = new Float64Array(purposes.length), nowG = new Float64Array(groups.length);
        const change = (t, sign, moment) => {
            nowP[purpose[t]] += sign * memory.tensors[t][3];
            nowG[groupIndex[t]] += sign * memory.tensors[t][3];
            if (sign > 0) lives[t].push({from: moment, to: n, purpose: purpose[t]});
            else lives[t][lives[t].length - 1].to = moment;
        };
        const store = (i) => {
            nowP.forEach((v, p) => { by.purpose[p][i] = v; });
            nowG.forEach((v, g) => { by.module[g][i] = v; });
        };
        for (let t = 0; t < memory.held_first; t++) change(t, 1, 0);
        store(0);
        let now = -1;
        memory.events.forEach((event, k) => {
            const i = k + 1, [kind, t] = event;
            if (kind === 0) now = k;
            if (kind === 1) change(t, 1, i);
            if (kind === 2) change(t, -1, i);
            if (kind === 3) change(t, -1, i), purpose[t] = event[2], change(t, 1, i);
            if (kind === 4) nowP[t] += event[2], nowG[groups.indexOf(small)] += event[2];
            call[i] = now;
            store(i);
        });
        const totals = new Float64Array(n);
        for (const list of by.purpose) list.forEach((v, i) => { totals[i] += v; });
        let peak = 0;
        totals.forEach((v, i) => { if (v > totals[peak]) peak = i; });
        return {n, by, groups, groupIndex, lives, call, totals, peak, small};
    }
    function phasesOf(memory) {
        const bands = [];
        memory.events.forEach((event, k) => {
            if (event[0] !== 0) return;
            const name = memory.phases[event[3]], open = bands[bands.length - 1];
            if (open && open.name === name) return;
            if (open) open.to = k + 1;
            bands.push({name, from: bands.length ? k + 1 : 0, to: memory.events.length});
        });
        // What is freed after the last op is freed by no op.
        let end = memory.events.length;
        const isFree = ([kind, , bytes]) => kind === 2 || (kind === 4 && bytes < 0);
        while (end > 0 && isFree(memory.events[end - 1])) end--;
        const last = bands[bands.length - 1];
        if (last && end > last.from && end < last.to) {
            last.to = end;
            bands.push({name: "freed", from: end, to: memory.events.length});
        }
        return bands;
    }

    function drawMemory(host, run) {
        const memory = run.memory;
        if (!memory) {
            host.append(el("p", {class: "soft"}, "This run has no memory.json, which `tally train` writes after its second step."));
            return;
        }
        const played = play(memory), bands = phasesOf(memory);
        const peakText = T.exact(memory.peak_bytes);
        let by = memoryBy, live;
        host.append(el("p", {}, "All memory that the device held during one training step, in the order of its ",
            `${T.grouped(memory.events.length)} events. The peak is `, el("b", {"data-fact": "memory peak"}, peakText + " bytes"),
            ` (${T.bytes(number(memory.peak_bytes))}). Point at a place to see the tensor; click to list what is live then.`,
            memory.least_bytes > 1 ? ` Tensors below ${T.bytes(memory.least_bytes)} are drawn together.` : ""));
        function layers() {
            if (by === "purpose")
                return memory.purposes.map((name, p) => ({name, key: p, color: T.purposeColor(name), values: played.by.purpose[p]}))
                    .filter((l) => l.values.some((v) => v > 0))
                    .sort((a, b) => T.PURPOSES.indexOf(a.name) - T.PURPOSES.indexOf(b.name));
            const order = played.groups.map((name, g) => ({name, key: g, values: played.by.module[g],
                most: played.by.module[g].reduce((a, b) => Math.max(a, b), 0)})).filter((l) => l.most > 0);
            order.sort((a, b) => b.most - a.most);
            return order.map((l, i) => ({...l, color: T.color(i)}));
        }
        const isIn = (t, life, key) => by === "purpose" ? life.purpose === key : played.groupIndex[t] === key;
        // The live tensors of a layer at a moment, from the bottom up.
        function livesOf(moment, key) {
            const list = [];
            played.lives.forEach((lives, t) => {
                for (const life of lives) if (life.from <= moment && moment < life.to && isIn(t, life, key)) list.push([t, life]);
            });
            return list.sort((a, b) => a[1].from - b[1].from || a[0] - b[0]);
        }
        function describe(t, life) {
            const tensor = memory.tensors[t];
            return [["op", tensor[0] < 0 ? "held from before" : memory.ops[tensor[0]]],
                ["module", memory.paths[tensor[1]] || "(outside modules)"], ["shape", shapeText(tensor)],
                ["purpose", memory.purposes[life.purpose]], ["size", T.bytes(tensor[3]) + " (" + T.grouped(tensor[3]) + " bytes)"]];
        }
        // Where a tensor lies in the picture, over its life.
        function outline(t, life, layer, shown) {
            const below = shown.slice(0, shown.indexOf(layer)), list = [], order = [t, life];
            let inside = 0;
            for (const other of livesOf(life.from, layer.key))
                if (other[1].from < life.from || (other[1].from === life.from && other[0] < order[0])) inside += memory.tensors[other[0]][3];
            const stride = Math.max(1, Math.ceil((life.to - life.from) / 1500));
            const gone = [];
            played.lives.forEach((lives, o) => {
                for (const l of lives)
                    if (isIn(o, l, layer.key) && (l.from < life.from || (l.from === life.from && o < t)) && l.to > life.from && l.to < life.to)
                        gone.push([l.to, memory.tensors[o][3]]);
            });
            gone.sort((a, b) => a[0] - b[0]);
            let g = 0;
            for (let i = life.from; i < life.to; i += stride) {
                while (g < gone.length && gone[g][0] <= i) inside -= gone[g++][1];
                let base = inside;
                for (const l of below) base += l.values[i];
                list.push([i, Math.min(i + stride, life.to), base, base + memory.tensors[t][3]]);
            }
            return list;
        }
        function hover(moment, layer, offset, shown) {
            let height = 0;
            for (const [t, life] of livesOf(moment, layer.key)) {
                height += memory.tensors[t][3];
                if (offset >= height) continue;
                const facts = describe(t, life), head = facts[0][1] + " " + (memory.tensors[t][5] ? shapeText(memory.tensors[t]) : "");
                return {content: [el("b", {}, head), T.rows(facts)], said: facts.map((f) => f.join(" ")).join(", "),
                    outline: outline(t, life, layer, shown)};
            }
            return null;
        }
        function momentName(i) {
            const call = played.call[i];
            if (call < 0) return "before the step";
            const [, op, path, phase] = memory.events[call];
            return `event ${T.grouped(i)}: ${memory.ops[op]} (${memory.phases[phase]}) in ${memory.paths[path] || "no module"}`;
        }
        const chart = T.stack(host, {title: "Memory over one step", note: "", x: {label: "allocation events in order", format: T.grouped},
            y: {label: "memory held", format: (x) => T.bytes(x, 3), isBytes: true}, layers: layers(), bands, hover, momentName,
            onPick: (i) => list(i)});
        chart.node.before(el("div", {class: "controls"}, T.choice("By", [["purpose", "Purpose"], ["module", "Module"]], by, (v) => {
            by = memoryBy = v;
            chart.update({layers: layers()});
        })));
        const title = el("h3", {}), box = el("div");
        host.append(title, box);
        function list(moment) {
            const rows = [];
            played.lives.forEach((lives, t) => {
                for (const life of lives)
                    if (life.from <= moment && moment < life.to) {
                        const d = describe(t, life);
                        rows.push({op: d[0][1], module: d[1][1], shape: d[2][1], purpose: d[3][1], bytes: memory.tensors[t][3]});
                    }
            });
            title.textContent = (moment === played.peak ? "Largest tensors at the peak, " : "Largest tensors at ") + momentName(moment);
            if (live) live.update({rows});
            else live = T.table(box, {caption: "Live tensors", sort: "bytes", most: 12, rows, columns: [
                {name: "Bytes", key: "bytes", isNumber: true, format: T.grouped}, {name: "Op", key: "op"},
                {name: "Module", key: "module", isPath: true}, {name: "Shape", key: "shape"}, {name: "Purpose", key: "purpose"}]});
        }
        list(played.peak);
    }

    // ---- Time ----

    function sumBy(rows, key) {
        const sums = new Map();
        for (const row of rows) {
            const name = key(row), sum = sums.get(name) || {name, time_s: 0, floor_s: 0, calls: 0, flops: 0, bytes: 0, first: row};
            for (const k of ["time_s", "calls", "flops", "bytes"]) sum[k] += row[k];
            sum.floor_s += row.floor_s === undefined ? NaN : row.floor_s;
            sums.set(name, sum);
        }
        return [...sums.values()];
    }
    const PHASE_COLORS = {forward: "var(--c0)", backward: "var(--c1)", recompute: "var(--c3)", update: "var(--c4)", other: "var(--c6)"};
    function drawTime(host, run) {
        const profile = run.profile;
        if (!profile) {
            host.append(el("p", {class: "soft"}, "No op was timed. Train with ", el("code", {}, "--profile"),
                " to see where the time of a step goes."));
            return;
        }
        const kernels = profile.rows.reduce((sum, r) => sum + r.time_s, 0), outside = profile.step_s - kernels;
        host.append(el("p", {}, "Mean of ", T.grouped(profile.steps), " timed steps: ", el("b", {}, T.seconds(profile.step_s)), " a step, ",
            T.percent(outside / profile.step_s), " of it outside kernels."));
        if (!run.roof) host.append(el("p", {class: "soft"}, "Floors need the machine's peaks: run ", el("code", {}, "tally calibrate"),
            " where the run was trained, and make the report there."));
        let by = timeBy;
        const keys = {op: (r) => r.op + " · " + r.phase, module: (r) => (r.module || "(outside modules)") + " · " + r.phase,
            both: (r) => r.op + " in " + (r.module || "no module") + " · " + r.phase};
        const items = () => sumBy(profile.rows, keys[by]).map((s) => ({name: s.name, value: s.time_s, color: PHASE_COLORS[s.first.phase],
            detail: [["time", T.seconds(s.time_s)], ["of the step", T.percent(s.time_s / profile.step_s)],
                ["floor", T.seconds(s.floor_s)], ["calls", T.digits(s.calls, 5)], ["rate", T.amount(s.flops / s.time_s, "FLOP/s")],
                ["bandwidth", T.amount(s.bytes / s.time_s, "B/s")]]}));
        const rows = () => sumBy(profile.rows, keys[by]).map((s) => ({...s, share: s.time_s / profile.step_s, rate: s.flops / s.time_s,
            bandwidth: s.bytes / s.time_s}));
        const holder = el("div");
        host.append(holder);
        const map = T.treemap(holder, {title: "Time in kernels", note: "area is time; colour is the phase", items: items(), format: T.seconds,
            legend: [...new Set(profile.rows.map((r) => r.phase))].map((name) => ({name, color: PHASE_COLORS[name]}))});
        const table = T.table(holder, {caption: "Time of a step", sort: "time_s", most: 40, rows: rows(), columns: [
            {name: "What", key: "name", isPath: true}, {name: "Calls", key: "calls", isNumber: true, format: (x) => T.digits(x, 5)},
            {name: "Time", key: "time_s", isNumber: true, format: T.seconds}, {name: "Share", key: "share", isNumber: true, format: T.percent},
            ...(run.roof ? [{name: "Floor", key: "floor_s", isNumber: true, format: T.seconds}] : []),
            {name: "FLOP/s", key: "rate", isNumber: true, format: (x) => T.count(x)},
            {name: "B/s", key: "bandwidth", isNumber: true, format: (x) => T.count(x)}]});
        holder.before(el("div", {class: "controls"}, T.choice("By", [["op", "Op"], ["module", "Module"], ["both", "Both"]], by, (v) => {
            by = timeBy = v;
            map.update({items: items()});
            table.update({rows: rows()});
        })));
        drawRoofline(host, run);
    }
    function drawRoofline(host, run) {
        const points = sumBy(run.profile.rows, (r) => r.op + "|" + r.phase + "|" + r.dtype)
            .filter((s) => s.flops > 0 && s.bytes > 0 && s.time_s > 0).map((s) => ({...s, x: s.flops / s.bytes, y: s.flops / s.time_s}));
        if (!points.length) return;
        const most = Math.max(...points.map((p) => p.time_s)), guides = [];
        const low = Math.min(...points.map((p) => p.x)) / 2, high = Math.max(...points.map((p) => p.x)) * 2;
        if (run.roof) {
            const peaks = Object.entries(run.roof.peaks).filter(([d]) => points.some((p) => p.first.dtype === d));
            for (const [dtype, peak] of peaks) {
                const ridge = peak / run.roof.bandwidth, from = Math.min(low, ridge / 2), to = Math.max(high, ridge * 2);
                guides.push({name: dtype + " peak", x: [from, ridge, to], y: [from * run.roof.bandwidth, peak, peak]});
            }
        }
        const phases = [...new Set(points.map((p) => p.first.phase))];
        T.lines(host, {title: "Roofline", note: "every op of a step; area is time" + (run.roof ? ". Roof: " + run.roof.source : ""),
            x: {label: "FLOP per byte", name: "Intensity", format: T.plain, log: true},
            y: {label: "FLOP/s", format: (x) => T.count(x), log: true}, guides, height: 360,
            series: phases.map((phase) => {
                const own = points.filter((p) => p.first.phase === phase);
                return {name: phase, color: PHASE_COLORS[phase], isPoints: true, x: own.map((p) => p.x), y: own.map((p) => p.y),
                    sizes: own.map((p) => 3 + 14 * Math.sqrt(p.time_s / most)),
                    titles: own.map((p) => [p.first.op + " (" + p.first.phase + ", " + p.first.dtype + ")", [["rate", T.amount(p.y, "FLOP/s")],
                        ["intensity", T.plain(p.x) + " FLOP/B"], ["time", T.seconds(p.time_s)], ["floor", T.seconds(p.floor_s)]]])};
            })});
    }

    // ---- Ranks ----

    function drawRanks(host, run) {
        const {ranks: rows, steps, sent_bytes: sent} = run.ranks;
        const list = rows.map((r) => ({...r, own: r.steps_s - r.exposed_s, hidden: Math.max(0, r.communication_s - r.exposed_s)}));
        const all = mean(list.map((r) => r.steps_s)), own = mean(list.map((r) => r.own));
        const slowest = list.find((r) => r.rank === run.ranks.slowest_rank) || list[0];
        const share = (key) => T.percent(mean(list.map((r) => r[key])) / all);
        for (const r of list) r.above = own > 0 ? r.own / own - 1 : NaN;
        host.append(el("p", {}, el("b", {"data-fact": "slowest rank"}, `Rank ${slowest.rank}`), ` is the slowest of ${T.grouped(list.length)}: `
            + "without waiting for messages its steps take ", el("b", {"data-fact": "imbalance"}, T.percent(slowest.above)),
        " longer than the mean. Communication is under way for ", el("b", {}, share("communication_s")), " of the steps' time; ",
        el("b", {"data-fact": "hidden"}, share("hidden")), " is hidden behind computation and ",
        el("b", {"data-fact": "exposed"}, share("exposed_s")), ` is exposed: steps wait for it. A step sends up to ${T.bytes(number(sent))} per rank.`));
        const per = (x) => Math.max(0, x) / Math.max(1, steps), most = 16;
        const shown = list.length > most ? [...list].sort((a, b) => b.own - a.own).slice(0, most) : list;
        T.bars(host, {title: "Time of a step by rank", note: `mean of ${T.grouped(steps)} steps`
            + (list.length > most ? `; the ${most} slowest of ${list.length} ranks` : ""), format: T.seconds, rows: shown.map((r) => ({
            name: `rank ${r.rank}` + (r.rank === slowest.rank ? ", the slowest" : ""), parts: [
                {name: "computation", value: per(r.own - r.hidden), color: "var(--c0)"},
                {name: "computation with communication hidden behind it", value: per(r.hidden), color: "var(--c2)"},
                {name: "exposed communication", value: per(r.exposed_s), color: "var(--c3)"}]}))});
        const time = (x) => T.seconds(per(x));
        T.table(host, {caption: "Ranks", rows: list, most: 1024, columns: [{name: "Rank", key: "rank", isNumber: true}, {name: "Host", key: "host"},
            {name: "Step", key: "steps_s", isNumber: true, format: time}, {name: "Without waiting", key: "own", isNumber: true, format: time},
            {name: "Above the mean", key: "above", isNumber: true, format: T.percent},
            {name: "Communication", key: "communication_s", isNumber: true, format: time},
            {name: "Hidden", key: "hidden", isNumber: true, format: time}, {name: "Exposed", key: "exposed_s", isNumber: true, format: time}]});
    }

    // ---- Tables ----

    function drawPrices(host, run) {
        const rows = [];
        const NAMES = {calls: "calls", flops: "FLOPs", bytes_read: "bytes read", bytes_written: "bytes written",
            transfer_bytes: "bytes moved between devices", sent_bytes: "bytes sent to other ranks"};
        for (const kind of Object.keys(run.receipt || run.price || {})) {
            const a = kindOf(run, "price", kind) || {}, b = kindOf(run, "receipt", kind) || {};
            const add = (what, x, y) => (x !== undefined || y !== undefined) && (number(x) || number(y)) && rows.push({kind, what, price: x, receipt: y});
            add("count", a.count, b.count);
            for (const key of Object.keys(NAMES)) add(NAMES[key], (a.totals || {})[key], (b.totals || {})[key]);
            add("peak memory, bytes", a.peak_bytes, b.peak_bytes);
            for (const p of T.PURPOSES) add("at the peak: " + p, (a.peak_by_purpose || {})[p], (b.peak_by_purpose || {})[p]);
        }
        if (!rows.length) return host.append(el("p", {class: "soft"}, "This run has no price yet."));
        const show = (x) => x === undefined ? "–" : T.exact(x);
        T.table(host, {caption: "Price and receipt", most: 100, rows, columns: [{name: "Kind", key: "kind"}, {name: "What", key: "what", isPath: true},
            {name: "Price", key: "price", isNumber: true, format: show}, {name: "Receipt", key: "receipt", isNumber: true, format: show},
            {name: "Verdict", key: "equal", format: (_, r) => r.receipt === undefined ? "" : String(r.price) === String(r.receipt) ? "equal"
                : el("b", {class: "verdict bad"}, "differs")}]});
        host.append(el("p", {class: "soft"}, "Of one step of each kind."));
    }
    function drawSamples(host, run) {
        if (!run.samples.length) return host.append(el("p", {class: "soft"}, "The log has no samples."));
        const newest = run.samples[run.samples.length - 1];
        host.append(el("h3", {}, `After step ${T.grouped(newest.step)}`), el("pre", {class: "sample"}, newest.text));
        if (run.samples.length > 1)
            host.append(el("details", {}, el("summary", {}, "Earlier samples"), run.samples.slice(0, -1).reverse().map((s) =>
                [el("h3", {}, `After step ${T.grouped(s.step)}`), el("pre", {class: "sample"}, s.text)])));
    }
    function drawPairs(host, object, caption) {
        const rows = Object.entries(object || {}).filter(([, value]) => value !== "").map(([name, value]) => ({name, value: value !== null && typeof value === "object"
            ? JSON.stringify(value) : String(value)}));
        T.table(host, {caption, rows, most: 300, columns: [{name: "Name", key: "name"}, {name: "Value", key: "value", isPath: true}]});
    }
    function drawRuns(host) {
        T.table(host, {caption: "Runs", rows: data.runs.map((run) => ({name: run.name, state: isDone(run) ? "done" : "not finished",
            step: stepOf(run), loss: last(run.steps.loss), held: last(run.held_out.loss), rate: speedOf(run),
            tokens: last(run.steps.tokens), differences: run.differences === undefined ? "–" : run.differences})), columns: [
            {name: "Run", key: "name", isPath: true}, {name: "State", key: "state"},
            {name: "Steps", key: "step", isNumber: true, format: T.grouped}, {name: "Tokens", key: "tokens", isNumber: true, format: (x) => T.count(x)},
            {name: "Loss", key: "loss", isNumber: true, format: loss}, {name: "Held out", key: "held", isNumber: true, format: loss},
            {name: "Tokens/s", key: "rate", isNumber: true, format: (x) => T.count(x)},
            {name: "Differences", key: "differences", isNumber: true}]});
    }

    // ---- The page ----

    const SECTIONS = [["summary", "Summary", summary], ["memory", "Memory", drawMemory], ["time", "Time", drawTime],
        ["ranks", "Ranks", drawRanks, (run) => run.ranks && run.ranks.ranks && run.ranks.ranks.length > 1], ["prices", "Price and receipt", drawPrices], ["samples", "Samples", drawSamples],
        ["environment", "Environment", (host, run) => drawPairs(host, run.machine, "Environment")],
        ["settings", "Settings", (host, run) => host.append((() => {
            const box = el("details", {}, el("summary", {}, "All settings"));
            drawPairs(box, run.settings, "Settings");
            return box;
        })())]];
    function draw() {
        const several = data.runs.length > 1, run = data.runs[chosen];
        curves.length = 0;
        const main = el("main", {}), tools = el("div", {class: "tools"}, T.themeButton());
        const top = el("header", {class: "top"}, el("h1", {}, several ? `${data.runs.length} runs` : data.runs[0].name),
            el("span", {class: "soft"}, "Tally report"), tools);
        const sections = SECTIONS.filter((s) => !s[3] || s[3](run));
        const list = several ? [["runs", "Runs"], ["curves", "Curves"], ...sections]
            : [sections[0], ["curves", "Curves"], ...sections.slice(1)];
        main.append(el("nav", {class: "contents", "aria-label": "Contents"}, list
            .map(([id, name]) => el("a", {href: "#" + id}, name))));
        page.replaceChildren(top, main);
        const section = (id, name) => {
            const node = el("section", {id, "aria-labelledby": id + "-title"}, el("h2", {id: id + "-title"}, name));
            main.append(node);
            return node;
        };
        if (several) drawRuns(section("runs", "Runs"));
        if (!several) summary(section("summary", "Summary"), run);
        drawCurves(section("curves", "Curves"));
        if (several) {
            const details = el("label", {}, "Details of ", el("select", {id: "run", on: {change: (event) => {
                chosen = Number(event.target.value);
                draw();
                document.getElementById("run").focus();
            }}}, data.runs.map((r, i) => el("option", {value: i, selected: i === chosen}, r.name))));
            main.append(el("div", {class: "controls"}, details));
        }
        for (const [id, name, fill] of sections) {
            if (id === "summary" && !several) continue;
            fill(section(id, name), run);
        }
        page.append(el("footer", {class: "foot"}, `Tally ${data.version}. Sizes in KiB, MiB, GiB are powers of 1,024.`));
        document.documentElement.dataset.drawn = "yes";
    }
    draw();

    // ---- Live ----

    const live = document.documentElement.dataset.live;
    if (live) {
        let stamp = data.stamp;
        // The reader stays where he is: the place on the page, what is unfolded, series that are switched off, the focus.
        const redraw = () => {
            const y = scrollY, all = (selector) => [...page.querySelectorAll(selector)];
            const open = all("details").map((d) => d.open), focus = all("button, select, input, svg").indexOf(document.activeElement);
            const off = new Set(all("#curves .legend button[aria-pressed=false]").map((b) => b.textContent));
            draw();
            all("details").forEach((d, i) => { d.open = open[i] || false; });
            for (const b of all("#curves .legend button")) if (off.has(b.textContent)) b.click();
            if (focus >= 0 && all("button, select, input, svg")[focus]) all("button, select, input, svg")[focus].focus({preventScroll: true});
            scrollTo(0, y);
        };
        const poll = async () => {
            try {
                const answer = await fetch(live + location.search + "&after=" + encodeURIComponent(stamp));
                if (answer.ok && answer.status === 200) {
                    data = await answer.json();
                    stamp = data.stamp;
                    chosen = Math.min(chosen, data.runs.length - 1);
                    if (data.runs.length) redraw();
                }
                document.documentElement.dataset.server = "up";
            } catch (e) {
                document.documentElement.dataset.server = "gone";
            }
            setTimeout(poll, document.hidden ? 10000 : 2000);
        };
        setTimeout(poll, 2000);
    }
})();
