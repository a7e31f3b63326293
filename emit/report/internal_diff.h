#pragma once
// What matching (match.cc) and telling (diff.cc) share.

#include <string>
#include <utility>
#include <vector>

#include "emit/report/diff.h"

namespace optc {

// Where a GraphDiff counts the groups of each status, in the order in which they are told.
inline constexpr std::pair<DiffStatus, size_t GraphDiff::*> kStatusCounts[] = {
    {DiffStatus::kSame, &GraphDiff::same},       {DiffStatus::kFused, &GraphDiff::fused},
    {DiffStatus::kChanged, &GraphDiff::changed}, {DiffStatus::kSplit, &GraphDiff::split},
    {DiffStatus::kRemoved, &GraphDiff::removed}, {DiffStatus::kAdded, &GraphDiff::added}};

// Operator, count of operands and attributes as one text: two nodes with the same signature compute the same of the
// same operands.
std::string signature(const Node &node);
// "846 → 349 nodes: 309 same, 179 fused into 40, 358 removed".
std::string sum_text(const Graph &before, const Graph &after, const GraphDiff &diff);
// "perm=[0,2,1], axis=1": attributes for a reader; long ones are cut.
std::string attributes_text(const Node &node);
// One value; `full`: everything, as a key; else as a reader wants to see it.
std::string attribute_text(const Attribute &value, bool full);
// The value behind copies of it (Identity); of an invalid id that.
ValueId behind_copies(const Graph &graph, ValueId value);
// Operators that give the same whichever way round their two operands stand.
bool is_commutative(const std::string &op);

// Inputs (outputs) of the two models that correspond, by position: of the same name, else in their order. An input of
// one model only stands beside SIZE_MAX.
std::vector<std::pair<size_t, size_t>> pair_inputs(const Graph &before, const Graph &after);
std::vector<std::pair<size_t, size_t>> pair_outputs(const Graph &before, const Graph &after);

// Which differences finish_diff looks for: a graph and what rewrites made of it have other edges everywhere, and the
// rewrites say why.
enum class Told : uint8_t { kNodes, kAll };
// Finds what is different (changes.cc), sets the status of each group, counts, and collects the patterns.
void finish_diff(const Graph &before, const Graph &after, GraphDiff &diff, Told told);
void find_changes(const Graph &before, const Graph &after, GraphDiff &diff, Told told);

}  // namespace optc
