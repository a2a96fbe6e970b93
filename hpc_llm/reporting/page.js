"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  /* ---- Sorting: a button in each header; rows without a value stay last either way. ---- */

  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  function sortBy(button) {
    const header = button.closest("th");
    const body = header.closest("table").tBodies[0];
    const column = header.cellIndex;
    const first = button.dataset.sort === "high" ? "descending" : "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const order = header.getAttribute("aria-sort") === first ? second : first;
    const sign = order === "ascending" ? 1 : -1;
    const isText = button.dataset.sort === "text";
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * (isText ? collator.compare(x, y) : Number(x) - Number(y));
    };
    body.append(...[...body.rows].sort(compare));
    for (const other of header.parentElement.cells) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", order);
    byId("announce").textContent = `Sorted by ${button.textContent.trim()}, ${order}.`;
  }

  for (const button of all("thead button[data-sort]")) button.addEventListener("click", () => sortBy(button));

  /* ---- The header of a table that needs no scrolling sideways stays in view, below the filters. ---- */

  function keepHeaders() {
    const filters = document.querySelector(".filters");
    const height = getComputedStyle(filters).position === "sticky" ? filters.offsetHeight : 0;
    document.documentElement.style.setProperty("--filters", `${height}px`);
    const places = all(".scroll");
    for (const place of places) place.classList.remove("whole");
    const fitting = places.filter((place) => place.clientWidth && place.scrollWidth <= place.clientWidth);
    for (const place of fitting) place.classList.add("whole");
  }

  /* ---- Filtering: tables and plots show the same rows. ---- */

  const form = document.querySelector(".filters");
  const rows = all(".runs tbody tr");
  const words = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

  function matches(row) {
    const wanted = byId("filter-text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = all("select[data-filter]", form).every((s) => s.selectedIndex === 0 || row.dataset[s.dataset.filter] === s.value);
    return chosen && wanted.every((word) => words.get(row).includes(word));
  }

  const hiddenRows = () => new Set(rows.filter((row) => row.hidden).map((row) => Number(row.dataset.row)));

  function applyFilter() {
    for (const row of rows) row.hidden = !matches(row);
    const hidden = hiddenRows();
    for (const item of all("[data-of]")) item.hidden = hidden.has(Number(item.dataset.of));
    if (byId("ended")) byId("ended").hidden = !document.querySelector("[data-of]:not([hidden])");
    for (const section of all("section.compared")) section.hidden = !section.querySelector(".runs tbody tr:not([hidden])");
    const shown = rows.filter((row) => !row.hidden).length;
    byId("count").textContent = `${shown} of ${rows.length} row${rows.length === 1 ? "" : "s"}`;
    byId("nothing").hidden = shown > 0;
    drawAll();
  }

  let waiting = 0;
  const soon = (action, ms) => { clearTimeout(waiting); waiting = setTimeout(action, ms); };
  form.addEventListener("input", () => soon(applyFilter, 120));
  form.addEventListener("reset", () => setTimeout(applyFilter));
  form.addEventListener("submit", (event) => event.preventDefault());

  /* ---- What stands behind a number: filled from the records in this page, as text only. ---- */

  const dialog = byId("behind");

  function element(name, content, children = []) {
    const made = document.createElement(name);
    if (content !== undefined && content !== null) made.textContent = content;
    made.append(...children);
    return made;
  }

  const list = (pairs) => element("dl", null, pairs.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));

  function scoped(scope, name) {
    const made = element("th", name);
    made.scope = scope;
    return made;
  }

  function folded(title, children, open = false) {
    const made = element("details", null, [element("summary", title), ...children]);
    made.open = open;
    return made;
  }

  /* Folded, and made when it is opened: a row may stand for many runs. */
  function foldedLater(title, children, open) {
    const made = folded(title, open ? children() : [], open);
    if (!open) made.addEventListener("toggle", () => made.append(...children()), { once: true });
    return made;
  }

  function planTable(plan) {
    const head = element("thead", null, [element("tr", null, ["Field", "Value", "From"].map((name) => scoped("col", name)))]);
    const body = element("tbody", null, plan.map(([name, value, origin]) =>
      element("tr", null, [scoped("row", name), element("td", null, [element("pre", value)]), element("td", origin)])));
    return element("table", null, [head, body]);
  }

  /* A list of the records: places in the common list of items, as pairs of start and count. */
  function items(ranges = []) {
    const found = [];
    for (let i = 0; i < ranges.length; i += 2) found.push(...data.items.slice(ranges[i], ranges[i] + ranges[i + 1]));
    return found;
  }

  /* Text that may scroll sideways, and so can be reached with the keys. */
  function pre(ranges, name) {
    const made = element("pre", items(ranges).join("\n"));
    made.tabIndex = 0;
    made.setAttribute("role", "region");
    made.setAttribute("aria-label", name);
    return made;
  }

  const evidenceLine = ([where, text]) => element("li", null, [element("code", where), element("br"), text]);

  function causeOf(run) {
    const parts = [element("p", items(run.meaning)[0] ?? "")];
    if (run.remedy.length) parts.push(element("h3", "What to do"), element("ul", null, items(run.remedy).map((line) => element("li", line))));
    if (run.evidence.length) parts.push(element("h3", "Evidence"), element("ul", null, items(run.evidence).map(evidenceLine)));
    const made = folded(`Cause: ${run.cause}`, parts, true);
    made.className = "cause";
    return made;
  }

  function behindRun(run) {
    const parts = [list([...items(run.facts), ...items(run.figures)])];
    if (run.cause) parts.push(causeOf(run));
    if (run.notices) parts.push(element("h3", "Notices"), element("ul", null, items(run.notices).map((n) => element("li", n))));
    if (run.error) parts.push(folded("Error", [pre(run.error, "Error")], true));
    if (run.versions) parts.push(folded("Versions", [list(items(run.versions))], true));
    if (run.script) parts.push(folded("Script as submitted", [pre(run.script, "Script as submitted")], true));
    if (run.plan) parts.push(folded("Plan", [planTable(items(run.plan))], true));
    if (run.result) parts.push(folded("Result as recorded", [pre(run.result, "Result as recorded")]));
    if (!run.plan) parts.push(element("p", "A log of another program: it holds no plan, versions or script."));
    return parts;
  }

  function show(title, runs) {
    byId("behind-title").textContent = title;
    const single = runs.length === 1;
    byId("behind-body").replaceChildren(...runs.flatMap((index, i) => {
      const run = data.runs[index];
      return single ? [element("h3", run.id), ...behindRun(run)] : [foldedLater(run.id, () => behindRun(run), i === 0)];
    }));
    dialog.showModal();
    byId("behind-title").focus();
    dialog.scrollTop = 0;
  }

  function showRow(index) {
    const row = data.rows[index];
    show(row.runs.length > 1 ? `${row.title}: ${row.runs.length} runs` : row.title, row.runs);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-row], button[data-run]");
    const figure = event.target.closest(".runs td.number");
    if (!button && figure && getSelection().isCollapsed) showRow(figure.parentElement.dataset.row);
    if (!button) return;
    if (button.dataset.run !== undefined) show("One run", [Number(button.dataset.run)]);
    else showRow(button.dataset.row);
  });
  byId("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  /* ---- Plots: a panel for each cluster, a colour and a shape or dash for each method, the same everywhere. ---- */

  const COLOURS = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => `var(--c${n})`);
  const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"];
  const DASHES = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [10, 4], [4, 4, 1, 4]];
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif';
  const AXIS = {
    labelColor: "var(--muted)", titleColor: "var(--text)", gridColor: "var(--line)", domainColor: "var(--muted)",
    tickColor: "var(--muted)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", gridOpacity: 0.7,
  };
  const CONFIG = {
    font: FONT, background: null, view: { stroke: "var(--line)" }, axis: AXIS,
    legend: { labelColor: "var(--text)", titleColor: "var(--muted)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 330, symbolSize: 80 },
    rule: { color: "var(--text)" },
  };
  const MOST_NAMED = 16; // of more, nobody could tell lines or points apart by a legend
  const PANEL = { rates: 400, memory: 330, scaling: 330, loss: 330, utilization: 330, profile: 400, tries: 330, bars: 400 };
  const BARS = new Set(["rates", "profile", "bars"]); // a line of text each, which no two panels have in common

  const cycle = (values, methods) => methods.map((name) => values[data.methods.indexOf(name) % values.length]);

  function methodChannels(methods, columns, { shape = false, dash = false, legend = true, title = "Method" } = {}) {
    const base = {
      field: "method", type: "nominal", title,
      legend: legend && methods.length <= MOST_NAMED ? { orient: "top", columns, symbolType: dash ? "stroke" : undefined, symbolFillColor: dash ? "transparent" : undefined, symbolSize: dash ? 500 : 80 } : null,
    };
    const made = { color: { ...base, scale: { domain: methods, range: cycle(COLOURS, methods) } } };
    if (shape) made.shape = { ...base, scale: { domain: methods, range: cycle(SHAPES, methods) } };
    if (dash) made.strokeDash = { ...base, scale: { domain: methods, range: cycle(DASHES, methods) } };
    return made;
  }

  /* The scale and axis of the rates: from zero, or logarithmic with 1-2-5 ticks where they span decades. */
  function rateScale(figure, field) {
    if (!figure.log) return { scale: { zero: true, nice: true } };
    const low = Math.min(...figure.records.map((r) => r[field])) / 1.5;
    const high = Math.max(...figure.records.map((r) => Math.max(r[field], r.high ?? 0))) * 1.5;
    const steps = high / low > 2000 ? [1] : [1, 2, 5];
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      ticks.push(...steps.map((s) => s * 10 ** power).filter((v) => v >= low && v <= high));
    }
    return { scale: { type: "log", domain: [low, high], nice: false }, axis: { values: ticks, format: "~s", labelOverlap: true } };
  }

  const LAYERS = {
    rates(figure, methods, columns, records) {
      const x = { field: "x", type: "quantitative", title: figure.x, ...rateScale(figure, "x") };
      const y = { field: "name", type: "nominal", title: null, sort: { field: "x", op: "max", order: "descending" }, axis: { grid: true, labelLimit: 330 } };
      const intervals = { mark: { type: "rule", strokeWidth: 2, clip: true }, transform: [{ filter: "isValid(datum.low)" }], encoding: { y, x: { ...x, field: "low" }, x2: { field: "high" } } };
      return [
        ...(records.some((r) => r.low !== null) ? [intervals] : []),
        { mark: { type: "point", filled: true, size: 90, opacity: 1 }, encoding: { y, x, ...methodChannels(methods, columns, { shape: true, legend: false }), tooltip: tips("name:Method", "x:Tokens/s/GPU", "runs:Runs") } },
      ];
    },
    memory(figure, methods, columns) {
      return [{
        mark: { type: "point", filled: true, size: 110, opacity: 0.95 },
        encoding: {
          x: { field: "x", type: "quantitative", title: figure.x, scale: { domain: [0, 1.08 * Math.max(...figure.records.map((r) => r.x))], nice: false } },
          y: { field: "y", type: "quantitative", title: figure.y, ...rateScale(figure, "y") },
          ...methodChannels(methods, columns, { shape: true }),
          tooltip: tips("method:Method", "gpus:GPUs", "x:GiB", "y:Tokens/s/GPU"),
        },
      }];
    },
    scaling(figure, methods, columns) {
      const x = { field: "x", type: "quantitative", title: figure.x, scale: { type: "log", base: 2, nice: false, padding: 12 }, axis: { values: [...new Set(figure.records.map((r) => r.x))], format: "d" } };
      const y = { field: "y", type: "quantitative", title: figure.y, scale: { type: "log", base: 2, nice: true }, axis: { format: "~g", tickCount: 4 } };
      return [
        { mark: { type: "line", strokeDash: [4, 4], strokeWidth: 1.2, color: "var(--muted)" }, encoding: { x, y: { ...y, field: "ideal" } } },
        { mark: { type: "line", strokeWidth: 2 }, encoding: { x, y, ...methodChannels(methods, columns) } },
        { mark: { type: "point", filled: true, size: 90, opacity: 1 }, encoding: { x, y, ...methodChannels(methods, columns, { shape: true }), tooltip: tips("method:Method", "x:GPUs", "y:Speed-up", "efficiency:Efficiency") } },
      ];
    },
    loss: (figure, methods, columns) => curves(figure, methods, columns, { zero: false }),
    profile(figure, methods, columns, records) {
      const kinds = [...new Set(records.map((r) => r.kind))];
      const range = kinds.map((kind, i) => kind === "idle" ? "var(--line)" : COLOURS[i]);
      return [{
        mark: { type: "bar", stroke: "var(--line)", strokeWidth: 0.5 },
        encoding: {
          y: { field: "name", type: "nominal", title: null, sort: null, axis: { labelLimit: 330 } },
          x: { field: "x", type: "quantitative", title: figure.x, scale: { domain: [0, 100] } }, order: { field: "order" },
          color: { field: "kind", type: "nominal", title: "Part of the step", sort: null, scale: { domain: kinds, range }, legend: { orient: "top" } },
          tooltip: tips("name:Run", "method:Method", "kind:Part", "x:%"),
        },
      }];
    },
    bars(figure, methods, columns) {
      return [{
        mark: { type: "bar" },
        encoding: {
          y: { field: "name", type: "nominal", title: null, sort: null, axis: { labelLimit: 330 } },
          x: { field: "x", type: "quantitative", title: figure.x, stack: null, scale: { zero: true } },
          ...methodChannels(methods, columns, { legend: false }), tooltip: tips("name:Run", "method:Method", "x:Value"),
        },
      }];
    },
    utilization: (figure, methods, columns) => curves(figure, methods, columns, { domain: [0, 100] }),
    tries(figure, methods, columns) {
      const x = { field: "x", type: "quantitative", title: figure.x, ...(figure.log ? { scale: { type: "log", base: 2 }, axis: { format: "~g" } } : { axis: { tickMinStep: 1 } }) };
      const y = { field: "y", type: "quantitative", title: figure.y, scale: { zero: true } };
      const fits = { transform: [{ filter: "datum.fits" }] }, not = { transform: [{ filter: "!datum.fits" }] };
      const tooltip = tips("method:Method", "run:Run", "x:x", "y:y", "outcome:Outcome");
      return [
        { ...fits, mark: { type: "line", strokeWidth: 1.2 }, encoding: { x, y, ...methodChannels(methods, columns) } },
        { ...fits, mark: { type: "point", filled: true, size: 90, opacity: 1 }, encoding: { x, y, ...methodChannels(methods, columns, { shape: true }), tooltip } },
        { ...not, mark: { type: "text", text: "✕", fontSize: 14, fontWeight: "bold" }, encoding: { x, y, ...methodChannels(methods, columns), tooltip } },
      ];
    },
  };

  function curves(figure, methods, columns, scale) {
    const isByRun = figure.records.every((r) => r.method === r.run);
    return [{
      mark: { type: "line", strokeWidth: 1.6, opacity: 0.9 },
      encoding: {
        x: { field: "x", type: "quantitative", title: figure.x, ...(figure.log ? { scale: { type: "log" }, axis: { format: "~s", tickCount: 5 } } : { axis: { tickMinStep: 1 } }) },
        y: { field: "y", type: "quantitative", title: figure.y, scale },
        detail: { field: "run" }, ...methodChannels(methods, columns, { dash: true, title: isByRun ? "Run" : "Method" }),
        tooltip: isByRun ? tips("run:Run") : tips("method:Method", "run:Run"),
      },
    }];
  }

  function tips(...entries) {
    const format = { "Efficiency": ".1%", "Speed-up": ".3~g", "GiB": ".4~g", "Tokens/s/GPU": ",.4~g", "%": ".3~g" };
    return entries.map((entry) => {
      const [field, title] = entry.split(":");
      return { field, title, ...(format[title] ? { type: "quantitative", format: format[title] } : { type: "nominal" }) };
    });
  }

  function specification(figure, records, width) {
    const panels = figure.panels.filter((panel) => records.some((r) => r.panel === panel));
    const methods = data.methods.filter((name) => records.some((r) => r.method === name));
    const fitting = Math.max(1, Math.floor(width / PANEL[figure.kind]));
    const across = Math.ceil(panels.length / Math.ceil(panels.length / fitting));
    const axes = BARS.has(figure.kind) ? 25 + 7.5 * Math.max(...records.map((r) => r.name.length)) : 65;
    const panelWidth = Math.min(620, Math.max(110, Math.floor((width - 10) / across) - axes));
    const legendColumns = Math.max(1, Math.min(methods.length, Math.floor((width - 60) / (30 + 8 * Math.max(...methods.map((m) => m.length))))));
    return {
      $schema: "https://vega.github.io/schema/vega-lite/v6.json",
      description: `${figure.title}. ${figure.caption}`,
      config: { ...CONFIG, axisX: { tickCount: Math.max(3, Math.floor(panelWidth / 65)) } }, padding: 4,
      columns: across,
      concat: panels.map((panel) => [panel, records.filter((r) => r.panel === panel)]).map(([panel, values]) => ({
        title: { text: panel, anchor: "start", color: "var(--text)", fontSize: 13, limit: panelWidth + axes },
        data: { values },
        width: panelWidth,
        height: BARS.has(figure.kind) ? { step: 24 } : 240,
        layer: LAYERS[figure.kind](figure, methods, legendColumns, values),
      })),
      resolve: { scale: { x: "shared", y: BARS.has(figure.kind) ? "independent" : "shared", color: "shared", shape: "shared", strokeDash: "shared" } },
    };
  }

  const tip = byId("tip");
  function tooltip(handler, event, item, value) {
    if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
    tip.textContent = typeof value === "object" ? Object.entries(value).map(([name, text]) => `${name}: ${text}`).join("\n") : String(value);
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const top = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${top}px`;
  }

  /* The points of a curve, which the page holds as one record. */
  const points = (record) => record.xs ? record.xs.map((x, i) => ({ row: record.row, panel: record.panel, method: record.method, run: record.run, x, y: record.ys[i] })) : [record];

  const drawn = new Map();
  async function draw(figure) {
    const place = document.querySelector(`.plot[data-figure="${figure.id}"]`);
    if (!place.clientWidth) return;
    const hidden = hiddenRows();
    const records = figure.records.filter((r) => !hidden.has(r.row)).flatMap(points);
    const state = `${place.clientWidth} ${records.length} ${[...hidden]}`;
    if (drawn.get(figure.id)?.state === state) return;
    drawn.get(figure.id)?.view?.finalize();
    if (!records.length) {
      place.replaceChildren(element("p", "No row of the filter is in this plot."));
      drawn.set(figure.id, { state });
      return;
    }
    const options = { actions: false, ast: true, renderer: "svg", tooltip, defaultStyle: false };
    drawn.set(figure.id, { state });
    const { view } = await vegaEmbed(place, specification(figure, records, place.clientWidth), options);
    drawn.set(figure.id, { state, view });
    view.addEventListener("click", (_, item) => { if (item?.datum?.row !== undefined) showRow(item.datum.row); });
  }

  /* One plot after the other, so that the page answers in between; a later call takes over from an earlier one. */
  let latest = 0;
  async function drawAll() {
    const call = ++latest;
    for (const figure of data.figures) {
      await new Promise((resume) => setTimeout(resume));
      if (call !== latest) return;
      await draw(figure);
    }
    document.documentElement.dataset.ready = "yes";
  }

  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => { keepHeaders(); drawAll(); }, 150); });
  keepHeaders();
  applyFilter();
})();
