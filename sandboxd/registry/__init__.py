"""What must outlive the process: `contract` is the interface, `sqlite` the embedded one."""
