"""Process groups on any accelerator: backend names, and groups that can be destroyed and rebuilt.

Importing this patches nothing and initialises nothing.
"""

from harness.process_group.backend_spec import BackendEntry, BackendSpec
from harness.process_group.handle import ReloadableProcessGroup
from harness.process_group.memory_policy import FreeMemoryThreshold, MemoryPolicy
from harness.process_group.normalizer import (
    distributed_device_id,
    init_process_group,
    is_accelerator_backend,
    new_group,
    normalize_backend,
    weight_update_backend,
)
from harness.process_group.point_to_point import batch_isend_irecv
from harness.process_group.reloadable import (
    abandon_process_groups,
    destroy_process_groups,
    new_reloadable_group,
    reload_process_groups,
)
from harness.process_group.reloader import ProcessGroupReloader
from harness.process_group.torch_patch import patched_torch_distributed

__all__ = [
    "BackendEntry",
    "BackendSpec",
    "FreeMemoryThreshold",
    "MemoryPolicy",
    "ProcessGroupReloader",
    "ReloadableProcessGroup",
    "abandon_process_groups",
    "batch_isend_irecv",
    "destroy_process_groups",
    "distributed_device_id",
    "init_process_group",
    "is_accelerator_backend",
    "new_group",
    "new_reloadable_group",
    "normalize_backend",
    "patched_torch_distributed",
    "reload_process_groups",
    "weight_update_backend",
]
