// The table of heads: sortable by every column, searchable, each column explained.

function makeTable(page) {
  const holder = document.querySelector("#table .scroll"),
    search = document.getElementById("search");
  const hint = document.getElementById("column-hint"),
    { record, state } = page;
  const fixed = [
    ["layer", "The module's name in the model."],
    ["kind", "Self-attention, or cross-attention from one text to another."],
    ["head", "Heads are counted from 0, as in code."],
    ["role", "What the head does most, with its score from chance (0) to the most possible (1), and its interval of 95 %."],
  ];
  const several = new Set(record.calls.map((call) => call.kind)).size > 1;
  const told = record.heads.some(({ roles }) => roles.some(Boolean));
  const shownFixed = fixed.filter(([name]) => (name !== "kind" || several) && (name !== "role" || told));
  let sorted = { name: null, up: false };
  const body = element("tbody"),
    headings = new Map();
  const resting =
    "Click a heading to sort, a row to look at that head. Point at a heading to read what it means.";

  const headRow = element("tr");
  for (const name of [...shownFixed.map(([own]) => own), ...record.columns]) {
    const meaning = fixed.find(([own]) => own === name)?.[1] ?? page.meaning(name);
    const heading = element(
      "th",
      { scope: "col", className: record.columns.includes(name) ? "figure" : "" },
      element("button", { type: "button", title: meaning, onclick: () => sort(name) }, page.title(name)),
    );
    for (const enter of ["pointerenter", "focusin"])
      heading.addEventListener(enter, () => {
        hint.textContent = `${page.title(name)}: ${meaning}`;
      });
    for (const leave of ["pointerleave", "focusout"])
      heading.addEventListener(leave, () => {
        hint.textContent = resting;
      });
    headings.set(name, heading);
    headRow.append(heading);
  }
  hint.textContent = resting;
  holder.append(element("table", {}, element("thead", {}, headRow), body));

  function cellOf(head, name) {
    const { call, head: within, values } = record.heads[head];
    if (name === "layer") return record.calls[call].layer;
    if (name === "kind") return record.calls[call].kind;
    if (name === "head") return within;
    if (name === "role") return page.role(head);
    return values[state.sequence][record.columns.indexOf(name)];
  }

  function sort(name) {
    const first = record.columns.includes(name) ? false : true;
    sorted =
      sorted.name !== name
        ? { name, up: first }
        : sorted.up === first
          ? { name, up: !first }
          : { name: null, up: false };
    build();
  }

  function build() {
    const heads = record.heads.map((_, head) => head),
      { name, up } = sorted;
    // Layers sort in the model's order, everything else by value; what is not there goes last.
    const rank = (head) => (name === "layer" ? record.heads[head].call : cellOf(head, name));
    if (name) {
      heads.sort((a, b) => {
        const [left, right] = [rank(a), rank(b)];
        if (left === null || right === null) return (left === null) - (right === null);
        return (left < right ? -1 : left > right ? 1 : 0) * (up ? 1 : -1);
      });
    }
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = heads.filter((head) => {
      const { call, head: within } = record.heads[head];
      const text =
        `${record.calls[call].layer} ${record.calls[call].kind} ${page.shortName(head)} head ${within} ${page.role(head)}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    for (const [own, heading] of headings) {
      heading.setAttribute("aria-sort", own !== name ? "none" : up ? "ascending" : "descending");
    }
    const ranges = record.columns.map((own) => {
      const all = record.heads.map((_, head) => cellOf(head, own)).filter((value) => value !== null);
      return [Math.min(0, ...all), Math.max(...all)];
    });
    body.replaceChildren(...found.map((head) => row(head, ranges)));
    if (!found.length)
      body.append(
        element("tr", {}, element("td", { colSpan: headings.size, className: "empty" }, "No head matches.")),
      );
    mark();
  }

  function row(head, ranges) {
    const cells = shownFixed.map(([name], i) => {
      const value = cellOf(head, name);
      if (i) return element("td", {}, String(value));
      return element("th", { scope: "row" }, element("button", { type: "button", title: value }, value));
    });
    const figures = record.columns.map((name, column) => {
      const value = cellOf(head, name),
        [low, high] = ranges[column];
      const cell = element("td", { className: "figure" }, number(value));
      if (value !== null && high > low)
        cell.style.setProperty("--bar", `${(100 * (value - low)) / (high - low)}%`);
      return cell;
    });
    return element("tr", { data: { head } }, ...cells, ...figures);
  }

  function mark() {
    for (const own of body.rows)
      own.classList.toggle("chosen", state.chosen.includes(Number(own.dataset.head)));
  }

  search.addEventListener("input", build);
  body.addEventListener("click", (event) => {
    const head = event.target.closest("tr")?.dataset.head;
    if (head !== undefined) page.choose([Number(head)], event.ctrlKey || event.metaKey || event.shiftKey);
  });
  return { build, mark };
}
