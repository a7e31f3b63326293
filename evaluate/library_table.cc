// The functions that a LibraryCall may name. To add one: include its header and write its name in the list.
#include <cstring>
#include <string_view>

#include "evaluate/library.h"
#include "runtime/cpu/lib.h"
#include "runtime/cpu/lib_random.h"
#include "runtime/cpu/lib_resize.h"
#include "runtime/cpu/lib_rnn.h"
#include "runtime/cpu/lib_select.h"
#include "runtime/cpu/lib_sizes.h"
#include "runtime/cpu/lib_text.h"

#define OPTC_LIBRARY_FUNCTIONS(X) \
  X(identity)                     \
  X(string_cast)                  \
  X(string_where)                 \
  X(string_equal)                 \
  X(dropout)                      \
  X(random_normal)                \
  X(random_uniform)               \
  X(reshape_sizes)                \
  X(expand_sizes)                 \
  X(value_sizes)                  \
  X(tile_sizes)                   \
  X(pad_sizes)                    \
  X(slice_sizes)                  \
  X(range_sizes)                  \
  X(squeeze_sizes)                \
  X(unsqueeze_sizes)              \
  X(crop_sizes)                   \
  X(nonzero)                      \
  X(compress)                     \
  X(unique)                       \
  X(topk)                         \
  X(nms)                          \
  X(resize_sizes)                 \
  X(resize_table_of_axis)         \
  X(rnn)

namespace optc::evaluate_detail {

LibraryFunction find_library_function(std::string_view name) {
#define OPTC_X(function) \
  if (name == #function) return optc_lib_##function;
  OPTC_LIBRARY_FUNCTIONS(OPTC_X)
#undef OPTC_X
  return nullptr;
}

}  // namespace optc::evaluate_detail
