#pragma once
// What matching (match.cc) and telling (diff.cc) share.

#include <string>

#include "emit/report/diff.h"

namespace optc {

// Operator, count of operands and attributes as one text: two nodes with the same signature compute the same of the
// same operands.
std::string signature(const Node &node);
// "perm=[0,2,1], axis=1": attributes for a reader; long ones are cut.
std::string attributes_text(const Node &node);
// Sets the status of each group, counts, and collects the patterns.
void finish_diff(const Graph &before, const Graph &after, GraphDiff &diff);

}  // namespace optc
