// Sequences and optionals: run-time objects, handled by library functions (runtime/cpu/lib_object.h). Where a tensor is
// taken out, its rank must be known; dims that are not become run-time sizes.

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

// Sets output 0 to a tensor that is taken out of an object. Its dims are known only when the item is: they become sizes
// of the run.
Status set_taken(InferContext &c, const Type &item) {
  if (!item.is_tensor()) {
    c.set(0, item);
    return {};
  }
  if (!item.shape) {
    return c.unsupported("the rank of the items is not known before the model runs",
                         "give the sequence's items one rank");
  }
  Shape shape;
  for (size_t k = 0; k < item.shape->size(); ++k)
    shape.push_back((*item.shape)[k].is_constant() ? (*item.shape)[k] : c.run_time_size(0, k));
  c.set_tensor(0, item.element, std::move(shape));
  return {};
}

bool is_sequence(const Type &type) { return type.kind == Type::Kind::kSequence && type.inner; }

Status infer_construct(InferContext &c) {
  if (c.input_count() == 0) return c.invalid("SequenceConstruct needs an input");
  Type item = c.input(0);
  for (size_t i = 1; i < c.input_count(); ++i) {
    if (c.input(i).element != item.element) return c.invalid("the items have different element types");
    item = merge_items(c.dims(), item, c.input(i));
  }
  c.set(0, Type::sequence(std::move(item)));
  return {};
}

Status infer_empty(InferContext &c) {
  c.set(0, Type::sequence(Type::tensor(static_cast<ElementType>(c.node().int_or("dtype", 1)), std::nullopt)));
  return {};
}

Status infer_length(InferContext &c) {
  c.set_tensor(0, ElementType::kInt64, {});
  return {};
}

Status infer_at(InferContext &c) {
  if (!is_sequence(c.input(0))) return c.invalid("input 0 must be a sequence");
  return set_taken(c, *c.input(0).inner);
}

Status infer_insert(InferContext &c) {
  if (!is_sequence(c.input(0))) return c.invalid("input 0 must be a sequence");
  if (c.input(1).element != c.input(0).inner->element)
    return c.invalid("the tensor and the sequence have different element types");
  const bool empty = is_empty_sequence(c.graph(), c.node().input(0));
  c.set(0, Type::sequence(empty ? c.input(1) : merge_items(c.dims(), *c.input(0).inner, c.input(1))));
  return {};
}

Status infer_erase(InferContext &c) {
  if (!is_sequence(c.input(0))) return c.invalid("input 0 must be a sequence");
  c.set(0, c.input(0));
  return {};
}

Status infer_split_to_sequence(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_ASSIGN(int64_t axis, c.axis(c.node().int_or("axis", 0), c.rank(0)));
  Shape shape = c.shape(0);
  const size_t at = static_cast<size_t>(axis);
  if (!c.has_input(1)) {
    shape[at] = 1;
    if (c.node().int_or("keepdims", 1) == 0) shape.erase(shape.begin() + axis);
  } else {
    Shape other = shape;  // the parts' sizes differ from one to the next
    other[at] = other[at] + 1;
    shape = *merge_items(c.dims(), Type::tensor(c.element(0), shape), Type::tensor(c.element(0), other)).shape;
  }
  c.set(0, Type::sequence(Type::tensor(c.element(0), std::move(shape))));
  return {};
}

Status infer_concat_from_sequence(InferContext &c) {
  if (!is_sequence(c.input(0)) || !c.input(0).inner->is_tensor())
    return c.invalid("input 0 must be a sequence of tensors");
  Type item = *c.input(0).inner;
  const bool fresh = c.node().int_or("new_axis", 0) != 0;
  if (!item.shape) return set_taken(c, item);
  const int64_t rank = item.rank() + (fresh ? 1 : 0);
  OPTC_ASSIGN(int64_t axis, c.axis(c.node().int_or("axis", 0), rank));
  Shape shape;
  for (int64_t k = 0, from = 0; k < rank; ++k) {
    if (fresh && k == axis) {
      shape.push_back(c.run_time_size(0, static_cast<size_t>(k)));
      continue;
    }
    const Dim d = (*item.shape)[static_cast<size_t>(from++)];
    shape.push_back(k != axis && d.is_constant() ? d : c.run_time_size(0, static_cast<size_t>(k)));
  }
  c.set_tensor(0, item.element, std::move(shape));
  return {};
}

