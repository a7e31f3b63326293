#include "evaluate/lanes.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace optc::evaluate_detail {

namespace {

using E = ElementType;

// Half, bfloat16 and smaller: kept as f32.
bool is_small_float(E type) { return is_float(type) && type != E::kFloat32 && type != E::kFloat64; }

// --- Memory ----------------------------------------------------------------------------------------------------------

template <typename T, typename Lane, typename F>
void load_as(const uint8_t *data, const Offsets &o, int n, Lane *out, F convert) {
  const T *base = reinterpret_cast<const T *>(data);
  if (o.vector) {
    for (int i = 0; i < n; ++i) out[i] = convert(base[o.vector[i]]);
  } else if (o.step == 0) {
    const Lane value = convert(base[o.start]);
    for (int i = 0; i < n; ++i) out[i] = value;
  } else if (o.step == 1) {
    base += o.start;
    for (int i = 0; i < n; ++i) out[i] = convert(base[i]);
  } else {
    base += o.start;
    for (int i = 0; i < n; ++i) out[i] = convert(base[i * o.step]);
  }
}

template <typename T, typename Lane, typename F>
void store_as(uint8_t *data, const Offsets &o, int n, const Lane *in, const Register *mask, F convert) {
  T *base = reinterpret_cast<T *>(data);
  if (mask) {
    for (int i = 0; i < n; ++i)
      if (mask->i64[i]) base[o.at(i)] = convert(in[i]);
  } else if (o.vector) {
    for (int i = 0; i < n; ++i) base[o.vector[i]] = convert(in[i]);
  } else {
    base += o.start;
    for (int i = 0; i < n; ++i) base[i * o.step] = convert(in[i]);
  }
}

template <typename T>
int64_t widen(T v) {
  return static_cast<int64_t>(v);
}

}  // namespace

LaneClass lane_class(E type) {
  if (type == E::kFloat64) return LaneClass::kF64;
  if (is_float(type)) return LaneClass::kF32;
  if (type == E::kBool || is_integer(type)) return LaneClass::kInt;
  return LaneClass::kHandle;
}

int64_t cell_bytes(E type) {
  if (type == E::kString) return sizeof(std::string);
  return (bit_width(type) + 7) / 8;
}

int64_t wrap_integer(E type, int64_t v) {
  switch (type) {
    case E::kBool:
      return v != 0;
    case E::kInt8:
      return static_cast<int8_t>(v);
    case E::kUInt8:
      return static_cast<uint8_t>(v);
    case E::kInt16:
      return static_cast<int16_t>(v);
    case E::kUInt16:
      return static_cast<uint16_t>(v);
    case E::kInt32:
      return static_cast<int32_t>(v);
    case E::kUInt32:
      return static_cast<uint32_t>(v);
    case E::kInt4:
      return ((v & 15) ^ 8) - 8;
    case E::kUInt4:
      return v & 15;
    case E::kInt2:
      return ((v & 3) ^ 2) - 2;
    case E::kUInt2:
      return v & 3;
    default:
      return v;
  }
}

float round_small(E type, float value, bool saturate) {
  switch (type) {
    case E::kFloat16:
      return half_to_float(float_to_half(value));
    case E::kBFloat16:
      return bfloat16_to_float(float_to_bfloat16(value));
    default:
      return small_float_to_float(type, float_to_small_float(type, value, saturate));
  }
}

void normalize_lanes(E type, int n, Register &r) {
  if (is_small_float(type)) {
    for (int i = 0; i < n; ++i) r.f32[i] = round_small(type, r.f32[i], true);
  } else if (lane_class(type) == LaneClass::kInt) {
    switch (type) {
      case E::kInt64:
      case E::kUInt64:
        break;
      case E::kInt32:
        for (int i = 0; i < n; ++i) r.i64[i] = static_cast<int32_t>(r.i64[i]);
        break;
      default:
        for (int i = 0; i < n; ++i) r.i64[i] = wrap_integer(type, r.i64[i]);
    }
  }
}

