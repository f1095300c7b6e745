// ---- multiplied 0
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3x3xf32>, %arg1: tensor<3x3x3x3xf32>) -> (tensor<3x3x3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [0, 1] x [1, 0], precision = [DEFAULT, DEFAULT] : (tensor<3x3x3xf32>, tensor<3x3x3x3xf32>) -> tensor<3x3x3xf32>
    return %0 : tensor<3x3x3xf32>
  }
}
// ---- multiplied 1
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x2x4x3xf32>, %arg1: tensor<2x4x3x4x4xf32>) -> (tensor<2x4x4x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [1] x [0], contracting_dims = [3, 0] x [2, 4], precision = [DEFAULT, DEFAULT] : (tensor<4x2x4x3xf32>, tensor<2x4x3x4x4xf32>) -> tensor<2x4x4x4xf32>
    return %0 : tensor<2x4x4x4xf32>
  }
}
// ---- multiplied 2
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32>, %arg1: tensor<3x2x4xf32>) -> (tensor<4x4x3x2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0] x [2], contracting_dims = [] x [], precision = [DEFAULT, DEFAULT] : (tensor<4x4xf32>, tensor<3x2x4xf32>) -> tensor<4x4x3x2xf32>
    return %0 : tensor<4x4x3x2xf32>
  }
}
// ---- multiplied 3
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x3xf32>, %arg1: tensor<1x3x2xf32>) -> (tensor<3x4x1x2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [1] x [1], contracting_dims = [] x [], precision = [DEFAULT, DEFAULT] : (tensor<4x3xf32>, tensor<1x3x2xf32>) -> tensor<3x4x1x2xf32>
    return %0 : tensor<3x4x1x2xf32>
  }
}
// ---- multiplied 4
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x1x2xf32>, %arg1: tensor<2x4x4x3xf32>) -> (tensor<2x1x4x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [2] x [0], contracting_dims = [0] x [3], precision = [DEFAULT, DEFAULT] : (tensor<3x1x2xf32>, tensor<2x4x4x3xf32>) -> tensor<2x1x4x4xf32>
    return %0 : tensor<2x1x4x4xf32>
  }
}
// ---- multiplied 5
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x3x1x2xf32>, %arg1: tensor<1x4x2x3x3xf32>) -> (tensor<1x1x4x3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [2] x [0], contracting_dims = [1, 3] x [4, 2], precision = [DEFAULT, DEFAULT] : (tensor<1x3x1x2xf32>, tensor<1x4x2x3x3xf32>) -> tensor<1x1x4x3xf32>
    return %0 : tensor<1x1x4x3xf32>
  }
}
// ---- multiplied 6
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x3xi32>, %arg1: tensor<3x3x3xi32>) -> (tensor<4x3x3xi32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x3xi32>, tensor<3x3x3xi32>) -> tensor<4x3x3xi32>
    return %0 : tensor<4x3x3xi32>
  }
}
// ---- multiplied 7
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x2x4x4xf32>, %arg1: tensor<4x1x4x4x2xf32>) -> (tensor<4x2x4x2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [2] x [2], contracting_dims = [3, 0] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<1x2x4x4xf32>, tensor<4x1x4x4x2xf32>) -> tensor<4x2x4x2xf32>
    return %0 : tensor<4x2x4x2xf32>
  }
}
// ---- multiplied 8
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x4x2xi32>, %arg1: tensor<1x3x2x1xi32>) -> (tensor<1x4x1x3xi32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0] x [3], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<1x4x2xi32>, tensor<1x3x2x1xi32>) -> tensor<1x4x1x3xi32>
    return %0 : tensor<1x4x1x3xi32>
  }
}
// ---- multiplied 9
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4x4x3xf32>, %arg1: tensor<3x4x2x4x4xf32>) -> (tensor<4x3x3x2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [2] x [4], contracting_dims = [0, 1] x [1, 3], precision = [DEFAULT, DEFAULT] : (tensor<4x4x4x3xf32>, tensor<3x4x2x4x4xf32>) -> tensor<4x3x3x2xf32>
    return %0 : tensor<4x3x3x2xf32>
  }
}
// ---- multiplied 10
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2xf32>, %arg1: tensor<4x1xf32>) -> (tensor<2x4x1xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [] x [], precision = [DEFAULT, DEFAULT] : (tensor<2xf32>, tensor<4x1xf32>) -> tensor<2x4x1xf32>
    return %0 : tensor<2x4x1xf32>
  }
}
// ---- multiplied 11
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x2x3xi32>, %arg1: tensor<3x3x1x1xi32>) -> (tensor<1x2x3x1xi32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0] x [3], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<1x2x3xi32>, tensor<3x3x1x1xi32>) -> tensor<1x2x3x1xi32>
    return %0 : tensor<1x2x3x1xi32>
  }
}
// ---- multiplied 12
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x4x2xf32>, %arg1: tensor<1x2x2x4xf32>) -> (tensor<2x2x1x2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0] x [2], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x4x2xf32>, tensor<1x2x2x4xf32>) -> tensor<2x2x1x2xf32>
    return %0 : tensor<2x2x1x2xf32>
  }
}
// ---- multiplied 13
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4xi32>, %arg1: tensor<4x4xi32>) -> (tensor<4x4x4xi32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [] x [], precision = [DEFAULT, DEFAULT] : (tensor<4xi32>, tensor<4x4xi32>) -> tensor<4x4x4xi32>
    return %0 : tensor<4x4x4xi32>
  }
}
// ---- multiplied 14
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x1x4xi32>, %arg1: tensor<1x3x3x3xi32>) -> (tensor<3x4x3x3xi32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0] x [2], contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x1x4xi32>, tensor<1x3x3x3xi32>) -> tensor<3x4x3x3xi32>
    return %0 : tensor<3x4x3x3xi32>
  }
}
// ---- multiplied 15
module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x2xf32>, %arg1: tensor<4x1x2xf32>) -> (tensor<2x4x1xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<4x1x2xf32>) -> tensor<2x4x1xf32>
    return %0 : tensor<2x4x1xf32>
  }
}
