#pragma once
// optc.Extern: an operator that the application supplies as a C function. Its attributes are those of the node in the
// model and kExternOperator, "DOMAIN::OP"; its outputs have the types that the importer gave them. As a library call it
// has the name kExternFunction, which only a bundle can run.

#include <string_view>

namespace optc {

inline constexpr std::string_view kExternOperator = "optc_operator";
inline constexpr std::string_view kExternFunction = "extern";

}  // namespace optc
