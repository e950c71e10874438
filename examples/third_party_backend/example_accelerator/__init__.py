"""A third party's accelerator backend. Importing this imports neither PyTorch nor a driver."""
