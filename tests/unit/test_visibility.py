"""What of the host is hidden from sandboxes."""

from __future__ import annotations

from pathlib import Path

from sandboxd.isolation.visibility import masked_paths


def test_devices_that_have_disks_are_masked(tmp_path: Path) -> None:
    """Wherever this host has its disks, their figures are those of all sandboxes together."""
    for device in ("pci0000:00/ata1/block/sda", "virtual/block/loop7"):
        (tmp_path / "devices" / device).mkdir(parents=True)
        disk = tmp_path / "block" / Path(device).name
        disk.parent.mkdir(exist_ok=True)
        disk.symlink_to(Path("..") / "devices" / device)

    masked = masked_paths(tmp_path)

    assert {"/sys/devices/pci0000:00", "/sys/devices/virtual"} <= set(masked)
    assert set(masked) - set(masked_paths(tmp_path / "absent")) == {"/sys/devices/pci0000:00"}


def test_processors_stay_visible() -> None:
    """Programs count them to decide how many threads to start."""
    processors = Path("/sys/devices/system/cpu")
    hidden = [path for path in masked_paths() if processors.is_relative_to(path)]

    assert hidden == []
