"""What the host does to keep sandboxes apart, behind small contracts."""
