"""What of the host a sandbox does not get to see."""

# The engine's own list is replaced, not extended, by ours; so its entries stand here too.
MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
    # Beyond the engine's list: names and figures of the host that no command needs.
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/kallsyms",
    "/proc/loadavg",
    "/proc/pressure",
    "/proc/sys/kernel/random/boot_id",
    "/proc/version",
    "/sys/block",
    "/sys/class",
    "/sys/fs",
    "/sys/module",
)

READONLY_PATHS = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)
