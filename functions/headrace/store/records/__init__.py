"""Records of the control table, one kind a module: what is kept of each, and back."""
