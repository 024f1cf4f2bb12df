// The live part of the page. Everything from the daemon is put in as text, never as markup.
"use strict";
(() => {
  const KEPT_S = 300;
  const LEAST_S = 30;
  const STATES = ["executing", "queued", "launching", "starved"];
  const CHARTS = [
    { field: "busy_ratio", title: "Busy", factor: 100, unit: " %", top: () => 100 },
    { field: "power_watts", title: "Power", factor: 1, unit: " W", top: (g) => g.power_limit_watts },
    { field: "temperature_celsius", title: "Temperature", factor: 1, unit: " °C", top: () => 110 },
    { field: "memory_used_bytes", title: "VRAM used", factor: 2 ** -30, unit: " GiB", digits: 1,
      top: (g) => g.memory_size_bytes && g.memory_size_bytes / 2 ** 30 },
  ];
  const $ = (id) => document.getElementById(id);
  const cards = new Map();
  let period = 2000;
  let generation = null;

  const make = (tag, cls, text) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  // Text is only touched where it changed, so that a reader's place and selection stay.
  const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const words = (name) => name.replaceAll("_", " ");
  const percent = (ratio) => (ratio === null ? "—" : `${(100 * ratio).toFixed(ratio > 0 && ratio < 0.01 ? 2 : 0)} %`);
  const label = (g) => (g.partition === null ? `${g.gpu}` : `${g.gpu}/${g.partition}`);
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const span = (seconds) => {
    if (seconds === null) return "—";
    for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]])
      if (seconds >= size) return `${(seconds / size).toPrecision(3)} ${unit}`;
    return `${(seconds * 1e9).toFixed(0)} ns`;
  };

  // A cell is a text, or { text, title, cls, row } where more is to be said.
  const fill = (table, columns, rows) => {
    const header = table.tHead.rows[0];
    if (columns && header.cells.length !== columns.length) {
      header.replaceChildren(...columns.map((c) => {
        const th = make("th", c.cls, c.text ?? c);
        th.scope = "col";
        return th;
      }));
    }
    const body = table.tBodies[0];
    while (body.rows.length > rows.length) body.deleteRow(-1);
    rows.forEach((cells, r) => {
      const row = body.rows[r] ?? body.insertRow();
      cells.forEach((cell, c) => {
        const spec = typeof cell === "object" ? cell : { text: cell };
        let node = row.cells[c];
        if (!node) {
          node = row.appendChild(make(spec.row ? "th" : "td"));
          if (spec.row) node.scope = "row";
        }
        node.className = spec.cls ?? "";
        say(node, spec.text);
        node.title = spec.title ?? "";
      });
    });
  };

  const number = (g, field, factor, unit, digits = 0) => {
    const value = g[field];
    return value === null
      ? { text: "—", cls: "n", title: g.missing[field] ?? "" }
      : { text: `${(value * factor).toFixed(digits)}${unit}`, cls: "n" };
  };

  const gpuRow = (g) => [
    { text: label(g), row: true }, g.pci, g.model ?? "unknown",
    ...CHARTS.map((c) => number(g, c.field, c.factor, c.unit, c.digits)),
    number(g, "l2_hit_ratio", 100, " %"),
    { text: percent(g.timeline_ratio ? g.timeline_ratio.executing : null), cls: "n",
      title: g.missing.timeline_ratio ?? "" },
    g.bottleneck ? words(g.bottleneck.name) : { text: "—", title: g.missing.bottleneck ?? "" },
  ];

  class Chart {
    constructor(spec, parent) {
      this.spec = spec;
      this.times = [];
      this.values = [];
      this.top = null;
      const figure = parent.appendChild(make("figure"));
      const caption = figure.appendChild(make("figcaption"));
      caption.append(`${spec.title} `);
      this.value = caption.appendChild(make("b"));
      this.range = caption.appendChild(make("small"));
      this.box = figure.appendChild(make("div", "plot"));
      this.box.setAttribute("aria-hidden", "true");
    }

    add(at, g) {
      const { field, factor, unit, digits = 0 } = this.spec;
      const value = g ? g[field] : null;
      if (at > (this.times.at(-1) ?? 0)) {
        this.times.push(at);
        this.values.push(value === null ? null : value * factor);
        while (this.times[0] < at - KEPT_S) { this.times.shift(); this.values.shift(); }
      }
      if (g) this.top = this.spec.top(g) || null;
      const where = field === "temperature_celsius" && g ? `, ${g.temperature_sensor}` : "";
      const seen = this.values.filter((v) => v !== null);
      say(this.value, value === null ? "—" : `${(value * factor).toFixed(digits)}${unit}`);
      say(this.range, value === null ? (g ? g.missing[field] : "no answer")
        : `${Math.min(...seen).toFixed(digits)} to ${Math.max(...seen).toFixed(digits)}${unit}${where}`);
      this.draw();
    }

    draw() {
      const width = this.box.clientWidth;
      if (!width || typeof uPlot === "undefined") return;
      const data = [this.times, this.values];
      if (!this.plot) {
        this.plot = new uPlot({
          width, height: 64, pxAlign: false, legend: { show: false }, cursor: { show: false },
          padding: [2, 2, 2, 2],
          axes: [{ show: false }, { show: false }],
          scales: {
            x: { time: true, range: () => [Math.min(this.times[0], this.times.at(-1) - LEAST_S), this.times.at(-1)] },
            y: { range: (_, low, high) => [0, Math.max(this.top ?? 0, high ?? 0, 1)] },
          },
          series: [{}, { stroke: () => colour("--chart"), width: 1.5, spanGaps: false,
            fill: () => `${colour("--chart")}30`, points: { show: false } }],
        }, data, this.box);
      } else {
        if (this.plot.width !== width) this.plot.setSize({ width, height: 64 });
        this.plot.setData(data);
      }
    }
  }

  class Card {
    constructor(g, key) {
      this.node = make("article");
      const title = this.node.appendChild(make("h3", "", `GPU ${label(g)} · ${g.pci}`));
      title.id = `card-${key}`;
      this.node.setAttribute("aria-labelledby", title.id);
      const charts = this.node.appendChild(make("div", "charts"));
      this.charts = CHARTS.map((spec) => new Chart(spec, charts));
      this.node.appendChild(make("h4", "hint", "Launch timeline of the last window"));
      this.bar = this.node.appendChild(make("div", "bar"));
      this.bar.setAttribute("aria-hidden", "true");
      this.parts = STATES.map((s) => this.bar.appendChild(make("span", s)));
      this.shares = this.node.appendChild(make("ul", "shares"));
      this.items = STATES.map((s) => {
        const item = this.shares.appendChild(make("li"));
        item.appendChild(make("i", s)).setAttribute("aria-hidden", "true");
        return item.appendChild(make("span"));
      });
      this.why = this.node.appendChild(make("p", "hint"));
      this.verdict = this.node.appendChild(make("p", "verdict"));
      this.advice = this.node.appendChild(make("p"));
    }

    show(at, g) {
      this.charts.forEach((c) => c.add(at, g));
      if (!g) return;
      const shares = g.timeline_ratio;
      this.bar.hidden = this.shares.hidden = !shares;
      if (shares) {
        STATES.forEach((s, i) => {
          this.parts[i].style.width = `${100 * (shares[s] ?? 0)}%`;
          say(this.items[i], `${s} ${shares[s] === null ? "unknown" : percent(shares[s])}`);
        });
      }
      const absent = g.missing.timeline_ratio;
      say(this.why, absent ? `${shares ? "In part unknown" : "Not known"}: ${absent}.` : "");
      const found = g.bottleneck;
      say(this.verdict, found ? `Bottleneck: ${words(found.name)}` : "Bottleneck: not known");
      say(this.advice, found
        ? `${found.meaning}${found.evidence ? ` Because ${found.evidence}.` : ""} Try: ${found.try}` +
          found.more.map((one) => ` Also: ${one.text} (${one.evidence})`).join("") +
          (found.runbook ? ` Runbook: /runbooks/${found.runbook}` : "")
        : absent === g.missing.bottleneck ? "" : g.missing.bottleneck ?? "");
    }
  }

  const showGpus = (view) => {
    const table = $("gpus");
    if (!table !== !view.gpus.length) { location.reload(); return; }
    if (!table) return;
    fill(table, null, view.gpus.map(gpuRow));
    const here = new Set();
    for (const g of view.gpus) {
      const key = `${g.pci}/${g.partition ?? ""}`;
      here.add(key);
      if (!cards.has(key)) {
        const card = new Card(g, key.replace(/[^0-9a-z]/g, "-"));
        cards.set(key, card);
        $("cards").appendChild(card.node);
      }
      cards.get(key).show(view.at, g);
    }
    for (const [key, card] of cards) if (!here.has(key)) { card.node.remove(); cards.delete(key); }
  };

  const state = (s) => (s.up ? "up" : s.reason ? `down: ${s.detail}` : "pending");
  const missing = (m) => Object.keys(m).sort().map((k) => `${m[k]} ${k}`).join(", ") || "none";
  const showSources = (view) => fill($("sources"), null, view.sources.map((s) =>
    [s.source, s.backend, s.root, { text: state(s), cls: "long" }, missing(s.missing)]));

  const showNotes = (view) => {
    const box = $("notes");
    const now = [...box.children].map((p) => p.textContent);
    if (JSON.stringify(now) !== JSON.stringify(view.notes))
      box.replaceChildren(...view.notes.map((text) => make("p", "note", text)));
  };

  const showStatus = (view) => {
    const counts = new Map();
    for (const g of view.gpus)
      if (g.bottleneck) counts.set(g.bottleneck.name, (counts.get(g.bottleneck.name) ?? 0) + 1);
    const found = [...counts].sort().map(([name, n]) => `${n} × ${words(name)}`).join(", ");
    const none = view.gpus.length ? view.gpus[0].missing.bottleneck ?? "not known" : "no GPU";
    $("status").className = "";
    say($("status"), `Bottlenecks: ${found || none}.`);
  };

  const showKernels = (rows, none) => {
    say($("kernels-none"), rows.length ? "" : `No kernels: ${none ?? "no traced window named any"}.`);
    $("kernels-table").parentElement.hidden = !rows.length;
    const columns = [{ text: "GPU" }, { text: "Kernel" }, { text: "Time", cls: "n" }, { text: "Share", cls: "n" },
      { text: "Dispatches", cls: "n" }, { text: "Median, last window", cls: "n" }];
    fill($("kernels-table"), columns, rows.map((k) => [
      { text: label(k), row: true },
      { text: k.kernel, cls: "long", title: k.full_name ?? "" },
      { text: span(k.seconds), cls: "n" }, { text: percent(k.share_ratio), cls: "n" },
      { text: k.dispatches === null ? "—" : `${k.dispatches}`, cls: "n" },
      { text: span(k.median_seconds), cls: "n" },
    ]));
  };

  const gpuFindings = (w) => w.gpus.map((f) => {
    const name = f.gpu === null ? f.name : `GPU ${label(f)}`;
    return w.mode === "counters" ? name : `${name}: ${words(f.bottleneck)}`;
  }).join("; ") || "none";
  const reasons = (w) => [w.reason, ...new Set(w.gpus.map((f) => f.reason))].filter(Boolean).join("; ") || "—";

  const showWindows = (view) => {
    say($("windows-none"), view.why_none ? `No windows: ${view.why_none}.` : "");
    $("windows-table").parentElement.hidden = !view.recent.length;
    const columns = ["Taken in", "Window", "Tool", "Mode", "Result", "GPUs", "Reason"].map((text) => ({ text }));
    fill($("windows-table"), columns, view.recent.map((w) => [
      clock(w.at), { text: w.id, row: true }, w.tool, w.mode, words(w.result),
      { text: gpuFindings(w), cls: "long" }, { text: reasons(w), cls: "long" },
    ]));
  };

  const ask = async (path) => {
    const answer = await fetch(path, { signal: AbortSignal.timeout(10000), cache: "no-store" });
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer.json();
  };

  const look = async () => {
    try {
      const view = await ask("/api/v1/live");
      period = Math.min(10, Math.max(1, view.interval_seconds)) * 1000;
      if (view.generation !== generation) {
        const [kernels, windows] = await Promise.all([ask("/api/v1/kernels"), ask("/api/v1/windows")]);
        generation = view.generation;
        for (const id of ["live", "kernels", "windows"]) $(id).hidden = id === "live" && !view.gpus.length;
        showNotes(view);
        showGpus(view);
        showSources(view);
        showWindows(windows);
        showKernels(kernels, windows.why_none);
      }
      showStatus(view);
    } catch {
      generation = null;
      $("status").className = "lost";
      say($("status"), "The daemon does not answer; what is shown is old. Trying again.");
      for (const card of cards.values()) card.show(Date.now() / 1000, null);
    }
    setTimeout(look, period);
  };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const card of cards.values()) for (const chart of card.charts) chart.plot?.redraw();
  });
  addEventListener("resize", () => {
    for (const card of cards.values()) for (const chart of card.charts) chart.draw();
  });
  look();
})();
