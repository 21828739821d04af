"""What must outlive the process: `contract` has the interfaces, `sqlite` implements them."""
