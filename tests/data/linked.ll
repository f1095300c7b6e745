; Refers to its own functions and constants in every way that compiled code does.
@table = internal constant [6 x i64] [i64 3, i64 1, i64 4, i64 1, i64 5, i64 9], align 64
@bytes = internal constant [7 x i8] c"\01\02\03\04\05\06\07"
@halves = internal constant [3 x i16] [i16 1, i16 2, i16 3]
@words = internal constant [3 x i32] [i32 1, i32 2, i32 3]
define internal i64 @f(i64 %x) nounwind noinline { %y = mul i64 %x, 7
 ret i64 %y }
define internal i64 @g(i64 %x) nounwind noinline { %y = xor i64 %x, 7
 ret i64 %y }
define internal i64 @through(ptr %f, i64 %x) nounwind noinline { %y = call i64 %f(i64 %x)
 ret i64 %y }
define i64 @linked(i64 %x, double %d) nounwind {
entry:
  %p = getelementptr [6 x i64], ptr @table, i64 0, i64 %x
  %t = load i64, ptr %p
  %bp = getelementptr [7 x i8], ptr @bytes, i64 0, i64 %x
  %b = load i8, ptr %bp
  %b0 = load volatile i8, ptr @bytes
  %h0 = load volatile i16, ptr @halves
  %w0 = load volatile i32, ptr @words
  %q0 = load volatile i64, ptr @table
  %v0 = load volatile <2 x i64>, ptr @table
  %ve = extractelement <2 x i64> %v0, i64 0
  %bw = zext i8 %b to i64
  %b0w = zext i8 %b0 to i64
  %h0w = zext i16 %h0 to i64
  %w0w = zext i32 %w0 to i64
  switch i64 %x, label %other [
    i64 0, label %a
    i64 1, label %bb
    i64 2, label %c
    i64 3, label %dd
    i64 4, label %e
  ]
a:
  %ra = call i64 @through(ptr @f, i64 %t)
  br label %end
bb:
  %rb = call i64 @g(i64 %t)
  br label %end
c:
  %rc = add i64 %t, 77
  br label %end
dd:
  %rd = call i64 @through(ptr @g, i64 %t)
  br label %end
e:
  %re = mul i64 %t, %t
  br label %end
other:
  br label %end
end:
  %r = phi i64 [%ra,%a],[%rb,%bb],[%rc,%c],[%rd,%dd],[%re,%e],[0,%other]
  %s1 = add i64 %r, %bw
  %s2 = add i64 %s1, %b0w
  %s3 = add i64 %s2, %h0w
  %s4 = add i64 %s3, %w0w
  %s5 = add i64 %s4, %q0
  %s6 = add i64 %s5, %ve
  %m = fmul double %d, 0x400921FB54442D18
  %mi = bitcast double %m to i64
  %s7 = add i64 %s6, %mi
  ret i64 %s7
}
