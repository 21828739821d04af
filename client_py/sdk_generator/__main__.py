"""Write the generated files; with --check only report whether they are current."""

from __future__ import annotations

import sys
from pathlib import Path

from sdk_generator import public_names, reference, sync_face

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client_py" / "sandboxd_client"
SYNC_FACE = PACKAGE / "sync.py"
NAMES = PACKAGE / "public_names.py"
TOOLS_FACE = PACKAGE / "integrations" / "bash_tool_sync.py"
REFERENCE = ROOT / "docs" / "sdk.md"


def main() -> int:
    face, tools = sync_face.generated(), sync_face.generated_tools()
    derived = {
        SYNC_FACE: face,
        TOOLS_FACE: tools,
        NAMES: public_names.generated(),
        REFERENCE: reference.generated(face, tools),
    }
    stale = [path for path, text in derived.items() if _content(path) != text]
    if "--check" not in sys.argv:
        for path in stale:
            path.write_text(derived[path])
        return 0
    for path in stale:
        name = path.relative_to(ROOT)
        sys.stderr.write(f"gen_sdk: {name} is stale; run ./scripts/gen_sdk and commit it\n")
    return 1 if stale else 0


def _content(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())
