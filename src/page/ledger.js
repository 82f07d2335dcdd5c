/* The page of a ledger (schema tally.ledger/1), or of the price or receipt of a run (tally.run/1): what it computes,
 * moves and holds, by op and by module. */
"use strict";
(() => {
    const T = Tally, el = T.el, number = (text) => Number(text || 0);
    const page = document.getElementById("page"), data = JSON.parse(document.getElementById("data").textContent);
    const kinds = data.kinds ? Object.entries(data.kinds).filter(([, k]) => k && k.ledger) : [[data.name, {ledger: data}]];
    const COLORS = {forward: "var(--c0)", backward: "var(--c1)", recompute: "var(--c3)", update: "var(--c4)", other: "var(--c6)"};
    const collapse = (path) => path.split(".").map((part) => /^\d+$/.test(part) ? "*" : part).join(".") || "(outside modules)";
    const COUNTS = {flops: ["FLOPs", (x) => T.amount(x, "FLOP")], bytes: ["Bytes moved", (x) => T.bytes(x)],
        calls: ["Calls", T.grouped]};
    let chosen = 0, by = "op", count = "flops";

    function sums(ledger, key) {
        const all = new Map();
        for (const row of ledger.rows) {
            const name = key(row), sum = all.get(name) || {name, calls: 0, flops: 0, bytes: 0, phase: row.phase};
            sum.calls += number(row.calls);
            sum.flops += number(row.flops);
            sum.bytes += number(row.bytes_read) + number(row.bytes_written);
            all.set(name, sum);
        }
        return [...all.values()];
    }
    function facts(host, ledger, kind) {
        const t = ledger.totals, memory = ledger.memory;
        host.append(el("dl", {class: "facts"}, [
            kind.count === undefined ? null : T.fact("Steps of this kind", T.grouped(kind.count)),
            T.fact("FLOPs", T.amount(number(t.flops), "FLOP"), T.exact(t.flops)),
            T.fact("Bytes moved", T.bytes(number(t.bytes_read) + number(t.bytes_written)),
                T.exact(String(BigInt(t.bytes_read) + BigInt(t.bytes_written))) + " bytes"),
            T.fact("Op calls", T.grouped(number(t.calls))),
            memory ? T.fact("Peak memory", T.bytes(number(memory.peak_bytes)), T.exact(memory.peak_bytes) + " bytes") : null]));
    }
    function memoryBar(host, ledger) {
        if (!ledger.memory) return;
        const parts = T.PURPOSES.map((name) => ({name, value: number(ledger.memory.peak_by_purpose[name]), color: T.purposeColor(name)}));
        T.bars(host, {title: "Memory at the peak", note: "by purpose", format: (x) => T.bytes(x),
            rows: [{name: ledger.device, parts: parts.filter((p) => p.value > 0)}]});
    }
    function work(host, ledger) {
        const keys = {op: (r) => r.op + " · " + r.phase, module: (r) => collapse(r.path) + " · " + r.phase};
        const list = () => sums(ledger, keys[by]);
        const items = () => list().map((s) => ({name: s.name, value: s[count], color: COLORS[s.phase],
            detail: Object.entries(COUNTS).map(([key, [name, format]]) => [name, format(s[key])])}));
        const holder = el("div");
        const map = () => ({items: items(), format: COUNTS[count][1], title: COUNTS[count][0]});
        host.append(el("div", {class: "controls"},
            T.choice("Show", Object.entries(COUNTS).map(([key, [name]]) => [key, name]), count, (v) => { count = v; redraw(); }),
            T.choice("By", [["op", "Op"], ["module", "Module"]], by, (v) => { by = v; redraw(); })), holder);
        const chart = T.treemap(holder, {...map(), title: "Where it goes", note: "area is the count; colour is the phase", height: 230,
            legend: Object.keys(COLORS).filter((p) => ledger.rows.some((r) => r.phase === p)).map((name) => ({name, color: COLORS[name]}))});
        const table = T.table(holder, {caption: "Counts", sort: "flops", most: 60, rows: list(), columns: [
            {name: "What", key: "name", isPath: true},
            ...Object.entries(COUNTS).map(([key, [name]]) => ({name, key, isNumber: true, format: (x) => T.grouped(x)}))]});
        function redraw() {
            chart.update({items: items(), format: COUNTS[count][1]});
            table.update({rows: list()});
        }
    }
    function draw() {
        const [name, kind] = kinds[chosen], ledger = kind.ledger, main = el("main", {});
        const title = data.kinds ? "Price of a run" : data.name || "Ledger";
        page.replaceChildren(el("header", {class: "top"}, el("h1", {}, title),
            el("span", {class: "soft"}, `${data.kinds ? "one " + name + " " : ""}on ${ledger.device}`),
            el("div", {class: "tools"}, T.themeButton())), main);
        if (kinds.length > 1)
            main.append(el("div", {class: "controls"}, T.choice("Kind of step", kinds.map(([k], i) => [String(i), k]), String(chosen),
                (v) => { chosen = Number(v); draw(); })));
        facts(main, ledger, kind);
        memoryBar(main, ledger);
        work(main, ledger);
        document.documentElement.dataset.drawn = "yes";
    }
    draw();
})();
