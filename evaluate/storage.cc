#include "evaluate/storage.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "evaluate/lanes.h"

namespace optc::evaluate_detail {

namespace {

bool is_sub_byte(ElementType type) { return bit_width(type) > 0 && bit_width(type) < 8; }

// Four-bit and two-bit elements: the first element is in the low bits of a byte.
void unpack(ElementType type, const uint8_t *packed, int64_t count, uint8_t *cells) {
  const int bits = bit_width(type), each = 8 / bits;
  const bool sign = is_signed_integer(type);
  for (int64_t i = 0; i < count; ++i) {
    const int value = (packed[i / each] >> (i % each * bits)) & ((1 << bits) - 1);
    cells[i] = static_cast<uint8_t>(sign ? wrap_integer(type, value) : value);
  }
}

std::vector<uint8_t> pack(ElementType type, const uint8_t *cells, int64_t count) {
  const int bits = bit_width(type), each = 8 / bits;
  std::vector<uint8_t> packed(static_cast<size_t>((count + each - 1) / each));
  for (int64_t i = 0; i < count; ++i)
    packed[i / each] |= static_cast<uint8_t>((cells[i] & ((1 << bits) - 1)) << (i % each * bits));
  return packed;
}

}  // namespace

Block::~Block() {
  if (!read_only && strings.empty()) std::free(data);
}

std::shared_ptr<Block> make_block(ElementType type, int64_t count) {
  auto block = std::make_shared<Block>();
  if (type == ElementType::kString) {
    // One more than needed, so that an address exists and the destructor knows what it holds.
    block->strings.resize(static_cast<size_t>(count) + 1);
    block->data = reinterpret_cast<uint8_t *>(block->strings.data());
    block->size = static_cast<size_t>(count) * sizeof(std::string);
    return block;
  }
  block->size = static_cast<size_t>(count * cell_bytes(type));
  block->data = static_cast<uint8_t *>(std::calloc(block->size + 64, 1));
  return block->data ? block : nullptr;
}

std::shared_ptr<Block> make_unwritten_block(ElementType type, int64_t count) {
  std::shared_ptr<Block> block = make_block(type, count);
  if (!block || count == 0) return block;
  block->written = std::make_unique<Written>(count);
  if (type != ElementType::kString) std::memset(block->data, 0xff, block->size);  // NaN in every float
  return block;
}

int64_t product(const std::vector<int64_t> &dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  return count;
}

int64_t Tensor::count() const { return product(dims); }

std::vector<int64_t> row_major_strides(const std::vector<int64_t> &dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = 1;
  for (size_t k = dims.size(); k-- > 0;) {
    strides[k] = step;
    step *= dims[k];
  }
  return strides;
}

bool Tensor::contiguous() const {
  int64_t step = 1;
  for (size_t k = dims.size(); k-- > 0;) {
    if (dims[k] != 1 && strides[k] != step) return count() == 0;
    step *= dims[k];
  }
  return true;
}

uint8_t *Tensor::data() const { return block->data + offset * cell_bytes(type); }

Tensor make_tensor(ElementType type, std::vector<int64_t> dims) {
  Tensor tensor;
  tensor.type = type;
  tensor.stored = product(dims);
  tensor.strides = row_major_strides(dims);
  tensor.dims = std::move(dims);
  tensor.block = make_block(type, tensor.stored);
  return tensor;
}

Tensor dense(const Tensor &tensor) {
  if (tensor.contiguous()) return tensor;
  Tensor copy = make_tensor(tensor.type, tensor.dims);
  if (!copy.valid()) return copy;
  const int64_t count = copy.count(), cell = cell_bytes(tensor.type);
  std::vector<int64_t> index(tensor.dims.size(), 0);
  int64_t from = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (tensor.type == ElementType::kString)
      reinterpret_cast<std::string *>(copy.data())[i] = reinterpret_cast<const std::string *>(tensor.data())[from];
    else
      std::memcpy(copy.data() + i * cell, tensor.data() + from * cell, static_cast<size_t>(cell));
    for (size_t k = index.size(); k-- > 0;) {
      from += tensor.strides[k];
      if (++index[k] < tensor.dims[k]) break;
      from -= tensor.strides[k] * tensor.dims[k];
      index[k] = 0;
    }
  }
  return copy;
}

Tensor from_constant(const Constant &constant) {
  Tensor tensor;
  if (constant.type() == ElementType::kString) {
    tensor = make_tensor(constant.type(), constant.dims());
    for (size_t i = 0; i < constant.string_values().size(); ++i) tensor.block->strings[i] = constant.string_values()[i];
    return tensor;
  }
  if (is_sub_byte(constant.type())) {
    tensor = make_tensor(constant.type(), constant.dims());
    if (tensor.valid()) unpack(constant.type(), constant.data(), constant.count(), tensor.data());
    return tensor;
  }
  tensor.type = constant.type();
  tensor.dims = constant.dims();
  tensor.strides = row_major_strides(tensor.dims);
  tensor.stored = constant.count();
  tensor.block = std::make_shared<Block>();
  static uint8_t nothing[64] = {};  // where an empty tensor points; never read
  tensor.block->data = constant.size() ? const_cast<uint8_t *>(constant.data()) : nothing;
  tensor.block->size = constant.size();
  tensor.block->read_only = true;
  tensor.block->constant = constant;
  return tensor;
}

Constant to_constant(const Tensor &source) {
  const Tensor tensor = dense(source);
  const int64_t count = tensor.count();
  if (tensor.type == ElementType::kString) {
    const std::string *strings = reinterpret_cast<const std::string *>(tensor.data());
    return Constant::strings(tensor.dims, std::vector<std::string>(strings, strings + count));
  }
  if (is_sub_byte(tensor.type))
    return Constant::owned(tensor.type, tensor.dims, pack(tensor.type, tensor.data(), count));
  return Constant::view(tensor.type, tensor.dims, tensor.data(), static_cast<size_t>(count * cell_bytes(tensor.type)),
                        tensor.block);
}

std::string index_text(const std::vector<int64_t> &dims, const std::vector<int64_t> &strides, int64_t offset) {
  std::vector<size_t> by_stride(dims.size());
  for (size_t k = 0; k < dims.size(); ++k) by_stride[k] = k;
  std::stable_sort(by_stride.begin(), by_stride.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  std::vector<int64_t> index(dims.size(), 0);
  for (const size_t k : by_stride) {
    if (dims[k] <= 1 || strides[k] <= 0) continue;
    index[k] = offset / strides[k];
    offset %= strides[k];
  }
  std::string text = "[";
  for (size_t k = 0; k < index.size(); ++k) text += (k ? "," : "") + std::to_string(index[k]);
  return text + "]";
}

std::string first_unwritten(const Tensor &tensor) {
  const Written *written = tensor.block->written.get();
  if (!written || written->missing == 0) return {};
  std::vector<int64_t> index(tensor.dims.size(), 0);
  const int64_t count = tensor.count();
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!written->has(tensor.offset + at)) return index_text(tensor.dims, tensor.strides, at);
    for (size_t k = index.size(); k-- > 0;) {
      at += tensor.strides[k];
      if (++index[k] < tensor.dims[k]) break;
      at -= tensor.strides[k] * tensor.dims[k];
      index[k] = 0;
    }
  }
  return {};
}

}  // namespace optc::evaluate_detail
