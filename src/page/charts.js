/* Charts, tables and controls that all pages share. Everything is drawn as SVG at the width of its place, and drawn
 * again when that changes. Text from outside enters through textContent only, so no page can be made to run it.
 *
 * A chart is a <figure> with a caption, a legend whose entries switch series on and off, and a plot that can be
 * reached by keyboard: the arrow keys move its cursor, and what the cursor shows is read out. */
"use strict";
const Tally = (() => {
    const SVG = "http://www.w3.org/2000/svg";
    const PURPOSES = ["parameter", "gradient", "optimizer", "activation", "temporary", "workspace", "data",
        "communication"];
    const color = (i) => `var(--c${i % 8})`;
    const purposeColor = (name) => `var(--${PURPOSES.includes(name) ? name : "c6"})`;

    // ---- Elements ----

    function fill(node, attributes, children) {
        for (const [key, value] of Object.entries(attributes || {})) {
            if (value === undefined || value === null || value === false) continue;
            if (key === "on")
                for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
            else if (key === "style") node.style.cssText = value;
            else node.setAttribute(key, value === true ? "" : value);
        }
        for (const child of children.flat(3))
            if (child !== null && child !== undefined && child !== false)
                node.append(child instanceof Node ? child : document.createTextNode(String(child)));
        return node;
    }
    const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
    const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

    // ---- Numbers as people write them ----

    const isNumber = (x) => typeof x === "number" && Number.isFinite(x);
    const digits = (x, n) => Number(x).toLocaleString("en-US", {maximumSignificantDigits: n || 4, useGrouping: true});
    const grouped = (x) => Math.round(x).toLocaleString("en-US");
    function scaled(x, units, base, n) {
        if (!isNumber(x)) return "–";
        let i = 0, value = x;
        while (Math.abs(value) >= base && i + 1 < units.length) value /= base, i++;
        return digits(value, n || 4) + (units[i] ? " " + units[i] : "");
    }
    const bytes = (x, n) => scaled(x, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024, n);
    // Counts above 2^53 are texts in Tally's files; they stay exact.
    const exact = (x) => typeof x === "string" && /^\d+$/.test(x) ? x.replace(/\B(?=(\d{3})+$)/g, ",") : grouped(x);
    const count = (x, unit) => (scaled(x, ["", "k", "M", "G", "T", "P", "E"], 1000) + (unit || "")).replace(/ ?$/, "");
    const amount = (x, unit) => isNumber(x) ? scaled(x, ["", "k", "M", "G", "T", "P", "E"], 1000).replace(/([a-zA-Z])$/,
        "$1" + unit).replace(/(\d)$/, "$1 " + unit) : "–";
    function seconds(x) {
        if (!isNumber(x)) return "–";
        if (x === 0) return "0 s";
        if (Math.abs(x) < 1e-9) return "<1 ns";
        if (Math.abs(x) < 1e-6) return digits(x * 1e9, 3) + " ns";
        if (Math.abs(x) < 1e-3) return digits(x * 1e6, 3) + " µs";
        if (Math.abs(x) < 1) return digits(x * 1e3, 3) + " ms";
        if (Math.abs(x) < 120) return digits(x, 3) + " s";
        if (Math.abs(x) < 7200) return digits(x / 60, 3) + " min";
        return Math.abs(x) < 172800 ? digits(x / 3600, 3) + " h" : digits(x / 86400, 3) + " days";
    }
    const percent = (x) => !isNumber(x) ? "–" : x > 0 && x < 1e-4 ? "<0.01 %"
        : (Math.abs(x) < 0.01 ? digits(Number((100 * x).toFixed(2)), 3) : digits(100 * x, 3)) + " %";
    function plain(x) {
        if (!isNumber(x)) return "–";
        const size = Math.abs(x);
        return size !== 0 && (size < 1e-3 || size >= 1e6) ? x.toExponential(2).replace("e+", "e") : digits(x, 4);
    }

    // ---- Scales ----

    function linearTicks(low, high, n) {
        const rough = (high - low) / Math.max(1, n), power = 10 ** Math.floor(Math.log10(rough));
        const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || power * 10;
        const ticks = [];
        for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step)
            ticks.push(Math.abs(t) < step * 1e-9 ? 0 : t);
        return ticks;
    }
    // Powers of two are the round numbers of bytes.
    function byteTicks(low, high, n) {
        let step = 1;
        while ((high - low) / step > Math.max(1, n)) step *= 2;
        const ticks = [];
        for (let t = Math.ceil(low / step) * step; t <= high; t += step) ticks.push(t);
        return ticks;
    }
    function logTicks(low, high, n) {
        const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), ticks = [];
        const stride = Math.max(1, Math.ceil((last - first) / Math.max(1, n)));
        const inside = last - first <= 2 ? [1, 2, 5] : [1];
        for (let p = first; p <= last; p += stride)
            for (const m of inside) {
                const t = m * 10 ** p;
                if (t >= low * 0.999 && t <= high * 1.001) ticks.push(t);
            }
        return ticks;
    }
    function scale(low, high, from, to, isLog) {
        const f = isLog ? Math.log : (x) => x, a = f(low), b = f(high), k = b > a ? (to - from) / (b - a) : 0;
        const at = (x) => from + (f(x) - a) * k;
        at.invert = (pixel) => isLog ? Math.exp(a + (pixel - from) / k) : a + (pixel - from) / k;
        return Object.assign(at, {low, high, isLog});
    }
    function extent(lists, isLog) {
        let low = Infinity, high = -Infinity;
        for (const list of lists)
            for (const v of list)
                if (isNumber(v) && (!isLog || v > 0)) {
                    if (v < low) low = v;
                    if (v > high) high = v;
                }
        if (low > high) return isLog ? [1, 10] : [0, 1];
        const apart = (Math.abs(low) || 1) * 0.1;
        if (low === high) return isLog ? [low / 2, low * 2] : [low - apart, high + apart];
        return [low, high];
    }

    // ---- The frame of a chart ----

    function figure(host, spec) {
        const caption = el("figcaption", {}, el("b", {}, spec.title), spec.note ? " " : "", spec.note || "");
        const legend = el("ul", {class: "legend"}), plot = el("div", {class: "plot"});
        const said = el("div", {class: "off", "aria-live": "polite"});
        const tip = el("div", {class: "tip", hidden: true});
        const node = el("figure", {}, caption, legend, plot, said);
        plot.append(tip);
        host.append(node);
        return {node, caption, legend, plot, tip, said, width: 0};
    }
    // Draws now, and again whenever the width changes.
    function watchWidth(frame, draw) {
        const redraw = () => {
            const width = Math.floor(frame.plot.clientWidth);
            if (width < 40) return;
            frame.width = width;
            hideTip(frame);
            draw(width);
        };
        redraw();
        if (window.ResizeObserver)
            new ResizeObserver(() => {
                if (Math.floor(frame.plot.clientWidth) !== frame.width) redraw();
            }).observe(frame.plot);
        window.addEventListener("beforeprint", redraw);
        return redraw;
    }

    // A chart with a legend of spec[name]: it is drawn again when its width or its spec changes.
    function chartOf(frame, spec, name, draw) {
        const redraw = watchWidth(frame, draw);
        legendOf(frame, spec[name], redraw);
        return {
            node: frame.node,
            update(change) {
                Object.assign(spec, change);
                if (change[name]) legendOf(frame, spec[name], redraw);
                redraw();
            },
        };
    }
    function setDrawing(frame, drawing) {
        const before = frame.plot.querySelector("svg");
        if (before) before.replaceWith(drawing);
        else frame.plot.prepend(drawing);
    }
    function showTip(frame, x, y, content) {
        frame.tip.replaceChildren(...[content].flat(2).filter(Boolean));
        frame.tip.hidden = false;
        const width = frame.tip.offsetWidth, room = frame.plot.clientWidth;
        let left = x + 14;
        if (left + width > room) left = x - width - 14;
        frame.tip.style.left = Math.max(0, Math.min(left, room - width)) + "px";
        frame.tip.style.top = Math.max(0, y - frame.tip.offsetHeight / 2) + "px";
    }
    const hideTip = (frame) => { frame.tip.hidden = true; };
    function rows(list) {
        return el("table", {role: "presentation"}, list.map(([name, value, c]) => el("tr", {},
            el("td", {}, c ? el("i", {style: `background:${c}`}) : null, name), el("td", {class: "number"}, value))));
    }
    function legendOf(frame, items, redraw) {
        frame.legend.replaceChildren(...items.map((item) => el("li", {}, el("button", {
            type: "button", "aria-pressed": String(!item.isHidden),
            on: {click: (event) => {
                item.isHidden = !item.isHidden;
                event.currentTarget.setAttribute("aria-pressed", String(!item.isHidden));
                redraw();
            }},
        }, el("i", {style: `background:${item.color}`, class: item.isPoints ? "point" : null}), item.name))));
        frame.legend.hidden = items.length < 2;
    }

    const textWidth = (text) => 6.9 * String(text).length;
    // Axes with labels and units; returns the scales and the group that the marks go into.
    function axes(width, height, x, y) {
        const top = 22, bottom = 44, nY = Math.max(2, Math.floor((height - top - bottom) / 44));
        const yTicks = (y.log ? logTicks : y.isBytes ? byteTicks : linearTicks)(y.low, y.high, nY);
        const left = Math.min(width * 0.3, 12 + Math.max(...yTicks.map((t) => textWidth(y.format(t))), 20));
        const right = 14;
        const sx = scale(x.low, x.high, left, width - right, x.log);
        const sy = scale(y.low, y.high, height - bottom, top, y.log);
        let nX = Math.max(2, Math.floor((width - left - right) / 90)), xTicks;
        for (;; nX--) {
            xTicks = (x.log ? logTicks : linearTicks)(x.low, x.high, nX);
            const widest = Math.max(...xTicks.map((t) => textWidth(x.format(t))), 1);
            const apart = xTicks.length > 1 ? Math.abs(sx(xTicks[1]) - sx(xTicks[0])) : Infinity;
            if (nX <= 1 || widest + 12 <= apart) break;
        }
        const g = svg("g", {"aria-hidden": "true"});
        for (const t of yTicks)
            g.append(svg("line", {class: "grid", x1: left, x2: width - right, y1: sy(t), y2: sy(t)}),
                svg("text", {x: left - 7, y: sy(t) + 4, "text-anchor": "end"}, y.format(t)));
        for (const t of xTicks) {
            const half = textWidth(x.format(t)) / 2, at = sx(t);
            g.append(svg("line", {class: "axis", x1: at, x2: at, y1: height - bottom, y2: height - bottom + 4}),
                svg("text", {x: Math.min(Math.max(at, half), width - half), y: height - bottom + 17,
                    "text-anchor": "middle"}, x.format(t)));
        }
        g.append(svg("line", {class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}),
            svg("text", {class: "name", x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle"},
                x.label),
            svg("text", {class: "name", x: 0, y: 12}, y.label));
        return {g, sx, sy, left, right: width - right, top, bottom: height - bottom};
    }
    function svgRoot(width, height, label) {
        return svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
            tabindex: 0});
    }
    function pointerAt(drawing, event) {
        const box = drawing.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
    }

    // ---- Lines and points ----

    // The middle of a window that grows with `amount` (0 to 1): debiased exponential mean.
    function smooth(values, amount) {
        if (!(amount > 0)) return values;
        let mean = 0, weight = 0;
        return values.map((v) => {
            if (!isNumber(v)) return v;
            mean = amount * mean + (1 - amount) * v;
            weight = amount * weight + (1 - amount);
            return mean / weight;
        });
    }
    function linePath(xs, ys, sx, sy, isLogY) {
        let d = "", pen = "M";
        for (let i = 0; i < xs.length; i++) {
            if (!isNumber(xs[i]) || !isNumber(ys[i]) || (isLogY && ys[i] <= 0) || (sx.isLog && xs[i] <= 0)) {
                pen = "M";
                continue;
            }
            d += pen + sx(xs[i]).toFixed(1) + "," + sy(ys[i]).toFixed(1);
            pen = "L";
        }
        return d;
    }
    function bandPath(xs, low, high, sx, sy) {
        let up = "", down = "";
        for (let i = 0; i < xs.length; i++) {
            if (!isNumber(low[i]) || !isNumber(high[i]) || (sy.isLog && low[i] <= 0)) continue;
            if (sx.isLog && xs[i] <= 0) continue;
            up += (up ? "L" : "M") + sx(xs[i]).toFixed(1) + "," + sy(high[i]).toFixed(1);
            down = "L" + sx(xs[i]).toFixed(1) + "," + sy(low[i]).toFixed(1) + down;
        }
        return up ? up + down + "Z" : "";
    }
    function nearest(xs, x) {
        let best = -1, distance = Infinity;
        for (let i = 0; i < xs.length; i++) {
            const d = Math.abs(xs[i] - x);
            if (d < distance) distance = d, best = i;
        }
        return best;
    }
    /* series: {name, color, x, y, low, high, isPoints, dash, faint, titles, format}. A series with titles is a scatter:
     * the nearest point answers. spec.guides: {name, x: [a, b], y: [a, b]} are drawn behind, such as a roof. */
    function lines(host, spec) {
        const frame = figure(host, spec), height = () => spec.height || (frame.width < 480 ? 260 : 320);
        let drawing, at, shown, cursorIndex = -1;
        function draw(width) {
            shown = spec.series.filter((s) => !s.isHidden && s.x.length);
            const guides = spec.guides || [];
            const [xLow, xHigh] = extent(shown.map((s) => s.x).concat(guides.map((g) => g.x)), spec.x.log);
            let [yLow, yHigh] = extent(shown.flatMap((s) => s.low && !spec.smoothing ? [s.low, s.high] : [s.y])
                .concat(guides.map((g) => g.y)), spec.y.log);
            if (spec.y.clip && !spec.y.log) [yLow, yHigh] = spec.y.clip(shown, yLow, yHigh);
            if (spec.y.isFromZero && yLow > 0 && !spec.y.log) yLow = 0;
            if (!spec.y.log) yHigh += (yHigh - yLow) * 0.04;
            if (!spec.y.log && yLow !== 0) yLow -= (yHigh - yLow) * 0.04;
            let [left, right] = [xLow, xHigh];
            if (shown.some((s) => s.sizes)) { // room for large points; their axes are logarithmic
                const roomX = (xHigh / xLow) ** 0.04, roomY = (yHigh / yLow) ** 0.06;
                left /= roomX, right *= roomX, yLow /= roomY, yHigh *= roomY;
            }
            drawing = svgRoot(width, height(), spec.title + ". " + spec.y.label + " by " + spec.x.label);
            at = axes(width, height(), {...spec.x, low: left, high: right}, {...spec.y, low: yLow, high: yHigh});
            const clip = "clip" + Math.random().toString(36).slice(2);
            drawing.append(svg("clipPath", {id: clip}, svg("rect", {x: at.left - 4, y: at.top - 4,
                width: at.right - at.left + 8, height: at.bottom - at.top + 8})), at.g);
            const marks = svg("g", {"clip-path": `url(#${clip})`});
            for (const g of guides) {
                marks.append(svg("path", {d: linePath(g.x, g.y, at.sx, at.sy, spec.y.log), fill: "none",
                    stroke: "var(--soft)", "stroke-width": 1.5, "stroke-dasharray": g.dash}));
            }
            for (const s of shown) drawSeries(marks, s);
            drawing.append(marks);
            for (const g of guides) if (g.name) drawing.append(guideName(g, width));
            drawing.append(svg("g", {class: "over"}));
            setDrawing(frame, drawing);
            drawing.addEventListener("pointermove", (e) => point(...pointerAt(drawing, e)));
            drawing.addEventListener("pointerleave", clear);
            drawing.addEventListener("keydown", keys);
            drawing.addEventListener("blur", clear);
        }
        function guideName(g, width) {
            const x = Math.min(at.sx(g.x[g.x.length - 1]), width - 14);
            return svg("text", {x, y: at.sy(g.y[g.y.length - 1]) - 5, "text-anchor": "end", class: "halo"}, g.name);
        }
        function drawSeries(marks, s) {
            if (s.isPoints) {
                s.x.forEach((x, i) => {
                    if (!isNumber(x) || !isNumber(s.y[i])) return;
                    if ((spec.x.log && x <= 0) || (spec.y.log && s.y[i] <= 0)) return;
                    marks.append(svg("circle", {cx: at.sx(x), cy: at.sy(s.y[i]), r: s.sizes ? s.sizes[i] : 3.5,
                        fill: s.color, "fill-opacity": s.titles ? .75 : 1, stroke: "var(--page)", "stroke-width": 1}));
                });
                return;
            }
            const ys = spec.smoothing ? smooth(s.y, spec.smoothing) : s.y;
            if (s.low)
                marks.append(svg("path", {d: bandPath(s.x, s.low, s.high, at.sx, at.sy), fill: s.color, opacity: .18}));
            if (spec.smoothing && !s.low)
                marks.append(svg("path", {d: linePath(s.x, s.y, at.sx, at.sy, spec.y.log), fill: "none",
                    stroke: s.color, opacity: .25}));
            marks.append(svg("path", {d: linePath(s.x, ys, at.sx, at.sy, spec.y.log), fill: "none", stroke: s.color,
                "stroke-width": 1.8, "stroke-linejoin": "round", "stroke-dasharray": s.dash}));
        }
        function clear() {
            hideTip(frame);
            const over = drawing.querySelector(".over");
            if (over) over.replaceChildren();
        }
        function point(px, py) {
            if (!shown.length) return;
            const scatter = shown.filter((s) => s.titles);
            if (scatter.length) return pointScatter(scatter, px, py);
            const x = at.sx.invert(Math.max(at.left, Math.min(at.right, px)));
            show(x, px, py);
        }
        function pointScatter(list, px, py) {
            let best = null, distance = 40 * 40;
            for (const s of list)
                s.x.forEach((x, i) => {
                    if (!(x > 0) && spec.x.log) return;
                    const d = (at.sx(x) - px) ** 2 + (at.sy(s.y[i]) - py) ** 2;
                    if (d < distance) distance = d, best = [s, i];
                });
            if (!best) return clear();
            showPoint(best[0], best[1]);
        }
        function showPoint(s, i) {
            const x = at.sx(s.x[i]), y = at.sy(s.y[i]), title = s.titles[i];
            drawing.querySelector(".over").replaceChildren(svg("circle", {class: "mark", cx: x, cy: y, r: 8}));
            showTip(frame, x, y, [el("b", {}, title[0]), rows(title[1])]);
            return title[0] + ": " + title[1].map((r) => r.join(" ")).join(", ");
        }
        function show(x, px, py) {
            const list = [], over = [];
            let where = NaN;
            for (const s of shown) {
                const i = nearest(s.x, x);
                if (i < 0 || !isNumber(s.y[i])) continue;
                if (s.isPoints && Math.abs(at.sx(s.x[i]) - at.sx(x)) > 24) continue;
                if (!s.isPoints && !isNumber(where)) where = s.x[i];
                const ys = !s.isPoints && spec.smoothing ? smooth(s.y, spec.smoothing)[i] : s.y[i];
                list.push([s.name, (s.format || spec.y.format)(ys), s.color]);
                if (s.low && s.low[i] !== s.high[i])
                    list.push(["   lowest, highest", spec.y.format(s.low[i]) + ", " + spec.y.format(s.high[i])]);
                over.push(svg("circle", {cx: at.sx(s.x[i]), cy: at.sy(ys), r: 4, fill: s.color, stroke: "var(--page)"}));
            }
            if (!list.length) return clear();
            if (!isNumber(where)) where = x;
            over.unshift(svg("line", {class: "cursor", x1: at.sx(where), x2: at.sx(where), y1: at.top, y2: at.bottom}));
            drawing.querySelector(".over").replaceChildren(...over);
            const head = spec.x.name + " " + (spec.x.exact || spec.x.format)(where);
            showTip(frame, at.sx(where), py === undefined ? at.top + 60 : py, [el("b", {}, head), rows(list)]);
            return head + ": " + list.map((r) => r[0].trim() + " " + r[1]).join(", ");
        }
        function keys(event) {
            const main = shown.find((s) => s.titles) || shown.find((s) => !s.isPoints) || shown[0];
            const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9};
            if (event.key === "Escape") return clear();
            if (!main || !(event.key in moves)) return;
            event.preventDefault();
            cursorIndex = Math.max(0, Math.min(main.x.length - 1, cursorIndex + moves[event.key]));
            frame.said.textContent = (main.titles ? showPoint(main, cursorIndex) : show(main.x[cursorIndex])) || "";
        }
        return chartOf(frame, spec, "series", draw);
    }

    // ---- Stacked areas over a sequence of moments ----

    /* spec.layers: {name, color, values}; each value holds from its moment to the next. spec.bands: {from, to, name}, named
     * stretches of the sequence. spec.hover(moment, layer, offset) gives {content, said, outline: [[moment, low, high]]} of
     * what lies `offset` above the bottom of a layer. */
    function stack(host, spec) {
        const frame = figure(host, spec);
        let drawing, at, n, moment = -1;
        const visible = () => spec.layers.filter((l) => !l.isHidden);
        // The moments to draw: all, or of each pixel the highest one.
        function moments(width, totals) {
            const most = Math.floor(width), list = [];
            if (n <= 2 * most) return Array.from({length: n}, (_, i) => i);
            for (let b = 0; b < most; b++) {
                const from = Math.floor(b * n / most), to = Math.floor((b + 1) * n / most);
                let high = from, low = from;
                for (let i = from; i < to; i++) {
                    if (totals[i] > totals[high]) high = i;
                    if (totals[i] < totals[low]) low = i;
                }
                list.push(Math.min(low, high));
                if (low !== high) list.push(Math.max(low, high));
            }
            return list;
        }
        function draw(width) {
            const layers = visible(), height = spec.height || (width < 480 ? 300 : 380);
            n = spec.layers.length ? spec.layers[0].values.length : 0;
            const totals = new Float64Array(n);
            for (const l of layers) for (let i = 0; i < n; i++) totals[i] += l.values[i];
            let high = 0;
            for (const t of totals) high = Math.max(high, t);
            const limit = spec.limit && spec.limit.value < high * 3 ? spec.limit.value : 0;
            drawing = svgRoot(width, height, spec.title);
            at = axes(width, height, {...spec.x, low: 0, high: Math.max(1, n - 1)},
                {...spec.y, low: 0, high: Math.max(high, limit) * 1.08 || 1});
            drawing.append(at.g);
            const list = moments(at.right - at.left, totals), base = new Float64Array(list.length);
            const xs = list.map((i) => at.sx(i).toFixed(1));
            for (const l of layers) {
                let up = "", down = "";
                for (let k = 0; k < list.length; k++) {
                    const lowY = at.sy(base[k]).toFixed(1);
                    base[k] += l.values[list[k]];
                    const highY = at.sy(base[k]).toFixed(1), next = k + 1 < list.length ? xs[k + 1] : at.right.toFixed(1);
                    up += (up ? "L" : "M") + xs[k] + "," + highY + "H" + next;
                    down = "L" + next + "," + lowY + "H" + xs[k] + down;
                }
                drawing.append(svg("path", {d: up + down + "Z", fill: l.color, opacity: .82, "data-layer": l.name}));
            }
            for (const b of spec.bands || []) {
                const from = at.sx(b.from), to = at.sx(b.to);
                drawing.append(svg("line", {class: "cursor", x1: from, x2: from, y1: at.top - 4, y2: at.bottom}));
                if (to - from > textWidth(b.name) + 6)
                    drawing.append(svg("text", {x: (from + to) / 2, y: at.top + 4, "text-anchor": "middle"}, b.name));
            }
            if (spec.limit && limit) {
                drawing.append(svg("line", {x1: at.left, x2: at.right, y1: at.sy(limit), y2: at.sy(limit), stroke: "var(--bad)",
                    "stroke-dasharray": "6 4"}), svg("text", {x: at.right, y: at.sy(limit) - 5, "text-anchor": "end"},
                    spec.limit.name));
            }
            drawing.append(svg("g", {class: "over"}));
            setDrawing(frame, drawing);
            drawing.addEventListener("pointermove", (e) => point(...pointerAt(drawing, e)));
            drawing.addEventListener("pointerleave", clear);
            drawing.addEventListener("blur", clear);
            drawing.addEventListener("keydown", keys);
            if (spec.onPick) drawing.addEventListener("click", (e) => pick(pointerAt(drawing, e)[0]));
        }
        function clear() {
            hideTip(frame);
            const over = drawing.querySelector(".over");
            if (over) over.replaceChildren();
        }
        const momentAt = (px) => Math.max(0, Math.min(n - 1, Math.floor(at.sx.invert(Math.max(at.left, px)))));
        function pick(px) { spec.onPick(momentAt(px)); }
        function point(px, py) {
            if (!n) return;
            show(momentAt(px), at.sy.invert(py), px, py);
        }
        function show(i, value, px, py) {
            let below = 0, hit = null;
            const list = [];
            for (const l of visible()) {
                const v = l.values[i];
                if (value >= below && value < below + v) hit = [l, value - below];
                if (v > 0) list.push([l.name, spec.y.format(v), l.color]);
                below += v;
            }
            const x = at.sx(i), over = [svg("line", {class: "cursor", x1: x, x2: x, y1: at.top, y2: at.bottom})];
            const found = hit && spec.hover ? spec.hover(i, hit[0], hit[1], visible()) : null;
            if (found && found.outline && found.outline.length) {
                let up = "", down = "";
                for (const [from, to, low, high] of found.outline) {
                    const a = at.sx(from).toFixed(1), b = at.sx(to).toFixed(1);
                    up += (up ? "L" : "M") + a + "," + at.sy(high).toFixed(1) + "H" + b;
                    down = "L" + b + "," + at.sy(low).toFixed(1) + "H" + a + down;
                }
                over.push(svg("path", {d: up + down + "Z", class: "mark", fill: "var(--text)", "fill-opacity": .18}));
            }
            drawing.querySelector(".over").replaceChildren(...over);
            const head = spec.momentName ? spec.momentName(i) : spec.x.label + " " + grouped(i);
            const all = [["in all", spec.y.format(below)]].concat(list.reverse());
            showTip(frame, px === undefined ? x : px, py === undefined ? at.top + 70 : py,
                found ? found.content : [el("b", {}, head), rows(all)]);
            return found ? found.said : head + ": " + all.map((r) => r[0] + " " + r[1]).join(", ");
        }
        function keys(event) {
            const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -Math.ceil(n / 20), PageDown: Math.ceil(n / 20), Home: -1e9,
                End: 1e9};
            if (event.key === "Escape") return clear();
            if (event.key === "Enter" && spec.onPick && moment >= 0) return spec.onPick(moment);
            if (!(event.key in moves)) return;
            event.preventDefault();
            moment = Math.max(0, Math.min(n - 1, moment + moves[event.key]));
            frame.said.textContent = show(moment, -1);
        }
        return chartOf(frame, spec, "layers", draw);
    }

    // ---- Areas in proportion ----

    // Bruls, Huizing, van Wijk: rows of rectangles as square as can be.
    function squarify(items, x, y, width, height) {
        const total = items.reduce((sum, i) => sum + i.value, 0), boxes = [];
        let list = items.filter((i) => i.value > 0).sort((a, b) => b.value - a.value);
        let area = width * height / total;
        while (list.length && width > 0 && height > 0) {
            const side = Math.min(width, height);
            let row = [], sum = 0, worst = Infinity;
            for (const item of list) {
                const s = sum + item.value * area, values = row.concat(item).map((i) => i.value * area);
                const w = Math.max(...values.map((v) => Math.max(side * side * v / (s * s), s * s / (side * side * v))));
                if (w > worst) break;
                row.push(item), sum = s, worst = w;
            }
            const thick = sum / side;
            let along = 0;
            for (const item of row) {
                const length = item.value * area / thick;
                boxes.push(width >= height ? {item, x, y: y + along, width: thick, height: length}
                    : {item, x: x + along, y, width: length, height: thick});
                along += length;
            }
            if (width >= height) x += thick, width -= thick;
            else y += thick, height -= thick;
            list = list.slice(row.length);
        }
        return boxes;
    }
    /* items: {name, value, color, detail: [[name, value]]} */
    function treemap(host, spec) {
        const frame = figure(host, spec);
        let boxes = [], index = -1, drawing;
        function draw(width) {
            const height = spec.height || (width < 480 ? 280 : 340);
            drawing = svgRoot(width, height, spec.title);
            boxes = squarify(spec.items, 0, 0, width, height);
            for (const b of boxes) {
                const g = svg("g", {});
                g.append(svg("rect", {x: b.x, y: b.y, width: Math.max(0, b.width - 1.5), height: Math.max(0, b.height - 1.5),
                    rx: 3, fill: b.item.color, "fill-opacity": .3, stroke: b.item.color, "stroke-opacity": .8}));
                const letters = Math.floor((b.width - 10) / 7);
                if (letters >= 4 && b.height > 20)
                    g.append(svg("text", {class: "name", x: b.x + 6, y: b.y + 16},
                        b.item.name.length > letters ? b.item.name.slice(0, letters - 1) + "…" : b.item.name));
                if (letters >= 6 && b.height > 38)
                    g.append(svg("text", {x: b.x + 6, y: b.y + 32}, spec.format(b.item.value)));
                drawing.append(g);
            }
            drawing.append(svg("g", {class: "over"}));
            setDrawing(frame, drawing);
            drawing.addEventListener("pointermove", (e) => {
                const [x, y] = pointerAt(drawing, e);
                const b = boxes.find((o) => x >= o.x && x < o.x + o.width && y >= o.y && y < o.y + o.height);
                if (b) show(b, x, y);
            });
            drawing.addEventListener("pointerleave", clear);
            drawing.addEventListener("blur", clear);
            drawing.addEventListener("keydown", (event) => {
                const move = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key];
                if (event.key === "Escape") return clear();
                if (!move || !boxes.length) return;
                event.preventDefault();
                index = Math.max(0, Math.min(boxes.length - 1, index + move));
                const b = boxes[index];
                frame.said.textContent = show(b, b.x + b.width / 2, b.y + b.height / 2);
            });
        }
        function clear() {
            hideTip(frame);
            drawing.querySelector(".over").replaceChildren();
        }
        function show(b, x, y) {
            drawing.querySelector(".over").replaceChildren(svg("rect", {class: "mark", x: b.x, y: b.y, rx: 3,
                width: Math.max(0, b.width - 1.5), height: Math.max(0, b.height - 1.5)}));
            showTip(frame, x, y, [el("b", {}, b.item.name), rows(b.item.detail)]);
            return b.item.name + ": " + b.item.detail.map((r) => r.join(" ")).join(", ");
        }
        const redraw = watchWidth(frame, draw);
        frame.legend.hidden = true;
        if (spec.legend)
            frame.legend.hidden = false, frame.legend.append(...spec.legend.map((l) => el("li", {}, el("span", {},
                el("i", {style: `background:${l.color};display:inline-block;margin:0 5px 0 8px`}), l.name))));
        return {node: frame.node, update(change) { Object.assign(spec, change); redraw(); }};
    }

    /* Horizontal bars of parts, such as memory by purpose against a capacity. rows: {name, parts: [{name, value, color}]};
     * limit: {name, value}. */
    function bars(host, spec) {
        const frame = figure(host, spec);
        function draw(width) {
            const high = Math.max(...spec.rows.map((r) => r.parts.reduce((s, p) => s + p.value, 0)),
                spec.limit ? spec.limit.value : 0, 1e-300) * 1.02;
            const row = 46, height = spec.rows.length * row + (spec.limit ? 26 : 0);
            const drawing = svgRoot(width, height, spec.title), x = scale(0, high, 0, width - 1);
            spec.rows.forEach((r, i) => {
                const total = r.parts.reduce((s, p) => s + p.value, 0), y = i * row;
                drawing.append(svg("text", {class: "name", x: 0, y: y + 14}, r.name),
                    svg("text", {x: width, y: y + 14, "text-anchor": "end"}, spec.format(total)));
                let from = 0;
                for (const p of r.parts) {
                    const rect = svg("rect", {x: x(from), y: y + 20, width: Math.max(0, x(from + p.value) - x(from)), height: 18,
                        fill: p.color, opacity: .85});
                    rect.addEventListener("pointermove", (e) => {
                        const [px, py] = pointerAt(drawing, e);
                        showTip(frame, px, py, [el("b", {}, r.name), rows([[p.name, spec.format(p.value), p.color]])]);
                    });
                    rect.addEventListener("pointerleave", () => hideTip(frame));
                    drawing.append(rect);
                    from += p.value;
                }
            });
            if (spec.limit) {
                const at = x(spec.limit.value);
                drawing.append(svg("line", {x1: at, x2: at, y1: 18, y2: height - 18, stroke: "var(--bad)", "stroke-width": 2}),
                    svg("text", {x: at, y: height - 4, "text-anchor": at > width / 2 ? "end" : "start"}, spec.limit.name));
            }
            setDrawing(frame, drawing);
        }
        const redraw = watchWidth(frame, draw), names = new Map();
        for (const r of spec.rows) for (const p of r.parts) if (p.value > 0) names.set(p.name, p.color);
        frame.legend.append(...[...names].map(([name, c]) => el("li", {}, el("span", {},
            el("i", {style: `background:${c};display:inline-block;margin:0 5px 0 8px`}), name))));
        return {node: frame.node, update(change) { Object.assign(spec, change); redraw(); }};
    }

    // ---- Tables and controls ----

    // Paths and names of ops may be broken behind a dot or an underscore.
    const breakable = (text) => String(text).split(/(?<=[._])/).flatMap((part, i) => i ? [el("wbr"), part] : [part]);
    /* columns: {name, key, format, isNumber, isPath}; a click on a heading sorts by it. */
    function table(host, spec) {
        let sorted = spec.sort || null, isDown = spec.isDown !== false;
        const body = el("tbody"), heads = spec.columns.map((c) => el("th", {scope: "col", class: c.isNumber ? "number" : null},
            el("button", {type: "button", on: {click: () => {
                isDown = sorted === c.key ? !isDown : Boolean(c.isNumber);
                sorted = c.key;
                render();
            }}}, c.name)));
        function render() {
            let list = [...spec.rows];
            if (sorted)
                list.sort((a, b) => {
                    const x = a[sorted], y = b[sorted];
                    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
                    return isDown ? -order : order;
                });
            heads.forEach((h, i) => h.setAttribute("aria-sort", spec.columns[i].key !== sorted ? "none"
                : isDown ? "descending" : "ascending"));
            body.replaceChildren(...list.slice(0, spec.most || 200).map((r) => el("tr", {}, spec.columns.map((c) =>
                el("td", {class: c.isNumber ? "number" : c.isPath ? "path" : null},
                    c.format ? c.format(r[c.key], r) : c.isPath ? breakable(r[c.key]) : r[c.key])))));
        }
        render();
        const node = el("table", {}, spec.caption ? el("caption", {class: "off"}, spec.caption) : null,
            el("thead", {}, el("tr", {}, heads)), body);
        host.append(el("div", {class: "wide", tabindex: 0, role: "region", "aria-label": spec.caption || "table"}, node));
        return {node, update(change) { Object.assign(spec, change); render(); }};
    }
    /* One of several choices; calls back with the chosen value. */
    function choice(label, options, value, onChoose) {
        const group = el("div", {class: "group", role: "group", "aria-label": label}, el("span", {}, label));
        for (const [key, name] of options)
            group.append(el("button", {type: "button", "aria-pressed": String(key === value), "data-value": key,
                on: {click: () => {
                    for (const b of group.querySelectorAll("button"))
                        b.setAttribute("aria-pressed", String(b.dataset.value === key));
                    onChoose(key);
                }}}, name));
        return group;
    }
    function range(label, attributes, show, onInput) {
        const said = el("output", {}, show(Number(attributes.value)));
        const input = el("input", {type: "range", ...attributes, "aria-label": label, on: {input: () => {
            said.textContent = show(Number(input.value));
            onInput(Number(input.value));
        }}});
        return el("label", {}, el("span", {class: "soft"}, label), input, said);
    }
    function fact(name, value, note) {
        return el("div", {class: "fact"}, el("dt", {}, name), el("dd", {"data-fact": name}, value,
            note ? el("small", {}, note) : null));
    }
    /* The button that switches between the system's theme, light and dark. */
    function themeButton() {
        const order = ["auto", "light", "dark"], root = document.documentElement;
        let now = "auto";
        try { now = localStorage.getItem("tally-theme") || "auto"; } catch (e) { /* a file: page may have no storage */ }
        const button = el("button", {type: "button", id: "theme"});
        function set(theme) {
            now = order.includes(theme) ? theme : "auto";
            if (now === "auto") root.removeAttribute("data-theme");
            else root.setAttribute("data-theme", now);
            button.textContent = {auto: "Theme: system", light: "Theme: light", dark: "Theme: dark"}[now];
            try { localStorage.setItem("tally-theme", now); } catch (e) { /* then it is not remembered */ }
        }
        button.addEventListener("click", () => set(order[(order.indexOf(now) + 1) % 3]));
        set(now);
        return button;
    }

    return {el, svg, bytes, exact, grouped, count, amount, seconds, percent, plain, digits, isNumber, color, purposeColor,
        PURPOSES, lines, stack, treemap, bars, table, choice, range, fact, themeButton, smooth, rows};
})();
