// The page's state and what follows from it. Views read `page`, and tell it what the reader did; none knows another.

// The head that the page opens with: the sharpest one that does not merely look at a fixed place.
function opening(record) {
  const [{ heads }] = record.sections,
    value = (head, name) => record.heads[head].values[0][record.columns.indexOf(name)];
  const spread = (head) => value(head, "entropy_fraction") ?? 1;
  const fixed = (head) => ["previous", "self_mass", "first", "sink"].some((name) => value(head, name) > 0.4);
  const free = heads.filter((head) => !fixed(head));
  return free.reduce((best, head) => (spread(head) < spread(best) ? head : best), free[0] ?? heads[0]);
}

function makePage(record) {
  const state = {
    sequence: 0,
    chosen: [opening(record)],
    pinned: null,
    hovered: null,
    direction: "query",
    scale: "root",
    pool: "mean",
  };
  const page = { record, state, ready: false, fresh: true, views: {} };

  page.title = (name) => record.statistics[name]?.title ?? name;
  page.meaning = (name) => record.statistics[name]?.meaning ?? "";
  page.unit = (name) => record.statistics[name]?.unit ?? "";
  page.shortName = (head) => `${record.calls[record.heads[head].call].label}.${record.heads[head].head}`;
  // What a head does: its role, and how sure that is, "induction 0.52 (0.33–0.71)"; "" where none could be told.
  page.role = (head) => {
    const found = record.heads[head].roles[state.sequence];
    if (!found) return "";
    const [name, score, low, high] = found,
      digits = (value) => value.toFixed(2);
    if (name === "mixed") return name;
    return `${name} ${digits(score)}${low === null || high === null ? "" : ` (${digits(low)}–${digits(high)})`}`;
  };
  page.name = (heads) => {
    const calls = new Set(heads.map((head) => record.heads[head].call)),
      [first] = heads;
    const { label } = record.calls[record.heads[first].call],
      kind =
        record.sections.length > 1
          ? `${record.sections[record.calls[record.heads[first].call].section].title}, `
          : "";
    if (heads.length === 1) return `${kind}layer ${label}, head ${record.heads[first].head}`;
    if (calls.size === 1) {
      return heads.length === record.calls[record.heads[first].call].heads
        ? `${kind}layer ${label}, all ${heads.length} heads`
        : `${kind}layer ${label}, heads ${heads.map((head) => record.heads[head].head).join(", ")}`;
    }
    return `${kind}${heads.length} heads: ${heads.map(page.shortName).join(", ")}`;
  };

  page.tokensOf = (axis) => record.texts[page.call[`${axis}_text`]]?.[state.sequence] ?? null;
  page.origin = (axis) => (axis === "query" ? page.call.origin : 0); // place of the first query or key in its text
  page.label = (axis, index) => {
    const position = index + page.origin(axis),
      token = page.tokensOf(axis)?.[position];
    return token === undefined
      ? `${axis} ${whole(position)}`
      : `‘${shorten(readable([token])[0], 24)}’ (${position})`;
  };
  // What one cell says: [who looks at whom, how much].
  page.reading = (query, key) => {
    const { picture, call } = page,
      at = cellAt(picture, query, key);
    if (picture.exact)
      return [
        `${page.label("query", query)} → ${page.label("key", key)}`,
        significant(picture.mean[at], picture.digits),
      ];
    // The cell's tokens, as places in their text: cells are aligned to absolute positions, queries start at `offset`.
    const range = (index, offset, size, origin) => {
      const first = Math.floor((index + offset) / picture.cell) * picture.cell - offset;
      return `${whole(Math.max(0, first) + origin)}–${whole(Math.min(size, first + picture.cell) - 1 + origin)}`;
    };
    return [
      `queries ${range(query, call.offset, call.queries, call.origin)} → keys ${range(key, 0, call.keys, 0)}`,
      `mean ${significant(picture.mean[at], picture.digits)}, largest ${significant(picture.peak[at], picture.digits)}`,
    ];
  };
  page.strongest = (query) => {
    const series = (name) => seriesOf(record, state.chosen[0], name, state.sequence);
    const key = series("argmax")?.[query],
      weight = series("max_weight")?.[query];
    return state.chosen.length === 1 && key >= 0 && weight !== undefined ? { key, weight } : null;
  };

  function derive() {
    page.call = record.calls[record.heads[state.chosen[0]].call];
    page.section = page.call.section;
    page.direction = page.call.kind === "self" ? state.direction : "query";
    page.picture = pictureOf(record, state.chosen, state.sequence);
    const bound = seriesOf(record, state.chosen[0], "bound", state.sequence);
    page.idle = (query) => bound?.[Math.floor(query / page.call.series.step)] < 0;
    const received = state.chosen.map((head) => seriesOf(record, head, "received", state.sequence));
    page.received = received.every(Boolean)
      ? received[0].map((_, i) => received.reduce((sum, line) => sum + line[i], 0) / received.length)
      : null;
    page.focus = state.hovered ?? state.pinned;
  }

  // The head's habit in one measured sentence.
  function habit() {
    if (state.chosen.length > 1) return `${state.chosen.length} heads: pictures and shades show their mean.`;
    const values = record.heads[state.chosen[0]].values[state.sequence];
    const value = (name) =>
      page.call.kind === "cross" && SAME_TEXT.includes(name)
        ? null
        : (values[record.columns.indexOf(name)] ?? null);
    const masses = [
      ["previous", "goes to the token just before"],
      ["self_mass", "stays on the token itself"],
      ["first", "goes to the start of the text"],
      ["sink", "goes to the learned sink"],
    ]
      .map(([name, words]) => [value(name) ?? 0, words])
      .sort((a, b) => b[0] - a[0]);
    if (masses[0][0] > 0.4) return `On average ${number(masses[0][0], 2)} of its weight ${masses[0][1]}.`;
    if (value("entropy_fraction") > 0.9)
      return `Nearly even: its entropy is ${number(value("entropy_fraction"), 2)} of what it could be at most.`;
    const keys = value("effective_keys"),
      distance = value("distance");
    if (keys === null) return "";
    return `On average it looks at about ${number(keys, 1)} keys at once${distance === null ? "" : `, ${number(distance, 1)} tokens away`}.`;
  }

  function refresh() {
    derive();
    document.getElementById("chosen").textContent = page.name(state.chosen);
    const role = state.chosen.length === 1 ? page.role(state.chosen[0]) : "";
    document.getElementById("habit").textContent = `${role && `Role: ${role}. `}${habit()}`;
    for (const [id, own] of [
      ["direction", state.direction],
      ["pool", state.pool],
      ["scale", state.scale],
    ]) {
      for (const button of document.getElementById(id).children)
        button.setAttribute("aria-pressed", button.dataset.value === own);
    }
    page.views.text.build();
    page.views.large.build();
    page.views.cards.build();
    page.views.entropy.build();
    page.views.grid.mark();
    page.views.table.mark();
    page.views.text.shade();
  }

  function refocus() {
    page.focus = state.hovered ?? state.pinned;
    page.views.text.shade();
    page.views.large.mark();
    page.views.entropy.mark();
  }

  let waiting = false;
  page.hover = (focus) => {
    state.hovered = focus;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      refocus();
    });
  };
  page.pin = (focus, { keep = false } = {}) => {
    const same =
      focus && state.pinned && focus.axis === state.pinned.axis && focus.index === state.pinned.index;
    state.pinned = same && !keep ? null : focus;
    if (keep) state.hovered = null;
    refocus();
  };

  const shape = (call) =>
    [
      call.queries,
      call.keys,
      call.offset,
      call.section,
      call.picture?.cell,
      Boolean(call.picture?.peak),
    ].join();
  page.choose = (heads, add = false) => {
    const before = record.calls[record.heads[state.chosen[0]].call],
      section = page.section;
    const alike = heads.every((head) => shape(record.calls[record.heads[head].call]) === shape(before));
    if (add && alike) {
      const rest = state.chosen.filter((head) => !heads.includes(head));
      state.chosen =
        rest.length < state.chosen.length ? (rest.length ? rest : state.chosen) : [...state.chosen, ...heads];
    } else state.chosen = heads;
    if (!alike) {
      state.pinned = state.hovered = null;
      page.fresh = true;
    }
    derive();
    if (page.section !== section) page.views.grid.build();
    refresh();
  };

  page.start = () => {
    derive();
    page.views = {
      text: makeText(page),
      large: makeLarge(page),
      cards: makeCards(page),
      entropy: makeEntropy(page),
      grid: makeGrid(page),
      table: makeTable(page),
    };
    page.views.grid.build();
    page.views.table.build();
    refresh();
    page.ready = true;
    controls(page, refresh);
  };
  return page;
}

