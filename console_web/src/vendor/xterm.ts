// By itself, so that its chunk changes only with the package.

export { FitAddon } from "@xterm/addon-fit";
export { Terminal } from "@xterm/xterm";
