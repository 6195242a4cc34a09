// All heads as small maps: layer by layer or in the order of one number, some of them filtered out.
// Knows tiles and their order; a click chooses a head, with Ctrl, Command or Shift several.

function makeGrid(page) {
  const grid = document.getElementById("grid"),
    order = document.getElementById("order");
  const filter = document.getElementById("filter"),
    hint = document.getElementById("heads-hint");
  const tabs = document.getElementById("sections"),
    { record, state } = page;
  const tiles = new Map();
  const painter = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) paint(target);
    },
    { rootMargin: "200px" },
  );

  order.append(element("option", { value: "" }, "layer by layer"));
  for (const name of record.columns) {
    order.append(
      element("option", { value: `${name} down` }, `${page.title(name)}, largest first`),
      element("option", { value: `${name} up` }, `${page.title(name)}, smallest first`),
    );
  }
  tabs.hidden = record.sections.length < 2;
  tabs.append(
    ...record.sections.map(({ title }, i) =>
      element(
        "button",
        { type: "button", data: { value: i }, onclick: () => page.choose([record.sections[i].heads[0]]) },
        title,
      ),
    ),
  );

  // A tile has its size from the start and its picture once it comes into sight.
  function tile(head) {
    const [height, width] = record.calls[record.heads[head].call].picture?.mean.shape.slice(2) ?? [1, 1];
    const unit = (page.tileSide * devicePixelRatio) / Math.max(width, height);
    const canvas = element("canvas", {
      width: Math.max(4, Math.round(unit * width)),
      height: Math.max(4, Math.round(unit * height)),
    });
    const about = {
      type: "button",
      className: "tile",
      title: [page.name([head]), page.role(head)].filter(Boolean).join(": "),
      tabIndex: -1,
      data: { head },
    };
    const button = element("button", { ...about, role: "option" }, canvas, element("span"));
    tiles.set(head, button);
    painter.observe(button);
    return button;
  }

  function paint(button) {
    const canvas = button.querySelector("canvas"),
      picture = pictureOf(record, [Number(button.dataset.head)], state.sequence);
    painter.unobserve(button);
    if (!picture) return;
    const { width, height } = picture,
      pool = picture.exact ? "mean" : state.pool,
      context = canvas.getContext("2d");
    context.imageSmoothingEnabled = canvas.width < width;
    context.imageSmoothingQuality = "high";
    const image = raster(picture[pool], width, height, picture.top[pool], state.scale);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
  }

  // The heads in the order shown, with the value they are ordered by.
  function ordered() {
    const section = record.sections[page.section],
      [name, way] = order.value.split(" ");
    const value = (head) => record.heads[head].values[state.sequence][record.columns.indexOf(name)];
    const heads = [...section.heads];
    if (name)
      heads.sort((a, b) => ((value(a) ?? -Infinity) - (value(b) ?? -Infinity)) * (way === "up" ? 1 : -1));
    return { heads, name, value };
  }

  function build() {
    tiles.clear();
    painter.disconnect();
    const { heads, name, value } = ordered(),
      section = record.sections[page.section];
    for (const button of tabs.children)
      button.setAttribute("aria-pressed", Number(button.dataset.value) === page.section);
    const most = name ? 0 : Math.max(...section.calls.map((call) => record.calls[call].heads));
    const room = grid.clientWidth - 1 - 12 - 40; // less rounding, the padding and the layer's label
    page.tileSide = name ? 76 : Math.max(30, Math.min(112, Math.floor((room + 6) / Math.min(most, 16)) - 6));
    grid.style.setProperty("--side", `${page.tileSide}px`);
    grid.classList.toggle("flat", Boolean(name));
    filter.hidden = !name;
    const shown = heads.filter((head) => !name || inRange(value(head)));
    if (name) {
      grid.replaceChildren(
        ...shown.map((head) => {
          const button = tile(head);
          button
            .querySelector("span")
            .append(element("b", {}, page.shortName(head)), ` ${number(value(head))}`);
          return button;
        }),
      );
      document.getElementById("kept").textContent = `${shown.length} of ${plural(heads.length, "head")}`;
    } else {
      grid.replaceChildren(
        ...section.calls.map((call) => {
          const own = section.heads.filter((head) => record.heads[head].call === call);
          const label = element(
            "button",
            {
              type: "button",
              className: "layer",
              title: `${record.calls[call].layer}: choose the whole layer`,
              onclick: () => page.choose(own),
            },
            record.calls[call].label,
          );
          return element(
            "div",
            { className: "row", role: "presentation" },
            label,
            element(
              "div",
              { className: "tiles", role: "presentation" },
              ...own.map((head) => {
                const button = tile(head);
                button.querySelector("span").textContent = record.heads[head].head;
                // The name alone, where there is room; the score stands in the title.
                const [role] = record.heads[head].roles[state.sequence] ?? [""];
                if (page.tileSide >= 60) button.append(element("small", {}, role));
                return button;
              }),
            ),
          );
        }),
      );
    }
    const without = section.calls.every((call) => !record.calls[call].picture);
    hint.textContent = without
      ? "The record holds no maps (watch was told map=0); heads are listed by number."
      : `${name ? page.meaning(name) : "Rows are layers, columns are heads. Each map has its own color scale."} ${
          name ? "" : "Arrow keys move; Ctrl-click adds a head."
        }`;
    grid.classList.toggle("bare", without);
    arrange(section.calls.length < 7 && !name);
    mark();
  }

  // A short grid leaves room for the head's numbers below it, and then its entropy stands below its map.
  function arrange(short) {
    const [left, right] = document.querySelectorAll(".two > .column"),
      below = document.getElementById("below");
    (short ? left : below).append(document.getElementById("numbers-panel"));
    (short ? right : below).append(document.getElementById("entropy"));
  }

  const bound = (id) => document.getElementById(id).value;
  const inRange = (value) =>
    (bound("from") === "" || value >= Number(bound("from"))) &&
    (bound("to") === "" || value <= Number(bound("to")));

  function mark() {
    for (const [head, button] of tiles) {
      const chosen = state.chosen.includes(head);
      button.setAttribute("aria-selected", chosen);
      button.tabIndex = head === state.chosen[0] ? 0 : -1;
    }
    if (tiles.size && !tiles.has(state.chosen[0])) tiles.values().next().value.tabIndex = 0;
  }

  function repaint() {
    for (const button of tiles.values()) painter.observe(button);
  }

  order.addEventListener("change", () => {
    document.getElementById("from").value = document.getElementById("to").value = "";
    const { heads, name, value } = ordered();
    if (name) {
      const all = heads.map(value).filter((v) => v !== null);
      document.getElementById("from").placeholder = number(Math.min(...all));
      document.getElementById("to").placeholder = number(Math.max(...all));
    }
    build();
  });
  filter.addEventListener("input", build);
  grid.addEventListener("click", (event) => {
    const button = event.target.closest(".tile");
    if (button) page.choose([Number(button.dataset.head)], event.ctrlKey || event.metaKey || event.shiftKey);
  });
  grid.addEventListener("keydown", (event) => {
    const button = event.target.closest(".tile");
    if (!button || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const next = neighbor(button, event.key);
    if (next) {
      page.choose([Number(next.dataset.head)]);
      tiles.get(state.chosen[0])?.focus();
    }
  });

  // The tile left, right, above or below, as drawn: the nearest in that direction.
  function neighbor(button, key) {
    const center = (node) => {
      const { left, top, width, height } = node.getBoundingClientRect();
      return [left + width / 2, top + height / 2];
    };
    const all = [...tiles.values()],
      place = all.indexOf(button);
    if (key === "ArrowLeft" || key === "ArrowRight") return all[place + (key === "ArrowLeft" ? -1 : 1)];
    const [x, y] = center(button),
      down = key === "ArrowDown" ? 1 : -1;
    const beyond = all.map((node) => [node, ...center(node)]).filter(([, , other]) => (other - y) * down > 4);
    const far = ([, ox, oy]) => Math.abs(oy - y) * 1000 + Math.abs(ox - x);
    return beyond.sort((a, b) => far(a) - far(b))[0]?.[0];
  }
  return { build, mark, repaint };
}
