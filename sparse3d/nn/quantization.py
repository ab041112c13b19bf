"""spconv's int8 names. int8 quantisation is not here; each says so when called."""

from __future__ import annotations

from typing import NoReturn

__all__ = [
    "get_default_spconv_qconfig_mapping",
    "get_default_spconv_trt_ptq_qconfig",
    "get_default_spconv_trt_qat_qconfig",
    "get_spconv_backend_config",
    "get_spconv_convert_custom_config",
    "get_spconv_fmod_to_qat_mapping",
    "get_spconv_prepare_custom_config",
    "get_spconv_qat_to_static_mapping",
    "prepare_spconv_torch_inference",
    "quantize_per_tensor",
    "remove_conv_add_dq",
    "transform_qdq",
]


class _Refusal:
    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__doc__ = "Not here: int8 quantisation is not implemented."

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"{self.__name__} must be left out with sparse3d, got a call; int8 quantisation is not "
            "implemented, use float16 or bfloat16 (torch.autocast)"
        )


get_default_spconv_qconfig_mapping = _Refusal("get_default_spconv_qconfig_mapping")
get_default_spconv_trt_ptq_qconfig = _Refusal("get_default_spconv_trt_ptq_qconfig")
get_default_spconv_trt_qat_qconfig = _Refusal("get_default_spconv_trt_qat_qconfig")
get_spconv_backend_config = _Refusal("get_spconv_backend_config")
get_spconv_convert_custom_config = _Refusal("get_spconv_convert_custom_config")
get_spconv_fmod_to_qat_mapping = _Refusal("get_spconv_fmod_to_qat_mapping")
get_spconv_prepare_custom_config = _Refusal("get_spconv_prepare_custom_config")
get_spconv_qat_to_static_mapping = _Refusal("get_spconv_qat_to_static_mapping")
prepare_spconv_torch_inference = _Refusal("prepare_spconv_torch_inference")
quantize_per_tensor = _Refusal("quantize_per_tensor")
remove_conv_add_dq = _Refusal("remove_conv_add_dq")
transform_qdq = _Refusal("transform_qdq")
