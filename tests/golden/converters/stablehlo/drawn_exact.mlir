// ---- exact 0
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<40xi32>, %arg1: tensor<40xi32>) -> (tensor<40xi32> {jax.result_info = "result[0]"}, tensor<40xi32> {jax.result_info = "result[1]"}, tensor<40xi32> {jax.result_info = "result[2]"}, tensor<40xi32> {jax.result_info = "result[3]"}, tensor<40xi32> {jax.result_info = "result[4]"}, tensor<40xi32> {jax.result_info = "result[5]"}, tensor<40xi32> {jax.result_info = "result[6]"}, tensor<40xi32> {jax.result_info = "result[7]"}, tensor<40xi32> {jax.result_info = "result[8]"}, tensor<40xi32> {jax.result_info = "result[9]"}, tensor<40xi32> {jax.result_info = "result[10]"}, tensor<40xi32> {jax.result_info = "result[11]"}, tensor<40xi32> {jax.result_info = "result[12]"}, tensor<40xi32> {jax.result_info = "result[13]"}, tensor<40xi32> {jax.result_info = "result[14]"}, tensor<40xi32> {jax.result_info = "result[15]"}, tensor<40xi32> {jax.result_info = "result[16]"}, tensor<40xi32> {jax.result_info = "result[17]"}, tensor<40xf32> {jax.result_info = "result[18]"}, tensor<40xi1> {jax.result_info = "result[19]"}, tensor<40xi16> {jax.result_info = "result[20]"}, tensor<40xui16> {jax.result_info = "result[21]"}, tensor<40xi1> {jax.result_info = "result[22]"}, tensor<40xi1> {jax.result_info = "result[23]"}) {
    %0 = stablehlo.add %arg0, %arg1 : tensor<40xi32>
    %1 = stablehlo.subtract %arg0, %arg1 : tensor<40xi32>
    %2 = stablehlo.multiply %arg0, %arg1 : tensor<40xi32>
    %3 = stablehlo.divide %arg0, %arg1 : tensor<40xi32>
    %4 = stablehlo.remainder %arg0, %arg1 : tensor<40xi32>
    %5 = stablehlo.maximum %arg0, %arg1 : tensor<40xi32>
    %6 = stablehlo.minimum %arg0, %arg1 : tensor<40xi32>
    %7 = stablehlo.negate %arg0 : tensor<40xi32>
    %8 = stablehlo.sign %arg0 : tensor<40xi32>
    %9 = stablehlo.abs %arg0 : tensor<40xi32>
    %10 = stablehlo.shift_left %arg0, %arg1 : tensor<40xi32>
    %11 = stablehlo.shift_right_logical %arg0, %arg1 : tensor<40xi32>
    %12 = stablehlo.shift_right_arithmetic %arg0, %arg1 : tensor<40xi32>
    %13 = stablehlo.popcnt %arg0 : tensor<40xi32>
    %14 = stablehlo.count_leading_zeros %arg0 : tensor<40xi32>
    %15 = stablehlo.xor %arg0, %arg1 : tensor<40xi32>
    %16 = stablehlo.not %arg0 : tensor<40xi32>
    %17 = stablehlo.minimum %arg0, %arg1 : tensor<40xi32>
    %18 = stablehlo.clamp %17, %arg0, %arg1 : tensor<40xi32>
    %19 = stablehlo.convert %arg0 : (tensor<40xi32>) -> tensor<40xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %20 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<40xi32>
    %21 = stablehlo.compare NE, %arg0, %20, SIGNED : (tensor<40xi32>, tensor<40xi32>) -> tensor<40xi1>
    %22 = stablehlo.convert %21 : tensor<40xi1>
    %23 = stablehlo.convert %arg0 : (tensor<40xi32>) -> tensor<40xi16>
    %24 = stablehlo.convert %arg0 : (tensor<40xi32>) -> tensor<40xui16>
    %25 = stablehlo.compare LT, %arg0, %arg1, SIGNED : (tensor<40xi32>, tensor<40xi32>) -> tensor<40xi1>
    %26 = stablehlo.compare GE, %arg0, %arg1, SIGNED : (tensor<40xi32>, tensor<40xi32>) -> tensor<40xi1>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %18, %19, %22, %23, %24, %25, %26 : tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xi32>, tensor<40xf32>, tensor<40xi1>, tensor<40xi16>, tensor<40xui16>, tensor<40xi1>, tensor<40xi1>
  }
}
// ---- exact 1
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<40xi8>, %arg1: tensor<40xi8>) -> (tensor<40xi8> {jax.result_info = "result[0]"}, tensor<40xi8> {jax.result_info = "result[1]"}, tensor<40xi8> {jax.result_info = "result[2]"}, tensor<40xi8> {jax.result_info = "result[3]"}, tensor<40xi8> {jax.result_info = "result[4]"}, tensor<40xi8> {jax.result_info = "result[5]"}, tensor<40xi8> {jax.result_info = "result[6]"}, tensor<40xi8> {jax.result_info = "result[7]"}, tensor<40xi8> {jax.result_info = "result[8]"}, tensor<40xi8> {jax.result_info = "result[9]"}, tensor<40xi8> {jax.result_info = "result[10]"}, tensor<40xi8> {jax.result_info = "result[11]"}, tensor<40xi8> {jax.result_info = "result[12]"}, tensor<40xi8> {jax.result_info = "result[13]"}, tensor<40xi8> {jax.result_info = "result[14]"}, tensor<40xi8> {jax.result_info = "result[15]"}, tensor<40xi8> {jax.result_info = "result[16]"}, tensor<40xi8> {jax.result_info = "result[17]"}, tensor<40xf32> {jax.result_info = "result[18]"}, tensor<40xi1> {jax.result_info = "result[19]"}, tensor<40xi16> {jax.result_info = "result[20]"}, tensor<40xui16> {jax.result_info = "result[21]"}, tensor<40xi1> {jax.result_info = "result[22]"}, tensor<40xi1> {jax.result_info = "result[23]"}) {
    %0 = stablehlo.add %arg0, %arg1 : tensor<40xi8>
    %1 = stablehlo.subtract %arg0, %arg1 : tensor<40xi8>
    %2 = stablehlo.multiply %arg0, %arg1 : tensor<40xi8>
    %3 = stablehlo.divide %arg0, %arg1 : tensor<40xi8>
    %4 = stablehlo.remainder %arg0, %arg1 : tensor<40xi8>
    %5 = stablehlo.maximum %arg0, %arg1 : tensor<40xi8>
    %6 = stablehlo.minimum %arg0, %arg1 : tensor<40xi8>
    %7 = stablehlo.negate %arg0 : tensor<40xi8>
    %8 = stablehlo.sign %arg0 : tensor<40xi8>
    %9 = stablehlo.abs %arg0 : tensor<40xi8>
    %10 = stablehlo.shift_left %arg0, %arg1 : tensor<40xi8>
    %11 = stablehlo.shift_right_logical %arg0, %arg1 : tensor<40xi8>
    %12 = stablehlo.shift_right_arithmetic %arg0, %arg1 : tensor<40xi8>
    %13 = stablehlo.popcnt %arg0 : tensor<40xi8>
    %14 = stablehlo.count_leading_zeros %arg0 : tensor<40xi8>
    %15 = stablehlo.xor %arg0, %arg1 : tensor<40xi8>
    %16 = stablehlo.not %arg0 : tensor<40xi8>
    %17 = stablehlo.minimum %arg0, %arg1 : tensor<40xi8>
    %18 = stablehlo.clamp %17, %arg0, %arg1 : tensor<40xi8>
    %19 = stablehlo.convert %arg0 : (tensor<40xi8>) -> tensor<40xf32>
    %c = stablehlo.constant dense<0> : tensor<i8>
    %20 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i8>) -> tensor<40xi8>
    %21 = stablehlo.compare NE, %arg0, %20, SIGNED : (tensor<40xi8>, tensor<40xi8>) -> tensor<40xi1>
    %22 = stablehlo.convert %21 : tensor<40xi1>
    %23 = stablehlo.convert %arg0 : (tensor<40xi8>) -> tensor<40xi16>
    %24 = stablehlo.convert %arg0 : (tensor<40xi8>) -> tensor<40xui16>
    %25 = stablehlo.compare LT, %arg0, %arg1, SIGNED : (tensor<40xi8>, tensor<40xi8>) -> tensor<40xi1>
    %26 = stablehlo.compare GE, %arg0, %arg1, SIGNED : (tensor<40xi8>, tensor<40xi8>) -> tensor<40xi1>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %18, %19, %22, %23, %24, %25, %26 : tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xi8>, tensor<40xf32>, tensor<40xi1>, tensor<40xi16>, tensor<40xui16>, tensor<40xi1>, tensor<40xi1>
  }
}
