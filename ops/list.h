#pragma once
// The files of operators: one line each, by name. A file defines `std::span<const OpDef> NAME_ops();`.

#define OPTC_OP_FILES(X) \
  X(activation)          \
  X(attention)           \
  X(binary)              \
  X(cast)                \
  X(causal_conv)         \
  X(contrib_attention)   \
  X(contrib_blocks)      \
  X(contrib_decoder)     \
  X(contrib_encoder)     \
  X(contrib_experts)     \
  X(contrib_fused)       \
  X(contrib_grouped)     \
  X(contrib_misc)        \
  X(contrib_norm)        \
  X(contrib_quantized)   \
  X(control)             \
  X(conv)                \
  X(fused_attention)     \
  X(gather)              \
  X(gradient)            \
  X(image)               \
  X(index)               \
  X(loss)                \
  X(matmul)              \
  X(ml)                  \
  X(ml_categories)       \
  X(ml_models)           \
  X(norm)                \
  X(pool)                \
  X(quantize)            \
  X(random)              \
  X(recurrent)           \
  X(reduce)              \
  X(resize)              \
  X(select)              \
  X(sequence)            \
  X(shape)               \
  X(signal)              \
  X(slice)               \
  X(softmax)             \
  X(text)                \
  X(training)            \
  X(trees)               \
  X(unary)
