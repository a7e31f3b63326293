#pragma once
// What a reduction does to bodies of If, Loop and Scan. Bodies are numbered in the order of for_each_graph. Seen by
// reduce.cc only.

#include <cstddef>
#include <vector>

#include "convert/internal_edit.h"

namespace optc {

size_t count_bodies(const ModelFile &model);
size_t count_body_nodes(const ModelFile &model, size_t body);

// A body as a model of its own: what it is given and what it reads of the graphs around it become inputs, their weights
// come along. false: the type of one is not known, or an output is nothing that a node of it makes.
bool lift_body(const ModelFile &model, size_t body, const TypesByName &types, ModelFile &alone);

// The model with some nodes of a body alone. What a removed one made and others read becomes an input of the main
// graph; where the body gives it, by an Identity. false: its type is not known.
bool cut_body(const ModelFile &model, size_t body, const std::vector<size_t> &kept, const TypesByName &types,
              ModelFile &cut);

}  // namespace optc
