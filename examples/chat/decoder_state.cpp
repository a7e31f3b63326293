#include "decoder_state.h"

#include <stdexcept>

namespace {

optc_options with_threads(int threads) {
  optc_options options = {};
  options.threads = threads;
  return options;
}

// A tensor of `rank` dims over memory of ours.
template <typename T>
optc_value tensor_of(std::vector<T> &memory, const optc_value_info &info) {
  optc_value value = {};
  value.tensor.data = memory.data();
  value.tensor.capacity_bytes = memory.size() * sizeof(T);
  value.tensor.type = info.type;
  value.tensor.rank = info.rank;
  value.tensor.device_type = OPTC_CPU;
  for (int32_t axis = 0; axis < info.rank; ++axis) value.tensor.dims[axis] = info.dims[axis].value;
  return value;
}

}  // namespace

// The signature is make_model.py's: ids, then caches [groups, P, 64]; logits, then the same caches as outputs.
DecoderState::DecoderState(int threads, int64_t capacity) : model_(with_threads(threads)), capacity_(capacity) {
  const optc_api &api = decoder::Model::api();
  if (api.alias_count() + 1 != api.input_count())
    throw std::runtime_error("the decoder was compiled without --alias 'past_*=present_*'");
  inputs_.resize(api.input_count());
  outputs_.resize(api.output_count());
  const optc_value_info &logits = *api.output_info(0);
  logits_.resize(static_cast<size_t>(logits.dims[0].value));
  outputs_[0] = tensor_of(logits_, logits);
  caches_.reserve(api.alias_count());
  for (size_t i = 0; i < api.alias_count(); ++i) {
    const optc_alias &state = *api.alias_info(i);
    const optc_value_info &past = *api.input_info(state.input);
    caches_.emplace_back(static_cast<size_t>(past.dims[0].value * capacity * past.dims[2].value));
    inputs_[state.input] = tensor_of(caches_.back(), past);
    outputs_[state.output] = tensor_of(caches_.back(), past);
  }
}

const std::vector<float> &DecoderState::run(const std::vector<int64_t> &tokens) {
  if (static_cast<int64_t>(tokens.size()) > room()) throw std::length_error("the caches are full");
  const optc_api &api = decoder::Model::api();
  optc_tensor &ids = inputs_[0].tensor;
  ids.data = const_cast<int64_t *>(tokens.data());  // inputs are only read
  ids.capacity_bytes = tokens.size() * sizeof(int64_t);
  ids.type = api.input_info(0)->type;
  ids.rank = 1;
  ids.dims[0] = static_cast<int64_t>(tokens.size());
  ids.device_type = OPTC_CPU;
  for (size_t i = 1; i < inputs_.size(); ++i) inputs_[i].tensor.dims[1] = length_;
  model_.run(inputs_.data(), outputs_.data());
  length_ += ids.dims[0];
  return logits_;
}
