#pragma once
// Memory of a running Program: blocks of bytes, and tensors as strided views of them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "evaluate/evaluate.h"
#include "ir/constant.h"
#include "ir/types.h"

namespace optc::evaluate_detail {

// Bytes of one allocation, or bytes owned by a Constant.
struct Block {
  uint8_t *data = nullptr;
  size_t size = 0;
  bool read_only = false;
  Constant constant;                 // keeps the bytes alive when read_only
  std::vector<std::string> strings;  // for string tensors; data points at them
  Block() = default;
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;
  ~Block();
};

// Zeroed memory of `count` cells. Null when there is not enough memory.
std::shared_ptr<Block> make_block(ElementType type, int64_t count);

struct Tensor {
  ElementType type = ElementType::kUndefined;
  std::vector<int64_t> dims;     // logical
  std::vector<int64_t> strides;  // in elements, one a logical dimension
  int64_t offset = 0;            // elements from the start of the block
  int64_t stored = 0;            // elements of storage, padding included
  std::shared_ptr<Block> block;

  bool valid() const { return block != nullptr; }
  int64_t count() const;
  bool contiguous() const;  // row-major without gaps
  uint8_t *data() const;    // of the element at index 0
};

std::vector<int64_t> row_major_strides(const std::vector<int64_t> &dims);
int64_t product(const std::vector<int64_t> &dims);

// A row-major tensor in new memory; invalid when there is not enough.
Tensor make_tensor(ElementType type, std::vector<int64_t> dims);
// The same elements, row-major; the tensor itself when it already is.
Tensor dense(const Tensor &tensor);
// Shares the bytes where the formats agree (sub-byte types are unpacked, strings copied).
Tensor from_constant(const Constant &constant);
Constant to_constant(const Tensor &tensor);

}  // namespace optc::evaluate_detail
