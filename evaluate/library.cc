#include "evaluate/library.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

#include "evaluate/lanes.h"
#include "runtime/cpu/lib.h"

namespace optc::evaluate_detail {

namespace {

// Memory of one call, freed behind it.
class Pool {
 public:
  ~Pool() {
    for (void *p : blocks_) std::free(p);
  }
  void *take(size_t bytes) {
    void *p = std::calloc(bytes + 8, 1);
    if (p) blocks_.push_back(p);
    return p;
  }

 private:
  std::vector<void *> blocks_;
};

struct CallState {
  Pool pool;
  std::vector<void *> memory;  // what each output asked for
};

void *allocate(void *user, size_t output, size_t bytes) {
  CallState &state = *static_cast<CallState *>(user);
  void *p = state.pool.take(bytes);
  if (output < state.memory.size()) state.memory[output] = p;
  return p;
}

bool set_dims(OptcLibTensor &to, const std::vector<int64_t> &dims) {
  if (dims.size() > OPTC_LIB_MAX_RANK) return false;
  to.rank = static_cast<int32_t>(dims.size());
  for (size_t k = 0; k < dims.size(); ++k) to.dims[k] = dims[k];
  return true;
}

int64_t count_of(const OptcLibTensor &t) {
  int64_t count = 1;
  for (int32_t k = 0; k < t.rank; ++k) count *= t.dims[k];
  return count;
}

OptcLibString *string_array(CallState &state, const std::string *strings, int64_t count) {
  auto *array = static_cast<OptcLibString *>(state.pool.take(static_cast<size_t>(count) * sizeof(OptcLibString)));
  for (int64_t i = 0; array && i < count; ++i) array[i] = {strings[i].data(), strings[i].size()};
  return array;
}

bool pass_constant(CallState &state, const Constant &constant, OptcLibTensor &to) {
  to.type = static_cast<int32_t>(constant.type());
  if (!set_dims(to, constant.dims())) return false;
  if (constant.type() == ElementType::kString)
    to.data = string_array(state, constant.string_values().data(), constant.count());
  else
    to.data = constant.size() ? const_cast<uint8_t *>(constant.data()) : static_cast<uint8_t *>(state.pool.take(8));
  return to.data != nullptr;
}

bool pass_object(CallState &state, const RuntimeValue &value, OptcLibTensor &to) {
  if (value.kind == RuntimeValue::Kind::kTensor) return pass_constant(state, value.tensor, to);
  auto *object = static_cast<OptcLibObject *>(state.pool.take(sizeof(OptcLibObject)));
  if (!object) return false;
  to.rank = -1;
  to.type = static_cast<int32_t>(value.element == ElementType::kUndefined ? ElementType::kFloat32 : value.element);
  to.data = object;
  object->kind = value.kind == RuntimeValue::Kind::kSequence ? 1 : value.kind == RuntimeValue::Kind::kMap ? 3 : 2;
  const bool map = object->kind == 3;
  object->count = value.items.size() + (map ? 1 : 0);
  object->items = static_cast<OptcLibTensor *>(state.pool.take(object->count * sizeof(OptcLibTensor)));
  if (!object->items) return false;
  if (map && !pass_constant(state, value.tensor, object->items[0])) return false;
  for (size_t i = 0; i < value.items.size(); ++i)
    if (!pass_object(state, value.items[i], object->items[i + (map ? 1 : 0)])) return false;
  return true;
}

// The elements of the tensors inside an object: what its OptcLibTensor says as its type, since 0 would mean absent.
ElementType leaf_element(const Type &type) {
  const Type *t = &type;
  while (!t->is_tensor() && t->inner) t = t->inner.get();
  return t->element == ElementType::kUndefined ? ElementType::kFloat32 : t->element;
}

Constant take_constant(const OptcLibTensor &from) {
  const std::vector<int64_t> dims(from.dims, from.dims + std::max<int32_t>(from.rank, 0));
  const ElementType type = static_cast<ElementType>(from.type);
  const int64_t count = count_of(from);
  if (type == ElementType::kString) {
    const OptcLibString *array = static_cast<const OptcLibString *>(from.data);
    std::vector<std::string> strings;
    for (int64_t i = 0; i < count; ++i) strings.emplace_back(array[i].data ? array[i].data : "", array[i].size);
    return Constant::strings(dims, std::move(strings));
  }
  const size_t bytes = static_cast<size_t>(storage_bytes(type, count).value_or(0));
  const uint8_t *data = static_cast<const uint8_t *>(from.data);
  return Constant::owned(type, dims, bytes ? std::vector<uint8_t>(data, data + bytes) : std::vector<uint8_t>());
}

RuntimeValue take_object(const OptcLibTensor &from) {
  if (from.rank >= 0) return from.type == 0 ? RuntimeValue() : RuntimeValue::of(take_constant(from));
  RuntimeValue value;
  const OptcLibObject *object = static_cast<const OptcLibObject *>(from.data);
  if (!object) return value;
  value.kind = object->kind == 1   ? RuntimeValue::Kind::kSequence
               : object->kind == 3 ? RuntimeValue::Kind::kMap
                                   : RuntimeValue::Kind::kOptional;
  size_t first = 0;
  if (value.kind == RuntimeValue::Kind::kMap && object->count > 0) {
    value.tensor = take_constant(object->items[0]);
    first = 1;
  }
  for (size_t i = first; i < object->count; ++i) value.items.push_back(take_object(object->items[i]));
  value.element = static_cast<ElementType>(from.type);
  return value;
}

// The attributes as the convention has them; the lists live as long as this.
struct Attributes {
  std::vector<OptcLibAttribute> list;
  std::deque<std::vector<const char *>> strings;
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<float>> floats;

