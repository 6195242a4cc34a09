// One head, large: token labels on both sides, the value under the pointer, zoom and drag.
// Coordinates are tokens: x is the key's position, y the query's absolute position (offset + query).

const HIGHEST = 720,
  WIDEST_CELL = 84,
  LABEL = 14;

function makeLarge(page) {
  const holder = document.getElementById("large"),
    [map, marks] = holder.querySelectorAll("canvas");
  const tip = holder.appendChild(element("div", { className: "tip", hidden: true }));
  const readout = document.getElementById("readout"),
    hint = document.getElementById("head-hint"),
    { state } = page;
  let view = null,
    plot = null,
    image = null,
    names = { query: [], key: [] },
    drag = null,
    laidFor = 0;

  const everything = () => ({ x: 0, y: page.call.offset, w: page.call.keys, h: page.call.queries });
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const font = (size, weight = 400) => `${weight} ${size}px ${style("--mono")}`;

  function build() {
    const { call, picture } = page;
    document.getElementById("head-title").textContent = page.name(state.chosen);
    holder.hidden = document.getElementById("legend").hidden = !picture;
    document.querySelector("#head .tools").hidden = !picture;
    document.getElementById("pool").hidden = !picture || picture.exact;
    if (!picture) {
      hint.textContent =
        "The record holds no map of this call, so there is no picture. Watch with map=128 to have one.";
      return;
    }
    hint.textContent = `Rows are queries, columns are keys. ${
      picture.exact ? "One cell is one weight." : `One cell is ${picture.cell} × ${picture.cell} tokens.`
    }${picture.heads > 1 ? ` Mean of ${picture.heads} heads.` : ""}`;
    for (const axis of ["query", "key"]) {
      const tokens = page.tokensOf(axis),
        from = page.origin(axis);
      const count = axis === "query" ? call.queries : call.keys;
      names[axis] =
        tokens &&
        readable(tokens)
          .slice(from, from + count)
          .map((text) => shorten(text, LABEL));
    }
    image = null;
    layout();
    paint();
  }

  // Margins for the longest labels, cells as square as the lengths allow.
  function layout() {
    const { call } = page,
      context = map.getContext("2d");
    context.font = font(12);
    const longest = (list) =>
      list ? Math.max(0, ...list.slice(0, 2000).map((name) => context.measureText(name).width)) : 0;
    const left = Math.max(46, longest(names.query) + 16),
      top = Math.max(30, longest(names.key) + 18);
    const right = Math.max(14, longest(names.key?.slice(-3)) * 0.5 + 4),
      room = holder.clientWidth - left - right;
    let unitX = Math.min(WIDEST_CELL, room / call.keys),
      unitY = Math.min(WIDEST_CELL, HIGHEST / call.queries);
    const ratio = unitX / unitY;
    if (ratio > 1 / 3 && ratio < 3) unitX = unitY = Math.min(unitX, unitY);
    plot = {
      left,
      top,
      width: Math.round(unitX * call.keys),
      height: Math.round(unitY * call.queries),
      widest: longest(names.key),
    };
    if (!view || view.w > call.keys || view.h > call.queries || page.fresh) view = everything();
    page.fresh = false;
    laidFor = holder.clientWidth;
    for (const canvas of [map, marks]) {
      const width = Math.min(holder.clientWidth, left + plot.width + right),
        height = top + plot.height + 6;
      canvas.width = Math.round(width * devicePixelRatio);
      canvas.height = Math.round(height * devicePixelRatio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
  }

  const unit = () => ({ x: plot.width / view.w, y: plot.height / view.h });
  const toX = (x) => plot.left + (x - view.x) * unit().x;
  const toY = (y) => plot.top + (y - view.y) * unit().y;

  function begin(canvas) {
    const context = canvas.getContext("2d");
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    return context;
  }

  function paint() {
    const { picture } = page;
    if (!picture) return;
    const pool = picture.exact ? "mean" : state.pool,
      context = begin(map),
      { left, top, width, height } = plot;
    image ??= raster(picture[pool], picture.width, picture.height, picture.top[pool], state.scale);
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.imageSmoothingEnabled = unit().x * picture.cell < 1;
    const y0 = picture.firstCell * picture.cell,
      { cell } = picture;
    context.drawImage(
      image,
      toX(0),
      toY(y0),
      picture.width * cell * unit().x,
      picture.height * cell * unit().y,
    );
    if (picture.exact && Math.min(unit().x, unit().y) >= 34) values(context, picture);
    context.restore();
    context.strokeStyle = style("--line");
    context.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
    labels(context);
    mark();
    const name = picture.exact ? "weight" : pool === "mean" ? "mean weight" : "largest weight";
    drawLegend(document.getElementById("legend"), name, picture.top[pool], state.scale);
  }

  function values(context, picture) {
    context.font = `11px ${style("--sans")}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let y = Math.floor(view.y); y < view.y + view.h; y++) {
      for (let x = Math.floor(view.x); x < view.x + view.w; x++) {
        const weight = picture.mean[cellAt(picture, y - picture.offset, x)];
        if (!weight) continue;
        context.fillStyle = inkOn(shadeOf(weight, picture.top.mean, state.scale));
        context.fillText(
          weight < 0.005 ? "<.01" : weight.toFixed(2).replace(/^0/, ""),
          toX(x + 0.5),
          toY(y + 0.5),
        );
      }
    }
  }

  // Every token's name where there is room, else positions at round steps.
  function labels(context) {
    context.fillStyle = style("--soft");
    for (const axis of ["query", "key"]) {
      const size = axis === "query" ? unit().y : unit().x,
        from = axis === "query" ? view.y : view.x;
      const span = axis === "query" ? view.h : view.w,
        named = names[axis] && size >= 8.5;
      const first = axis === "query" ? page.call.offset : 0,
        shift = first - page.origin(axis); // from a place in the text to a coordinate
      const step = named
        ? 1
        : ([1, 2, 5]
            .flatMap((n) => [n, n * 10, n * 100, n * 1000, n * 10000])
            .sort((a, b) => a - b)
            .find((n) => n * size >= (axis === "query" ? 26 : 46)) ?? 100000);
      for (
        let place = Math.ceil((from - shift) / step) * step;
        place + shift + 0.5 < from + span + 0.001;
        place += step
      ) {
        const text = named ? names[axis][place + shift - first] : String(place);
        label(context, axis, place + shift, text ?? "", named ? size : null);
      }
    }
  }

  // Names of keys lie flat where they fit, else they lean, and stand upright where it is tight.
  const lean = (size) => (size >= plot.widest + 10 ? 0 : size >= 14 ? Math.PI / 3 : Math.PI / 2);

  // `size` is the room that a token's name has; a position, without one, stands upright and is centered.
  function label(context, axis, place, text, size) {
    const turn = size === null ? 0 : lean(size);
    context.save();
    context.font = font(size === null ? 12 : Math.min(12, Math.max(9, size - 0.5)));
    context.textBaseline = "middle";
    if (axis === "query") {
      context.textAlign = "right";
      context.translate(plot.left - 7, toY(place + 0.5));
    } else {
      context.translate(toX(place + 0.5), plot.top - (turn ? 7 : 11));
      context.rotate(-turn);
      context.textAlign = turn ? "left" : "center";
    }
    context.fillText(text, 0, 0);
    context.restore();
  }

  // The row or column under focus, and the cell under the pointer.
  function mark() {
    const { focus, picture } = page;
    if (!picture) return;
    const context = begin(marks);
    tip.hidden = true;
    readout.textContent = "";
    if (!focus) return;
    const place = { [focus.axis]: focus.index, [focus.axis === "query" ? "key" : "query"]: focus.other };
    const snap = (position) => Math.floor(position / picture.cell) * picture.cell;
    const row = place.query === null ? null : snap(place.query + picture.offset),
      column = place.key === null ? null : snap(place.key);
    context.strokeStyle = context.fillStyle = style("--accent");
    context.lineWidth = 1.5;
    context.save();
    context.beginPath();
    context.rect(plot.left - 1, plot.top - 1, plot.width + 2, plot.height + 2);
    context.clip();
    const tall = Math.max(2, unit().y * picture.cell),
      wide = Math.max(2, unit().x * picture.cell);
    if (focus.axis === "query") context.strokeRect(plot.left, toY(row), plot.width, tall);
    else context.strokeRect(toX(column), plot.top, wide, plot.height);
    if (focus.other !== null) {
      context.lineWidth = 2.5;
      context.strokeRect(toX(column), toY(row), wide, tall);
    }
    context.restore();
    for (const axis of ["query", "key"]) if (place[axis] !== null) highlight(context, axis, place[axis]);
    if (focus.other === null) return;
    const text = page.reading(place.query, place.key);
    readout.textContent = text.join(" ");
    tip.replaceChildren(element("b", {}, text[1]), element("span", {}, text[0]));
    tip.hidden = false;
    const beside = toX(column) + wide + 12,
      room = holder.clientWidth - tip.offsetWidth;
    tip.style.left = `${beside <= room ? beside : Math.max(0, toX(column) - tip.offsetWidth - 12)}px`;
    tip.style.top = `${Math.min(toY(row) + tall + 6, plot.top + plot.height - tip.offsetHeight)}px`;
  }

  function highlight(context, axis, index) {
    const place = index + (axis === "query" ? page.call.offset : 0),
      from = axis === "query" ? view.y : view.x;
    if (place < from - 0.5 || place > from + (axis === "query" ? view.h : view.w)) return;
    const text = names[axis]?.[index] ?? String(index + page.origin(axis));
    context.save();
    context.font = font(12, 700);
    const width = context.measureText(text).width + 10;
    if (axis === "query") context.translate(plot.left - 7, toY(place + 0.5));
    else context.translate(toX(place + 0.5), plot.top - 11);
    const turn = axis === "key" && names.key ? lean(unit().x) : 0;
    context.rotate(-turn);
    const start = axis === "query" ? -width + 5 : turn ? -5 : -width / 2;
    context.fillStyle = style("--accent");
    context.beginPath();
    context.roundRect(start, -9, width, 18, 4);
    context.fill();
    context.fillStyle = style("--on-accent");
    context.textBaseline = "middle";
    context.fillText(text, start + 5, 0.5);
    context.restore();
  }

  // Query and key under a pointer, or null outside the map.
  function under(event) {
    const box = marks.getBoundingClientRect();
    const x = view.x + (event.clientX - box.left - plot.left) / unit().x,
      y = view.y + (event.clientY - box.top - plot.top) / unit().y;
    const inside = x >= view.x && y >= view.y && x < view.x + view.w && y < view.y + view.h;
    return inside ? { key: Math.floor(x), query: Math.floor(y) - page.call.offset, x, y } : null;
  }

  const focusOf = ({ query, key }) =>
    page.direction === "query"
      ? { axis: "query", index: query, other: key }
      : { axis: "key", index: key, other: query };

  function zoom(by, center) {
    const all = everything(),
      { focus } = page;
    const at =
      center ??
      (focus
        ? {
            x: (focus.axis === "key" ? focus.index : (focus.other ?? view.x + view.w / 2)) + 0.5,
            y: (focus.axis === "query" ? focus.index : (focus.other ?? 0)) + page.call.offset + 0.5,
          }
        : { x: view.x + view.w / 2, y: view.y + view.h / 2 });
    const shrink = (size, full) => (by === 0 ? full : Math.min(full, Math.max(Math.min(4, full), size / by)));
    const w = shrink(view.w, all.w),
      h = shrink(view.h, all.h);
    move({ x: at.x - ((at.x - view.x) * w) / view.w, y: at.y - ((at.y - view.y) * h) / view.h, w, h });
  }

  function move(next) {
    const all = everything();
    view = {
      ...next,
      x: Math.max(0, Math.min(all.w - next.w, next.x)),
      y: Math.max(all.y, Math.min(all.y + all.h - next.h, next.y)),
    };
    paint();
  }

  marks.addEventListener("pointermove", (event) => {
    if (drag) {
      const x = drag.view.x - (event.clientX - drag.x) / unit().x,
        y = drag.view.y - (event.clientY - drag.y) / unit().y;
      drag.moved ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 4;
      move({ ...view, x, y });
      return;
    }
    const at = under(event);
    page.hover(at && focusOf(at));
  });
  marks.addEventListener("pointerleave", () => page.hover(null));
  marks.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, view, moved: false };
    marks.setPointerCapture(event.pointerId);
  });
  marks.addEventListener("pointerup", (event) => {
    const at = under(event);
    if (drag && !drag.moved && at) page.pin({ ...focusOf(at), other: null });
    drag = null;
  });
  marks.addEventListener("pointercancel", () => {
    drag = null;
  });
  marks.addEventListener("dblclick", (event) => zoom(2, under(event)));
  marks.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(2 ** (-event.deltaY / 200), under(event) ?? undefined);
    },
    { passive: false },
  );
  document.getElementById("zoom").addEventListener("click", (event) => {
    const { by } = event.target.dataset;
    if (by && page.picture) zoom(Number(by));
  });
  holder.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "+" || event.key === "-" || event.key === "0")
      zoom({ "+": 2, "-": 0.5, 0: 0 }[event.key]);
    if (event.key === "Enter" && page.focus) page.pin({ ...page.focus, other: null }, { keep: true });
    if (!step || !page.picture) return;
    event.preventDefault();
    const { focus, call } = page,
      now = { query: 0, key: 0 };
    if (focus)
      Object.assign(now, {
        [focus.axis]: focus.index,
        [focus.axis === "query" ? "key" : "query"]: focus.other ?? 0,
      });
    const clamp = (value, size) => Math.max(0, Math.min(size - 1, value));
    page.hover(
      focusOf({ query: clamp(now.query + step[0], call.queries), key: clamp(now.key + step[1], call.keys) }),
    );
  });
  holder.addEventListener("blur", () => page.hover(null));
  new ResizeObserver(() => {
    if (!page.ready || !page.picture || holder.clientWidth === laidFor) return;
    layout();
    paint();
  }).observe(holder);
  return { build, mark };
}
