// The functions that a LibraryCall may name. To add one: include its header and write its name in the list.
#include <dlfcn.h>

#include <cstring>
#include <string_view>

#include "evaluate/library.h"
#include "runtime/cpu/lib.h"
#include "runtime/cpu/lib_image.h"
#include "runtime/cpu/lib_map.h"
#include "runtime/cpu/lib_ml.h"
#include "runtime/cpu/lib_object.h"
#include "runtime/cpu/lib_random.h"
#include "runtime/cpu/lib_resize.h"
#include "runtime/cpu/lib_rnn.h"
#include "runtime/cpu/lib_select.h"
#include "runtime/cpu/lib_signal.h"
#include "runtime/cpu/lib_sizes.h"
#include "runtime/cpu/lib_strings.h"
#include "runtime/cpu/lib_svm.h"
#include "runtime/cpu/lib_text.h"
#include "runtime/cpu/lib_tokens.h"
#include "runtime/cpu/lib_util.h"
#include "support/installation.h"

#define OPTC_LIBRARY_FUNCTIONS(X) \
  X(axis)                         \
  X(cast_map)                     \
  X(check_dims)                   \
  X(class_scores)                 \
  X(compress)                     \
  X(concat_from_sequence)         \
  X(crop_sizes)                   \
  X(dict_vectorizer)              \
  X(dropout)                      \
  X(expand_sizes)                 \
  X(identity)                     \
  X(fail)                         \
  X(label_encoder)                \
  X(murmur_hash)                  \
  X(nms)                          \
  X(nonzero)                      \
  X(one_hot)                      \
  X(optional)                     \
  X(optional_get_element)         \
  X(optional_has_element)         \
  X(pad_sizes)                    \
  X(random_normal)                \
  X(random_uniform)               \
  X(range_sizes)                  \
  X(reshape_sizes)                \
  X(resize_sizes)                 \
  X(resize_table_of_axis)         \
  X(rnn)                          \
  X(rnn_steps)                    \
  X(sequence_at)                  \
  X(sequence_construct)           \
  X(sequence_erase)               \
  X(sequence_insert)              \
  X(sequence_length)              \
  X(slice_sizes)                  \
  X(split_to_sequence)            \
  X(reduce_sizes)                 \
  X(squeeze_sizes)                \
  X(string_cast)                  \
  X(string_equal)                 \
  X(string_labels)                \
  X(string_where)                 \
  X(svm_classify)                 \
  X(tile_sizes)                   \
  X(time_warping)                 \
  X(tokenize)                     \
  X(topk)                         \
  X(tree_ensemble)                \
  X(unique)                       \
  X(unsqueeze_sizes)              \
  X(value_sizes)                  \
  X(zip_map)                      \
  X(sequence_empty)               \
  X(dynamic_quantize_lstm)        \
  X(dft)                          \
  X(stft)                         \
  X(mel_weights)                  \
  X(det)                          \
  X(inverse)                      \
  X(grid_sample)                  \
  X(roi_align)                    \
  X(max_roi_pool)                 \
  X(deform_conv)                  \
  X(col2im)                       \
  X(string_concat)                \
  X(string_split)                 \
  X(string_normalizer)            \
  X(regex_full_match)             \
  X(tfidf)

namespace optc::evaluate_detail {

namespace {

// The module stays loaded: loading it again is cheap then.
LibraryFunction image_decoder(std::string &error) {
  void *module = dlopen(module_path("optc-images.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  void *function = module ? dlsym(module, "optc_images_decode") : nullptr;
  if (!function) error = std::string("the module that decodes images cannot be loaded: ") + dlerror();
  return reinterpret_cast<LibraryFunction>(function);
}

}  // namespace

LibraryFunction find_library_function(std::string_view name, std::string &error) {
  if (name == "image_decoder") return image_decoder(error);
#define OPTC_X(function) \
  if (name == #function) return optc_lib_##function;
  OPTC_LIBRARY_FUNCTIONS(OPTC_X)
#undef OPTC_X
  return nullptr;
}

}  // namespace optc::evaluate_detail
