"""Files that outlive a sandbox: workspace disks and project directories."""
