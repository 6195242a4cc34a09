import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { svelteTesting } from "@testing-library/svelte/vite";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const WIDGET = "./notebook/widget";

// The notebook's module and style, which `vite.widget.config.ts` builds, stand for the page's own.
const shared: Plugin = {
  name: "shared",
  apply: "build",
  enforce: "pre",
  resolveId: (id) => (id === WIDGET ? { id: "../widget/widget.js", external: true } : null),
  transformIndexHtml: () => [{ tag: "link", attrs: { rel: "stylesheet", href: "./widget/widget.css" }, injectTo: "head" }],
};

const bundle = fileURLToPath(new URL("../src/regard/web/bundle", import.meta.url));

export default defineConfig({
  // Relative, as the server may stand behind a path of its own, and a page may be opened from a file.
  base: "./",
  plugins: [shared, svelte(), svelteTesting()],
  build: {
    outDir: bundle,
    emptyOutDir: true,
    target: "es2022",
    // The server's policy allows no data: address, so nothing is put inline.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  test: {
    environment: "jsdom",
    include: ["test/**/*.test.ts"],
  },
});
