#pragma once
// How far the values inside of a model are from ONNX Runtime's, as text and as JSON (verify --per-node).

#include <string>

#include "driver/value_compare.h"

namespace optc::cli {

std::string value_text(const ValueReport &report, bool all, bool quiet);  // all: every value, whole names
std::string value_json(const ValueReport &report);                        // a JSON object
std::string value_summary(const ValueReport &report);                     // one sentence on first()

}  // namespace optc::cli
