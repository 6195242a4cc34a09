// Numbers of the chosen head: cards with their place among all heads, and entropy query by query.

// Shown as cards, in this order, where the record has them.
const CARDS = [
  "entropy_fraction",
  "effective_keys",
  "max_weight",
  "distance",
  "previous",
  "self_mass",
  "first",
  "sink",
  "local",
  "received_share",
];
// These compare positions, which says something only where queries and keys are the same text.
const SAME_TEXT = ["distance", "previous", "self_mass", "local"];

function makeCards(page) {
  const holder = document.getElementById("cards"),
    { record, state } = page;

  function strip(values, own) {
    const known = values.filter((value) => value !== null),
      low = Math.min(...known),
      high = Math.max(...known);
    const place = (value) => (high > low ? (196 * (value - low)) / (high - low) + 2 : 100);
    const tick = (value, name, top) =>
      svg("line", { x1: place(value), x2: place(value), y1: top, y2: 16, class: name });
    return svg(
      "svg",
      { viewBox: "0 0 200 18", preserveAspectRatio: "none", class: "strip", "aria-hidden": "true" },
      ...known.map((value) => tick(value, "tick", 8)),
      ...own.filter((value) => value !== null).map((value) => tick(value, "own", 1)),
    );
  }

  function build() {
    const section = record.sections[page.section];
    const fits = (name) =>
      record.columns.includes(name) && (page.call.kind === "self" || !SAME_TEXT.includes(name));
    holder.replaceChildren(
      ...CARDS.filter(fits).map((name) => {
        const column = record.columns.indexOf(name),
          of = (head) => record.heads[head].values[state.sequence][column];
        const own = state.chosen.map(of).filter((value) => value !== null),
          all = section.heads.map(of);
        if (all.every((value) => value === null)) return "";
        const mean = own.length ? own.reduce((a, b) => a + b, 0) / own.length : null;
        return element(
          "div",
          { className: "card" },
          element("h3", {}, page.title(name)),
          element("p", { className: "value" }, number(mean), element("small", {}, page.unit(name))),
          strip(all, own),
          element("p", { className: "meaning" }, page.meaning(name)),
        );
      }),
    );
  }
  return { build };
}

