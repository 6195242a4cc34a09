// The program, for notebooks, for the server's page and for reports: one ES module and its style, beside the page, which is built before.
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

export default defineConfig({
  plugins: [svelte()],
  publicDir: false,
  build: {
    outDir: path("../src/regard/web/bundle/widget"),
    emptyOutDir: true,
    target: "es2022",
    // One file each, as the notebook is given their texts.
    cssCodeSplit: false,
    modulePreload: false,
    // What the bundle is made of asks to be named with its license.
    license: { fileName: "licenses.md" },
    chunkSizeWarningLimit: 700,
    rolldownOptions: {
      input: path("src/notebook/widget.ts"),
      preserveEntrySignatures: "strict",
      output: { entryFileNames: "widget.js", assetFileNames: "widget[extname]", codeSplitting: false },
    },
  },
});
