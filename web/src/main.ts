// The server's page. Built, it loads the notebook's module, which is the same program, so that wheels hold it once.
import { openPage } from "./notebook/widget";

openPage(document.getElementById("regard")!);