Status infer_optional(InferContext &c) {
  if (c.has_input(0)) {
    c.set(0, Type::optional(c.input(0)));
    return {};
  }
  const Attribute *attribute = c.node().attribute("type");
  const Type *type = attribute ? std::get_if<Type>(attribute) : nullptr;
  if (!type) return c.invalid("an empty Optional needs its type");
  c.set(0, Type::optional(*type));
  return {};
}

Status infer_has_element(InferContext &c) {
  c.set_tensor(0, ElementType::kBool, {});
  return {};
}

Status infer_get_element(InferContext &c) {
  const Type &type = c.input(0);
  if (type.kind == Type::Kind::kOptional && type.inner) return set_taken(c, *type.inner);
  if (type.kind == Type::Kind::kNone) return c.invalid("input 0 is missing");
  if (type.is_tensor()) {
    c.set(0, type);
    return {};
  }
  c.set(0, type);
  return {};
}

// One library call with all inputs in order, and the sizes of the output's dims where it is a tensor.
Status call(BuildContext &c, const char *function) {
  std::vector<BufferId> inputs;
  for (size_t i = 0; i < c.node().inputs.size(); ++i) inputs.push_back(c.has_input(i) ? c.input(i) : BufferId());
  std::vector<const DimSymbol *> defines;
  if (c.output_type(0).has_shape()) defines = output_symbols(c, 0);
  c.library(function, inputs, {c.output(0)}, c.node().attributes, defines);
  return {};
}
Status build_construct(BuildContext &c) { return call(c, "sequence_construct"); }
Status build_empty(BuildContext &c) { return call(c, "sequence_empty"); }
Status build_length(BuildContext &c) { return call(c, "sequence_length"); }
Status build_at(BuildContext &c) { return call(c, "sequence_at"); }
Status build_insert(BuildContext &c) { return call(c, "sequence_insert"); }
Status build_erase(BuildContext &c) { return call(c, "sequence_erase"); }
Status build_split_to_sequence(BuildContext &c) { return call(c, "split_to_sequence"); }
Status build_concat_from_sequence(BuildContext &c) { return call(c, "concat_from_sequence"); }
Status build_optional(BuildContext &c) { return call(c, "optional"); }
Status build_has_element(BuildContext &c) { return call(c, "optional_has_element"); }
Status build_get_element(BuildContext &c) { return call(c, "optional_get_element"); }

const OpDef kOps[] = {
    {"SequenceConstruct", OpForm::kLibrary, 11, infer_construct, build_construct},
    {"SequenceEmpty", OpForm::kLibrary, 11, infer_empty, build_empty},
    {"SequenceLength", OpForm::kLibrary, 11, infer_length, build_length},
    {"SequenceAt", OpForm::kLibrary, 11, infer_at, build_at},
    {"SequenceInsert", OpForm::kLibrary, 11, infer_insert, build_insert},
    {"SequenceErase", OpForm::kLibrary, 11, infer_erase, build_erase},
    {"SplitToSequence", OpForm::kLibrary, 24, infer_split_to_sequence, build_split_to_sequence},
    {"ConcatFromSequence", OpForm::kLibrary, 11, infer_concat_from_sequence, build_concat_from_sequence},
    {"Optional", OpForm::kLibrary, 15, infer_optional, build_optional},
    {"OptionalHasElement", OpForm::kLibrary, 18, infer_has_element, build_has_element},
    {"OptionalGetElement", OpForm::kLibrary, 18, infer_get_element, build_get_element},
};

}  // namespace

std::span<const OpDef> sequence_ops() { return kOps; }

}  // namespace optc
