// The compare form. Everything from the daemon is put in as text, never as markup.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const form = $("compare-form");
  if (!form) return;

  const share = (ratio) => (ratio === null ? "—" : `${ratio > 0 ? "+" : ""}${(100 * ratio).toFixed(1)} %`);
  const amount = (value) => (value === null || value === undefined ? "—" : value.toPrecision(4));
  const row = (body, texts) => {
    const line = body.insertRow();
    texts.forEach((text, i) => {
      const cell = document.createElement(i ? "td" : "th");
      if (!i) cell.scope = "row";
      if (i > 2 && i < 7) cell.className = "n";
      if (i === 0 || i === 7) cell.className = "long";
      cell.textContent = text;
      line.appendChild(cell);
    });
  };

  const phases = async () => {
    const answer = await fetch("/api/v1/marks", { signal: AbortSignal.timeout(10000), cache: "no-store" });
    if (!answer.ok) return;
    const names = new Set((await answer.json()).map((mark) => mark.phase));
    $("phases").replaceChildren(...[...names].map((name) => {
      const option = document.createElement("option");
      option.value = name;
      return option;
    }));
    form.parentElement.hidden = false;
  };

  const HEADS = ["Kernel, or the whole GPU", "GPU", "Value", "Before", "After", "Change", "Interval", "Verdict"];
  const show = (report) => {
    const reasons = new Set(report.groups.flatMap((group) => group.reasons));
    $("compare-verdict").textContent = `Verdict: ${report.verdict}.`;
    $("compare-why").replaceChildren(...[...reasons, ...report.notes, ...report.advice.map((a) =>
      (typeof a === "string" ? a : a.text ?? a.advice ?? JSON.stringify(a)))].map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
    const table = $("compare-table");
    table.tHead.rows[0].replaceChildren(...HEADS.map((text, i) => {
      const th = document.createElement("th");
      th.scope = "col";
      if (i > 2 && i < 7) th.className = "n";
      th.textContent = text;
      return th;
    }));
    const body = table.tBodies[0];
    body.replaceChildren();
    for (const f of report.findings)
      row(body, [f.kernel ?? "the whole GPU", f.gpu, (f.metric ?? "—").replaceAll("_", " "), amount(f.a), amount(f.b),
        share(f.change_ratio), f.low_ratio === null ? "—" : `${share(f.low_ratio)} to ${share(f.high_ratio)}`,
        f.within_run ? `${f.verdict}, within this run` : f.verdict]);
    table.parentElement.hidden = !report.findings.length;
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const say = (text) => { $("compare-verdict").textContent = text; };
    $("compare-why").replaceChildren();
    $("compare-table").parentElement.hidden = true;
    say("Comparing…");
    const sides = new URLSearchParams({ a: $("compare-a").value.trim(), b: $("compare-b").value.trim() });
    let answer, said;
    try {
      answer = await fetch(`/api/v1/compare?${sides}`, { signal: AbortSignal.timeout(70000), cache: "no-store" });
      said = await answer.json();
    } catch {
      say("The daemon does not answer.");
      return;
    }
    if (answer.ok) show(said);
    else say(typeof said.detail === "string" ? said.detail : "Each side is a phase that was marked, or SINCE..UNTIL.");
  });
  phases().catch(() => {});
})();
