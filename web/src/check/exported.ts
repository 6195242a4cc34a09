// What is taken away of the findings: the grid of heads, each finding in words, and their table.
import type { Client } from "../api/client";
import type { Description } from "../api/types";
import { sheetOf, paragraph, type Part } from "../export/sheet";
import type { Column, Table } from "../export/table";
import { modelOf, type Exported } from "../export/view";
import { plural, short } from "../text/numbers";
import { COLORS, groupsOf, SEVERITIES, SIGNS, worstOf, type Check, type Finding, type Group } from "./findings";

const [CELL, GAP, LAYER, MOST, WIDTH] = [24, 3, 110, 24, 720];
// Heads of a rule that are named on a sheet; the table has all.
const NAMED = 16;
const DARK_INK = "#1b1c20";

export function checkExported(client: Client, description: Description, check: Check): Exported {
  return {
    name: [modelOf(description), "check"],
    draw(theme) {
      const summary = check.findings.length > 0 ? check.summary : "nothing was found";
      const title = `Check: ${summary}`;
      const applied = check.rules.filter(({ skipped }) => skipped === null).length;
      const lines = [`${plural(check.heads, "head")}, ${plural(check.texts, "text")}; ${applied} of ${plural(check.rules.length, "rule")} applied.`];
      const parts = [grid(check.findings, description), legend(), ...groupsOf(check.findings).flatMap(groupParts)];
      return sheetOf({ title, lines, parts, note: description.title }, theme);
    },
    numbers: [
      { title: "Findings", table: () => findingsTable(check.findings, description) },
      { title: "Rules", table: () => rulesTable(check) },
    ],
    python: () => client.snippet(description.id, { what: "check" }),
  };
}

function grid(findings: Finding[], { calls }: Description): Part {
  const lines = worstOf(findings, calls);
  const columns = Math.min(MOST, Math.max(1, ...lines.map((line) => line.length)));
  const rows = lines.map((line) => Math.ceil(line.length / columns));
  const step = CELL + GAP;
  return {
    width: LAYER + columns * step,
    height: step * rows.reduce((sum, count) => sum + count, 0),
    draw(pen) {
      let y = 0;
      lines.forEach((line, call) => {
        pen.text(calls[call]?.name ?? "", 0, y + 16, { color: pen.colors.soft, most: LAYER - 10 });
        line.forEach((finding, head) => {
          const at = pen.at(LAYER + (head % columns) * step, y + step * Math.floor(head / columns));
          at.rect(0, 0, CELL, CELL, finding ? COLORS[finding.severity] : pen.colors.wash);
          at.outline(0, 0, CELL, CELL, pen.colors.line, 1);
          if (finding) at.text(SIGNS[finding.severity], CELL / 2, 17, { anchor: "middle", bold: true, color: inkOf(finding.severity) });
        });
        y += step * rows[call]!;
      });
    },
  };
}

const inkOf = (severity: Finding["severity"]) => (severity === "severe" ? "#ffffff" : DARK_INK);

function legend(): Part {
  return {
    width: 420,
    height: 18,
    draw(pen) {
      SEVERITIES.forEach((severity, index) => {
        const at = pen.at(105 * index, 0);
        at.rect(0, 0, 16, 16, COLORS[severity]);
        at.text(SIGNS[severity], 8, 12, { anchor: "middle", bold: true, color: inkOf(severity) });
        at.text(severity, 22, 12, { size: 11, color: pen.colors.soft });
      });
      const at = pen.at(105 * SEVERITIES.length, 0);
      at.rect(0, 0, 16, 16, pen.colors.wash);
      at.text("nothing found", 22, 12, { size: 11, color: pen.colors.soft });
    },
  };
}

function groupParts({ name, severity, findings }: Group): Part[] {
  const first = findings[0]!;
  const heads = findings.slice(0, NAMED).map(({ where, value }) => `${where} (${short(value)})`);
  if (findings.length > NAMED) heads.push(`and ${findings.length - NAMED} more`);
  const heading: Part = {
    width: WIDTH,
    height: 6,
    draw(pen) {
      pen.rect(0, 0, 4, 14, COLORS[severity]);
      pen.text(`${name.charAt(0).toUpperCase()}${name.slice(1)}, ${severity}, threshold ${short(first.threshold)}`, 12, 12, { bold: true, most: WIDTH - 12 });
    },
  };
  return [heading, paragraph(`${first.sentence} ${first.advice} ${heads.join("; ")}.`, WIDTH)];
}

function findingsTable(findings: Finding[], { calls }: Description): Table {
  const of = (name: string, kind: Column["kind"], value: (finding: Finding) => string | number | null): Column => {
    return { name, kind, values: findings.map(value) };
  };
  return {
    rows: findings.length,
    columns: [
      of("name", "text", ({ name }) => name),
      of("severity", "text", ({ severity }) => severity),
      of("layer", "text", ({ place }) => (place ? (calls[place.call]?.layer ?? null) : null)),
      of("call", "whole", ({ place }) => place?.call ?? null),
      of("head", "whole", ({ place }) => place?.head ?? null),
      of("query", "whole", ({ place }) => place?.query ?? null),
      of("key", "whole", ({ place }) => place?.key ?? null),
      of("value", "number", ({ value }) => value),
      of("threshold", "number", ({ threshold }) => threshold),
      of("low", "number", ({ low }) => low),
      of("high", "number", ({ high }) => high),
      of("texts", "whole", ({ texts }) => texts),
      of("evidence", "text", ({ evidence }) => JSON.stringify(evidence)),
      of("sentence", "text", ({ sentence }) => sentence),
      of("advice", "text", ({ advice }) => advice),
    ],
  };
}

function rulesTable({ rules }: Check): Table {
  return {
    rows: rules.length,
    columns: [
      { name: "rule", kind: "text", values: rules.map(({ name }) => name) },
      { name: "meaning", kind: "text", values: rules.map(({ meaning }) => meaning) },
      { name: "findings", kind: "whole", values: rules.map(({ findings }) => findings) },
      { name: "not_applied", kind: "text", values: rules.map(({ skipped }) => skipped) },
    ],
  };
}
