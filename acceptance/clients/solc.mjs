#!/usr/bin/env node
// solc from npm under the command line that forge expects of a native compiler (`--use`): version and standard JSON.

import { readFileSync } from "node:fs";
import solc from "solc";

if (process.argv.includes("--version")) {
  console.log(`solc, the solidity compiler commandline interface\nVersion: ${solc.version()}`);
} else {
  process.stdout.write(solc.compile(readFileSync(0, "utf8")));
}
