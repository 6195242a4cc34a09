// The front end of the page of `regard look`: one script and its style, which Python writes into the page.
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

export default defineConfig({
  plugins: [svelte()],
  publicDir: false,
  build: {
    outDir: path("../src/regard/web/bundle/page"),
    emptyOutDir: true,
    target: "es2022",
    chunkSizeWarningLimit: 700,
    cssCodeSplit: false,
    modulePreload: false,
    rolldownOptions: {
      input: path("src/page/main.ts"),
      // No module: the page's policy names the text of one script.
      output: { format: "iife", entryFileNames: "page.js", assetFileNames: "page[extname]", codeSplitting: false },
    },
  },
});
