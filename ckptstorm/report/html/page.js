"use strict";
// Draws the charts of the page; everything that it needs is in the page.
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const charts = Array.from(document.querySelectorAll(".chart"));
  const say = (text) => charts.forEach((chart) => { chart.textContent = text; chart.style.minHeight = "0"; });
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

  async function unpack() {
    const raw = atob(document.getElementById("library").textContent);
    const bytes = Uint8Array.from(raw, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.appendChild(script);
  }

  // Plotly keeps what it is given and changes it, so each drawing gets a copy of its own.
  function layoutOf(view, width) {
    const layout = JSON.parse(JSON.stringify(view.layout));
    if (width < 560) {
      layout.font.size = 11;
      layout.margin = { l: 44, r: 8, t: 8, b: 40 };
    }
    return layout;
  }

  function draw(chart, index) {
    const view = figures[chart.dataset.chart][index];
    chart.dataset.view = index;
    return Plotly.react(chart, JSON.parse(JSON.stringify(view.data)), layoutOf(view, chart.clientWidth), config);
  }

  // Zoom and move by keyboard: shares of what is shown now, on both axes.
  function move(chart, horizontal, vertical, zoom) {
    const change = {};
    for (const [name, by] of [["xaxis", horizontal], ["yaxis", vertical]]) {
      const [from, to] = chart._fullLayout[name].range.map(Number);
      const middle = (from + to) / 2 + by * (to - from);
      const half = ((to - from) / 2) * zoom;
      change[name + ".range"] = [middle - half, middle + half];
    }
    Plotly.relayout(chart, change);
  }

  const keys = {
    ArrowLeft: (chart) => move(chart, -0.2, 0, 1),
    ArrowRight: (chart) => move(chart, 0.2, 0, 1),
    ArrowUp: (chart) => move(chart, 0, 0.2, 1),
    ArrowDown: (chart) => move(chart, 0, -0.2, 1),
    "+": (chart) => move(chart, 0, 0, 0.5),
    "=": (chart) => move(chart, 0, 0, 0.5),
    "-": (chart) => move(chart, 0, 0, 2),
    "0": (chart) => draw(chart, Number(chart.dataset.view)),
  };

  // On paper a chart has the width of the page; Chromium and Firefox print A4 and letter at about 690 pixels.
  function fitPaper() {
    charts.forEach((chart) => chart._fullLayout && Plotly.relayout(chart, { width: 680, autosize: false }));
  }

  function fitScreen() {
    charts.forEach((chart) => chart._fullLayout && Plotly.relayout(chart, { width: null, autosize: true }));
  }

  async function start() {
    if (typeof DecompressionStream === "undefined") {
      say("This browser is too old to draw the charts; the numbers are in the tables.");
      return;
    }
    await unpack();
    for (const chart of charts) {
      chart.textContent = "";
      await draw(chart, 0);
      chart.addEventListener("keydown", (event) => {
        if (event.target === chart && keys[event.key] && !event.ctrlKey && !event.metaKey) {
          event.preventDefault();
          keys[event.key](chart);
        }
      });
    }
    document.querySelectorAll("select[data-chart]").forEach((select) => {
      const chart = document.getElementById("chart-" + select.dataset.chart);
      select.addEventListener("change", () => draw(chart, Number(select.value)));
    });
    window.addEventListener("beforeprint", fitPaper);
    window.addEventListener("afterprint", fitScreen);
    document.body.dataset.drawn = "yes";
  }

  start().catch((error) => {
    say("The charts could not be drawn (" + error.message + "); the numbers are in the tables.");
    throw error;
  });
})();
