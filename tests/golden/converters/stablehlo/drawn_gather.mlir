// ---- gather 0
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3x2xf32>, %arg1: tensor<3x3x0xi32>) -> (tensor<3x3x2x2xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<> : tensor<0xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<3x3x0xi32>
    %1 = stablehlo.compare GE, %arg1, %0, SIGNED : (tensor<3x3x0xi32>, tensor<3x3x0xi32>) -> tensor<3x3x0xi1>
    %2 = stablehlo.broadcast_in_dim %c, dims = [2] : (tensor<0xi32>) -> tensor<1x1x0xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x1x0xi32>) -> tensor<3x3x0xi32>
    %4 = stablehlo.compare LE, %arg1, %3, SIGNED : (tensor<3x3x0xi32>, tensor<3x3x0xi32>) -> tensor<3x3x0xi1>
    %5 = stablehlo.and %1, %4 : tensor<3x3x0xi1>
    %c_1 = stablehlo.constant dense<true> : tensor<i1>
    %6 = stablehlo.reduce(%5 init: %c_1) applies stablehlo.and across dimensions = [2] : (tensor<3x3x0xi1>, tensor<i1>) -> tensor<3x3xi1>
    %7 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [2, 3], operand_batching_dims = [0], start_indices_batching_dims = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 2, 2>}> : (tensor<3x3x2xf32>, tensor<3x3x0xi32>) -> tensor<3x3x2x2xf32>
    %8 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<3x3xi1>) -> tensor<3x3x2x2xi1>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3x3x2x2xf32>
    %10 = stablehlo.select %8, %7, %9 : tensor<3x3x2x2xi1>, tensor<3x3x2x2xf32>
    return %10 : tensor<3x3x2x2xf32>
  }
}
// ---- gather 1
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x4xf32>, %arg1: tensor<4x1xi32>) -> (tensor<3x4xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<0> : tensor<1xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<4x1xi32>
    %1 = stablehlo.compare GE, %arg1, %0, SIGNED : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x1xi1>
    %2 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<1xi32>) -> tensor<1x1xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<1x1xi32>) -> tensor<4x1xi32>
    %4 = stablehlo.compare LE, %arg1, %3, SIGNED : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x1xi1>
    %5 = stablehlo.and %1, %4 : tensor<4x1xi1>
    %c_1 = stablehlo.constant dense<true> : tensor<i1>
    %6 = stablehlo.reduce(%5 init: %c_1) applies stablehlo.and across dimensions = [1] : (tensor<4x1xi1>, tensor<i1>) -> tensor<4xi1>
    %7 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], operand_batching_dims = [1], start_indices_batching_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 3, 1>}> : (tensor<3x4xf32>, tensor<4x1xi32>) -> tensor<3x4xf32>
    %8 = stablehlo.broadcast_in_dim %6, dims = [1] : (tensor<4xi1>) -> tensor<3x4xi1>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3x4xf32>
    %10 = stablehlo.select %8, %7, %9 : tensor<3x4xi1>, tensor<3x4xf32>
    return %10 : tensor<3x4xf32>
  }
}
// ---- gather 2
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x1x2xi32>, %arg1: tensor<1xi32>) -> (tensor<2xi32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<0> : tensor<1xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %1 = stablehlo.compare GE, %arg1, %0, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
    %2 = stablehlo.compare LE, %arg1, %c, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
    %3 = stablehlo.and %1, %2 : tensor<1xi1>
    %c_1 = stablehlo.constant dense<true> : tensor<i1>
    %4 = stablehlo.reduce(%3 init: %c_1) applies stablehlo.and across dimensions = [0] : (tensor<1xi1>, tensor<i1>) -> tensor<i1>
    %5 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1, 2], start_index_map = [0]>, indices_are_sorted = false, slice_sizes = array<i64: 2, 1, 1>}> : (tensor<2x1x2xi32>, tensor<1xi32>) -> tensor<2xi32>
    %6 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i1>) -> tensor<2xi1>
    %c_2 = stablehlo.constant dense<-2147483648> : tensor<i32>
    %7 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %8 = stablehlo.select %6, %5, %7 : tensor<2xi1>, tensor<2xi32>
    return %8 : tensor<2xi32>
  }
}
// ---- gather 3
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x1x1xi32>, %arg1: tensor<2x2xi32>) -> (tensor<1x2xi32> {jax.result_info = "result"}) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0, 2], start_index_map = [2, 1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<1x1x1xi32>, tensor<2x2xi32>) -> tensor<1x2xi32>
    return %0 : tensor<1x2xi32>
  }
}
// ---- gather 4
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4x3xf32>, %arg1: tensor<2xi32>) -> (tensor<4x3x1xf32> {jax.result_info = "result"}) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 2], start_index_map = [0, 2]>, indices_are_sorted = false, slice_sizes = array<i64: 4, 3, 1>}> : (tensor<4x4x3xf32>, tensor<2xi32>) -> tensor<4x3x1xf32>
    return %0 : tensor<4x3x1xf32>
  }
}
// ---- gather 5
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x1x4xf32>, %arg1: tensor<1x1x3xi32>) -> (tensor<1x1x1x1xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<[0, 3, 3]> : tensor<3xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<1x1x3xi32>
    %1 = stablehlo.compare GE, %arg1, %0, SIGNED : (tensor<1x1x3xi32>, tensor<1x1x3xi32>) -> tensor<1x1x3xi1>
    %2 = stablehlo.broadcast_in_dim %c, dims = [2] : (tensor<3xi32>) -> tensor<1x1x3xi32>
    %3 = stablehlo.compare LE, %arg1, %2, SIGNED : (tensor<1x1x3xi32>, tensor<1x1x3xi32>) -> tensor<1x1x3xi1>
    %4 = stablehlo.and %1, %3 : tensor<1x1x3xi1>
    %c_1 = stablehlo.constant dense<true> : tensor<i1>
    %5 = stablehlo.reduce(%4 init: %c_1) applies stablehlo.and across dimensions = [2] : (tensor<1x1x3xi1>, tensor<i1>) -> tensor<1x1xi1>
    %6 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [1, 2, 0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<4x1x4xf32>, tensor<1x1x3xi32>) -> tensor<1x1x1x1xf32>
    %7 = stablehlo.broadcast_in_dim %5, dims = [0, 3] : (tensor<1x1xi1>) -> tensor<1x1x1x1xi1>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x1x1x1xf32>
    %9 = stablehlo.select %7, %6, %8 : tensor<1x1x1x1xi1>, tensor<1x1x1x1xf32>
    return %9 : tensor<1x1x1x1xf32>
  }
}
// ---- gather 6
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3xf32>, %arg1: tensor<3x1xi32>) -> (tensor<2x3x1xf32> {jax.result_info = "result"}) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 2, 1>}> : (tensor<3x3xf32>, tensor<3x1xi32>) -> tensor<2x3x1xf32>
    return %0 : tensor<2x3x1xf32>
  }
}
// ---- gather 7
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3x4xf32>, %arg1: tensor<2xi32>) -> (tensor<1x2x4xf32> {jax.result_info = "result"}) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 2], start_index_map = [1, 0]>, indices_are_sorted = false, slice_sizes = array<i64: 1, 2, 4>}> : (tensor<3x3x4xf32>, tensor<2xi32>) -> tensor<1x2x4xf32>
    return %0 : tensor<1x2x4xf32>
  }
}
// ---- gather 8
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x1x4xi32>, %arg1: tensor<1xi32>) -> (tensor<2x2xi32> {jax.result_info = "result"}) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [1], start_index_map = [2]>, indices_are_sorted = false, slice_sizes = array<i64: 2, 1, 2>}> : (tensor<2x1x4xi32>, tensor<1xi32>) -> tensor<2x2xi32>
    return %0 : tensor<2x2xi32>
  }
}
// ---- gather 9
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xi32>, %arg1: tensor<3x3x0xi32>) -> (tensor<2x4x3x3xi32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<> : tensor<0xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<3x3x0xi32>
    %1 = stablehlo.compare GE, %arg1, %0, SIGNED : (tensor<3x3x0xi32>, tensor<3x3x0xi32>) -> tensor<3x3x0xi1>
    %2 = stablehlo.broadcast_in_dim %c, dims = [2] : (tensor<0xi32>) -> tensor<1x1x0xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x1x0xi32>) -> tensor<3x3x0xi32>
    %4 = stablehlo.compare LE, %arg1, %3, SIGNED : (tensor<3x3x0xi32>, tensor<3x3x0xi32>) -> tensor<3x3x0xi1>
    %5 = stablehlo.and %1, %4 : tensor<3x3x0xi1>
    %c_1 = stablehlo.constant dense<true> : tensor<i1>
    %6 = stablehlo.reduce(%5 init: %c_1) applies stablehlo.and across dimensions = [2] : (tensor<3x3x0xi1>, tensor<i1>) -> tensor<3x3xi1>
    %7 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 2, 4>}> : (tensor<4x4xi32>, tensor<3x3x0xi32>) -> tensor<2x4x3x3xi32>
    %8 = stablehlo.broadcast_in_dim %6, dims = [2, 3] : (tensor<3x3xi1>) -> tensor<2x4x3x3xi1>
    %c_2 = stablehlo.constant dense<-2147483648> : tensor<i32>
    %9 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<2x4x3x3xi32>
    %10 = stablehlo.select %8, %7, %9 : tensor<2x4x3x3xi1>, tensor<2x4x3x3xi32>
    return %10 : tensor<2x4x3x3xi32>
  }
}
// ---- gather 10
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x2x1xi32>, %arg1: tensor<1x3x2xi32>) -> (tensor<1x3x3x1xi32> {jax.result_info = "result"}) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 3], collapsed_slice_dims = [1], start_index_map = [2, 0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 3, 1, 1>}> : (tensor<4x2x1xi32>, tensor<1x3x2xi32>) -> tensor<1x3x3x1xi32>
    return %0 : tensor<1x3x3x1xi32>
  }
}
// ---- gather 11
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1xi32>, %arg1: tensor<1x0xi32>) -> (tensor<1xi32> {jax.result_info = "result"}) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1>}> : (tensor<1xi32>, tensor<1x0xi32>) -> tensor<1xi32>
    return %0 : tensor<1xi32>
  }
}
// ---- gather 12
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x4xf32>, %arg1: tensor<2x3x2x1xi32>) -> (tensor<2x3x2x4xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<0> : tensor<1xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x3x2x1xi32>
    %1 = stablehlo.compare GE, %arg1, %0, SIGNED : (tensor<2x3x2x1xi32>, tensor<2x3x2x1xi32>) -> tensor<2x3x2x1xi1>
    %2 = stablehlo.broadcast_in_dim %c, dims = [3] : (tensor<1xi32>) -> tensor<1x1x1x1xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2, 3] : (tensor<1x1x1x1xi32>) -> tensor<2x3x2x1xi32>
    %4 = stablehlo.compare LE, %arg1, %3, SIGNED : (tensor<2x3x2x1xi32>, tensor<2x3x2x1xi32>) -> tensor<2x3x2x1xi1>
    %5 = stablehlo.and %1, %4 : tensor<2x3x2x1xi1>
    %c_1 = stablehlo.constant dense<true> : tensor<i1>
    %6 = stablehlo.reduce(%5 init: %c_1) applies stablehlo.and across dimensions = [3] : (tensor<2x3x2x1xi1>, tensor<i1>) -> tensor<2x3x2xi1>
    %7 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [3], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 3>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4>}> : (tensor<2x4xf32>, tensor<2x3x2x1xi32>) -> tensor<2x3x2x4xf32>
    %8 = stablehlo.broadcast_in_dim %6, dims = [0, 1, 2] : (tensor<2x3x2xi1>) -> tensor<2x3x2x4xi1>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x3x2x4xf32>
    %10 = stablehlo.select %8, %7, %9 : tensor<2x3x2x4xi1>, tensor<2x3x2x4xf32>
    return %10 : tensor<2x3x2x4xf32>
  }
}
// ---- gather 13
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4x4xf32>, %arg1: tensor<2xi32>) -> (tensor<3x4x1xf32> {jax.result_info = "result"}) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 2], start_index_map = [1, 0]>, indices_are_sorted = false, slice_sizes = array<i64: 3, 4, 1>}> : (tensor<4x4x4xf32>, tensor<2xi32>) -> tensor<3x4x1xf32>
    return %0 : tensor<3x4x1xf32>
  }
}
// ---- gather 14
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4xi32>, %arg1: tensor<2x2x0xi32>) -> (tensor<2x2x2xi32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<> : tensor<0xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x2x0xi32>
    %1 = stablehlo.compare GE, %arg1, %0, SIGNED : (tensor<2x2x0xi32>, tensor<2x2x0xi32>) -> tensor<2x2x0xi1>
    %2 = stablehlo.broadcast_in_dim %c, dims = [2] : (tensor<0xi32>) -> tensor<1x1x0xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x1x0xi32>) -> tensor<2x2x0xi32>
    %4 = stablehlo.compare LE, %arg1, %3, SIGNED : (tensor<2x2x0xi32>, tensor<2x2x0xi32>) -> tensor<2x2x0xi1>
    %5 = stablehlo.and %1, %4 : tensor<2x2x0xi1>
    %c_1 = stablehlo.constant dense<true> : tensor<i1>
    %6 = stablehlo.reduce(%5 init: %c_1) applies stablehlo.and across dimensions = [2] : (tensor<2x2x0xi1>, tensor<i1>) -> tensor<2x2xi1>
    %7 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 2>}> : (tensor<4xi32>, tensor<2x2x0xi32>) -> tensor<2x2x2xi32>
    %8 = stablehlo.broadcast_in_dim %6, dims = [0, 2] : (tensor<2x2xi1>) -> tensor<2x2x2xi1>
    %c_2 = stablehlo.constant dense<-2147483648> : tensor<i32>
    %9 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<2x2x2xi32>
    %10 = stablehlo.select %8, %7, %9 : tensor<2x2x2xi1>, tensor<2x2x2xi32>
    return %10 : tensor<2x2x2xi32>
  }
}
// ---- gather 15
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3x4xi32>, %arg1: tensor<2x1x2xi32>) -> (tensor<2x3x2x1x2xi32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<[0, 2]> : tensor<2xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x1x2xi32>
    %1 = stablehlo.compare GE, %arg1, %0, SIGNED : (tensor<2x1x2xi32>, tensor<2x1x2xi32>) -> tensor<2x1x2xi1>
    %2 = stablehlo.broadcast_in_dim %c, dims = [2] : (tensor<2xi32>) -> tensor<1x1x2xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<1x1x2xi32>) -> tensor<2x1x2xi32>
    %4 = stablehlo.compare LE, %arg1, %3, SIGNED : (tensor<2x1x2xi32>, tensor<2x1x2xi32>) -> tensor<2x1x2xi1>
    %5 = stablehlo.and %1, %4 : tensor<2x1x2xi1>
    %c_1 = stablehlo.constant dense<true> : tensor<i1>
    %6 = stablehlo.reduce(%5 init: %c_1) applies stablehlo.and across dimensions = [2] : (tensor<2x1x2xi1>, tensor<i1>) -> tensor<2x1xi1>
    %7 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2, 4], start_index_map = [0, 2], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 3, 2, 2>}> : (tensor<3x3x4xi32>, tensor<2x1x2xi32>) -> tensor<2x3x2x1x2xi32>
    %8 = stablehlo.broadcast_in_dim %6, dims = [0, 3] : (tensor<2x1xi1>) -> tensor<2x3x2x1x2xi1>
    %c_2 = stablehlo.constant dense<-2147483648> : tensor<i32>
    %9 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<2x3x2x1x2xi32>
    %10 = stablehlo.select %8, %7, %9 : tensor<2x3x2x1x2xi1>, tensor<2x3x2x1x2xi32>
    return %10 : tensor<2x3x2x1x2xi32>
  }
}
