#pragma once
// Result<T>: the value of a step that can fail, or a Failure. A Failure only steers; what went wrong was said, once, to
// the Diagnostics sink by whoever found it. No exception crosses a stage's border.

#include <cstdint>
#include <optional>
#include <utility>

namespace optc {

// What kind of thing went wrong; decides the word in `error[kind]` and the exit code of the command line.
enum class ErrorKind : uint8_t {
  kUsage,        // wrong arguments or wrong inputs of the user                exit 2
  kIo,           // a file cannot be read or written                           exit 2
  kInvalid,      // the model breaks a rule of ONNX                            exit 3
  kUnsupported,  // the model is right, but optc cannot compile it             exit 4
  kMismatch,     // a check failed: results differ                             exit 1
  kFault,        // a fault of the model found while it ran (index out of range, shapes that do not broadcast)  exit 1
  kInternal,     // a fault of optc itself                                     exit 101
};

struct [[nodiscard]] Failure {
  ErrorKind kind = ErrorKind::kInternal;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}        // NOLINT: implicit by design, as is the next
  Result(Failure failure) : failure_(failure.kind) {}  // NOLINT
  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  T &operator*() & { return *value_; }
  const T &operator*() const & { return *value_; }
  T &&operator*() && { return std::move(*value_); }
  T *operator->() { return &*value_; }
  const T *operator->() const { return &*value_; }
  Failure failure() const { return Failure{failure_}; }

 private:
  std::optional<T> value_;
  ErrorKind failure_ = ErrorKind::kInternal;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Failure failure) : ok_(false), failure_(failure.kind) {}  // NOLINT: implicit by design
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  Failure failure() const { return Failure{failure_}; }

 private:
  bool ok_ = true;
  ErrorKind failure_ = ErrorKind::kInternal;
};

using Status = Result<void>;

// OPTC_TRY(expr): leaves the function with the failure of `expr`, if it is one.
#define OPTC_TRY(expr)                                                                 \
  do {                                                                                 \
    if (auto optc_status_ = (expr); !optc_status_.ok()) return optc_status_.failure(); \
  } while (false)

// OPTC_ASSIGN(declaration, expr): `declaration = *expr`, or leaves the function with the failure.
#define OPTC_CONCAT_(a, b) a##b
#define OPTC_CONCAT(a, b) OPTC_CONCAT_(a, b)
#define OPTC_ASSIGN(declaration, expr) OPTC_ASSIGN_(OPTC_CONCAT(optc_result_, __LINE__), declaration, expr)
#define OPTC_ASSIGN_(result, declaration, expr) \
  auto result = (expr);                         \
  if (!result.ok()) return result.failure();    \
  declaration = *std::move(result)

}  // namespace optc
