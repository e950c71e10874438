"""The accelerator contract, its backends, and the choice of one."""