function makeEntropy(page) {
  const holder = document.getElementById("entropy-chart"),
    hint = document.getElementById("entropy-hint");
  const readout = document.getElementById("entropy-readout"),
    { record, state } = page;
  const margin = { left: 52, right: 22, top: 24, bottom: 34 },
    height = 230;
  let chart = null;

  function build() {
    const { call } = page,
      lines = state.chosen.map((head) => seriesOf(record, head, "entropy", state.sequence));
    chart = null;
    if (!lines.every(Boolean)) {
      hint.textContent = "The record holds no entropy. Watch with statistics=None to keep every statistic.";
      readout.textContent = "";
      holder.replaceChildren();
      return;
    }
    const bound = seriesOf(record, state.chosen[0], "bound", state.sequence),
      { step } = call.series;
    const width = Math.max(320, holder.clientWidth),
      inner = width - margin.left - margin.right;
    const top = Math.max(0.1, ...(bound ?? []), ...lines.flatMap((line) => [...line])) * 1.04,
      count = lines[0].length;
    const x = (i) => margin.left + (count > 1 ? (inner * i) / (count - 1) : inner / 2);
    const y = (value) => height - margin.bottom - ((height - margin.top - margin.bottom) * value) / top;
    const valid = (i) => !bound || bound[i] >= 0;
    const path = (line) =>
      Array.from(line, (value, i) =>
        valid(i) ? `${i && valid(i - 1) ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}` : "",
      ).join("");
    const unit = [0.1, 0.2, 0.5, 1, 2, 5, 10].find((size) => top / size <= 5) ?? 20;
    const ticks = Array.from({ length: Math.floor(top / unit) + 1 }, (_, i) => i * unit);
    const cursor = svg("line", {
      class: "cursor",
      y1: margin.top,
      y2: height - margin.bottom,
      visibility: "hidden",
    });
    const dots = lines.map(() => svg("circle", { r: 4, class: "dot", visibility: "hidden" }));
    const drawing = svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        width,
        height,
        role: "img",
        "aria-label": `Entropy per query of ${page.name(state.chosen)}`,
      },
      ...ticks.map((value) =>
        svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value) }),
      ),
      ...ticks.map((value) =>
        svg("text", { x: margin.left - 8, y: y(value) + 4, "text-anchor": "end" }, number(value, 1)),
      ),
      svg("text", { x: margin.left - 8, y: 11, "text-anchor": "end" }, "nats"),
      ...(bound ? [svg("path", { class: "bound", d: path(bound) })] : []),
      ...(bound ? [svg("path", { class: "under", d: area(bound, x, y, valid) })] : []),
      ...lines.map((line, i) => svg("path", { class: i ? "line more" : "line", d: path(line) })),
      ...axis(count, step, x),
      cursor,
      ...dots,
    );
    holder.replaceChildren(drawing);
    chart = { lines, bound, x, y, cursor, dots, count, step, drawing };
    hint.textContent = `${page.meaning("entropy")} ${bound ? "The dashed line is the most it could be: ln(number of keys the query may attend)." : ""}${
      step > 1 ? ` One point is the mean of ${step} queries.` : ""
    }`;
    mark();
  }

  function area(bound, x, y, valid) {
    const points = Array.from(bound, (value, i) =>
      valid(i) ? `${x(i).toFixed(1)} ${y(value).toFixed(1)}` : null,
    ).filter(Boolean);
    return points.length
      ? `M${margin.left} ${y(0)}L${points.join("L")}L${points.at(-1).split(" ")[0]} ${y(0)}Z`
      : "";
  }

  // Tokens where there is room for a few letters each, else positions.
  function axis(count, step, x) {
    const letters = Math.floor((x(1) - x(0)) / 7.5),
      tokens = page.tokensOf("query"),
      named = tokens && step === 1 && (letters >= 3 || count === 1);
    const names = named && readable(tokens).slice(page.call.origin);
    const every = named ? 1 : Math.max(1, Math.ceil(count / 12));
    return Array.from({ length: Math.ceil(count / every) }, (_, i) => i * every).map((i) => {
      const text = named
        ? shorten(names[i] ?? "", count === 1 ? 12 : letters)
        : whole(i * step + page.call.origin);
      const place = { x: x(i), y: height - 12, "text-anchor": "middle" };
      return svg("text", { ...place, class: named ? "token-name" : "" }, text);
    });
  }

  function mark() {
    if (!chart) return;
    const index = page.focus?.axis === "query" ? Math.floor(page.focus.index / chart.step) : null;
    const shown = index !== null && index < chart.count ? "visible" : "hidden";
    for (const part of [chart.cursor, ...chart.dots]) part.setAttribute("visibility", shown);
    readout.textContent = "";
    if (shown === "hidden") return;
    chart.cursor.setAttribute("x1", chart.x(index));
    chart.cursor.setAttribute("x2", chart.x(index));
    chart.dots.forEach((dot, i) => {
      dot.setAttribute("cx", chart.x(index));
      dot.setAttribute("cy", chart.y(chart.lines[i][index]));
    });
    const most = chart.bound?.[index];
    readout.textContent = `${page.label("query", page.focus.index)}: ${chart.lines.map((line) => number(line[index])).join(", ")} nats${
      most > 0 ? ` of at most ${number(most)}` : ""
    }`;
  }

  holder.addEventListener("pointermove", (event) => {
    const index = chart && nearest(event);
    if (chart) page.hover({ axis: "query", index, other: null });
  });
  holder.addEventListener("pointerleave", () => page.hover(null));
  holder.addEventListener(
    "click",
    (event) => chart && page.pin({ axis: "query", index: nearest(event), other: null }),
  );

  function nearest(event) {
    const x = event.clientX - chart.drawing.getBoundingClientRect().left,
      span = chart.x(chart.count - 1) - chart.x(0) || 1;
    const point = Math.round(((x - chart.x(0)) / span) * (chart.count - 1));
    return Math.min(page.call.queries - 1, Math.max(0, Math.min(chart.count - 1, point)) * chart.step);
  }
  return { build, mark };
}
