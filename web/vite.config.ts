import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { svelteTesting } from "@testing-library/svelte/vite";
import { defineConfig } from "vitest/config";

const bundle = fileURLToPath(new URL("../src/regard/web/bundle", import.meta.url));

export default defineConfig({
  // Relative, as the server may stand behind a path of its own, and a page may be opened from a file.
  base: "./",
  plugins: [svelte(), svelteTesting()],
  build: {
    outDir: bundle,
    emptyOutDir: true,
    target: "es2022",
    // The server's policy allows no data: address, so nothing is put inline.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // What the bundle is made of asks to be named with its license.
    license: { fileName: "licenses.md" },
    chunkSizeWarningLimit: 700,
  },
  test: {
    environment: "jsdom",
    include: ["test/**/*.test.ts"],
  },
});
