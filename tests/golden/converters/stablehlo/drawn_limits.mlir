// ---- limits 0
module @jit_run attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<40xf32>, %arg1: tensor<40xf32>) -> (tensor<40xf32> {jax.result_info = "result[0]"}, tensor<40xf32> {jax.result_info = "result[1]"}, tensor<40xf32> {jax.result_info = "result[2]"}, tensor<40xf32> {jax.result_info = "result[3]"}, tensor<40xf32> {jax.result_info = "result[4]"}, tensor<40xf32> {jax.result_info = "result[5]"}, tensor<40xi1> {jax.result_info = "result[6]"}, tensor<40xi1> {jax.result_info = "result[7]"}, tensor<40xi1> {jax.result_info = "result[8]"}, tensor<40xi1> {jax.result_info = "result[9]"}, tensor<40xi1> {jax.result_info = "result[10]"}, tensor<40xf32> {jax.result_info = "result[11]"}, tensor<40xf32> {jax.result_info = "result[12]"}, tensor<40xf32> {jax.result_info = "result[13]"}, tensor<40xf32> {jax.result_info = "result[14]"}, tensor<40xi32> {jax.result_info = "result[15]"}, tensor<40xi8> {jax.result_info = "result[16]"}, tensor<40xui8> {jax.result_info = "result[17]"}, tensor<40xui32> {jax.result_info = "result[18]"}, tensor<40xi1> {jax.result_info = "result[19]"}, tensor<40xf32> {jax.result_info = "result[20]"}, tensor<40xf32> {jax.result_info = "result[21]"}, tensor<40xf32> {jax.result_info = "result[22]"}, tensor<40xi32> {jax.result_info = "result[23]"}, tensor<40xf32> {jax.result_info = "result[24]"}) {
    %0 = stablehlo.floor %arg0 : tensor<40xf32>
    %1 = stablehlo.ceil %arg0 : tensor<40xf32>
    %2 = stablehlo.round_nearest_even %arg0 : tensor<40xf32>
    %3 = stablehlo.round_nearest_afz %arg0 : tensor<40xf32>
    %4 = stablehlo.sign %arg0 : tensor<40xf32>
    %5 = stablehlo.abs %arg0 : tensor<40xf32>
    %6 = stablehlo.is_finite %arg0 : (tensor<40xf32>) -> tensor<40xi1>
    %7 = stablehlo.compare LT, %arg0, %arg1, FLOAT : (tensor<40xf32>, tensor<40xf32>) -> tensor<40xi1>
    %8 = stablehlo.compare GE, %arg0, %arg1, FLOAT : (tensor<40xf32>, tensor<40xf32>) -> tensor<40xi1>
    %9 = stablehlo.compare EQ, %arg0, %arg1, FLOAT : (tensor<40xf32>, tensor<40xf32>) -> tensor<40xi1>
    %10 = stablehlo.compare NE, %arg0, %arg1, FLOAT : (tensor<40xf32>, tensor<40xf32>) -> tensor<40xi1>
    %11 = stablehlo.maximum %arg0, %arg1 : tensor<40xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<40xf32>
    %13 = stablehlo.add %11, %12 : tensor<40xf32>
    %14 = stablehlo.minimum %arg0, %arg1 : tensor<40xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<40xf32>
    %16 = stablehlo.add %14, %15 : tensor<40xf32>
    %17 = stablehlo.remainder %arg0, %arg1 : tensor<40xf32>
    %cst_1 = stablehlo.constant dense<-1.000000e+00> : tensor<f32>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %18 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<40xf32>
    %19 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<40xf32>
    %20 = stablehlo.clamp %18, %arg0, %19 : tensor<40xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %21 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<40xf32>
    %22 = stablehlo.add %20, %21 : tensor<40xf32>
    %23 = stablehlo.convert %arg0 : (tensor<40xf32>) -> tensor<40xi32>
    %24 = stablehlo.convert %arg0 : (tensor<40xf32>) -> tensor<40xi8>
    %25 = stablehlo.convert %arg0 : (tensor<40xf32>) -> tensor<40xui8>
    %26 = stablehlo.convert %arg0 : (tensor<40xf32>) -> tensor<40xui32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %27 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<40xf32>
    %28 = stablehlo.compare NE, %arg0, %27, FLOAT : (tensor<40xf32>, tensor<40xf32>) -> tensor<40xi1>
    %29 = stablehlo.convert %28 : tensor<40xi1>
    %30 = stablehlo.convert %arg0 : (tensor<40xf32>) -> tensor<40xbf16>
    %31 = stablehlo.convert %30 : (tensor<40xbf16>) -> tensor<40xf32>
    %32 = stablehlo.convert %arg0 : (tensor<40xf32>) -> tensor<40xf16>
    %33 = stablehlo.convert %32 : (tensor<40xf16>) -> tensor<40xf32>
    %34 = stablehlo.reduce_precision %arg0, format = e5m7 : tensor<40xf32>
    %35 = stablehlo.bitcast_convert %arg0 : (tensor<40xf32>) -> tensor<40xi32>
    %36 = chlo.next_after %arg0, %arg1 : tensor<40xf32>, tensor<40xf32> -> tensor<40xf32>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %13, %16, %17, %22, %23, %24, %25, %26, %29, %31, %33, %34, %35, %36 : tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xi1>, tensor<40xi1>, tensor<40xi1>, tensor<40xi1>, tensor<40xi1>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xi32>, tensor<40xi8>, tensor<40xui8>, tensor<40xui32>, tensor<40xi1>, tensor<40xf32>, tensor<40xf32>, tensor<40xf32>, tensor<40xi32>, tensor<40xf32>
  }
}
