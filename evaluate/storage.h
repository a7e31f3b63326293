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

// Which cells of a block hold a value. Memory of a Program that runs as it is lowered begins without any.
struct Written {
  explicit Written(int64_t count) : cells(static_cast<size_t>(count)), missing(count) {}
  std::vector<uint8_t> cells;  // 1: has a value
  int64_t missing;             // how many have none
  bool has(int64_t cell) const { return cells[static_cast<size_t>(cell)] != 0; }
  void mark(int64_t cell) {
    uint8_t &c = cells[static_cast<size_t>(cell)];
    missing -= c == 0;
    c = 1;
  }
};

// Bytes of one allocation, or bytes owned by a Constant.
struct Block {
  uint8_t *data = nullptr;
  size_t size = 0;
  bool read_only = false;
  Constant constant;                 // keeps the bytes alive when read_only
  std::vector<std::string> strings;  // for string tensors; data points at them
  std::unique_ptr<Written> written;  // null: every cell has a value
  // While a kernel puts its result into the bytes of an operand: what of the result is there. Becomes `written`.
  std::unique_ptr<Written> replacing;
  Block() = default;
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;
  ~Block();
};

// Zeroed memory of `count` cells. Null when there is not enough memory.
std::shared_ptr<Block> make_block(ElementType type, int64_t count);
// Memory of `count` cells without values: bytes that show, and Written says which have been given one.
std::shared_ptr<Block> make_unwritten_block(ElementType type, int64_t count);

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

// The logical index of the element at that offset from index 0: "[1,0,2]".
std::string index_text(const std::vector<int64_t> &dims, const std::vector<int64_t> &strides, int64_t offset);
// The first element, by logical index, that was never written; empty: all were.
std::string first_unwritten(const Tensor &tensor);

}  // namespace optc::evaluate_detail
