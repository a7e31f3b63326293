#pragma once
// JSON as people and files get it.

#include <nlohmann/json.hpp>
#include <string>

namespace optc::cli {

// Indented, with a last newline; what is no UTF-8 is replaced.
inline std::string json_text(const nlohmann::ordered_json &json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace optc::cli
