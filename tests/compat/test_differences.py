"""Every line under "What differs" in docs/migration is exercised by a test: named here, or below.

`EXERCISED` has the first name of each line; a line without a test, and a test that is gone, fail.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from compat import migration

import sparse3d.compat.minkowski as ME
import sparse3d.compat.spconv.pytorch as spconv
import sparse3d.compat.torchsparse as ts

TESTS = Path(__file__).parents[1]
HERE = "compat/test_differences.py"
CONV, MODULES, NET = "nn/test_conv.py", "nn/test_modules.py", "nn/test_functional.py"
SPCONV, MINKOWSKI = "compat/test_spconv.py", "compat/test_minkowski.py"
POINT, POINTS = "compat/test_point_differences.py", "compat/test_points.py"
POINTOPS, ABSENT = "compat/test_pointops_differences.py", "compat/test_modules.py"
GOLDEN, SPARSE = "compat/test_minkowski_golden.py", "compat/test_torchsparse.py"
QAT = "spconv.pytorch.quantization.intrinsic.qat.modules.SparseConvBn"
EXERCISED: dict[str, dict[str, tuple[str, str]]] = {
    "spconv": {
        "SparseConvTranspose1d": ("nn/test_dense_agreement.py", "test_transposed"),
        "SparseGlobalAvgPool": (MODULES, "test_global_pools_keep_every_channel_and_sample"),
        "SparseGlobalMaxPool": (MODULES, "test_global_pools_keep_every_channel_and_sample"),
        "SparseAvgPool1d": (MODULES, "test_mean_pool_counts_the_sites_present"),
        "JoinTable": (MODULES, "test_tables"),
        "RemoveDuplicate": (NET, "test_remove_duplicate_merges"),
        "SparseConvTensor": ("nn/test_tensor.py", "test_select_by_index"),
        "SparseInverseConv1d": (CONV, "test_inverse_1x1_restores_the_sites"),
        "HashTable": (NET, "test_hash_table"),
        "sparse_add": (NET, "test_sums_keep_the_maps_of_a_tensor_that_has_every_site"),
        "SparseConvFunction": (HERE, "test_functions_have_apply_alone"),
        "rbbox_iou": (SPCONV, "test_boxes"),
        "non_max_suppression_cpu": (SPCONV, "test_boxes"),
        "non_max_suppression": (SPCONV, "test_suppression_as_on_the_gpu_of_version_1"),
        "points_to_voxel": (SPCONV, "test_points_to_voxel_of_version_1"),
        "points_to_voxel_3d_np_mean": (SPCONV, "test_points_to_voxel_of_version_1"),
        "VoxelGeneratorV2": (SPCONV, "test_voxel_generators_of_both_versions"),
        "PointToVoxel": (NET, "test_points_to_voxels_and_back"),
        "torch_tensor_to_tv": (SPCONV, "test_torch_tensors_as_tensorview"),
        "get_default_spconv_qconfig_mapping": (SPCONV, "test_mappings_of_int8"),
        QAT: ("nn/test_fake_quant.py", "test_kernels_are_rounded_with_their_norm"),
        "SpConv": (HERE, "test_a_layer_of_fixed_scales_has_the_bias_it_is_asked_for"),
        "CUDAKernelTimer": (SPCONV, "test_timers_time_nothing"),
        "SAVED_WEIGHT_LAYOUT": (SPCONV, "test_the_variable_for_layouts_is_not_read"),
        "SparseConvolution": (SPCONV, "test_layers_where_the_peer_refuses"),
        "spconv.algocore": (ABSENT, "test_every_module"),
    },
    "minkowski": {
        "MinkowskiChannelwiseConvolution": (MINKOWSKI, "test_channelwise_is_depthwise"),
        "KernelGenerator": (MINKOWSKI, "test_custom_offsets"),
        "SparseTensor": (
            GOLDEN,
            "test_product_of_different_coordinates_as_documented_and_as_upstream",
        ),
        "CoordinateManager": (
            GOLDEN,
            "test_product_of_different_coordinates_as_documented_and_as_upstream",
        ),
        "MinkowskiConvolution": (MINKOWSKI, "test_conv_onto_coordinates"),
        "MinkowskiMaxPooling": (HERE, "test_maxima_of_no_input_and_below_zero"),
        "MinkowskiDirectMaxPoolingFunction": (HERE, "test_maxima_of_no_input_and_below_zero"),
        "sparse_quantize": (MINKOWSKI, "test_collation_and_quantization"),
        "KernelRegion": (HERE, "test_kernels_by_name_and_what_is_accepted"),
        "MinkowskiConvolutionFunction": (HERE, "test_functions_have_apply_alone"),
        "CoordsManager": (MINKOWSKI, "test_what_does_not_fit_is_named"),
        "MinkowskiAlgorithm": (HERE, "test_kernels_by_name_and_what_is_accepted"),
        "cuda_version": (HERE, "test_versions_are_torchs"),
    },
    "torchsparse": {
        "Conv3d": (SPARSE, "test_dilation_is_honoured_and_ignored_on_request"),
        "SparseCrop": (SPARSE, "test_crop_compares_xyz_unless_asked"),
        "build_kernel_map": (SPARSE, "test_a_map_by_hand_is_that_of_its_layer"),
        "sphashquery": (HERE, "test_look_ups_answer_each_query_once"),
        "spvoxelize": (SPARSE, "test_half_means_of_crowded_voxels_are_rounded_once"),
        "SparseTensor": (SPARSE, "test_dense_grids_of_rows"),
        "tune": (HERE, "test_tuning_runs_one_sample_and_leaves_the_model_as_it_was"),
        "get_default_conv_config": (
            SPARSE,
            "test_the_default_configuration_is_copied_and_may_be_written",
        ),
        "GlobalAvgPool": ("compat/test_torchsparse_golden.py", "test_global_pools"),
        "torchsparse.nn.functional.conv.func": (ABSENT, "test_every_module"),
    },
    "flex_gemm": {
        "sparse_submanifold_conv3d": ("compat/test_flex_gemm.py", "test_submanifold"),
        "set_algorithm": ("compat/test_flex_gemm.py", "test_settings_are_accepted_by_name"),
        "grid_sample_3d": ("compat/test_flex_gemm.py", "test_grid_sample_of_a_full_grid_is_torchs"),
        "encode_seq": ("compat/test_flex_gemm.py", "test_codes_by_hand_and_what_does_not_fit"),
        "flex_gemm.config": (ABSENT, "test_every_module"),
    },
    "pointnet2_ops": {
        "furthest_point_sample": (POINT, "test_products_are_rounded_on_their_own"),
        "three_interpolate": (POINT, "test_weights_of_three_points_receive_their_gradient"),
        "ball_query": (POINT, "test_radii_are_squared_in_float32_and_compared_strictly"),
    },
    "knn_cuda": {
        "KNN": (POINT, "test_float64_and_ties_of_knn_cuda"),
        "load_cpp_ext": (POINT, "test_what_the_peer_compiles_counts_from_one"),
    },
    "torch_cluster": {
        "fps": (POINT, "test_random_orders_follow_the_seed"),
        "knn": (POINT, "test_neighbours_of_flat_clouds"),
        "knn_graph": ("pointops/test_flat.py", "test_graphs"),
        "radius": ("pointops/test_flat.py", "test_radius"),
        "nearest": (POINT, "test_nearest_keeps_every_digit"),
        "random_walk": ("pointops/test_graph.py", "test_bias_returns_or_explores"),
        "graclus_cluster": (POINT, "test_random_orders_follow_the_seed"),
        "grid_cluster": ("pointops/test_grid.py", "test_bad_input"),
        "torch_cluster.typing": (ABSENT, "test_every_module"),
    },
    "torch_scatter": {
        "scatter": (POINT, "test_half_sums_are_rounded_once_and_indices_checked"),
        "scatter_mul": (POINT, "test_products_are_made_of_neighbours"),
        "segment_coo": (POINT, "test_segments_in_disorder_are_refused"),
        "segment_csr": (POINT, "test_segments_in_disorder_are_refused"),
        "scatter_logsumexp": (POINT, "test_logsumexp_of_infinity_and_nan"),
        "torch_scatter.placeholder": (ABSENT, "test_every_module"),
    },
    "pytorch3d": {
        "knn_points": (POINT, "test_neighbours_are_sorted_whatever_is_asked"),
        "sample_farthest_points": (POINT, "test_random_starts_of_farthest_points"),
        "chamfer_distance": (POINT, "test_chamfer_of_no_weight_and_of_no_points"),
        "pytorch3d.common": (ABSENT, "test_every_module"),
    },
    "pointops": {
        "farthest_point_sampling": (POINT, "test_products_are_rounded_on_their_own"),
        "knn_query": (POINTOPS, "test_neighbours_beyond_the_peers_limit"),
        "ball_query": (POINTOPS, "test_a_ball_of_more_candidates_than_the_peer_holds"),
        "random_ball_query": (POINTOPS, "test_random_balls_have_no_limit_and_follow_the_seed"),
        "interpolation": (POINTOPS, "test_missing_neighbours"),
        "queryandgroup": (POINTOPS, "test_missing_neighbours"),
        "grouping": (POINTOPS, "test_grouping_of_both_generations"),
        "attention_step1_v2": (POINTOPS, "test_the_most_pairs_of_a_query_are_not_read"),
    },
    "mps_pointops": {
        "knn": (POINTOPS, "test_points_of_any_floating_dtype"),
        "SpatialIndex": (POINTOPS, "test_an_index_of_any_size"),
        "fps": (POINTOPS, "test_flat_clouds_of_any_number_of_coordinates"),
        "grid_cluster": (POINTOPS, "test_whole_operators_and_not_subsets"),
        "register_mps": (POINTOPS, "test_seven_operators_are_registered_for_apple_gpus"),
        "install": (POINTS, "test_mps_pointops"),
        "mps_pointops.pyg_grid": (ABSENT, "test_every_module"),
    },
}


@functools.lru_cache
def found_tests(path: Path) -> dict[str, str]:
    """Tests of a file and their source."""
    source = path.read_text("utf-8")
    return {
        node.name: ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("peer", EXERCISED)
def test_every_line_names_a_test(peer: str) -> None:
    told = [names[0] for names in migration.lines(peer, "What differs")]
    assert sorted(told) == sorted(EXERCISED[peer])
    for name, (file, test) in EXERCISED[peer].items():
        assert test in found_tests(TESTS / file), f"{name}: no {test} in tests/{file}"


def test_every_document_is_looked_at() -> None:
    assert set(EXERCISED) == set(migration.PEERS) - set(migration.DOCUMENTS)


# --------------------------------------------------------------- lines that no other test reaches


def test_functions_have_apply_alone() -> None:
    ours = spconv.functional
    kinds = [getattr(ours, name) for name in ours.__all__ if name.endswith("Function")]
    kinds += [
        getattr(ME, name)
        for name in dir(ME)
        if name.startswith("Minkowski") and name.endswith("Function")
    ]
    assert len(kinds) > 15
    for kind in kinds:
        assert callable(kind.apply)
        assert not hasattr(kind, "backward"), kind


def test_a_layer_of_fixed_scales_has_the_bias_it_is_asked_for() -> None:
    kind = spconv.quantization.quantized.reference.SpConv
    assert kind(3, 2, 4, 3).bias is not None
    assert kind(3, 2, 4, 3, bias=False).bias is None


def test_maxima_of_no_input_and_below_zero() -> None:
    sites = torch.tensor([[0, 0, 0], [0, 2, 0]], dtype=torch.int32)
    x = ME.SparseTensor(torch.tensor([[-3.0], [-5.0]]), sites)
    far = torch.tensor([[0, 0, 0], [0, 40, 0]], dtype=torch.int32)
    out = ME.MinkowskiMaxPooling(3, 2, dimension=2)(x, far)
    assert out.F.tolist() == [[-3.0], [0.0]]
    rows = torch.tensor([0, 1], dtype=torch.int32)
    direct = ME.MinkowskiDirectMaxPoolingFunction
    assert direct.apply(rows, torch.zeros(2).int(), x.F, 1).tolist() == [[-3.0]]
    assert not hasattr(direct, "forward")


def test_kernels_by_name_and_what_is_accepted() -> None:
    fields = ["kernel_size", "kernel_stride", "kernel_dilation", "region_type", "offset", "D"]
    region = ME.MinkowskiKernelGenerator.KernelRegion(*range(6))
    assert list(region._asdict().items()) == list(zip(fields, range(6), strict=True))
    sites = torch.tensor([[0, 1, 1], [0, 4, 2]], dtype=torch.int32)
    conv = ME.MinkowskiConvolution(1, 2, 3, dimension=2)
    outs = []
    for algorithm in ME.MinkowskiAlgorithm:
        x = ME.SparseTensor(torch.ones(2, 1), sites, minkowski_algorithm=algorithm)
        outs.append(conv(x).F)
    assert all(torch.equal(out, outs[0]) for out in outs)
    for allocator in ME.GPUMemoryAllocatorType:
        ME.set_gpu_allocator(allocator)
    with pytest.raises(TypeError, match="backend must be a GPUMemoryAllocatorType, got int"):
        ME.set_gpu_allocator(7)


def test_versions_are_torchs(capsys: Any) -> None:
    assert ME.is_cuda_available() == torch.cuda.is_available()
    if torch.version.cuda is None:
        assert ME.cuda_version() == ME.cudart_version() == -1
    else:
        assert str(ME.cuda_version() // 1000) == torch.version.cuda.split(".")[0]
    ME.print_diagnostics()
    assert f"torch {torch.__version__}" in capsys.readouterr().out


def test_look_ups_answer_each_query_once() -> None:
    keys = torch.tensor([5, 9, 5])
    assert ts.nn.functional.sphashquery(torch.tensor([9, 5, 1]), keys).tolist() == [1, 0, -1]


def test_tuning_runs_one_sample_and_leaves_the_model_as_it_was() -> None:
    seen: list[int] = []
    model = torch.nn.Module()
    model.forward = seen.append  # type: ignore[assignment]
    ts.tune(model, iter([3, 4, 5]), collect_fn=lambda sample: 10 * sample)
    assert seen == [30]
    assert model.training