void load_lanes(E type, const uint8_t *data, const Offsets &o, int n, Register &out) {
  switch (type) {
    case E::kFloat32:
      load_as<float>(data, o, n, out.f32, [](float v) { return v; });
      break;
    case E::kFloat64:
      load_as<double>(data, o, n, out.f64, [](double v) { return v; });
      break;
    case E::kInt64:
    case E::kUInt64:
      load_as<int64_t>(data, o, n, out.i64, widen<int64_t>);
      break;
    case E::kInt32:
      load_as<int32_t>(data, o, n, out.i64, widen<int32_t>);
      break;
    case E::kUInt32:
      load_as<uint32_t>(data, o, n, out.i64, widen<uint32_t>);
      break;
    case E::kInt16:
      load_as<int16_t>(data, o, n, out.i64, widen<int16_t>);
      break;
    case E::kUInt16:
      load_as<uint16_t>(data, o, n, out.i64, widen<uint16_t>);
      break;
    case E::kInt8:
    case E::kInt4:
    case E::kInt2:
      load_as<int8_t>(data, o, n, out.i64, widen<int8_t>);
      break;
    case E::kUInt8:
    case E::kUInt4:
    case E::kUInt2:
      load_as<uint8_t>(data, o, n, out.i64, widen<uint8_t>);
      break;
    case E::kBool:
      load_as<uint8_t>(data, o, n, out.i64, [](uint8_t v) { return static_cast<int64_t>(v != 0); });
      break;
    case E::kFloat16:
      load_as<uint16_t>(data, o, n, out.f32, half_to_float);
      break;
    case E::kBFloat16:
      load_as<uint16_t>(data, o, n, out.f32, bfloat16_to_float);
      break;
    case E::kString:
    case E::kComplex64:
    case E::kComplex128: {
      const int64_t cell = cell_bytes(type);
      for (int i = 0; i < n; ++i) out.handle[i] = data + o.at(i) * cell;
      break;
    }
    default:
      load_as<uint8_t>(data, o, n, out.f32, [type](uint8_t v) { return small_float_to_float(type, v); });
  }
}

void store_lanes(E type, uint8_t *data, const Offsets &o, int n, const Register &r, const Register *mask) {
  switch (type) {
    case E::kFloat32:
      store_as<float>(data, o, n, r.f32, mask, [](float v) { return v; });
      break;
    case E::kFloat64:
      store_as<double>(data, o, n, r.f64, mask, [](double v) { return v; });
      break;
    case E::kInt64:
    case E::kUInt64:
      store_as<int64_t>(data, o, n, r.i64, mask, [](int64_t v) { return v; });
      break;
    case E::kInt32:
    case E::kUInt32:
      store_as<uint32_t>(data, o, n, r.i64, mask, [](int64_t v) { return static_cast<uint32_t>(v); });
      break;
    case E::kInt16:
    case E::kUInt16:
      store_as<uint16_t>(data, o, n, r.i64, mask, [](int64_t v) { return static_cast<uint16_t>(v); });
      break;
    case E::kInt8:
    case E::kUInt8:
    case E::kInt4:
    case E::kUInt4:
    case E::kInt2:
    case E::kUInt2:
    case E::kBool:
      store_as<uint8_t>(data, o, n, r.i64, mask, [](int64_t v) { return static_cast<uint8_t>(v); });
      break;
    case E::kFloat16:
      store_as<uint16_t>(data, o, n, r.f32, mask, float_to_half);
      break;
    case E::kBFloat16:
      store_as<uint16_t>(data, o, n, r.f32, mask, float_to_bfloat16);
      break;
    case E::kString:
      for (int i = 0; i < n; ++i) {
        if (mask && !mask->i64[i]) continue;
        reinterpret_cast<std::string *>(data)[o.at(i)] = *static_cast<const std::string *>(r.handle[i]);
      }
      break;
    case E::kComplex64:
    case E::kComplex128: {
      const int64_t cell = cell_bytes(type);
      for (int i = 0; i < n; ++i)
        if (!mask || mask->i64[i]) std::memcpy(data + o.at(i) * cell, r.handle[i], static_cast<size_t>(cell));
      break;
    }
    default:  // the lanes are rounded already; without saturation an infinity stays one
      store_as<uint8_t>(data, o, n, r.f32, mask, [type](float v) { return float_to_small_float(type, v, false); });
  }
}

void fill_constant(E type, uint64_t bits, Register &out) {
  out.poisoned = false;
  if (lane_class(type) == LaneClass::kHandle) {  // the empty string and 0 are the only constants of these types
    static const std::string kEmpty;
    static const double kZero[2] = {0, 0};
    for (int i = 0; i < kLanes; ++i)
      out.handle[i] = type == E::kString ? static_cast<const void *>(&kEmpty) : static_cast<const void *>(kZero);
    return;
  }
  uint8_t memory[8];
  std::memcpy(memory, &bits, 8);  // little-endian: the low bytes are the value in its own width
  load_lanes(type, memory, Offsets{}, kLanes, out);
  if (lane_class(type) == LaneClass::kInt) normalize_lanes(type, kLanes, out);
}

}  // namespace optc::evaluate_detail
