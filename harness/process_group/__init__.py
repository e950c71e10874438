"""Process groups on any accelerator: backend names, and groups that can be destroyed and rebuilt.

Importing this patches nothing and initialises nothing.
"""

from harness.process_group.backend_spec import BackendEntry, BackendSpec
from harness.process_group.normalizer import (
    distributed_device_id,
    init_process_group,
    is_accelerator_backend,
    new_group,
    normalize_backend,
    weight_update_backend,
)
from harness.process_group.torch_patch import patched_torch_distributed

__all__ = [
    "BackendEntry",
    "BackendSpec",
    "distributed_device_id",
    "init_process_group",
    "is_accelerator_backend",
    "new_group",
    "normalize_backend",
    "patched_torch_distributed",
    "weight_update_backend",
]
