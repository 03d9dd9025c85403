// Draws every <figure class="chart"> with Chart.js from the JSON beside its canvas, in the colours of the page's style.
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const charts = [];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (v) => {
    const size = Math.abs(v);
    if (v === 0) return "0";
    if (size >= 1e5 || size < 1e-3) return (+v.toPrecision(3)).toExponential().replace("e+", "e");
    return String(+v.toPrecision(4));
  };

  function dataset(s, spec) {
    const color = style("--c" + (s.color % 8));
    const points = s.x.map((x, i) => ({ x: x, y: s.y[i] }));
    return { label: s.name, group: s.group, data: points, borderColor: color, backgroundColor: spec.fill ? color + "33" : color, fill: spec.fill ? "origin" : false,
      borderWidth: 2, pointRadius: points.length > 40 ? 0 : 2.5, pointHitRadius: 12, tension: 0 };
  }

  // A band is two lines without a stroke and the area between them; bars have whiskers instead.
  function datasets(s, spec) {
    const line = dataset(s, spec);
    if (spec.bars) return [Object.assign(line, { backgroundColor: line.borderColor, low: s.low, high: s.high })];
    if (!s.low) return [line];
    const edge = (y, fill) => Object.assign({}, line, { data: s.x.map((x, i) => ({ x: x, y: y[i] })), edge: true, borderWidth: 0, pointRadius: 0, pointHitRadius: 0,
      backgroundColor: line.borderColor + "2e", fill: fill });
    return [line, edge(s.low, false), edge(s.high, "-1")];
  }

  const whiskers = { id: "whiskers", afterDatasetsDraw(chart) {
    chart.data.datasets.forEach((set, i) => {
      if (!set.low || !chart.isDatasetVisible(i)) return;
      const ctx = chart.ctx, y = chart.scales.y;
      ctx.save(); ctx.strokeStyle = style("--ink"); ctx.lineWidth = 1.2; ctx.beginPath();
      chart.getDatasetMeta(i).data.forEach((bar, k) => {
        const low = y.getPixelForValue(set.low[k]), high = y.getPixelForValue(set.high[k]);
        ctx.moveTo(bar.x, low); ctx.lineTo(bar.x, high);
        ctx.moveTo(bar.x - 4, low); ctx.lineTo(bar.x + 4, low); ctx.moveTo(bar.x - 4, high); ctx.lineTo(bar.x + 4, high);
      });
      ctx.stroke(); ctx.restore();
    });
  } };

  // One entry for all series of a group; a click shows or hides them together.
  function groups(chart) {
    const seen = new Set();
    return Chart.defaults.plugins.legend.labels.generateLabels(chart).filter((entry) => {
      const group = chart.data.datasets[entry.datasetIndex].group;
      if (chart.data.datasets[entry.datasetIndex].edge) return false;
      if (group === null) return true;
      entry.text = group;
      return !seen.has(group) && seen.add(group);
    });
  }

  function toggle(event, entry, legend) {
    const chart = legend.chart, sets = chart.data.datasets, group = sets[entry.datasetIndex].group;
    const show = !chart.isDatasetVisible(entry.datasetIndex);
    sets.forEach((s, i) => { if (i === entry.datasetIndex || (group !== null && s.group === group)) chart.setDatasetVisibility(i, show); });
    chart.update();
  }

  function axis(label, log, zero) {
    const tick = { color: style("--dim"), maxRotation: 0, autoSkipPadding: 14 };
    // A logarithmic axis offers every multiple; powers of ten are enough to read it.
    tick.callback = (v) => (log && Math.abs(Math.log10(v) % 1) > 1e-6 ? "" : short(v));
    if (label === "epoch") tick.precision = 0;
    return { beginAtZero: zero, type: log ? "logarithmic" : "linear", title: { display: true, text: label, color: style("--dim") }, ticks: tick, grid: { color: style("--line"), borderColor: style("--line") } };
  }

  function draw(figure) {
    const spec = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const several = spec.series.length > 1;
    const across = axis(spec.x, false, false);
    if (spec.categories) Object.assign(across, { type: "category", labels: spec.categories, offset: spec.bars });
    if (spec.categories) delete across.ticks.callback;
    const at = (x) => (spec.categories ? spec.categories[x] : spec.x + " " + short(x));
    return new Chart(figure.querySelector("canvas"), {
      type: spec.bars ? "bar" : "line",
      data: { datasets: spec.series.flatMap((s) => datasets(s, spec)) },
      plugins: [whiskers],
      options: {
        animation: false, parsing: false, normalized: true, responsive: true, maintainAspectRatio: false,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: { x: across, y: axis(spec.y, spec.log, spec.zero) },
        plugins: {
          legend: { display: several, position: "bottom", labels: { color: style("--ink"), boxWidth: 14, boxHeight: 2, padding: 10, generateLabels: groups }, onClick: toggle },
          decimation: { enabled: true, algorithm: "lttb", samples: 400, threshold: 1000 },
          tooltip: { filter: (item) => !item.dataset.edge, callbacks: { title: (items) => (items.length ? at(items[0].parsed.x) : ""),
            label: (item) => item.dataset.label + ": " + short(item.parsed.y) } },
        },
      },
    });
  }

  function drawAll() {
    while (charts.length) charts.pop().destroy();
    document.querySelectorAll("figure.chart:has(canvas)").forEach((figure) => charts.push(draw(figure)));
  }
  drawAll();
  dark.addEventListener("change", drawAll);
})();
