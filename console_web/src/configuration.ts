// What a session adds to its environment, as people write it: as JSON, or in fields.

export interface Configuration {
  environment: string;
  packages: string[];
  variables: Record<string, string>;
}

type Json = Record<string, unknown>;

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function check(value: Json, known: string[]): void {
  const odd = Object.keys(value).find((key) => !known.includes(key));
  if (odd !== undefined) throw new Error(`The key ${JSON.stringify(odd)} is not known here; use ${known.join(" and ")}.`);
}

// {"packages": [...], "env_vars": {...}}, also as `environment_config` beside an `environment_type`. Throws a sentence that says what to change.
export function readConfiguration(text: string): Configuration {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${(error as Error).message}.`);
  }
  if (!isObject(value)) throw new Error('Write an object, such as {"packages": ["pandas"], "env_vars": {"DEBUG": "1"}}.');
  const isWhole = "environment_type" in value || "environment_config" in value;
  if (isWhole) check(value, ["environment_type", "environment_config"]);
  const { environment_type: environment = "", environment_config: config = {} } = isWhole ? value : { environment_config: value };
  if (typeof environment !== "string") throw new Error("environment_type is the name of an environment, in quotes.");
  if (!isObject(config)) throw new Error('environment_config is an object, such as {"packages": [], "env_vars": {}}.');
  check(config, ["packages", "env_vars"]);
  const { packages = [], env_vars: variables = {} } = config;
  if (!Array.isArray(packages) || !packages.every((one) => typeof one === "string"))
    throw new Error('packages is a list of names in quotes, such as ["pandas"].');
  if (!isObject(variables)) throw new Error('env_vars is an object, such as {"DEBUG": "1"}.');
  const odd = Object.entries(variables).find(([, one]) => typeof one !== "string");
  if (odd) throw new Error(`The value of ${odd[0]} in env_vars is not a text; put it in quotes.`);
  return { environment, packages, variables: variables as Record<string, string> };
}

// Names that are separated by spaces, lines or commas; a comma inside of `pandas>=2,<3` belongs to it.
export function readPackages(text: string): string[] {
  return text.split(/\s+|,(?=\s|[\w@]|$)/).filter(Boolean);
}

// A line of NAME=value for each variable.
export function readVariables(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim());
  const odd = lines.find((line) => line.indexOf("=") < 1);
  if (odd !== undefined) throw new Error(`Write variables as NAME=value, one in a line; ${JSON.stringify(odd)} is none.`);
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1)]));
}