function controls(page, refresh) {
  const { record, state, views } = page,
    find = (id) => document.getElementById(id);
  for (const id of ["direction", "pool", "scale"]) {
    find(id).addEventListener("click", (event) => {
      const { value } = event.target.dataset;
      if (!value) return;
      state[id] = value;
      if (id === "direction") state.pinned = state.hovered = null;
      refresh();
      if (id !== "direction") views.grid.repaint();
    });
  }
  const step = (by) => {
    const all = record.sections[page.section].heads,
      place = all.indexOf(state.chosen[0]) + by;
    page.choose([all[(place + all.length) % all.length]]);
  };
  find("before").onclick = () => step(-1);
  find("after").onclick = () => step(1);
  const select = document.querySelector("#sequences select");
  find("sequences").hidden = record.sequences < 2;
  for (let i = 0; i < record.sequences; i++)
    select.append(element("option", { value: i }, `${i + 1} of ${record.batch}`));
  select.onchange = () => {
    Object.assign(state, { sequence: Number(select.value), pinned: null, hovered: null });
    refresh();
    views.grid.build();
    views.table.build();
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") page.pin(null, { keep: true });
  });
  darkMode.addEventListener("change", () => {
    refresh();
    views.grid.repaint();
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    views.grid.build();
    views.entropy.build();
  });
}

readRecord()
  .then((record) => {
    document.getElementById("page").hidden = false;
    if (record.sections.length) makePage(record).start();
  })
  .catch((error) => {
    const trouble = document.getElementById("trouble");
    trouble.hidden = false;
    trouble.textContent = `The pictures could not be drawn: ${error.message}. This page needs a browser from 2023 or later.`;
  });
