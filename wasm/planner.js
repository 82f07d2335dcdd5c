/* The planner's page: a form that becomes the command line of `tally plan`, which a worker runs, and its JSON drawn.
 * The page computes nothing itself, so that its numbers are the program's. */
"use strict";
(() => {
    const {el, exact, digits, percent, isNumber, purposeColor, PURPOSES} = Tally;
    const $ = (id) => document.getElementById(id);

    // ---- Workers ----

    /* A worker answers one question at a time. A new question may end the one that runs. */
    class Asker {
        constructor(module, source) {
            this.module = module;
            this.url = source;
            this.id = 0;
        }
        start() {
            this.worker = new Worker(this.url);
            this.worker.onmessage = (event) => this.end(event.data);
            this.worker.onerror = (event) => this.end({code: 4, out: "", err: `tally: ${event.message}\n`,
                id: this.id});
            this.worker.postMessage({module: this.module});
        }
        end(answer) {
            if (answer.id !== this.id || !this.done) return;
            const done = this.done;
            this.done = null;
            done(answer);
        }
        /* Ends what runs. Its promise resolves to null. */
        stop() {
            if (!this.done) return;
            this.worker.terminate();
            this.worker = null;
            const done = this.done;
            this.done = null;
            done(null);
        }
        ask(args, files) {
            this.stop();
            if (!this.worker) this.start();
            const id = ++this.id;
            return new Promise((resolve) => {
                this.done = resolve;
                this.worker.postMessage({id, args, files});
            });
        }
    }

    async function moduleRead() {
        const packed = Uint8Array.from(atob($("wasm").textContent.trim()), (c) => c.charCodeAt(0));
        const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
        return WebAssembly.compile(await new Response(stream).arrayBuffer());
    }

    // ---- Texts: as the program writes them ----

    const big = (x) => Number(x);
    function bytes(x) {
        const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let value = big(x), i = 0;
        while (Math.abs(value) >= 1024 && i + 1 < units.length) value /= 1024, i++;
        return i ? `${value.toFixed(2)} ${units[i]}` : `${value} B`;
    }
    function count(x) {
        const units = ["", " k", " M", " G", " T", " P", " E"];
        let value = big(x), i = 0;
        while (Math.abs(value) >= 1000 && i + 1 < units.length) value /= 1000, i++;
        return i ? value.toFixed(2) + units[i] : String(value);
    }
    const words = [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]];
    function amount(x) {
        if (!isNumber(x)) return "–";
        for (const [size, word] of words) if (x >= size) return `${digits(x / size, 3)} ${word}`;
        return digits(x, 4);
    }
    function duration(s) {
        if (!isNumber(s)) return "–";
        for (const [from, unit, name] of [[172800, 86400, "days"], [7200, 3600, "h"], [120, 60, "min"], [1, 1, "s"],
            [1e-3, 1e-3, "ms"]])
            if (s >= from) return `${digits(s / unit, 4)} ${name}`;
        return `${digits(s * 1e6, 3)} µs`;
    }
    const dollars = (x) => "$" + (x >= 1e9 ? digits(x / 1e9, 4) + " billion" : x >= 1e6 ? digits(x / 1e6,
        4) + " million"
        : x >= 100 ? digits(x, 4) : x.toFixed(2));
    const share = (part, whole) => `${(100 * part / whole).toFixed(1)} %`;
    const shell = (word) => /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
    const hours = (chip) => chip && ["NVIDIA", "AMD"].includes(chip.vendor) ? "GPU" : "device";

    // ---- The question ----

    const CONFIG = "config.json";
    const usual = {model: "llama-3-8b", config: "", recipe: "bf16", seq: "8192", batch: "1", accum: "1",
        optimizer: "adamw",
        checkpointing: "full", device: "H200 SXM", price: "3", tokens: "1T", devices: "1", tp: "1", cp: "1", pp: "1",
        sp: false, shard: "none", fabric: "", as: ""};
    let state = {...usual}, choices, quick, deep, napkin;

    const isMany = (s) => s.devices !== "1";
    /* The arguments of the program. Those of several devices stand only where there are several. */
    function planArgs(s) {
        const args = ["plan", "--model", s.model, "--recipe", s.recipe, "--seq", s.seq, "--batch", s.batch];
        if (s.accum !== "1") args.push("--accum", s.accum);
        if (s.optimizer !== "adamw") args.push("--optimizer", s.optimizer);
        args.push("--checkpointing", s.checkpointing, "--device", s.device);
        if (isMany(s)) {
            args.push("--devices", s.devices);
            for (const axis of ["tp", "cp", "pp"]) if (s[axis] !== "1") args.push(`--${axis}`, s[axis]);
            if (s.sp) args.push("--sp");
            if (s.shard !== "none") args.push("--shard", s.shard);
            if (s.fabric) args.push("--fabric", s.fabric);
        }
        if (s.as) args.push("--as", s.as);
        if (s.tokens) args.push("--tokens", s.tokens);
        if (s.price) args.push("--price-per-hour", s.price);
        return args;
    }
    const files = (s) => s.model === CONFIG ? {[CONFIG]: s.config} : {};
    function commandText(args) {
        const lines = ["tally " + args[0]];
        for (let i = 1; i < args.length; i++) {
            const word = shell(args[i]), last = lines[lines.length - 1];
            const next = args[i].startsWith("--") && args[i + 1] && !args[i + 1].startsWith("--")
                ? ` ${shell(args[i + 1])}` : "";
            if (last.length + word.length + next.length > 90) lines.push("    " + word + next);
            else lines[lines.length - 1] += " " + word + next;
            if (next) i++;
        }
        return lines.join(" \\\n");
    }

    // The link: only what differs from the usual.
    function stateText() {
        const parts = new URLSearchParams();
        for (const [key, value] of Object.entries(state))
            if (value !== usual[key] && !(key === "config" && state.model !== CONFIG)) parts.set(key, String(value));
        return parts.toString();
    }
    function stateRead(text) {
        const parts = new URLSearchParams(text), read = {...usual};
        for (const key of Object.keys(usual))
            if (parts.has(key)) read[key] = typeof usual[key] === "boolean" ? parts.get(key) === "true"
                : parts.get(key);
        return read;
    }

    // ---- The form ----

    const inputs = {};
    function field(name, label, control, hint) {
        const id = `field-${name}`, hintId = `${id}-hint`;
        const own = control.matches("input,select,textarea") ? control : control.querySelector("input.number");
        own.id = id;
        own.name = name;
        if (hint) own.setAttribute("aria-describedby", hintId);
        inputs[name] = own;
        return el("div", {class: control.tagName === "TEXTAREA" ? "field tall" : "field", id: `row-${name}`},
            el("label", {for: id}, label), control, hint ? el("span", {class: "hint", id: hintId}, hint) : null);
    }
    const set = (name, value) => {
        if (state[name] === value) return;
        state[name] = value;
        changed();
    };
    function select(name, options) {
        const node = el("select", {on: {change: () => set(name, node.value)}});
        for (const option of options)
            if (option.options)
                node.append(el("optgroup", {label: option.label}, option.options.map((o) => el("option",
                    {value: o.value}, o.text))));
            else node.append(el("option", {value: option.value}, option.text));
        return node;
    }
    const named = (list) => list.map((x) => ({value: x, text: x}));
    function text(name, attributes) {
        const node = el("input", {type: "text", class: "number", spellcheck: "false", autocomplete: "off",
            ...attributes,
            on: {input: () => set(name, node.value.trim())}});
        return node;
    }
    /* A number, and a slider over its powers of two. */
    function doubled(name, label, most) {
        const number = text(name, {inputmode: "numeric"});
        const slider = el("input", {type: "range", min: 0, max: most, step: 1,
            "aria-label": `${label}, by powers of two`,
            on: {input: () => {
                number.value = String(2 ** Number(slider.value));
                slider.setAttribute("aria-valuetext", number.value);
                set(name, number.value);
            }}});
        const node = el("div", {class: "with-range"}, slider, number);
        node.show = () => {
            const x = Number(number.value);
            slider.value = x > 0 ? Math.round(Math.log2(x)) : 0;
            slider.setAttribute("aria-valuetext", number.value);
        };
        sliders[name] = node;
        return node;
    }
    const sliders = {};

    function formMake() {
        const choicesOf = (name) => named(choices.settings[name].kind.split("|"));
        const model = (m) => ({value: m.name, text: `${m.name} (${count(m.parameters).replace(/\.?0+ /, " ")})`});
        const families = [...new Set(choices.models.map((m) => m.name.split(/[-0-9.]/)[0]))];
        const models = [{value: CONFIG, text: "a config.json …"}];
        for (const family of families) {
            const own = choices.models.filter((m) => m.name.split(/[-0-9.]/)[0] === family);
            models.push({label: family, options: own.map(model)});
        }
        const chips = [...new Set(choices.chips.map((c) => c.vendor))].map((vendor) => ({label: vendor,
            options: choices.chips.filter((c) => c.vendor === vendor).map((c) => ({value: c.name,
                text: c.name + (c.memory_bytes ? ` (${digits(c.memory_bytes / 2 ** 30, 3)} GiB)` : "")}))}));
        const config = el("textarea", {spellcheck: "false",
            placeholder: '{"model_type": "llama", "hidden_size": 2048, …}',
            on: {input: () => set("config", config.value)}});
        $("question").append(
            el("fieldset", {}, el("legend", {}, "Model"),
                field("model", "Model", select("model", models)),
                field("config", "Paste the model's config.json (Hugging Face)", config),
                field("seq", "Sequence length", doubled("seq", "Sequence length", 20)),
                field("recipe", "Recipe", select("recipe", choicesOf("recipe")))),
            el("fieldset", {}, el("legend", {}, "Step"),
                field("batch", "Batch", doubled("batch", "Batch", 14), "sequences in a micro-batch, on all devices"),
                field("accum", "Accumulation", doubled("accum", "Accumulation", 10), "micro-batches in a step"),
                field("checkpointing", "Checkpointing", select("checkpointing", choicesOf("checkpointing"))),
                field("optimizer", "Optimizer", select("optimizer", choicesOf("optimizer")))),
            el("fieldset", {}, el("legend", {}, "Chip and run"),
                field("device", "Chip", select("device", chips)),
                field("as", "Memory of", select("as", [{value: "", text: "Tally"}, ...named(choices.frameworks)]),
                    "another framework's is an estimate"),
                field("tokens", "Tokens", text("tokens"), "of the whole run: 300B, 15T"),
                field("price", "$ per hour", text("price", {inputmode: "decimal"}), "for one device")),
            el("fieldset", {}, el("legend", {}, "Devices"),
                field("devices", "Devices", doubled("devices", "Devices", 14)),
                field("shard", "Sharding", select("shard", choicesOf("shard")),
                    "what data-parallel ranks keep a part of"),
                field("tp", "Tensor parallel", doubled("tp", "Tensor parallel", 6)),
                field("sp", "Sequence parallel", el("input", {type: "checkbox", on: {change: (e) => set("sp",
                    e.target.checked)}})),
                field("cp", "Context parallel", doubled("cp", "Context parallel", 6)),
                field("pp", "Pipeline stages", doubled("pp", "Pipeline stages", 6)),
                field("fabric", "Network", select("fabric", [{value: "", text: "the chip's usual one"},
                    ...named(choices.networks)]))),
            el("button", {type: "button", id: "reset", on: {click: () => {
                state = {...usual};
                formShow();
                changed();
            }}}, "Reset"));
        $("glance").addEventListener("click", () => $("answer").scrollIntoView());
        $("question").addEventListener("submit", (event) => event.preventDefault());
    }
    function formShow() {
        for (const [name, input] of Object.entries(inputs))
            if (input.type === "checkbox") input.checked = state[name];
            else if (input.value !== state[name]) input.value = state[name];
        rowsShow();
    }
    function rowsShow() {
        $("row-config").hidden = state.model !== CONFIG;
        for (const name of ["shard", "tp", "sp", "cp", "pp", "fabric"]) $(`row-${name}`).hidden = !isMany(state);
        for (const node of Object.values(sliders)) node.show();
    }

    // ---- Asking ----

    let timer, later, serial = 0;
    function say(text, isBusy) {
        $("state").textContent = text;
        $("state").classList.toggle("busy", Boolean(isBusy));
        $("answer").setAttribute("aria-busy", String(Boolean(isBusy)));
    }
    function changed() {
        rowsShow();
        const link = stateText();
        history.replaceState(null, "", link ? `#${link}` : location.pathname + location.search);
        clearTimeout(timer);
        clearTimeout(later);
        deep.stop();
        $("result").classList.add("old");
        say("Computing …", true);
        timer = setTimeout(plan, 50);
    }
    async function plan() {
        const own = ++serial, s = {...state}, args = planArgs(s), began = performance.now();
        quick.stop();
        if (s.model === CONFIG && !s.config.trim())
            return problem("Paste a config.json, as Hugging Face's models have one.");
        const answer = await quick.ask([...args, ...s.as ? [] : ["--short"], "--json"], files(s));
        if (!answer || own !== serial) return;
        if (answer.code) return problem(answer.err);
        const result = JSON.parse(answer.out), took = performance.now() - began;
        $("problem").hidden = true;
        show(result, s, args);
        if (s.as) return say(`Planned in ${duration(took / 1000)}.`); // limits of growth are those of Tally
        say(`Planned in ${duration(took / 1000)}. Looking for limits of growth …`, true);
        later = setTimeout(() => grow(own, s, args, took), 150);
    }
    /* The search for what breaks first prices many runs, and takes longer. */
    async function grow(own, s, args, took) {
        const began = performance.now();
        const answer = await deep.ask([...args, "--json"], files(s));
        if (!answer || own !== serial) return;
        if (answer.code) return say(answer.err.trim());
        showGrowth(JSON.parse(answer.out), s);
        const grown = (performance.now() - began) / 1000;
        say(`Planned in ${duration(took / 1000)}, limits of growth in ${duration(grown)}.`);
    }
    function problem(text) {
        $("problem").textContent = text.trim();
        $("problem").hidden = false;
        $("result").hidden = true;
        $("glance").textContent = text.trim();
        $("glance").className = "glance bad";
        $("glance").hidden = false;
        say("");
    }

    // ---- The answer ----

    /* What one device holds, from the bottom of the bar up: [name, bytes, colour, what it is]. */
    function partsOf(r) {
        if (r.as)
            return [["weights", r.as.weights_bytes, "var(--parameter)"],
                ["gradients", r.as.gradients_bytes, "var(--gradient)"],
                ["master copy and moments", r.as.states_bytes, "var(--optimizer)"],
                ["copies in use", r.as.copies_bytes, "var(--communication)"],
                ["activations", r.as.activations_bytes, "var(--activation)"],
                ["logits, loss, recomputed", r.as.loss_bytes, "var(--temporary)"],
                ["buffers", r.as.buffers_bytes, "var(--workspace)"],
                ["allocator and driver", r.as.allocator_bytes, null]].filter((p) => big(p[1]) > 0);
        if (r.devices.devices > 1) {
            const d = r.devices;
            return [["weights", d.weights_bytes, "var(--parameter)"], ["gradients", d.gradients_bytes,
                "var(--gradient)"],
                ["master copy and moments", d.states_bytes, "var(--optimizer)"],
                ["gathered while in use", d.gathered_bytes, "var(--communication)"],
                ["everything else at the peak", d.other_bytes, "var(--activation)"]].filter((p) => big(p[1]) > 0);
        }
        const parts = PURPOSES.filter((p) => big(r.memory.peak_by_purpose[p] || 0) > 0)
            .map((p) => [p, r.memory.peak_by_purpose[p], purposeColor(p)]);
        const unused = BigInt(r.memory.reserved_bytes) - BigInt(r.memory.peak_bytes);
        if (unused > 0n) parts.push(["rounding, gaps, unused", unused.toString(), null]);
        return parts;
    }
    const needOf = (r) => r.as ? r.as.total_bytes : r.devices.devices > 1 ? r.devices.total_bytes : r.memory.reserved_bytes;
    function verdictOf(r) {
        const need = big(needOf(r)), limit = r.memory.limit_bytes && big(r.memory.limit_bytes);
        const each = r.devices.devices > 1 ? " on each device" : "";
        if (!limit) return ["warn", `Needs ${bytes(need)}${each}; the chip's memory is unknown`];
        const isLarge = r.as || r.devices.devices > 1 ? need > limit : r.memory.verdict === "too large";
        if (isLarge)
            return ["bad", `Too large: needs ${bytes(need)}${each} of ${bytes(limit)}, ` +
                `${bytes(need - limit)} too much`];
        if (!r.as && r.devices.devices === 1 && r.memory.verdict === "fits tightly")
            return ["warn", `Fits tightly: the pool would take ${bytes(need)} of ${bytes(limit)}, ` +
                "and has to release unused segments"];
        return ["good", `Fits: ${bytes(need)}${each} of ${bytes(limit)}, ${bytes(limit - need)} to spare`];
    }

    function memoryShow(r) {
        const parts = partsOf(r), need = big(needOf(r)), limit = r.memory.limit_bytes ? big(r.memory.limit_bytes) : 0;
        const whole = Math.max(need, limit) * 1.0;
        const said = parts.map((p) => `${p[0]} ${bytes(p[1])}`).join(", ");
        const has = limit ? `the chip has ${bytes(limit)}` : "the chip's memory is unknown";
        const bar = el("div", {class: "bar", role: "img", "aria-label": `Memory by purpose: ${said}; ${has}`});
        const body = el("tbody");
        const light = (i, on) => {
            for (const list of [bar.querySelectorAll(".part"), body.children]) list[i].classList.toggle("lit", on);
        };
        let at = 0;
        parts.forEach(([name, size, color], i) => {
            const width = big(size) / whole, room = width * $("answer").clientWidth;
            const label = room > 7 * name.length + 14 ? el("span", {}, name) : null;
            bar.append(el("div", {class: color ? "part" : "part unused",
                title: `${name}: ${bytes(size)} (${exact(size)} B)`,
                style: `left:${100 * at}%;width:${100 * width}%;${color ? `background:${color}` : ""}`,
                on: {pointerenter: () => light(i, true), pointerleave: () => light(i, false)}}, label));
            at += width;
            body.append(el("tr", {on: {pointerenter: () => light(i, true), pointerleave: () => light(i, false)}},
                el("th", {scope: "row"}, el("i", {class: color ? "swatch" : "swatch unused",
                    style: color ? `background:${color}` : ""}), name),
                el("td", {class: "number"}, bytes(size)),
                el("td", {class: "number exact", "data-bytes": size}, exact(size)),
                el("td", {class: "number"}, share(big(size), need))));
        });
        if (limit) {
            const line = el("div", {class: "limit", style: `left:${100 * Math.min(1, limit / whole)}%`}, el("b", {},
                `memory for the run: ${bytes(limit)}`));
            if (need > limit) bar.append(el("div", {class: "over", style: `left:${100 * limit / whole}%`}));
            if (limit / whole < 0.45) line.firstChild.style.cssText = "right:auto;left:6px";
            bar.append(line);
        }
        const table = el("table", {class: "purposes"}, el("caption", {class: "off"}, "Memory at the peak"),
            el("thead", {}, el("tr", {}, el("th", {scope: "col"}, r.devices.devices > 1 ? "on each device"
                : "held at the peak"), el("th", {class: "number", scope: "col"}, ""),
                el("th", {class: "number", scope: "col"}, "bytes"), el("th", {class: "number", scope: "col"},
                    "share"))), body,
            el("tfoot", {}, el("tr", {}, el("th", {scope: "row"}, r.devices.devices > 1 ? "peak" : "reserved"),
                el("td", {class: "number"}, bytes(need)),
                el("td", {class: "number exact", "data-bytes": needOf(r), id: "need"}, exact(needOf(r))), el("td",
                    {class: "number"}, limit ? `${share(need, limit)} of the chip` : ""))));
        return el("div", {class: "memory"}, bar, el("div", {class: "wide"}, table));
    }

    function factsShow(r, s) {
        const run = r.run, isSeveral = r.devices.devices > 1, chip = choices.chips.find((c) => c.name === s.device);
        const facts = [Tally.fact("Parameters", amount(r.model.parameters), exact(r.model.parameters))];
        if (isNumber(run.step_s)) {
            facts.push(Tally.fact("Time of a step", duration(run.step_s), isSeveral ? "expected" : "at least"),
                Tally.fact("Tokens per second", amount(run.tokens_per_s), isSeveral ? "expected" : "at most"),
                Tally.fact("Training", duration(run.days * 86400),
                    `${amount(run.tokens)} tokens, ${amount(run.steps)} steps`),
                Tally.fact(`${hours(chip)}-hours`, amount(run.device_hours), isNumber(run.energy_kwh)
                    ? `${amount(run.energy_kwh)} kWh` : ""));
            if (isNumber(run.money)) facts.push(Tally.fact("Cost", dollars(run.money), `at $${s.price} per hour`));
            const e = run.expected;
            if (e && isNumber(e.days)) facts.push(Tally.fact("Expected", duration(e.days * 86400), e.days_range
                ? `${duration(e.days_range[0] * 86400)} to ${duration(e.days_range[1] * 86400)}` : ""));
        }
        facts.push(Tally.fact("FLOPs of a step", count(r.flops.total), exact(r.flops.total)));
        if (isNumber(run.utilisation.palm)) facts.push(Tally.fact("MFU", percent(run.utilisation.palm),
            `6 N + 12 L T d per token; ${isSeveral ? "expected" : "at most"}`));
        return el("dl", {class: "facts"}, facts);
    }

    /* Where the time of a step goes: on one device by FLOPs of each phase, on several by what is waited for. */
    function stepShow(r) {
        const d = r.devices, isSeveral = d.devices > 1;
        const parts = isSeveral
            ? [["computing", d.compute_s, "var(--c0)"], ["waiting for other devices", d.exposed_s, "var(--c1)"]]
            : Object.entries(r.flops.by_phase).map(([name, n], i) => [name, big(n), `var(--c${[0, 2, 1, 4, 6][i]})`]);
        const there = parts.filter((p) => p[1] > 0), whole = there.reduce((sum, p) => sum + p[1], 0);
        if (!whole) return null;
        const size = (x) => isSeveral ? duration(x) : count(x) + "FLOP";
        const texts = there.map(([name, x]) => `${name} ${size(x)} (${share(x, whole)})`);
        return el("div", {class: "step"}, el("h3", {}, isSeveral ? "Expected time of a step"
            : "FLOPs of a step, by phase"),
            el("div", {class: "thin", role: "img", "aria-label": texts.join(", ")}, there.map(([, x, color], i) =>
                el("div", {style: `width:${100 * x / whole}%;background:${color}`, title: texts[i]}))),
            el("ul", {class: "keys"}, there.map(([, , color], i) => el("li", {}, el("i", {class: "swatch",
                style: `background:${color}`}), texts[i]))));
    }

    function copyButton(label, textOf) {
        const button = el("button", {type: "button", on: {click: async () => {
            const text = textOf();
            try {
                await navigator.clipboard.writeText(text);
            } catch (e) { // a file: page may have no clipboard
                const area = el("textarea", {style: "position:fixed;opacity:0"});
                area.value = text;
                document.body.append(area);
                area.select();
                document.execCommand("copy");
                area.remove();
            }
            button.textContent = "Copied";
            setTimeout(() => { button.textContent = label; }, 1200);
        }}}, label);
        return button;
    }

    function tableOf(heads, rows, kind) {
        return el("div", {class: "wide"}, el("table", {class: kind}, el("thead", {}, el("tr", {}, heads.map(([name,
            isNumber_]) =>
            el("th", {scope: "col", class: isNumber_ ? "number" : null}, name)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el(i ? "td" : "th",
            {scope: i ? null : "row",
            class: heads[i][1] ? "number" : i ? null : "path"}, cell)))))));
    }
    function most(byPurpose) {
        let name = "";
        for (const [purpose, size] of Object.entries(byPurpose)) if (!name
            || big(size) > big(byPurpose[name])) name = purpose;
        return name;
    }
    function modulesShow(r) {
        const held = Object.fromEntries(r.memory.peak_by_module.map((m) => [m.module, m]));
        const rows = r.flops.by_module.map((m) => [m.module === "-" ? "(outside modules)" : m.module,
            held[m.module] ? bytes(held[m.module].bytes) : "–",
            held[m.module] ? most(held[m.module].by_purpose) : "", big(m.flops) ? count(m.flops) : "–",
            share(big(m.flops), big(r.flops.total)), bytes(m.bytes)]);
        const where = r.devices.devices > 1 ? ", on one device with the whole model" : "";
        return el("details", {}, el("summary", {}, `By module${where}`),
            tableOf([["module (* is every layer)"], ["held at the peak", true], ["mostly"], ["FLOPs", true], ["share",
                true], ["bytes moved", true]], rows));
    }
    function opsShow(r) {
        const rows = r.ops.map((o) => [o.op, o.dtype, exact(String(o.calls)), count(o.flops), bytes(o.bytes),
            isNumber(o.intensity) ? digits(o.intensity, 4) : "–", o.bound || "–",
                duration(Math.max(o.arithmetic_s || 0, o.memory_s || 0) || NaN)]);
        return el("details", {}, el("summary", {}, "By op"), tableOf([["op"], ["dtype"], ["calls", true], ["FLOPs",
            true],
            ["bytes moved", true], ["FLOP/B", true], ["bound by"], ["at least", true]], rows));
    }
    /* What the program prints, when it is asked for. */
    function outputShow(s, args) {
        const pre = el("pre", {class: "output", tabindex: 0}, "Computing …");
        const node = el("details", {on: {toggle: async () => {
            if (!node.open || node.asked) return;
            node.asked = true;
            const asker = new Asker(quick.module, quick.url);
            const answer = await asker.ask(args, files(s));
            asker.worker.terminate();
            if (answer) pre.textContent = answer.code ? answer.err : answer.out;
        }}}, el("summary", {}, "As the program prints it"), pre);
        return node;
    }

    let shown;
    function show(r, s, args) {
        const [kind, words_] = verdictOf(r), chip = choices.chips.find((c) => c.name === s.device), m = r.model;
        const command = commandText(args);
        const opened = shown ? [...$("result").querySelectorAll("details")].map((d) => d.open) : [];
        const chips = (r.devices.devices > 1 ? `${exact(String(r.devices.devices))} × ` : "") +
            (r.device.chip || r.device.name);
        const lead = `${m.name === CONFIG ? "your model" : m.name}: ${m.layers} layers, ${m.channels} channels, ` +
            `${m.heads} heads; ${exact(String(r.step_tokens * r.devices.layout.dp))} tokens in a step on ${chips}` +
            (r.devices.is_estimate ? "; memory and times on several devices are estimates" : "");
        const notes = [];
        if (r.as) notes.push(`Memory is an estimate of what ${r.as.title} holds; times are those of the model.`);
        if (!r.device.has_kernels) notes.push("Tally does not run on this chip: CUDA's memory rules are assumed.");
        else if (r.device.origin === "assumed")
            notes.push("This chip has no target of its own: the memory rules of the H200 are assumed.");
        else if (r.device.origin === "never run")
            notes.push("Tally never ran on this chip: its rules follow from the compute capability.");
        if (r.device.emulated)
            notes.push(`${r.device.emulated} products are emulated on this chip: operands are rounded to ` +
                `${r.device.emulated} and multiplied in bf16.`);
        if (!isNumber(r.run.step_s)) notes.push("There is no peak or bandwidth for this chip, so times are unknown.");
        shown = {r, s};
        $("glance").textContent = words_;
        $("glance").className = `glance ${kind}`;
        $("glance").hidden = false;
        $("result").replaceChildren(...[
            el("p", {class: `headline ${kind}`, id: "verdict"}, words_), el("p", {class: "lead"}, lead),
                memoryShow(r), factsShow(r, s), stepShow(r),
            notes.map((n) => el("p", {class: "soft"}, n)),
            el("h2", {}, "Command"),
            el("div", {class: "command"}, el("pre", {id: "command"}, command), el("div", {class: "buttons"},
                copyButton("Copy", () => command),
                copyButton("Copy link", () => location.href))),
            s.model === CONFIG ? el("p", {class: "soft"}, `${CONFIG} is the text in the form; the link contains it.`)
                : null,
            el("div", {id: "growth"}, el("h2", {}, "What breaks first"), el("p", {class: "soft"},
                s.as ? "Limits of growth are searched for Tally's own memory." : "Searching …")),
            el("h2", {}, "Where it goes"), modulesShow(r), opsShow(r), outputShow(s, args)].flat().filter(Boolean));
        [...$("result").querySelectorAll("details")].forEach((d, i) => { d.open = opened.length ? opened[i]
            : i === 0; });
        $("result").hidden = false;
        $("result").classList.remove("old");
    }

    // ---- Growth ----

    const axes = {batch: ["Batch", (r) => r.settings.batch], seq: ["Sequence length", (r) => r.settings.seq],
        layers: ["Layers", (r) => r.model.layers], channels: ["Channels", (r) => r.model.channels]};
    function growthRows(r) {
        const rows = [];
        for (const [axis, [name, now]] of Object.entries(axes)) {
            const g = r.growth[axis];
            if (g) rows.push({axis, name, now: now(r), g, room: g.best && g.best.size ? g.best.size / now(r) : 0});
        }
        return rows.sort((a, b) => a.room - b.room);
    }
    function growthCells({axis, name, now, g}) {
        const best = g.best && g.best.size, next = g.next && g.next.size;
        const canSet = best && axis in state && best !== now;
        const largest = !best ? "no size fits" : canSet
            ? el("button", {type: "button", title: "Set it", on: {click: () => {
                state[axis] = String(best);
                formShow();
                changed();
            }}}, exact(String(best))) : exact(String(best));
        const place = g.grows_in && g.grows_in !== "-" ? ` in ${g.grows_in}` : "";
        const why = !next ? "no limit up to this size" : g.next.bytes
            ? `${exact(String(next))} needs ${bytes(g.next.bytes)}, ` +
                `mostly ${g.grows || most(g.next.peak_by_purpose)}${place}`
            : `${exact(String(next))}: ${g.next.why}`;
        return [name, exact(String(now)), largest, best ? `${digits(best / now, 3)} ×` : "–",
            why + (g.is_proven ? "" : " (larger ones may fit)")];
    }
    /* "--batch 8 --accum 4 is the same step": the flags that stand before the words. */
    function adviceFlags(text) {
        const flags = {}, names = {checkpointing: 1, batch: 1, accum: 1, devices: 1, shard: 1};
        for (const [, name, value] of text.matchAll(/--([a-z-]+) ([a-z0-9-]+)/g)) if (names[name]) flags[name] = value;
        return text.startsWith("--") && Object.keys(flags).length ? flags : null;
    }
    function showGrowth(r, s) {
        const box = $("growth");
        if (!r.growth) return box.replaceChildren(el("h2", {}, "What breaks first"), el("p", {class: "soft"},
            "The chip's memory is unknown, so there are no limits to find."));
        const rows = growthRows(r), d = r.growth.devices;
        const parts = [el("h2", {}, "What breaks first"),
            tableOf([["when you increase"], ["now", true], ["largest that fits", true], ["room", true],
                ["what breaks"]], rows.map(growthCells), "growth")];
        if (r.advice && r.advice.length)
            parts.push(el("h3", {}, "Advice"), el("ul", {class: "advice"}, r.advice.map((text) => {
                const flags = adviceFlags(text);
                return el("li", {}, el("span", {}, text), flags ? el("button", {type: "button", on: {click: () => {
                    Object.assign(state, flags);
                    formShow();
                    changed();
                }}}, "Apply") : null);
            })));
        if (d && d.points && d.points.some((p) => isNumber(p.tokens_per_s)))
            parts.push(el("h3", {}, `More devices (shard ${d.shard}, an estimate)`),
                tableOf([["devices"], ["on each", true], ["fits"], ["time of a step", true], ["tokens/s", true],
                    ["of ideal", true]], d.points.map((p) => [
                    exact(String(p.devices)), bytes(p.bytes), el("span", {class: p.fits ? "yes" : "no"},
                        p.fits ? "yes" : "no"), duration(p.step_s),
                    isNumber(p.tokens_per_s) ? amount(p.tokens_per_s) : "–", isNumber(p.efficiency)
                        ? percent(p.efficiency) : "–"])));
        box.replaceChildren(...parts);
    }

    // ---- Napkin ----

    const MODEL = "model", CHIP = "chip";
    /* Fields of a form: [option, label, usual value or kind, kind]. */
    const forms = {
        time: ["How long does a run take?", [["params", "Parameters", "70e9"], ["tokens", "Tokens", "15T"], ["device",
            "Chip", "H100 SXM5", CHIP],
            ["devices", "Devices", "1024"], ["mfu", "MFU", "0.5"]]],
        fit: ["How large a model fits?", [["device", "Chip", "H100 SXM5", CHIP], ["devices", "Devices", "8"],
            ["bytes-per-param", "Bytes per parameter", "16"]]],
        flops: ["FLOPs, by every convention", [["model", "Model", "llama-3-8b", MODEL], ["seq", "Sequence", "8192"],
            ["tokens", "Tokens", "1T"]]],
        mfu: ["MFU, by every convention", [["model", "Model", "llama-3-8b", MODEL], ["seq", "Sequence", "8192"],
            ["tokens-per-second", "Tokens per second", "85144"],
            ["device", "Chip", "H100 SXM5", CHIP], ["devices", "Devices", "8"]]],
        memory: ["Bytes of a tensor", [["shape", "Shape", "49152,12288"], ["dtype", "Dtype", "f32"]]],
        activations: ["Activations of a GPT", [["layers", "Layers", "96"], ["channels", "Channels", "12288"],
            ["heads", "Heads", "96"], ["seq", "Sequence", "2048"],
            ["batch", "Batch", "1"], ["tensor", "Tensor parallel", "8"], ["pipeline", "Pipeline stages", "8"]]],
        intensity: ["FLOPs per byte of a product", [["m", "m", "4096"], ["k", "k", "4096"], ["n", "n", "4096"],
            ["dtype", "Dtype", "bf16"],
            ["device", "Chip", "H100 SXM5", CHIP]], ["--op", "matmul"]],
        chinchilla: ["Best size for a budget", [["flops", "FLOPs", "1e24"], ["tokens-per-param",
            "Tokens per parameter", "20"]]],
        references: ["Known runs and thresholds", [["flops", "FLOPs", "1e24"]]],
    };
    let form = "time";
    const values = Object.fromEntries(Object.entries(forms).map(([name, [, fields]]) => [name,
        Object.fromEntries(fields.map((f) => [f[0], f[2]]))]));

    function napkinArgs() {
        const args = ["napkin", form, ...(forms[form][2] || [])];
        for (const [option] of forms[form][1]) if (values[form][option]) args.push(`--${option}`, values[form][option]);
        return args;
    }
    function napkinForm() {
        const pick = el("select", {id: "napkin-form", "aria-label": "Formula", on: {change: () => {
            form = pick.value;
            napkinForm();
            napkinAsk();
        }}}, Object.entries(forms).map(([name, [title]]) => el("option", {value: name, selected: name === form},
            title)));
        const rows = forms[form][1].map(([option, label, , kind]) => {
            const id = `napkin-${option}`, listen = {input: (e) => {
                values[form][option] = e.target.value.trim();
                clearTimeout(timer);
                timer = setTimeout(napkinAsk, 80);
            }};
            const list = kind === CHIP ? choices.chips.map((c) => c.name) : kind === MODEL
                ? choices.models.map((m) => m.name) : null;
            const control = list ? el("select", {id, on: listen}, list.map((x) => el("option", {value: x,
                selected: x === values[form][option]}, x)))
                : el("input", {id, type: "text", class: "number", spellcheck: "false", autocomplete: "off",
                    value: values[form][option], on: listen});
            return el("div", {class: "field"}, el("label", {for: id}, label), control);
        });
        const hadFocus = document.activeElement && document.activeElement.id === "napkin-form";
        $("napkin-question").replaceChildren(
            el("fieldset", {}, el("legend", {}, "Formula"), el("div", {class: "field tall"}, pick)),
            el("fieldset", {}, el("legend", {}, "Numbers"), rows,
                el("p", {class: "soft small"}, "Numbers may be written 70e9, 70B, 15T or 80GiB.")));
        if (hadFocus) pick.focus();
    }
    let napkinSerial = 0;
    async function napkinAsk() {
        const own = ++napkinSerial, args = napkinArgs();
        linkNapkin();
        const answer = await napkin.ask(args, {});
        if (!answer || own !== napkinSerial) return;
        const isBad = answer.code !== 0;
        $("napkin-problem").hidden = !isBad;
        $("napkin-problem").textContent = answer.err.trim();
        $("napkin-result").hidden = isBad;
        if (!isBad) napkinShow(answer.out, args);
    }
    /* The first line is the formula with the numbers in it; then one line for each result. */
    function napkinShow(text, args) {
        const lines = text.replace(/\n$/, "").split("\n"), command = commandText(args), rows = [], rest = [];
        const isFormula = lines[0] && !lines[0].startsWith("  ");
        for (const line of lines.slice(isFormula ? 1 : 0)) {
            const match = /^ {2}([a-z_0-9-]+) {2,}(\S.*)$/.exec(line);
            if (match && !rest.length && match[1] !== "convention") rows.push([match[1].replace(/_/g, " "), match[2]]);
            else rest.push(line.replace(/^ {2}/, ""));
        }
        const formula = isFormula ? lines[0].split(/;? = |;\s+/) : [];
        $("napkin-result").replaceChildren(...[
            el("h2", {}, forms[form][0]),
            isFormula ? el("div", {class: "formula", id: "formula"}, formula.map((part, i) => el("div", {},
                i ? `= ${part}` : part))) : null,
            rows.length ? tableOf([[""], [""]], rows, "answers") : null,
            rest.length ? el("pre", {class: "output", tabindex: 0}, rest.join("\n")) : null,
            el("h2", {}, "Command"),
            el("div", {class: "command"}, el("pre", {id: "napkin-command"}, command), el("div", {class: "buttons"},
                copyButton("Copy", () => command),
                copyButton("Copy link", () => location.href)))].filter(Boolean));
    }
    function linkNapkin() {
        const parts = new URLSearchParams({napkin: form});
        for (const [option, , value] of forms[form][1]) if (values[form][option] !== value) parts.set(option,
            values[form][option]);
        history.replaceState(null, "", `#${parts}`);
    }
    function napkinRead(parts) {
        if (!forms[parts.get("napkin")]) return;
        form = parts.get("napkin");
        for (const [option] of forms[form][1]) if (parts.has(option)) values[form][option] = parts.get(option);
    }

    // ---- Tabs ----

    const tabs = ["plan", "napkin"];
    function open(name, isFocused) {
        for (const tab of tabs) {
            const isOpen = tab === name;
            $(`tab-${tab}`).setAttribute("aria-selected", String(isOpen));
            $(`tab-${tab}`).tabIndex = isOpen ? 0 : -1;
            $(`page-${tab}`).hidden = !isOpen;
        }
        if (isFocused) $(`tab-${name}`).focus();
        if (name === "napkin") {
            napkinForm();
            napkinAsk();
        } else changed();
    }
    function tabsMake() {
        tabs.forEach((name, i) => {
            $(`tab-${name}`).addEventListener("click", () => open(name));
            $(`tab-${name}`).addEventListener("keydown", (event) => {
                const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
                if (by) open(tabs[(i + by + tabs.length) % tabs.length], true);
            });
        });
    }

    function linkRead() {
        const parts = new URLSearchParams(location.hash.slice(1)), isNapkin = parts.has("napkin");
        if (isNapkin) napkinRead(parts);
        else state = stateRead(location.hash.slice(1));
        formShow();
        open(isNapkin ? "napkin" : "plan");
    }

    async function start() {
        $("tools").append(Tally.themeButton());
        tabsMake();
        try {
            const module = await moduleRead();
            const source = URL.createObjectURL(new Blob([$("worker").textContent], {type: "text/javascript"}));
            [quick, deep, napkin] = [0, 1, 2].map(() => new Asker(module, source));
            const answer = await quick.ask(["choices"], {});
            if (answer.code) return problem(answer.err);
            choices = JSON.parse(answer.out);
            $("about").append(` Tally ${choices.version}.`);
            formMake();
            linkRead();
            window.addEventListener("hashchange", linkRead);
        } catch (error) {
            problem(`The planner cannot start in this browser: ${error && error.message || error}`);
        }
    }
    start();
})();
