// `npm run dev`, then /dev/: the explorer with made-up records.
import { browserBar } from "../src/address/store.svelte";
import { mountExplorer } from "../src/mount";
import { MockCarrier } from "./mock";

mountExplorer(document.getElementById("regard")!, new MockCarrier(20), browserBar);
