#pragma once
// The fields of each schedule by name, once: fields(schedule, visitor) calls visitor(name, member) in order. Printing,
// parsing and the lists of buffers are visitors. Internal to ir/program.

#include <concepts>
#include <type_traits>

#include "ir/program/schedule.h"

namespace optc {

template <typename S, typename T>
concept SameAs = std::same_as<std::remove_const_t<S>, T>;
template <typename S>
concept PlainSchedule = SameAs<S, std::monostate> || SameAs<S, MapSchedule> || SameAs<S, RowsSchedule> ||
    SameAs<S, LoopsSchedule> || SameAs<S, LibrarySchedule>;

template <PlainSchedule S, typename V>
void fields(S &, V &&) {}

template <SameAs<OperandView> S, typename V>
void fields(S &s, V &&v) {
  v("buffer", s.buffer), v("element", s.element), v("offset", s.offset), v("strides", s.strides);
}

template <SameAs<ZeroPoint> S, typename V>
void fields(S &s, V &&v) {
  v("value", s.value), v("from", s.from), v("step", s.step);
}
template <SameAs<ZeroPoints> S, typename V>
void fields(S &s, V &&v) {
  v("a", s.a), v("b", s.b);
}

template <SameAs<GemmView> S, typename V>
void fields(S &s, V &&v) {
  v("batch", s.batch), v("m", s.m), v("n", s.n), v("k", s.k);
  v("a", s.a), v("b", s.b);
  v("rows", s.rows), v("columns", s.columns), v("inner", s.inner);
  v("a_row", s.a_row), v("a_inner", s.a_inner), v("b_inner", s.b_inner), v("b_column", s.b_column);
}

template <SameAs<GemmSchedule> S, typename V>
void fields(S &s, V &&v) {
  v("view", s.view), v("packed", s.packed), v("zeros", s.zeros), v("partial", s.partial);
  v("scratch_bytes", s.scratch_bytes);
}

template <SameAs<BlockScales> S, typename V>
void fields(S &s, V &&v) {
  v("block", s.block), v("scale", s.scale), v("zero", s.zero), v("zero_value", s.zero_value), v("rounded", s.rounded);
}
template <SameAs<RowScales> S, typename V>
void fields(S &s, V &&v) {
  v("scale", s.scale), v("row", s.row);
}
template <SameAs<GemmBlocksSchedule> S, typename V>
void fields(S &s, V &&v) {
  v("view", s.view), v("scales", s.scales), v("activations", s.activations), v("codes", s.codes);
  v("packed_scales", s.packed_scales), v("packed_zeros", s.packed_zeros), v("partial", s.partial);
  v("scratch_bytes", s.scratch_bytes);
}

template <SameAs<ConvolutionGeometry> S, typename V>
void fields(S &s, V &&v) {
  v("channels", s.channels), v("filters", s.filters), v("groups", s.groups);
  v("kernel", s.kernel), v("strides", s.strides), v("dilations", s.dilations);
  v("pads_begin", s.pads_begin), v("pads_end", s.pads_end);
}

template <SameAs<ConvolutionOperands> S, typename V>
void fields(S &s, V &&v) {
  v("input", s.input), v("batch", s.batch), v("depth", s.depth), v("height", s.height), v("width", s.width);
  v("image_stride", s.image_stride), v("plane_stride", s.plane_stride), v("row_stride", s.row_stride);
  v("pixel_stride", s.pixel_stride);
  v("channel_stride", s.channel_stride), v("geometry", s.geometry), v("weight", s.weight);
}

template <typename S, typename V>
requires SameAs<S, ConvolutionGemmSchedule> || SameAs<S, ConvolutionDirectSchedule> ||
    SameAs<S, ConvolutionTransposedSchedule>
void fields(S &s, V &&v) { v("operands", s.operands), v("scratch_bytes", s.scratch_bytes); }
template <SameAs<ConvolutionDepthwiseSchedule> S, typename V>
void fields(S &s, V &&v) {
  v("operands", s.operands), v("fixed", s.fixed);
}
template <SameAs<ConvolutionWinogradSchedule> S, typename V>
void fields(S &s, V &&v) {
  v("operands", s.operands), v("tile", s.tile), v("scratch_bytes", s.scratch_bytes);
}

template <SameAs<ConvolutionIntegerSchedule> S, typename V>
void fields(S &s, V &&v) {
  v("operands", s.operands), v("zeros", s.zeros), v("depthwise", s.depthwise), v("scratch_bytes", s.scratch_bytes);
}

template <SameAs<ConvolutionStripsSchedule> S, typename V>
void fields(S &s, V &&v) {
  v("image", s.image), v("images", s.images), v("channels", s.channels), v("rows", s.rows), v("columns", s.columns);
  v("taps", s.taps), v("vector", s.vector), v("strip", s.strip), v("block_vectors", s.block_vectors);
  v("block_strips", s.block_strips), v("block_lines", s.block_lines);
}

template <SameAs<AttentionRows> S, typename V>
void fields(S &s, V &&v) {
  v("buffer", s.buffer), v("offset", s.offset), v("batch", s.batch), v("head", s.head), v("row", s.row);
}
template <SameAs<AttentionMask> S, typename V>
void fields(S &s, V &&v) {
  v("buffer", s.buffer), v("allowed", s.allowed), v("offset", s.offset), v("batch", s.batch), v("head", s.head);
  v("query", s.query), v("key", s.key);
}
template <SameAs<AttentionSchedule> S, typename V>
void fields(S &s, V &&v) {
  v("query", s.query), v("key", s.key), v("value", s.value), v("output", s.output), v("mask", s.mask);
  v("batch", s.batch), v("heads", s.heads), v("kv_heads", s.kv_heads), v("queries", s.queries), v("keys", s.keys);
  v("width", s.width), v("value_width", s.value_width), v("scale", s.scale), v("softcap", s.softcap);
  v("causal", s.causal), v("causal_offset", s.causal_offset), v("masked_rows", s.masked_rows);
  v("scratch_bytes", s.scratch_bytes);
}

template <SameAs<RecurrentSchedule::Layer> S, typename V>
void fields(S &s, V &&v) {
  v("w", s.w), v("r", s.r), v("bias", s.bias);
  v("w_scale", s.w_scale), v("r_scale", s.r_scale), v("w_zeros", s.w_zeros), v("r_zeros", s.r_zeros);
  v("w_zero", s.w_zero), v("r_zero", s.r_zero);
}
template <SameAs<RecurrentSchedule> S, typename V>
void fields(S &s, V &&v) {
  v("gates", s.gates), v("input", s.input), v("hidden", s.hidden), v("batch_first", s.batch_first);
  v("reverse", s.reverse), v("weights", s.weights), v("layers", s.layers), v("sums", s.sums), v("bytes", s.bytes);
  v("scratch_bytes", s.scratch_bytes);
}

template <SameAs<RecurrentStepsSchedule> S, typename V>
void fields(S &s, V &&v) {
  v("gates", s.gates), v("hidden", s.hidden), v("weights", s.weights), v("rows", s.rows), v("columns", s.columns);
  v("splits", s.splits), v("chunks", s.chunks), v("cached", s.cached), v("r", s.r);
}

template <SameAs<TensorCoreProduct::Operand> S, typename V>
void fields(S &s, V &&v) {
  v("outer", s.outer), v("k_contiguous", s.k_contiguous), v("chunk_bytes", s.chunk_bytes), v("group", s.group);
  v("constant", s.constant);
}
template <SameAs<TensorMap> S, typename V>
void fields(S &s, V &&v) {
  v("buffer", s.buffer), v("offset", s.offset), v("extents", s.extents), v("strides", s.strides);
}
template <SameAs<ImageMap> S, typename V>
void fields(S &s, V &&v) {
  v("buffer", s.buffer), v("offset", s.offset), v("extents", s.extents), v("strides", s.strides);
  v("pixels", s.pixels), v("lower", s.lower), v("steps", s.steps), v("taps", s.taps), v("dilations", s.dilations);
  v("upper", s.upper);
}
template <typename S, typename V>
requires SameAs<S, GemmTensorCoreSchedule> || SameAs<S, GemmWarpgroupSchedule> ||
    SameAs<S, ConvolutionWarpgroupSchedule>
void fields(S &s, V &&v) {
  v("type", s.type), v("batch", s.batch), v("k", s.k), v("exchanged", s.exchanged);
  v("a", s.a), v("b", s.b);
  if constexpr (SameAs<S, GemmWarpgroupSchedule>) v("map_a", s.map_a), v("map_b", s.map_b), v("blocks", s.blocks);
  if constexpr (SameAs<S, ConvolutionWarpgroupSchedule>)
    v("image", s.image), v("filters", s.filters), v("blocks", s.blocks);
  v("tiles", s.tiles);
  if constexpr (!SameAs<S, GemmTensorCoreSchedule>) v("shuffles", s.shuffles);
}

// A part of a schedule that has fields of its own.
template <typename T>
concept HasFields = SameAs<T, OperandView> || SameAs<T, ZeroPoint> || SameAs<T, ZeroPoints> || SameAs<T, GemmView> ||
    SameAs<T, BlockScales> || SameAs<T, RowScales> || SameAs<T, ConvolutionGeometry> ||
    SameAs<T, ConvolutionOperands> || SameAs<T, AttentionRows> || SameAs<T, AttentionMask> ||
    SameAs<T, RecurrentSchedule::Layer> || SameAs<T, TensorCoreProduct::Operand> || SameAs<T, TensorMap> ||
    SameAs<T, ImageMap>;

}  // namespace optc
