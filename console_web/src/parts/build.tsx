// How far the build of an environment or of packages is.

import type { BuildProgress } from "#gen/environment_pb";

export function Build({ progress }: { progress: BuildProgress }) {
  return (
    <p>
      <progress max={1} value={progress.fraction} aria-label="Build" /> {progress.step} <span class="faint">{progress.detail}</span>
    </p>
  );
}