  explicit Attributes(const std::vector<std::pair<std::string, Attribute>> &attributes) {
    for (const auto &[name, attribute] : attributes) {
      OptcLibAttribute a = {};
      a.name = name.c_str();
      if (const auto *i = std::get_if<int64_t>(&attribute)) {
        a.i = *i;
      } else if (const auto *f = std::get_if<float>(&attribute)) {
        a.f = *f;
      } else if (const auto *s = std::get_if<std::string>(&attribute)) {
        a.s = s->c_str();
        a.count = s->size();
      } else if (const auto *is = std::get_if<std::vector<int64_t>>(&attribute)) {
        a.ints = is->data();
        a.count = is->size();
      } else if (const auto *fs = std::get_if<std::vector<float>>(&attribute)) {
        a.floats = fs->data();
        a.count = fs->size();
      } else if (const auto *ss = std::get_if<std::vector<std::string>>(&attribute)) {
        add_strings(a, *ss);
      } else if (const auto *c = std::get_if<Constant>(&attribute)) {
        add_constant(a, *c);
      }
      list.push_back(a);
    }
  }
  void add_strings(OptcLibAttribute &a, const std::vector<std::string> &values) {
    strings.emplace_back();
    for (const std::string &s : values) strings.back().push_back(s.c_str());
    a.strings = strings.back().data();
    a.count = values.size();
  }
  void add_constant(OptcLibAttribute &a, const Constant &c) {
    a.count = static_cast<size_t>(c.count());
    if (c.type() == ElementType::kString) {
      add_strings(a, c.string_values());
    } else if (is_float(c.type())) {
      floats.emplace_back();
      for (int64_t i = 0; i < c.count(); ++i) floats.back().push_back(static_cast<float>(c.as_double(i)));
      a.floats = floats.back().data();
    } else {
      ints.emplace_back();
      for (int64_t i = 0; i < c.count(); ++i) ints.back().push_back(c.as_int64(i));
      a.ints = ints.back().data();
    }
  }
};

}  // namespace

int call_library(LibraryFunction function, const LibraryCall &call, const std::vector<const Slot *> &inputs,
                 std::vector<LibraryOutput> &outputs, std::vector<RuntimeValue> &objects, std::vector<int64_t> &sizes,
                 std::string &error) {
  CallState state;
  state.memory.resize(outputs.size());
  constexpr int kInternalStatus = 101;
  std::vector<OptcLibTensor> in(inputs.size()), out(outputs.size());
  std::vector<Constant> keep;
  for (size_t i = 0; i < inputs.size(); ++i) {
    in[i] = {};
    if (!inputs[i]) continue;
    bool good;
    if (inputs[i]->is_object) {
      good = pass_object(state, inputs[i]->object, in[i]);
    } else {
      keep.push_back(to_constant(inputs[i]->tensor));
      good = pass_constant(state, keep.back(), in[i]);
    }
    if (good) continue;
    error = "an input of " + call.function + " has too many dimensions or there is not enough memory";
    return kInternalStatus;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    out[i] = {};
    LibraryOutput &o = outputs[i];
    if (!o.wanted) continue;
    if (o.is_object) {
      out[i].rank = -1;
      out[i].type = static_cast<int32_t>(leaf_element(o.type));
      continue;
    }
    out[i].type = static_cast<int32_t>(o.type.element);
    out[i].rank = o.type.has_shape() ? o.type.rank() : 0;
    if (!o.tensor.valid()) {
      std::fill_n(out[i].dims, OPTC_LIB_MAX_RANK, -1);  // the call finds them
      continue;
    }
    if (!set_dims(out[i], o.tensor.dims)) {
      error = "an output of " + call.function + " has too many dimensions";
      return kInternalStatus;
    }
    if (o.type.element == ElementType::kString)
      out[i].data = state.pool.take(static_cast<size_t>(o.tensor.count()) * sizeof(OptcLibString));
    else if (bit_width(o.type.element) < 8)
      out[i].data = state.pool.take(static_cast<size_t>(storage_bytes(o.type.element, o.tensor.count()).value_or(0)));
    else
      out[i].data = o.tensor.data();
    if (!out[i].data) {
      error = "there is not enough memory";
      return kLibraryMemory;
    }
  }
  const Attributes attributes(call.attributes);
  sizes.assign(call.defines.size() + 1, 0);
  OptcLibCall c = {};
  c.inputs = in.data();
  c.input_count = in.size();
  c.outputs = out.data();
  c.output_count = out.size();
  c.attributes = attributes.list.data();
  c.attribute_count = attributes.list.size();
  c.sizes = sizes.data();
  c.allocate = allocate;
  c.user = &state;
  const int status = function(&c);
  sizes.resize(call.defines.size());
  if (status != 0) {
    c.error[sizeof(c.error) - 1] = 0;
    error = c.error[0] ? c.error : call.function + " failed";
    return status;
  }
  objects.assign(outputs.size(), {});
  for (size_t i = 0; i < outputs.size(); ++i) {
    LibraryOutput &o = outputs[i];
    if (!o.wanted) continue;
    if (o.is_object) {
      if (!out[i].data) out[i].data = state.memory[i];
      objects[i] = take_object(out[i]);
      continue;
    }
    const bool direct = o.tensor.valid() && o.type.element != ElementType::kString && bit_width(o.type.element) >= 8;
    if (direct) continue;
    if (!out[i].data) out[i].data = state.memory[i];
    if (!out[i].data && count_of(out[i]) > 0) {
      error = call.function + " gave no output " + std::to_string(i);
      return kInternalStatus;
    }
    o.tensor = from_constant(take_constant(out[i]));
  }
  return 0;
}

}  // namespace optc::evaluate_detail
