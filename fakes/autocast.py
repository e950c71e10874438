"""`torch.autocast` for a simulated device (AMP-1).

For: the casting operators, in PyTorch's own four classes. Not for: which dtypes are allowed; the namespace's
`get_amp_supported_dtype` says that. Registered once a process, since PyTorch consults it only inside an autocast context of this
device type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

LOWER_PRECISION = (
    "_convolution",
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "conv1d",
    "conv1d.padding",
    "conv2d",
    "conv2d.padding",
    "conv3d",
    "conv3d.padding",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "convolution",
    "einsum",
    "linalg_multi_dot",
    "linalg_vecdot",
    "linear",
    "matmul",
    "mm",
    "mv",
    "prelu",
    "scaled_dot_product_attention",
    "gru_cell",
    "lstm_cell",
    "rnn_relu_cell",
    "rnn_tanh_cell",
)
"""Computed in autocast's dtype."""
FLOAT32 = (
    "acos",
    "asin",
    "binary_cross_entropy_with_logits",
    "cdist",
    "cosh",
    "cosine_embedding_loss",
    "cosine_similarity",
    "dist",
    "erfinv",
    "exp",
    "expm1",
    "group_norm",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "logsumexp",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "native_layer_norm",
    "nll_loss",
    "nll_loss2d",
    "pdist",
    "poisson_nll_loss",
    "pow.Scalar",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "reciprocal",
    "renorm",
    "rsqrt",
    "sinh",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softplus",
    "tan",
    "triplet_margin_loss",
    "cumprod",
    "cumsum",
    "linalg_vector_norm",
    "log_softmax.int",
    "prod",
    "prod.dim_int",
    "softmax.int",
    "sum",
    "sum.dim_IntList",
)
"""Computed in float32."""
WIDEST = (
    "addcdiv",
    "addcmul",
    "atan2",
    "bilinear",
    "cat",
    "cross",
    "dot",
    "grid_sampler",
    "index_put",
    "scatter_add",
    "stack",
    "tensordot",
    "vdot",
)
"""Computed in the widest dtype among the arguments."""


_Library: Any = torch.library.Library


def register(device_type: str) -> tuple[torch.library.Library, ...]:
    """Register the casting operators; they live as long as the libraries returned."""
    fallback = _Library("_", "IMPL")
    fallback.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    library = _Library("aten", "IMPL")
    rules: tuple[tuple[tuple[str, ...], Callable[[Any], torch.dtype | None]], ...] = (
        (LOWER_PRECISION, lambda _: torch.get_autocast_dtype(device_type)),
        (FLOAT32, lambda _: torch.float32),
        (WIDEST, _widest),
    )
    for names, dtype_of in rules:
        for name in names:
            library.impl(name, _casting(_operator(name), dtype_of, device_type), "AutocastPrivateUse1")
    library.impl("binary_cross_entropy", _refuse, "AutocastPrivateUse1")
    return fallback, library


def _operator(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


_AUTOCAST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]


def _casting(operator: Any, dtype_of: Callable[[Any], torch.dtype | None], device_type: str) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS):
            dtype = dtype_of((args, kwargs))
            if dtype is None:
                return operator(*args, **kwargs)
            return operator(*_cast(args, dtype, device_type), **_cast(kwargs, dtype, device_type))

    return kernel


def _is_eligible(value: Any, device_type: str | None = None) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype != torch.float64
        and (device_type is None or value.device.type == device_type)
    )


def _cast(value: Any, dtype: torch.dtype, device_type: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if _is_eligible(value, device_type) and value.dtype != dtype else value
    if isinstance(value, list | tuple):
        return type(value)([_cast(item, dtype, device_type) for item in value])
    if isinstance(value, dict):
        return {name: _cast(item, dtype, device_type) for name, item in value.items()}
    return value


def _widest(arguments: Any) -> torch.dtype | None:
    dtypes = {value.dtype for value in _flatten(arguments) if _is_eligible(value)}
    if len(dtypes) < 2:
        return None
    return torch.float32 if torch.float32 in dtypes or len(dtypes - {torch.float32}) > 1 else dtypes.pop()


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flatten(item)]
    if isinstance(value, dict):
        return _flatten(list(value.values()))
    return [value]


def _refuse(*args: Any, **kwargs: Any) -> Any:
    del args, kwargs
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Use binary_cross_entropy_with_logits instead, which is safe to autocast."
    )
