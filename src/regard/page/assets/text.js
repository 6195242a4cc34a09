// The text, token by token, shaded by the weights of the query (or key) under the pointer.
// Knows the chips; the shades come from the picture of the chosen heads.

const MOST_CHIPS = 4096;

// The boxes of one call: one when queries and keys are the same text, two in cross-attention.
function textBoxes(page) {
  const { call } = page,
    own = page.tokensOf("query"),
    read = page.tokensOf("key");
  if (call.kind === "self") {
    return [
      {
        title: "",
        tokens: read,
        axes: { query: call.origin, key: 0 },
        sizes: { query: call.queries, key: call.keys },
      },
    ];
  }
  return [
    {
      title: "Queries: the text being written",
      tokens: own,
      axes: { query: 0 },
      sizes: { query: call.queries },
    },
    { title: "Keys: the text being read", tokens: read, axes: { key: 0 }, sizes: { key: call.keys } },
  ];
}

function makeText(page) {
  const holder = document.getElementById("texts"),
    hint = document.getElementById("text-hint");
  const legend = document.getElementById("text-legend");
  const { state } = page;
  let boxes = [],
    chips = [],
    built = "";

  // Which axis a chip speaks for: in one box the switch decides, in two boxes the box does.
  const axisOf = (box) => (boxes.length > 1 ? Object.keys(box.axes)[0] : state.direction);
  const indexOf = (box, axis, position) => {
    const index = position - box.axes[axis];
    return index >= 0 && index < box.sizes[axis] ? index : null;
  };

  // The chips stay as long as the text does; only their shades and their padding follow the head.
  function build() {
    const { kind, origin, queries, keys, query_text: text } = page.call;
    const wanted = [kind, origin, queries, keys, text, state.sequence].join();
    if (wanted !== built) lay();
    built = wanted;
    chips.forEach((line, b) =>
      line.forEach((chip, i) => {
        const index = boxes[b].axes.query === undefined ? null : indexOf(boxes[b], "query", i);
        chip.classList.toggle("padding", index !== null && page.idle(index));
      }),
    );
  }

  function lay() {
    const sizes = textBoxes(page);
    boxes = sizes.filter((box) => box.tokens);
    document.getElementById("direction").hidden = sizes.length > 1 || !boxes.length;
    chips = boxes.map((box) =>
      readable(box.tokens.slice(0, MOST_CHIPS)).map((text, i) =>
        element(
          "span",
          { className: "token", data: { i }, title: `${i}: ${JSON.stringify(box.tokens[i])}` },
          ...tokenParts(shorten(text, 80)),
        ),
      ),
    );
    holder.replaceChildren(
      ...boxes.map((box, b) => {
        const label = `${box.title || "Tokens"}. Left and right arrow keys move from token to token.`;
        const text = element(
          "div",
          { className: "chips", tabIndex: 0, data: { b }, role: "group", aria: { label } },
          ...chips[b].flatMap((chip) => [chip, element(chip.textContent.endsWith("↵") ? "br" : "wbr")]),
        );
        const more = `The first ${whole(MOST_CHIPS)} of ${whole(box.tokens.length)} tokens.`;
        return element(
          "div",
          { className: "box" },
          ...(box.title ? [element("h3", {}, box.title)] : []),
          text,
          ...(box.tokens.length > MOST_CHIPS ? [element("p", { className: "hint" }, more)] : []),
        );
      }),
    );
    if (!boxes.length) {
      holder.replaceChildren(
        element(
          "p",
          { className: "empty" },
          "The record does not hold the tokens, so positions are shown instead. Hand them over: watch(model, tokens=…).",
        ),
      );
    }
  }

  // What each token is shaded by: a line of the map under focus, else the mass that each key receives.
  function shading() {
    const { focus, picture } = page;
    if (focus && picture) {
      return {
        axis: focus.axis === "query" ? "key" : "query",
        values: lineOf(picture, focus.axis, focus.index, "mean"),
        weights: true,
      };
    }
    return page.received && { axis: "key", values: page.received, weights: false };
  }

  function shade() {
    const { focus, picture } = page,
      shades = shading(),
      top = shades ? topOf(shades.values, shades.weights ? 1 : page.call.queries) : 0;
    chips.forEach((line, b) =>
      line.forEach((chip, i) => {
        const index =
          shades && boxes[b].axes[shades.axis] !== undefined ? indexOf(boxes[b], shades.axis, i) : null;
        const level = index === null ? 0 : shadeOf(shades.values[index], top, state.scale);
        chip.style.backgroundColor = level ? css(colorOf(level)) : "";
        chip.style.color = level ? inkOn(level) : "";
        const own =
          focus && boxes[b].axes[focus.axis] !== undefined ? indexOf(boxes[b], focus.axis, i) : null;
        const focused = own !== null && own === focus.index;
        chip.classList.toggle("focus", focused);
        if (focused && !holder.matches(":hover")) bring(chip);
        chip.classList.toggle("other", index !== null && focus?.other === index);
      }),
    );
    list(shades);
    legend.hidden = !shades || !boxes.length;
    if (!legend.hidden)
      drawLegend(legend, shades.weights ? "weight" : "attention received, in queries", top, state.scale);
    hint.textContent = !boxes.length ? "" : focus ? sentence(focus, picture) : resting(shades);
  }

  // Scrolls the text, not the page, until the token is in sight.
  function bring(chip) {
    const text = chip.parentElement,
      place = chip.offsetTop - text.offsetTop;
    if (place < text.scrollTop || place > text.scrollTop + text.clientHeight - 40)
      text.scrollTop = place - text.clientHeight / 2;
  }

  function sentence(focus, picture) {
    const name = page.label(focus.axis, focus.index),
      held = state.pinned ? " Press Escape to let go." : "";
    if (!picture) return `${name}. The record holds no map, so the text cannot be shaded.`;
    if (focus.axis === "query" && page.idle(focus.index))
      return `${name} may look at nothing: it is padding.${held}`;
    const most = !picture.exact && focus.axis === "query" && page.strongest(focus.index);
    const largestOne = most
      ? ` Its largest single weight is ${number(most.weight)}, on ${page.label("key", most.key)}.`
      : "";
    const steps = picture.exact
      ? ""
      : ` Shades are means over ${picture.cell} × ${picture.cell} tokens.${largestOne}`;
    return `${name} ${focus.axis === "query" ? "looks at the shaded tokens" : "is looked at by the shaded tokens"}.${steps}${held}`;
  }

  function resting(shades) {
    const point =
      boxes.length > 1
        ? "Point at a token on either side to see its partners; click to hold it."
        : "Point at a token to see where it looks; click to hold it.";
    return shades
      ? `${point} Until then, the shade is how much attention each token gets from all queries together.`
      : point;
  }

  // The tokens with the largest values, as bars; where cells are pooled, one line per cell.
  function list(shades) {
    const box = document.getElementById("strongest");
    box.hidden = !shades;
    if (!shades) return;
    const { focus, picture } = page,
      cell = shades.weights ? picture.cell : 1;
    const start = page.origin(shades.axis),
      seenCells = new Set();
    const order = Array.from(shades.values.keys())
      .filter((i) => shades.values[i] > 0)
      .sort((a, b) => shades.values[b] - shades.values[a])
      .filter(
        (i) =>
          !seenCells.has(Math.floor((i + start) / cell)) && seenCells.add(Math.floor((i + start) / cell)),
      );
    const rows = order.slice(0, 8).map((i) => {
      const position = i + start,
        token = page.tokensOf(shades.axis)?.[position],
        from = Math.floor(position / cell) * cell;
      const name =
        cell > 1
          ? `${from}–${Math.min(from + cell, start + shades.values.length) - 1}`
          : token === undefined
            ? String(position)
            : shorten(readable([token])[0], 16);
      const bar = element("span", { className: "bar-of" });
      bar.style.width = `${(100 * shades.values[i]) / shades.values[order[0]]}%`;
      return element(
        "li",
        {},
        element("span", { className: "name" }, name),
        element("small", {}, cell > 1 || token === undefined ? "" : String(position)),
        element("span", { className: "track" }, bar),
        element("b", {}, number(shades.values[i])),
      );
    });
    const heading =
      !focus || !shades.weights
        ? "Gets the most attention"
        : focus.axis === "query"
          ? `${page.label("query", focus.index)} looks at`
          : `${page.label("key", focus.index)} is looked at by`;
    box.replaceChildren(
      element("h3", {}, heading),
      element("ol", {}, ...rows),
      ...(order.length > 8
        ? [element("p", { className: "hint" }, `and ${whole(order.length - 8)} more with less`)]
        : []),
    );
  }

  const chipOf = (event) => event.target.closest?.(".token");
  function focusOf(chip) {
    const box = boxes[chip.closest(".chips").dataset.b],
      axis = axisOf(box);
    const index = indexOf(box, axis, Number(chip.dataset.i));
    return index === null ? null : { axis, index, other: null };
  }
  holder.addEventListener("pointerover", (event) => {
    const chip = chipOf(event);
    if (chip) page.hover(focusOf(chip));
  });
  holder.addEventListener("pointerleave", () => page.hover(null));
  holder.addEventListener("click", (event) => {
    const chip = chipOf(event);
    if (chip) page.pin(focusOf(chip));
  });
  holder.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
      text = event.target.closest(".chips");
    if (!step || !text) return;
    event.preventDefault();
    const box = boxes[text.dataset.b],
      axis = axisOf(box),
      pinned = state.pinned;
    const from = pinned?.axis === axis ? pinned.index : step > 0 ? -1 : box.sizes[axis];
    const index = Math.min(box.sizes[axis] - 1, Math.max(0, from + step));
    page.pin({ axis, index, other: null }, { keep: true });
  });
  return { build, shade };
}
