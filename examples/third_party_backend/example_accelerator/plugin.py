"""What is known of the backend before anything of it is imported: the value of its entry point."""

from harness.accelerator.registration import AcceleratorPlugin

PLUGIN = AcceleratorPlugin(
    factory="example_accelerator.adapter:ExampleAccelerator",
    is_available="example_accelerator.adapter:is_available",
    # communication_backends: the names of a transport of your own, such as ("exccl",). The CPU's gloo is no accelerator's.
    priority=-100,  # never chosen before a real accelerator
    remedy="every host has a CPU; if this is shown, PyTorch is broken",
)
