import { browserBar } from "./address/store.svelte";
import { FetchCarrier } from "./carrier/fetch";
import { mountExplorer } from "./mount";

mountExplorer(document.getElementById("regard")!, new FetchCarrier(), browserBar);
