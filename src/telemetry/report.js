"use strict";
// Draws the plots of report.html from the numbers in #data (report_json.cpp). Everything that comes from files is set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");

  // ---- elements ----
  const make = (space) => (name, attributes = {}, ...children) => {
    const element = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const svg = make("http://www.w3.org/2000/svg");
  const html = make("http://www.w3.org/1999/xhtml");
  const range = (n) => Array.from({length: n}, (_, i) => i);

  // ---- numbers as text ----
  const plain = (value, digits = 3) =>
    value === 0 ? "0" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
  const short = (value) => {  // for axes
    for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(value) >= size) return Number((value / size).toPrecision(3)) + letter;
    return String(Number(value.toPrecision(3)));
  };
  const unitOf = (largest) =>
    largest < 1e-3 ? [1e-6, "µs"] : largest < 1 ? [1e-3, "ms"] : largest < 180 ? [1, "s"] : largest < 10800 ? [60, "min"] : [3600, "h"];
  const seconds = (s) => {
    if (s === 0) return "0 s";
    const [size, unit] = unitOf(s);
    return plain(s / size, 4) + " " + unit;
  };
  const span = (low, high) => low === high ? String(low) : low + "–" + high;

  // ---- scales ----
  // {lo, hi, log?}: to [0, 1] and back
  const place = (axis, v) => axis.log ? Math.log(v / axis.lo) / Math.log(axis.hi / axis.lo) : (v - axis.lo) / (axis.hi - axis.lo);
  const value = (axis, p) => axis.log ? axis.lo * (axis.hi / axis.lo) ** p : axis.lo + p * (axis.hi - axis.lo);
  function ticks(axis, room) {
    const found = [];
    const size = axis.unit || 1, zero = axis.zero || 0, lo = axis.lo - zero, hi = axis.hi - zero;
    if (axis.log) {
      const decades = Math.log10(hi / lo);
      const steps = decades < room * 0.4 ? [1, 2, 5] : [1];
      const skip = Math.max(1, Math.ceil(decades / room));
      for (let e = Math.floor(Math.log10(lo / size)); e <= Math.ceil(Math.log10(hi / size)); ++e)
        for (const s of steps) if (e % skip === 0) found.push(s * 10 ** e * size);
    } else {
      const raw = (hi - lo) / size / room, power = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= raw && (!axis.whole || s >= 1)) || 1;
      for (let i = Math.ceil(lo / size / step - 1e-9); i * step <= hi / size + step * 1e-9; ++i) found.push(i * step * size);
    }
    const near = 1e-9 * Math.max(Math.abs(lo), Math.abs(hi));
    return found.filter((v) => v >= lo - near && v <= hi + near).map((v) => v + zero);
  }
  const timeAxis = (lo, hi) => {
    const [unit, name] = unitOf(hi);
    return {lo, hi, unit, label: `time since the start (${name})`, text: (v) => short(v / unit)};
  };
  const endAxis = (lo, hi) => {
    const [unit, name] = unitOf(hi - lo);
    return {lo, hi, unit, zero: hi, label: `time before the end (${name})`, text: (v) => short((hi - v) / unit)};
  };
  const secondsAxis = (lo, hi, label) => {
    const [unit, name] = unitOf(Math.max(hi / 300, Math.min(hi, lo * 300)));
    return {lo, hi, log: true, unit, label: `${label} (${name})`, text: (v) => plain(v / unit)};
  };
  const countAxis = (largest, label) => ({lo: 0, hi: largest > 0 ? largest * 1.06 : 1, label, text: short, whole: largest > 3});

  // ---- tooltip ----
  function showTip(x, y, content) {
    tip.replaceChildren(html("b", {}, content.title),
      html("table", {}, ...content.rows.map(([name, text]) => html("tr", {}, html("th", {scope: "row"}, name), html("td", {}, text)))));
    tip.hidden = false;
    const {offsetWidth: w, offsetHeight: h} = tip;
    tip.style.left = Math.max(4, x + 14 + w > innerWidth ? x - w - 14 : x + 14) + "px";
    tip.style.top = Math.max(4, Math.min(y + 14, innerHeight - h - 4)) + "px";
  }

  // ---- a plot: axes, marks by draw(frame), hover by frame.at(x value, y value) -> {title, rows, x?} or nothing ----
  function plot(id, {height, left = 64, x, y, legend, marks, draw}) {
    const figure = document.getElementById(id);
    if (legend) figure.append(html("ul", {class: "legend"}, ...legend.map(([name, ...swatch]) =>
      html("li", {}, svg("svg", {viewBox: "0 0 22 12", "aria-hidden": "true"}, ...swatch), name))));
    const holder = figure.appendChild(html("div", {class: "plot", tabindex: "0"}));
    let width = 0, pointer = null, frame = null;

    function redraw() {
      const top = y && y.label ? 26 : marks ? 20 : 8, bottom = height - 40, right = width - 12;
      const px = (v) => left + place(x, v) * (right - left);
      const py = (v) => bottom - place(y, v) * (bottom - top);
      const root = svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": figure.querySelector("h2").textContent});
      frame = {root, px, py, top, bottom, left, right, add: (name, attributes, ...children) => root.appendChild(svg(name, attributes, ...children))};
      if (y && y.label) {
        for (const v of ticks(y, (bottom - top) / 36)) {
          frame.add("line", {class: "grid", x1: left, x2: right, y1: py(v), y2: py(v)});
          frame.add("text", {x: left - 8, y: py(v) + 4, "text-anchor": "end"}, y.text(v));
        }
        frame.add("text", {class: "label", x: 0, y: 12}, y.label);
      }
      for (const v of ticks(x, (right - left) / 70)) {
        frame.add("line", {class: "axis", x1: px(v), x2: px(v), y1: bottom, y2: bottom + 5});
        frame.add("text", {x: px(v), y: bottom + 18, "text-anchor": "middle"}, x.text(v));
      }
      frame.add("line", {class: "axis", x1: left, x2: right, y1: bottom, y2: bottom});
      frame.add("text", {class: "label", x: right, y: bottom + 35, "text-anchor": "end"}, x.label);
      draw(frame);
      let labelled = -Infinity;
      for (const [v, name] of marks || []) {
        const at = px(v);
        frame.add("line", {class: "mark", x1: at, x2: at, y1: top - 4, y2: bottom});
        if (at - labelled < 66) continue;
        frame.add("text", {x: Math.min(at, right - 60), y: top - 8}, name);
        labelled = at;
      }
      frame.cursor = frame.add("line", {class: "cursor", y1: top, y2: bottom, visibility: "hidden"});
      holder.replaceChildren(root);
    }
    function hover() {
      if (!frame) return;
      const inside = pointer && pointer.x >= frame.left && pointer.x <= frame.right && pointer.y >= frame.top && pointer.y <= frame.bottom;
      const content = inside && frame.at && frame.at(value(x, (pointer.x - frame.left) / (frame.right - frame.left)), pointer.y);
      tip.hidden = !content;
      frame.cursor.setAttribute("visibility", content && content.x !== undefined ? "visible" : "hidden");
      if (!content) return;
      if (content.x !== undefined) for (const end of ["x1", "x2"]) frame.cursor.setAttribute(end, frame.px(content.x));
      const box = holder.getBoundingClientRect();
      showTip(box.left + pointer.x, box.top + pointer.y, content);
    }
    holder.addEventListener("pointermove", (event) => {
      const box = holder.getBoundingClientRect();
      pointer = {x: event.clientX - box.left, y: event.clientY - box.top};
      hover();
    });
    const leave = () => { pointer = null; hover(); };
    holder.addEventListener("pointerleave", leave);
    holder.addEventListener("blur", leave);
    holder.addEventListener("keydown", (event) => {
      const move = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
      if (event.key === "Escape") return leave();
      if (!move) return;
      event.preventDefault();
      if (!frame) return;
      pointer = pointer || {x: frame.left, y: frame.top + 4};
      pointer.x = Math.min(frame.right, Math.max(frame.left, pointer.x + move[0] * (frame.right - frame.left) / 80));
      pointer.y = Math.min(frame.bottom, Math.max(frame.top, pointer.y + move[1] * (frame.step || 16)));
      hover();
    });
    new ResizeObserver((entries) => {
      const wanted = Math.floor(entries[0].contentRect.width);
      if (wanted === width || wanted < 100) return;
      width = wanted;
      requestAnimationFrame(redraw);
    }).observe(holder);
  }
  function nothing(id, why) {
    document.getElementById(id).append(html("p", {class: "none"}, why));
  }

  // ---- lines over slices of time; -1: a gap ----
  const line = (classes) => svg("line", {class: "stroke " + classes, x1: 1, x2: 21, y1: 6, y2: 6});
  const patch = (classes) => svg("rect", {class: "fill " + classes, width: 22, height: 12, rx: 2});
  function path(points) {  // [[x, y] or null]
    let pen = "M";
    return points.map((p) => {
      if (!p) { pen = "M"; return ""; }
      const step = pen + p[0].toFixed(1) + " " + p[1].toFixed(1);
      pen = "L";
      return step;
    }).join("");
  }
  function overTime(id, {begin, slice, series, label, marks, filled, height = 260, axis = timeAxis}) {
    const largest = Math.max(0, ...series.flatMap((s) => s.values));
    const n = series.length ? series[0].values.length : 0;
    if (largest === 0) return nothing(id, "No step was timed.");
    const middle = (i) => begin + (i + 0.5) * slice;
    plot(id, {
      height, x: axis(begin, begin + n * slice), y: countAxis(largest, label), marks,
      legend: series.map((s) => [s.name, line(s.classes)]),
      draw(frame) {
        for (const s of series) {
          const points = s.values.map((v, i) => v < 0 ? null : [frame.px(middle(i)), frame.py(v)]);
          if (filled) frame.add("path", {class: "band " + s.classes, d: path(points) + `L${frame.px(middle(n - 1))} ${frame.bottom}L${frame.px(middle(0))} ${frame.bottom}Z`});
          frame.add("path", {class: "stroke " + s.classes, d: path(points)});
        }
        frame.at = (time) => {
          const i = Math.min(n - 1, Math.max(0, Math.floor((time - begin) / slice)));
          return {x: middle(i), title: seconds(middle(i)), rows: series.map((s) => [s.name, s.values[i] < 0 ? "–" : plain(s.values[i])])};
        };
      }
    });
  }

  const marks = data.attempts.length > 1 ? data.attempts.map((a) => [a.begin, "attempt " + a.number]) : undefined;
  const over = data.over_time;
  overTime("throughput", {begin: 0, slice: over.slice, label: "tokens/s", marks, filled: true, series: [
    {name: "in", classes: "blue", values: over.in_tokens_per_s}, {name: "out", classes: "orange dash-1", values: over.out_tokens_per_s}]});
  overTime("pages", {height: 300, begin: 0, slice: over.slice, label: "pages", marks, series: [
    {name: "mean", classes: "blue", values: over.pages_mean}, {name: "fullest replica", classes: "orange dash-1", values: over.pages_max}]});

  // ---- GPUs, where they were measured ----
  const colours = ["blue", "orange", "green", "purple", "gold", "red", "slate", "quiet"];
  for (const [name, label] of [["power", "W"], ["sm_clock", "MHz"], ["temperature", "°C"]]) {
    const series = data.gpus.map((g, i) => ({name: "rank " + g.rank, classes: `${colours[i]} dash-${i % 4}`, values: g[name]}));
    if (!series.some((s) => s.values.some((v) => v > 0))) continue;
    document.getElementById("gpu_" + name).hidden = false;
    overTime("gpu_" + name, {begin: 0, slice: over.slice, label, marks, series});
  }

  // ---- ranks ----
  (() => {
    const ranks = data.ranks;
    if (!ranks.length) return nothing("ranks", "No rank was timed.");
    const row = Math.min(46, Math.max(4, Math.floor(600 / ranks.length))), gap = row > 12 ? 4 : row > 5 ? 1 : 0;
    const parts = [["compute", "blue"], ["communication", "orange"], ["waiting for the root", "purple"]];
    const phases = {open: "slate", load: "green", merge: "gold"};
    plot("ranks", {
      height: ranks.length * row + 62, left: 96, x: timeAxis(0, data.end), y: {lo: 0, hi: 1}, marks: marks || [],
      legend: [...Object.entries(phases).map(([name, c]) => [name, patch(c)]), ...parts.map(([name, c]) => [name, patch(c)]), ["idle", svg("rect", {class: "idle", width: 22, height: 12, rx: 2})]],
      draw(frame) {
        frame.step = row;
        const height = row - gap, slice = data.rank_slice;
        const every = Math.ceil(14 / row);
        ranks.forEach((rank, r) => {
          const top = frame.top + r * row, floor = top + height;
          if (r % every === 0) frame.add("text", {x: frame.left - 8, y: top + height / 2 + 4, "text-anchor": "end"}, "rank " + rank.rank);
          frame.add("rect", {class: "idle", x: frame.left, y: top, width: frame.right - frame.left, height});
          const lower = rank.shares[0].map(() => 0);
          rank.shares.forEach((shares, part) => {
            let there = "", back = "";
            shares.forEach((share, i) => {
              const x0 = frame.px(i * slice).toFixed(1), x1 = frame.px(Math.min(data.end, (i + 1) * slice)).toFixed(1);
              const from = lower[i], to = Math.min(100, from + share);
              there += `L${x0} ${(floor - to / 100 * height).toFixed(1)}H${x1}`;
              back = `L${x1} ${(floor - from / 100 * height).toFixed(1)}H${x0}` + back;
              lower[i] = to;
            });
            frame.add("path", {class: "fill " + parts[part][1], d: "M" + there.slice(1) + back + "Z"});
          });
          for (const [name, begin, end] of rank.phases)
            if (phases[name]) frame.add("rect", {class: "fill " + phases[name], x: frame.px(begin), y: top, width: Math.max(0, frame.px(end) - frame.px(begin)), height});
        });
        frame.at = (time, y) => {
          const rank = ranks[Math.floor((y - frame.top) / row)];
          if (!rank) return null;
          const [replica, stage, tensor] = rank.place;
          const i = Math.min(rank.shares[0].length - 1, Math.max(0, Math.floor(time / slice)));
          const phase = rank.phases.find(([, begin, end]) => time >= begin && time < end);
          const rows = [["time", seconds(time)]];
          if (replica >= 0) rows.push(["replica, stage, tensor rank", `${replica}, ${stage}, ${tensor}`]);
          if (phase) rows.push(["phase", `${phase[0]}, ${seconds(phase[2] - phase[1])}`]);
          if (!phase || !phases[phase[0]])
            parts.forEach(([name], part) => rows.push([name, `${rank.shares[part][i]} %, in all ${seconds(rank.seconds[part])}`]));
          return {title: "rank " + rank.rank, rows};
        };
      }
    });
  })();

  // ---- step time by batch size ----
  (() => {
    const kinds = [["prefill", "blue", "dash-1"], ["decode", "orange", ""], ["mixed", "green", "dash-2"]];
    const classes = data.step_classes.map(([kind, low, high, n, p10, p50, p90, max]) => ({kind, low, high, n, p10, p50, p90, max, size: Math.sqrt(low * high)}));
    const times = classes.flatMap((c) => [c.p10, c.p90]).filter((t) => t > 0);
    if (!times.length) return nothing("steps", "No step was timed.");
    const sizes = classes.map((c) => c.size);
    const used = kinds.map((kind, k) => [...kind, classes.filter((c) => c.kind === k)]).filter((kind) => kind[3].length);
    const floor = Math.min(...times);
    plot("steps", {
      height: 300,
      x: {lo: Math.min(...sizes) / 1.15, hi: Math.max(...sizes) * 1.15, log: true, label: "new tokens in the batch", text: short},
      y: secondsAxis(floor / 1.2, Math.max(...times) * 1.2, "step time"),
      legend: used.map(([name, colour, dash]) => [name, line(colour + " " + dash)]),
      draw(frame) {
        const at = (c, t) => [frame.px(c.size), frame.py(Math.max(t, floor / 1.2))];
        for (const [, colour, dash, of] of used) {
          frame.add("path", {class: "band " + colour, d: path([...of.map((c) => at(c, c.p90)), ...of.slice().reverse().map((c) => at(c, c.p10))]) + "Z"});
          frame.add("path", {class: `stroke ${colour} ${dash}`, d: path(of.map((c) => at(c, c.p50)))});
          for (const c of of) {
            const [cx, cy] = at(c, c.p50);
            if (of.length < 3) frame.add("line", {class: "stroke " + colour, x1: cx, x2: cx, y1: at(c, c.p10)[1], y2: at(c, c.p90)[1]});
            frame.add("circle", {class: "fill " + colour, cx, cy, r: 2.5});
          }
        }
        frame.at = (size) => {
          const near = classes.reduce((a, b) => Math.abs(Math.log(b.size / size)) < Math.abs(Math.log(a.size / size)) ? b : a);
          return {x: near.size, title: span(near.low, near.high) + " tokens", rows: classes.filter((c) => c.low === near.low).map((c) =>
            [kinds[c.kind][0], `${seconds(c.p50)} (${seconds(c.p10)} to ${seconds(c.p90)}, at most ${seconds(c.max)}; ${plain(c.n)} steps)`])};
        };
      }
    });
  })();

  // ---- latency by prompt length ----
  function density(id, d) {
    if (!d.counts.length) return nothing(id, "No request took this way.");
    const columns = d.lengths.length - 1, most = Math.max(...d.counts), ratio = (d.high / d.low) ** (1 / d.rows);
    const shade = (n) => 0.12 + 0.88 * Math.sqrt(n / most);
    const centre = (i) => Math.sqrt(d.lengths[i] * d.lengths[i + 1]);
    plot(id, {
      height: 300,
      x: {lo: d.lengths[0], hi: d.lengths[columns], log: true, label: "prompt (tokens)", text: short},
      y: secondsAxis(d.low, d.high, "time"),
      legend: [["median", line("orange")], ["90th percentile", line("orange dash-1")],
        ["1 request", svg("rect", {class: "cell", width: 22, height: 12, "fill-opacity": shade(1)})],
        [plain(most) + (most === 1 ? " request" : " requests"), svg("rect", {class: "cell", width: 22, height: 12})]].slice(0, most === 1 ? 3 : 4),
      draw(frame) {
        for (const i of range(columns)) for (const j of range(d.rows)) {
          const n = d.counts[i * d.rows + j];
          if (!n) continue;
          const x0 = frame.px(d.lengths[i]), y1 = frame.py(d.low * ratio ** (j + 1));
          frame.add("rect", {class: "cell", x: x0, y: y1, width: frame.px(d.lengths[i + 1]) - x0, height: frame.py(d.low * ratio ** j) - y1, "fill-opacity": shade(n)});
        }
        for (const [values, dash] of [[d.median, ""], [d.p90, "dash-1"]]) {
          const way = path(range(columns).filter((i) => values[i] >= 0).map((i) => [frame.px(centre(i)), frame.py(values[i])]));
          frame.add("path", {class: "halo", d: way});
          frame.add("path", {class: "stroke orange " + dash, d: way});
        }
        frame.at = (length, y) => {
          const i = d.lengths.findLastIndex((edge) => edge <= length);
          if (i < 0 || i >= columns) return null;
          const j = Math.min(d.rows - 1, Math.max(0, Math.floor((frame.bottom - y) / (frame.bottom - frame.top) * d.rows)));
          const rows = [[`${seconds(d.low * ratio ** j)} to ${seconds(d.low * ratio ** (j + 1))}`, plain(d.counts[i * d.rows + j]) + " requests"]];
          if (d.median[i] >= 0) rows.push(["median", seconds(d.median[i])], ["90th percentile", seconds(d.p90[i])]);
          return {title: `prompts of ${span(d.lengths[i], d.lengths[i + 1] - 1)} tokens`, rows};
        };
      }
    });
  }
  density("first_token", data.first_token);
  density("whole", data.whole);

  // ---- tail of the run ----
  const tail = data.tail;
  const slices = tail.active.length ? tail.active[0].sequences.length : 0;
  overTime("active", {begin: tail.begin, slice: (tail.end - tail.begin) / Math.max(1, slices), label: "sequences", axis: endAxis, height: Math.max(260, tail.last.length * 19 + 50), series: tail.active.map((a, i) =>
    ({name: a.replica < 0 ? "all" : "replica " + a.replica, classes: `${colours[i]} dash-${i % 4}`, values: a.sequences}))});
  (() => {
    const last = tail.last;
    if (!last.length) return nothing("last", "No request was finished.");
    const row = 19, begin = Math.min(...last.map((r) => r.times[0])), end = Math.max(...last.map((r) => r.times[2]));
    plot("last", {
      height: last.length * row + 50, left: 150, x: endAxis(end > begin ? begin : end - 1e-3, end), y: {lo: 0, hi: 1},
      legend: [["until the first token", patch("slate")], ["until the last token", patch("blue")]],
      draw(frame) {
        frame.step = row;
        const clip = (text) => { const letters = Array.from(text); return letters.length > 20 ? letters.slice(0, 19).join("") + "…" : text; };
        last.forEach((r, i) => {
          const [admitted, first, done] = r.times, y = frame.top + i * row, middle = first < 0 ? done : first;
          frame.add("text", {x: frame.left - 8, y: y + 13, "text-anchor": "end"}, clip(r.id));
          frame.add("rect", {class: "fill slate", x: frame.px(admitted), y: y + 3, width: Math.max(1, frame.px(middle) - frame.px(admitted)), height: row - 6, "fill-opacity": 0.6});
          frame.add("rect", {class: "fill blue", x: frame.px(middle), y: y + 3, width: Math.max(0, frame.px(done) - frame.px(middle)), height: row - 6});
        });
        frame.at = (time, y) => {
          const r = last[Math.floor((y - frame.top) / row)];
          if (!r) return null;
          const [admitted, first, done] = r.times;
          const rows = [["line", plain(r.line)], ["replica", String(r.replica)], ["tokens", `${plain(r.prompt)} in, ${plain(r.generated)} out`], ["admitted", seconds(admitted)]];
          if (first >= 0) rows.push(["to the first token", seconds(first - admitted)]);
          rows.push(["in all", seconds(done - admitted)], ["ended by", r.reason]);
          return {title: r.id, rows};
        };
      }
    });
  })();
})();
