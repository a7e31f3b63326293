// A ring buffer of fixed capacity: push overwrites the oldest element.
#include <array>
#include <cstddef>
#include <iostream>
#include <optional>

template <typename T, std::size_t Capacity>
class RingBuffer {
 public:
  void push(const T &value) {
    items_[(start_ + size_) % Capacity] = value;
    if (size_ < Capacity) {
      ++size_;
    } else {
      start_ = (start_ + 1) % Capacity;
    }
  }

  std::optional<T> pop() {
    if (size_ == 0) return std::nullopt;
    T value = items_[start_];
    start_ = (start_ + 1) % Capacity;
    --size_;
    return value;
  }

  std::size_t size() const { return size_; }

 private:
  std::array<T, Capacity> items_{};
  std::size_t start_ = 0;
  std::size_t size_ = 0;
};

int main() {
  RingBuffer<int, 4> buffer;
  for (int i = 0; i < 6; ++i) buffer.push(i * i);
  while (auto value = buffer.pop()) std::cout << *value << '\n';
  return 0;
}
