// Builds the console into the directory that is given as the only argument.

import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const out = process.argv[2];
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: import.meta.dirname,
  entryPoints: { main: "src/main.tsx", style: "src/main.css" },
  outdir: out,
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: true,
  legalComments: "linked",
  chunkNames: "[name]-[hash]",
  entryNames: "main",
  logLevel: "warning",
  alias: { "#gen": "./gen/sandboxd_proto/v1" },
});
for (const name of ["index.html", "icon.svg"]) copyFileSync(`${import.meta.dirname}/src/${name}`, `${out}/${name}`);
