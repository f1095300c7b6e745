// ---- convolved 0
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x4x5x4x6xf32>, %arg1: tensor<2x2x1x3x4xf32>) -> (tensor<2x2x3x5x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f], window = {stride = [2, 2, 1], pad = [[0, 1], [0, 2], [-1, -1]], lhs_dilate = [1, 1, 2], rhs_dilate = [1, 1, 2], reverse = [false, false, false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x4x5x4x6xf32>, tensor<2x2x1x3x4xf32>) -> tensor<2x2x3x5x4xf32>
    return %0 : tensor<2x2x3x5x4xf32>
  }
}
// ---- convolved 1
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x4x6x7x3xf32>, %arg1: tensor<4x2x2x3x2xf32>) -> (tensor<2x4x3x10x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1, 2]x[o, i, 0, 1, 2]->[b, f, 0, 1, 2], window = {stride = [2, 1, 2], pad = [[2, 0], [1, 0], [2, 1]], lhs_dilate = [1, 2, 2], rhs_dilate = [2, 2, 1], reverse = [false, false, false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x4x6x7x3xf32>, tensor<4x2x2x3x2xf32>) -> tensor<2x4x3x10x4xf32>
    return %0 : tensor<2x4x3x10x4xf32>
  }
}
// ---- convolved 2
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x1x5x5x4xf32>, %arg1: tensor<4x1x3x2x3xf32>) -> (tensor<2x4x3x7x3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1, 2]x[o, i, 0, 1, 2]->[b, f, 0, 1, 2], window = {stride = [2, 1, 2], pad = [[1, -1], [1, -1], [-1, 2]], lhs_dilate = [2, 2, 2], rhs_dilate = [2, 2, 1], reverse = [false, false, false]} {batch_group_count = 2 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<4x1x5x5x4xf32>, tensor<4x1x3x2x3xf32>) -> tensor<2x4x3x7x3xf32>
    return %0 : tensor<2x4x3x7x3xf32>
  }
}
// ---- convolved 3
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x7x1xf32>, %arg1: tensor<2x1x3xf32>) -> (tensor<2x11x2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[o, i, 0]->[b, 0, f], window = {stride = [1], pad = [[1, -1]], lhs_dilate = [2], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x7x1xf32>, tensor<2x1x3xf32>) -> tensor<2x11x2xf32>
    return %0 : tensor<2x11x2xf32>
  }
}
// ---- convolved 4
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x2x3xf32>, %arg1: tensor<4x1x2xf32>) -> (tensor<1x4x1xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {stride = [2], pad = [[-1, 1]], lhs_dilate = [1], rhs_dilate = [2], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x2x3xf32>, tensor<4x1x2xf32>) -> tensor<1x4x1xf32>
    return %0 : tensor<1x4x1xf32>
  }
}
// ---- convolved 5
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x7x6x9xf32>, %arg1: tensor<6x3x3x3xf32>) -> (tensor<2x5x9x6xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {stride = [2, 1], pad = [[0, -1], [2, 0]], lhs_dilate = [2, 2], rhs_dilate = [1, 2], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 3 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x7x6x9xf32>, tensor<6x3x3x3xf32>) -> tensor<2x5x9x6xf32>
    return %0 : tensor<2x5x9x6xf32>
  }
}
// ---- convolved 6
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x6x3x7xf32>, %arg1: tensor<4x3x2x2xf32>) -> (tensor<2x4x3x7xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2], pad = [[2, 1], [2, 1]], lhs_dilate = [1, 2], rhs_dilate = [1, 2], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x6x3x7xf32>, tensor<4x3x2x2xf32>) -> tensor<2x4x3x7xf32>
    return %0 : tensor<2x4x3x7xf32>
  }
}
// ---- convolved 7
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x4x5x3xf32>, %arg1: tensor<3x2x3x2xf32>) -> (tensor<2x2x10x2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 1], pad = [[2, 0], [2, 1]], lhs_dilate = [1, 2], rhs_dilate = [1, 2], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x4x5x3xf32>, tensor<3x2x3x2xf32>) -> tensor<2x2x10x2xf32>
    return %0 : tensor<2x2x10x2xf32>
  }
}
// ---- convolved 8
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x6x9xf32>, %arg1: tensor<6x3x3xf32>) -> (tensor<2x4x6xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[o, i, 0]->[b, 0, f], window = {stride = [1], pad = [[0, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 3 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x6x9xf32>, tensor<6x3x3xf32>) -> tensor<2x4x6xf32>
    return %0 : tensor<2x4x6xf32>
  }
}
// ---- convolved 9
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x3x4x3x5xf32>, %arg1: tensor<3x2x1x1x6xf32>) -> (tensor<1x6x1x3x3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1, 2]x[0, 1, 2, i, o]->[b, f, 0, 1, 2], window = {stride = [2, 1, 2], pad = [[2, 0], [-1, 0], [1, 0]], lhs_dilate = [1, 2, 1], rhs_dilate = [2, 1, 2], reverse = [false, false, false]} {batch_group_count = 1 : i64, feature_group_count = 3 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x3x4x3x5xf32>, tensor<3x2x1x1x6xf32>) -> tensor<1x6x1x3x3xf32>
    return %0 : tensor<1x6x1x3x3xf32>
  }
}
// ---- convolved 10
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x3x4x5x1xf32>, %arg1: tensor<4x1x1x1x3xf32>) -> (tensor<2x3x7x5x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, 2, f]x[o, i, 0, 1, 2]->[b, 0, 1, 2, f], window = {stride = [2, 1, 2], pad = [[2, 1], [0, 0], [2, 1]], lhs_dilate = [1, 2, 2], rhs_dilate = [1, 2, 1], reverse = [false, false, false]} {batch_group_count = 2 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<4x3x4x5x1xf32>, tensor<4x1x1x1x3xf32>) -> tensor<2x3x7x5x4xf32>
    return %0 : tensor<2x3x7x5x4xf32>
  }
}
// ---- convolved 11
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x2x3x4x7xf32>, %arg1: tensor<2x2x1x1x2xf32>) -> (tensor<1x2x6x5x7xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1, 2]x[o, i, 0, 1, 2]->[b, f, 0, 1, 2], window = {stride = [1, 2, 2], pad = [[0, 1], [2, 1], [2, -1]], lhs_dilate = [2, 2, 2], rhs_dilate = [2, 1, 1], reverse = [false, false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x2x3x4x7xf32>, tensor<2x2x1x1x2xf32>) -> tensor<1x2x6x5x7xf32>
    return %0 : tensor<1x2x6x5x7xf32>
  }
}
// ---- convolved 12
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x9x3xf32>, %arg1: tensor<3x3x6xf32>) -> (tensor<1x6x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0]x[0, i, o]->[b, f, 0], window = {stride = [1], pad = [[1, 2]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 3 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x9x3xf32>, tensor<3x3x6xf32>) -> tensor<1x6x4xf32>
    return %0 : tensor<1x6x4xf32>
  }
}
// ---- convolved 13
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x5x7x7x3xf32>, %arg1: tensor<3x2x1x3x4xf32>) -> (tensor<2x9x4x8x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f], window = {stride = [1, 2, 1], pad = [[2, 0], [1, 1], [2, -1]], lhs_dilate = [2, 1, 1], rhs_dilate = [1, 2, 2], reverse = [false, false, false]} {batch_group_count = 2 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<4x5x7x7x3xf32>, tensor<3x2x1x3x4xf32>) -> tensor<2x9x4x8x4xf32>
    return %0 : tensor<2x9x4x8x4xf32>
  }
}
// ---- convolved 14
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x2x7xf32>, %arg1: tensor<1x2x4xf32>) -> (tensor<1x4x3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0]x[0, i, o]->[b, f, 0], window = {stride = [2], pad = [[0, -1]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 2 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x2x7xf32>, tensor<1x2x4xf32>) -> tensor<1x4x3xf32>
    return %0 : tensor<1x4x3xf32>
  }
}
// ---- convolved 15
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x3x7xf32>, %arg1: tensor<3x3x2xf32>) -> (tensor<1x2x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0]x[0, i, o]->[b, f, 0], window = {stride = [1], pad = [[-1, 2]], lhs_dilate = [1], rhs_dilate = [2], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x3x7xf32>, tensor<3x3x2xf32>) -> tensor<1x2x4xf32>
    return %0 : tensor<1x2x4xf32>
  }
}
