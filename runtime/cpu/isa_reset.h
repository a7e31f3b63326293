// isa_reset.h: forgets the guards of the kernel headers, so that the next instruction set includes them again
// (foreach_isa.h).
#undef OPTC_CPU_SIMD_H
#undef OPTC_CPU_WIDE_H
#undef OPTC_CPU_MATH_H
#undef OPTC_CPU_ROWS_H
#undef OPTC_CPU_GEMM_H
#undef OPTC_CPU_GEMM_TYPES_H
#undef OPTC_CPU_GEMM_I8_H
#undef OPTC_CPU_GEMM_STORED_H
#undef OPTC_CPU_TRANSPOSE_H
#undef OPTC_CPU_CONV_H
#undef OPTC_CPU_CONV_TRANSPOSED_H
#undef OPTC_CPU_DEPTHWISE_H
#undef OPTC_CPU_WINOGRAD_H
#undef OPTC_CPU_POOL_H
#undef OPTC_CPU_ATTENTION_H
#undef OPTC_CPU_RNN_H
