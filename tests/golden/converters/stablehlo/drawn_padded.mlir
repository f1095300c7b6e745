// ---- padded 0
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32>, %arg1: tensor<f32>) -> (tensor<4x6xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [-1, -4], high = [-5, 3], interior = [2, 1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
// ---- padded 1
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x4xf32>, %arg1: tensor<f32>) -> (tensor<3x2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [2, 2], high = [0, -10], interior = [0, 2] : (tensor<1x4xf32>, tensor<f32>) -> tensor<3x2xf32>
    return %0 : tensor<3x2xf32>
  }
}
// ---- padded 2
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x2x3xf32>, %arg1: tensor<f32>) -> (tensor<0x0x9xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [0, 1, -1], high = [-3, -3, 3], interior = [1, 0, 2] : (tensor<2x2x3xf32>, tensor<f32>) -> tensor<0x0x9xf32>
    return %0 : tensor<0x0x9xf32>
  }
}
// ---- padded 3
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1xf32>, %arg1: tensor<f32>) -> (tensor<3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [0], high = [2], interior = [0] : (tensor<1xf32>, tensor<f32>) -> tensor<3xf32>
    return %0 : tensor<3xf32>
  }
}
// ---- padded 6
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3xf32>, %arg1: tensor<f32>) -> (tensor<1xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [-3], high = [-1], interior = [1] : (tensor<3xf32>, tensor<f32>) -> tensor<1xf32>
    return %0 : tensor<1xf32>
  }
}
// ---- padded 5
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x2x1xf32>, %arg1: tensor<f32>) -> (tensor<0x0x1xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [0, -1, -1], high = [-7, -2, 1], interior = [2, 1, 2] : (tensor<3x2x1xf32>, tensor<f32>) -> tensor<0x0x1xf32>
    return %0 : tensor<0x0x1xf32>
  }
}
// ---- padded 7
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x3x4xf32>, %arg1: tensor<f32>) -> (tensor<0x1x1xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [-5, -7, 2], high = [-2, 1, -5], interior = [1, 2, 0] : (tensor<4x3x4xf32>, tensor<f32>) -> tensor<0x1x1xf32>
    return %0 : tensor<0x1x1xf32>
  }
}
// ---- padded 8
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x1xf32>, %arg1: tensor<f32>) -> (tensor<8x0xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [3, 0], high = [-2, -1], interior = [1, 0] : (tensor<4x1xf32>, tensor<f32>) -> tensor<8x0xf32>
    return %0 : tensor<8x0xf32>
  }
}
// ---- padded 9
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x1x1xf32>, %arg1: tensor<f32>) -> (tensor<6x3x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [0, 3, 2], high = [2, -1, 1], interior = [2, 1, 2] : (tensor<2x1x1xf32>, tensor<f32>) -> tensor<6x3x4xf32>
    return %0 : tensor<6x3x4xf32>
  }
}
// ---- padded 10
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3xf32>, %arg1: tensor<f32>) -> (tensor<5xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [0], high = [2], interior = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<5xf32>
    return %0 : tensor<5xf32>
  }
}
// ---- padded 11
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<f32>) -> (tensor<0xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [2], high = [-6], interior = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<0xf32>
    return %0 : tensor<0xf32>
  }
}
// ---- padded 12
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x2xf32>, %arg1: tensor<f32>) -> (tensor<2x2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [0, 0], high = [-2, -1], interior = [0, 1] : (tensor<4x2xf32>, tensor<f32>) -> tensor<2x2xf32>
    return %0 : tensor<2x2xf32>
  }
}
// ---- padded 13
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3xf32>, %arg1: tensor<f32>) -> (tensor<2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [-2], high = [1], interior = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
// ---- padded 14
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x4xf32>, %arg1: tensor<f32>) -> (tensor<2x1xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [-3, 1], high = [1, -4], interior = [2, 0] : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x1xf32>
    return %0 : tensor<2x1xf32>
  }
}
// ---- padded 15
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x4x1xf32>, %arg1: tensor<f32>) -> (tensor<0x2x1xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.pad %arg0, %arg1, low = [-7, 3, -1], high = [0, -5, 1], interior = [2, 0, 1] : (tensor<3x4x1xf32>, tensor<f32>) -> tensor<0x2x1xf32>
    return %0 : tensor<0x2x1xf32>
  }
}
