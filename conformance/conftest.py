"""Makes `pytest conformance …` work in a checkout: loads the plugin, nothing else."""

pytest_plugins = ["conformance.plugin"]
