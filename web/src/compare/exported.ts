// What is taken away of heads side by side: all maps on one sheet, in one scale, and a table for each.
import type { Shading } from "../color/scale";
import { weightLegend } from "../export/legend";
import { beside, sheetOf } from "../export/sheet";
import { modelOf, type Exported } from "../export/view";
import { edgeNames, extent, headed, partOf, shownOf, tableOf, viewOf, type OneHead, type Seen } from "../head/exported";

export interface Pane {
  one: OneHead;
  seen: () => Seen | null;
}

const [SIDE, MOST] = [420, 3];

export function compareExported(panes: Pane[], shading: () => Shading): Exported {
  const client = panes[0]?.one.client;
  const records = [...new Set(panes.map(({ one }) => one.description.title))];
  const isSeveral = new Set(panes.map(({ one }) => one.head.record)).size > 1;
  // Two records may have one title.
  const named = ({ one }: Pane) => (isSeveral ? `${headed(one)}, ${modelOf(one.description)} (${one.head.record})` : headed(one));
  const titles = panes.map(named);
  return {
    name: ["compare", modelOf(panes[0]?.one.description ?? { title: "" }), panes.map(({ one }) => `${one.head.call}.${one.head.head}`).join(" ")],
    draw(theme) {
      const shown = panes.map(({ seen }) => shownOf(seen()));
      const maps = panes.map(({ one }, index) => ({ heading: titles[index]!, part: partOf(one, shown[index]!, shading(), SIDE) }));
      const lines = [...new Set(panes.map(({ one }, index) => extent(one, shown[index]!)))];
      if (panes[0]) lines.push(...edgeNames(panes[0].one, shown[0]!));
      const parts = [beside(maps, MOST), weightLegend(shading())];
      return sheetOf({ title: `${panes.length} heads side by side`, lines, parts, note: records.join(", ") }, theme);
    },
    numbers: panes.map((pane, index) => ({
      title: titles[index]!,
      table: () => tableOf(pane.one, shownOf(pane.seen()).cells),
    })),
    python() {
      const views = panes.map(({ one, seen }) => ({ record: one.head.record, ...viewOf(one, shownOf(seen()).cells) }));
      return client!.snippetOfHeads(views);
    },
  };
}
