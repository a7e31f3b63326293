// com.microsoft: GreedySearch and BeamSearch, the generation of text by a decoder that is a graph of the node's: a
// Loop, each of whose iterations runs the decoder once and appends a token to every sequence.
//
// What the kernels of ONNX Runtime do and its documentation leaves open: positions count the tokens that are no
// padding, whatever the mask says, a sequence that is finished is padded on, and the loop ends with the last sequence
// that does. Behind that ONNX Runtime leaves memory that nobody wrote; here it is padding, and 0 among the scores, as
// for an entry of the batch that is done before others.

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "ops/body.h"

namespace optc {
namespace {

constexpr ElementType kToken = ElementType::kInt32;
constexpr ElementType kScore = ElementType::kFloat32;
constexpr size_t kFirstPast = 3;  // of a decoder's inputs, behind input_ids, position_ids and attention_mask

// The places of the inputs that all searches have.
struct Inputs {
  size_t max_length, min_length, repetition_penalty, vocab_mask, prefix_vocab_mask, attention_mask;
};

// A value that the loop carries.
struct Carried {
  ValueId start, in, out;  // `in`: its input of the body
};

ValueId at(Body &b, ValueId v, int64_t axis) { return b.unsqueeze(v, {axis}); }
// One number, given as a scalar or as a list: int64[1].
ValueId count_of(Body &b, ValueId v) { return b.reshape(b.cast(v, ElementType::kInt64), {1}); }
ValueId filled(Body &b, ValueId value, ValueId shape) { return b.op("Expand", {value, shape}); }

class Search {
 public:
  Search(Body &b, const Inputs &inputs) : b_(b), inputs_(inputs) {}

  Status read();  // the graphs, and what is asked for that is not here
  Status start(
      ValueId rows_of);  // what the first run of the decoder is given; rows_of: [rows] or invalid, see `repeat`
  // Writes the loop; `choose` writes what comes of the scores [rows, vocabulary] of an iteration.
  struct Choice {
    ValueId tokens;  // [rows, 1]
    ValueId from;    // [rows]: the row that each goes on from; invalid: itself
    ValueId goes_on;
    ValueId kept{};  // what the results have of each iteration; invalid: nothing
  };
  Status loop(std::vector<Carried> &more, const std::function<Choice(ValueId)> &choose);

  ValueId sequences() const { return sequences_.in; }      // in the loop: [rows, tokens so far]
  ValueId result() const { return sequences_.out; }        // behind it
  ValueId kept() const { return kept_; }                   // [iterations, ...]
  ValueId steps() { return b_.sub(max_length_, start_); }  // iterations, if no sequence ended
  ValueId rows() const { return rows_; }
  ValueId max_length() const { return max_length_; }
  ValueId pad() { return b_.number(kToken, static_cast<double>(b_.i("pad_token_id", 0))); }
  ValueId eos() { return b_.number(kToken, static_cast<double>(b_.i("eos_token_id", -1))); }
  ValueId processed(ValueId scores);
  ValueId rest(ValueId sequences);  // the padding [rows, n] that makes them max_length long

 private:
  Status check_decoder(RegionId region, std::string_view name);
  // An input of one number, where it is known before the model runs.
  std::optional<double> constant_of(size_t input) const {
    const Constant *c = b_.has(input) ? b_.constant(b_.in(input)) : nullptr;
    return c && c->count() == 1 ? std::optional(c->as_double(0)) : std::nullopt;
  }
  ValueId seen_tokens(ValueId scores, ValueId tokens, ValueId weights);
  ValueId repeats(ValueId scores);
  ValueId lowest() { return b_.number(kScore, static_cast<double>(std::numeric_limits<float>::lowest())); }
  ValueId tokens_of(ValueId scores) { return b_.iota(b_.dim(scores, 1), kToken); }

  Body &b_;
  const Inputs inputs_;
  RegionId decoder_, first_;  // first_: of the first iteration; invalid: as the others
  size_t layers_ = 0;
  Shape past_;  // as the decoder declares it
  ElementType past_element_ = ElementType::kFloat32;
  ValueId rows_, start_, max_length_, counts_;
  ValueId ids_, mask_, positions_, prefix_mask_;
  Carried sequences_;
  ValueId iteration_, kept_;
};

Status Search::check_decoder(RegionId region, std::string_view name) {
  const std::string what = "the graph '" + std::string(name) + "' of " + b_.node().op;
  const Region &r = b_.region(region);
  if (r.outputs.size() < 2 || r.inputs.size() <= kFirstPast)
    return b_.invalid(
        what + " has " + std::to_string(r.inputs.size()) + " inputs and " + std::to_string(r.outputs.size()) +
            " outputs",
        "it takes input_ids, position_ids, attention_mask and a past for each layer, and gives logits and "
        "a present for each");
  const size_t layers = r.outputs.size() - 1;
  if (r.inputs.size() == kFirstPast + layers + 1 || r.inputs.size() == kFirstPast + layers + 2)
    return b_.unsupported(what + " takes a past that shares its buffer with the present (past_sequence_length)",
                          "export the model without past_present_share_buffer");
  if (r.inputs.size() != kFirstPast + layers)
    return b_.invalid(what + " has " + std::to_string(r.inputs.size() - kFirstPast) + " pasts, but " +
                      std::to_string(layers) + " presents");
  if (layers_ != 0 && layers != layers_) return b_.invalid(what + " has other layers than the graph 'decoder'");
  layers_ = layers;
  if (const Type &logits = b_.type(r.outputs[0]);
      logits.has_shape() &&
      (logits.rank() != 3 || ((*logits.shape)[2].is_constant() && (*logits.shape)[2].value() < b_.i("vocab_size", -1))))
    return b_.invalid(what + " gives logits " + to_string(logits) + ", not [batch, length, vocabulary]" +
                      (logits.rank() == 3 ? " with a vocabulary of attribute 'vocab_size' tokens or more" : ""));
  const Type &past = b_.type(r.inputs[kFirstPast]);
  if (!past.has_shape() || past.rank() != 5 || !(*past.shape)[2].is_constant() || !(*past.shape)[4].is_constant() ||
      (*past.shape)[2].value() < 1 || (*past.shape)[4].value() < 1)
    return b_.invalid(what +
                      " must declare its first past as [2, batch, heads, length, size] with numbers for heads "
                      "and size; it is " +
                      to_string(past));
  past_ = *past.shape;
  past_element_ = past.element;
  return {};
}

Status Search::read() {
  if (const int64_t type = b_.i("model_type", 0); type != 0)
    return b_.unsupported("attribute 'model_type' of " + b_.node().op + " is " + std::to_string(type),
                          "0, a decoder with a past (GPT), is supported; encoder-decoder models are not");
  for (const auto &[name, region] : b_.node().regions)
    if (name != "decoder" && name != "init_decoder")
      return b_.unsupported("attribute '" + name + "' of " + b_.node().op + " with model_type 0");
  OPTC_TRY(b_.need_rank(0, {2}));
  if (b_.element(b_.in(0)) != kToken) return b_.invalid(b_.input_name(0) + " must be int32");
  if (b_.has(inputs_.attention_mask)) OPTC_TRY(b_.need_rank(inputs_.attention_mask, {2}));
  if (b_.has(inputs_.vocab_mask)) OPTC_TRY(b_.need_rank(inputs_.vocab_mask, {1}));
  if (b_.has(inputs_.prefix_vocab_mask)) OPTC_TRY(b_.need_rank(inputs_.prefix_vocab_mask, {2}));
  if (!b_.node().region_named("decoder").valid())
    return b_.invalid("attribute 'decoder' of " + b_.node().op + " is required, but absent");
  OPTC_TRY(check_decoder(b_.node().region_named("decoder"), "decoder"));
  if (const RegionId first = b_.node().region_named("init_decoder"); first.valid())
    OPTC_TRY(check_decoder(first, "init_decoder"));
  const std::optional<double> longest = constant_of(inputs_.max_length);
  if (const std::optional<int64_t> length = b_.fixed(b_.in(0), 1);
      longest && length && *longest <= static_cast<double>(*length))
    return b_.invalid(b_.input_name(inputs_.max_length) + " is " + std::to_string(static_cast<int64_t>(*longest)) +
                          ", but the sequences to go on from have " + std::to_string(*length) + " tokens",
                      "it counts them, too");
  if (const auto penalty = constant_of(inputs_.repetition_penalty); penalty && !(*penalty > 0))
    return b_.invalid(b_.input_name(inputs_.repetition_penalty) + " must be positive");
  decoder_ = b_.node().region_named("decoder");
  first_ = b_.node().region_named("init_decoder");
  return {};
}

Status Search::start(ValueId rows_of) {
  const auto repeat = [&](ValueId v) {
    return rows_of.valid() ? b_.op("Gather", {v, rows_of}, {{"axis", int64_t{0}}}) : v;
  };
  const ValueId given = b_.in(0);
  max_length_ = count_of(b_, b_.in(inputs_.max_length));
  start_ = b_.dim(given, 1);
  ids_ = repeat(given);
  rows_ = b_.dim(ids_, 0);
  const ValueId seen = b_.cast(b_.op("Not", {b_.op("Equal", {ids_, pad()})}), kToken);
  mask_ = b_.has(inputs_.attention_mask) ? repeat(b_.cast(b_.in(inputs_.attention_mask), kToken)) : seen;
  const ValueId so_far = b_.op("CumSum", {seen, b_.number(ElementType::kInt64, 1)});
  positions_ = b_.mul(b_.sub(so_far, b_.number(kToken, 1)), seen);
  counts_ = b_.op("ReduceSum", {seen, b_.ints({1})}, {{"keepdims", int64_t{1}}});
  if (b_.has(inputs_.prefix_vocab_mask)) prefix_mask_ = repeat(b_.in(inputs_.prefix_vocab_mask));
  sequences_.start = ids_;
  return {};
}

Status Search::loop(std::vector<Carried> &more, const std::function<Choice(ValueId)> &choose) {
  const ValueId cache_shape = b_.concat({b_.ints({2}), rows_, b_.ints({past_[2].value(), 0, past_[4].value()})}, 0);
  const ValueId empty = filled(b_, b_.number(past_element_, 0), cache_shape);
  const ValueId one_each = b_.concat({rows_, b_.ints({1})}, 0);
  const ValueId visible = filled(b_, b_.number(kToken, 1), one_each);
  const ValueId trips = b_.squeeze(steps(), {0});

  const RegionId body = b_.new_region();
  const ValueId condition = b_.number(ElementType::kBool, 1);
  iteration_ = b_.region_input(body, "iteration", Type::tensor(ElementType::kInt64, Shape()));
  b_.region_input(body, "condition", Type::tensor(ElementType::kBool, Shape()));
  std::vector<ValueId> operands{trips, condition};
  const auto carry = [&](ValueId start, std::string_view name) {
    operands.push_back(start);
    return b_.region_input(body, name, b_.type(start));
  };
  std::vector<ValueId> fed{carry(ids_, "input_ids"), carry(positions_, "position_ids"), carry(mask_, "attention_mask")};
  for (size_t i = 0; i < layers_; ++i) fed.push_back(carry(empty, "past"));
  sequences_.in = carry(sequences_.start, "sequences");
  for (Carried &c : more) c.in = carry(c.start, "carried");

  const Body::Place outside = b_.enter({body, {}});
  std::vector<ValueId> given;
  if (first_.valid()) {
    const ValueId is_first = b_.op("Equal", {iteration_, b_.number(ElementType::kInt64, 0)});
    const auto branch = [&](RegionId decoder) {
      const RegionId made = b_.new_region();
      const Body::Place around = b_.enter({made, {}});
      b_.set_outputs(made, b_.splice(decoder, fed));
      b_.enter(around);
      return made;
    };
    const RegionId first = branch(first_), then = branch(decoder_);
    given = b_.control("If", {is_first}, layers_ + 1, {{"then_branch", first}, {"else_branch", then}});
  } else {
    given = b_.splice(decoder_, fed);
  }
  // Of the last token of each row.
  ValueId scores = b_.op("Gather", {given[0], b_.number(ElementType::kInt64, -1)}, {{"axis", int64_t{1}}});
  scores = b_.op("Cast", {scores}, {{"to", static_cast<int64_t>(kScore)}});
  if (const int64_t size = b_.i("vocab_size", -1); size > 0) scores = b_.slice(scores, 1, 0, size);
  const Choice choice = choose(scores);
  const auto goes_from = [&](ValueId v, int64_t axis) {
    return choice.from.valid() ? b_.op("Gather", {v, choice.from}, {{"axis", axis}}) : v;
  };
  std::vector<ValueId> results{choice.goes_on, choice.tokens, b_.add(counts_, b_.cast(iteration_, kToken)),
                               b_.concat({fed[2], visible}, 1)};
  for (size_t i = 0; i < layers_; ++i) results.push_back(goes_from(given[1 + i], 1));
  results.push_back(b_.concat({goes_from(sequences_.in, 0), choice.tokens}, 1));
  for (const Carried &c : more) results.push_back(c.out);
  if (choice.kept.valid()) results.push_back(choice.kept);
  b_.set_outputs(body, results);
  b_.enter(outside);
  const std::vector<ValueId> after = b_.control("Loop", operands, results.size() - 1, {{"body", body}});
  if (choice.kept.valid()) kept_ = after.back();
  const size_t state = kFirstPast + layers_;
  sequences_.out = after[state];
  for (size_t i = 0; i < more.size(); ++i) more[i].out = after[state + 1 + i];
  return {};
}

// A weight for each token of the vocabulary: the largest of its places among `tokens` [rows, n], else 0.
ValueId Search::seen_tokens(ValueId scores, ValueId tokens, ValueId weights) {
  const ValueId none = filled(b_, b_.number(kToken, 0), b_.op("Shape", {scores}));
  return b_.op("ScatterElements", {none, tokens, weights}, {{"axis", int64_t{1}}, {"reduction", std::string("max")}});
}

// Tokens that would end a run of no_repeat_ngram_size tokens that the sequence has already.
ValueId Search::repeats(ValueId scores) {
  const int64_t size = b_.i("no_repeat_ngram_size", 0);
  const ValueId zero = b_.ints({0}), sequence = sequences_.in;
  const ValueId length = b_.dim(sequence, 1);
  const ValueId last = b_.op("Max", {b_.sub(length, b_.ints({size - 1})), zero});  // where the begun run is
  const ValueId starts = b_.iota(last, ElementType::kInt64);
  const ValueId steps = b_.iota(b_.op("Min", {b_.ints({size - 1}), length}), ElementType::kInt64);
  const auto taken = [&](ValueId places) { return b_.op("Gather", {sequence, places}, {{"axis", int64_t{1}}}); };
  const ValueId runs = taken(b_.add(at(b_, starts, 1), at(b_, steps, 0)));  // [rows, starts, size - 1]
  const ValueId begun = at(b_, taken(b_.add(last, steps)), 1);              // [rows, 1, size - 1]
  const ValueId other = b_.cast(b_.op("Not", {b_.op("Equal", {runs, begun})}), kToken);
  const ValueId differ = b_.op("ReduceSum", {other, b_.ints({2})}, {{"keepdims", int64_t{0}}});
  const ValueId same = b_.cast(b_.op("Equal", {differ, b_.number(kToken, 0)}), kToken);
  return seen_tokens(scores, taken(b_.add(starts, b_.ints({size - 1}))), same);
}

ValueId Search::processed(ValueId scores) {
  const auto ban = [&](ValueId which) { scores = b_.op("Where", {which, lowest(), scores}); };
  const auto is_zero = [&](ValueId v) { return b_.op("Equal", {v, b_.like(v, 0)}); };
  if (b_.has(inputs_.repetition_penalty)) {
    const ValueId penalty = b_.reshape(b_.cast(b_.in(inputs_.repetition_penalty), kScore), {1});
    const ValueId ones = filled(b_, b_.number(kToken, 1), b_.op("Shape", {sequences_.in}));
    const ValueId unseen = is_zero(seen_tokens(scores, sequences_.in, ones));
    const ValueId negative = b_.op("Less", {scores, b_.number(kScore, 0)});
    const ValueId worse = b_.op("Where", {negative, b_.mul(scores, penalty), b_.div(scores, penalty)});
    scores = b_.op("Where", {unseen, scores, worse});
  }
  if (b_.i("no_repeat_ngram_size", 0) > 0) ban(b_.op("Not", {is_zero(repeats(scores))}));
  if (b_.has(inputs_.vocab_mask)) ban(is_zero(b_.in(inputs_.vocab_mask)));
  if (b_.has(inputs_.prefix_vocab_mask)) {
    const ValueId is_first = b_.op("Equal", {iteration_, b_.number(ElementType::kInt64, 0)});
    ban(b_.op("And", {is_first, is_zero(prefix_mask_)}));
  }
  if (b_.has(inputs_.min_length)) {
    const ValueId early = b_.op("Less", {b_.dim(sequences_.in, 1), count_of(b_, b_.in(inputs_.min_length))});
    ban(b_.op("And", {early, b_.op("Equal", {tokens_of(scores), eos()})}));
  }
  return scores;
}

ValueId Search::rest(ValueId sequences) {
  return filled(b_, pad(), b_.concat({b_.dim(sequences, 0), b_.sub(max_length_, b_.dim(sequences, 1))}, 0));
}

Status greedy_search(Body &b) {
  Search search(b, {1, 2, 3, 4, 5, 6});
  OPTC_TRY(search.read());
  OPTC_TRY(search.start({}));
  std::vector<Carried> more(1);
  Carried &finished = more[0];
  finished.start = filled(b, b.number(ElementType::kBool, 0), b.concat({search.rows(), b.ints({1})}, 0));
  OPTC_TRY(search.loop(more, [&](ValueId scores) {
    const ValueId best = b.op("ArgMax", {search.processed(scores)}, {{"axis", int64_t{1}}, {"keepdims", int64_t{1}}});
    const ValueId token = b.cast(best, kToken);
    const ValueId ends = b.op("Equal", {token, search.eos()});
    finished.out = b.op("Or", {finished.in, ends});
    const ValueId open = b.cast(b.op("Not", {finished.out}), kToken);
    const ValueId any = b.op("ReduceMax", {open}, {{"keepdims", int64_t{0}}});
    return Search::Choice{b.op("Where", {finished.out, search.pad(), token}), {}, b.cast(any, ElementType::kBool)};
  }));
  b.give(0, b.concat({search.result(), search.rest(search.result())}, 1));
  return {};
}

// BeamSearch: `beams` rows for each entry of the batch, which go on from the best of their continuations, and as many
// texts that have ended, best first.
class Beams {
 public:
  Beams(Body &b, Search &search) : b_(b), search_(search) {}

  Status start() {
    batch_ = b_.dim(b_.in(0), 0);
    beams_ = count_of(b_, b_.in(3));
    twice_ = b_.mul(beams_, b_.ints({2}));
    penalty_ = b_.has(5) ? b_.reshape(b_.cast(b_.in(5), kScore), {1}) : b_.number(kScore, 1);
    OPTC_TRY(search_.start(b_.div(b_.iota(b_.mul(batch_, beams_), ElementType::kInt64), beams_)));
    first_row_ = at(b_, b_.mul(b_.iota(batch_, ElementType::kInt64), beams_), 1);
    const ValueId shape = b_.concat({batch_, beams_}, 0), each = b_.concat({batch_, b_.ints({1})}, 0);
    // All beams are equal at the start: only one of them counts.
    const ValueId is_first = b_.op("Equal", {b_.iota(beams_, ElementType::kInt64), b_.number(ElementType::kInt64, 0)});
    const ValueId chance = b_.op("Where", {is_first, b_.number(kScore, 0), b_.number(kScore, -1e9)});
    total().start = filled(b_, chance, shape);
    best().start = filled(b_, none(), shape);
    texts().start = filled(b_, search_.pad(), b_.concat({shape, search_.max_length()}, 0));
    found().start = filled(b_, b_.number(ElementType::kInt64, 0), each);
    done().start = filled(b_, b_.number(ElementType::kBool, 0), each);
    return {};
  }

  Search::Choice choose(ValueId logits) {
    const ValueId scores = search_.processed(b_.op("LogSoftmax", {logits}, {{"axis", int64_t{-1}}}));
    const ValueId width = b_.dim(scores, 1);
    const ValueId sums =
        b_.add(b_.op("Reshape", {scores, b_.concat({batch_, beams_, b_.ints({-1})}, 0)}), at(b_, total().in, 2));
    const std::vector<ValueId> top = best_of(b_.reshape(sums, {0, -1}), twice_);
    const ValueId beam = b_.div(top[1], width), token = b_.cast(b_.op("Mod", {top[1], width}), kToken);
    const ValueId ends = b_.op("Equal", {token, search_.eos()});
    // A text that ends counts when it is among as many as there are beams; the beams go on from the others.
    const ValueId now = first(ends, beams_);
    const ValueId divisor = divisor_of(search_.sequences());
    const ValueId ended = b_.op("Where", {now, b_.div(first(top[0], beams_), divisor), none()});
    const Pool pool = merged(ended, taken(whole(search_.sequences()), first(beam, beams_)));
    best().out = b_.op("Where", {done().in, best().in, pool.scores});
    texts().out = b_.op("Where", {at(b_, done().in, 2), texts().in, pool.texts});
    const ValueId more =
        b_.op("ReduceSum", {b_.cast(now, ElementType::kInt64), b_.ints({1})}, {{"keepdims", int64_t{1}}});
    found().out = b_.op("Min", {b_.add(found().in, more), beams_});
    ValueId ready = b_.op("Equal", {found().out, beams_});
    if (b_.i("early_stopping", 0) == 0) {
      const ValueId last = b_.number(ElementType::kInt64, -1), zero = b_.number(ElementType::kInt64, 0);
      const auto column = [&](ValueId v, ValueId k) {
        return at(b_, b_.op("Gather", {v, k}, {{"axis", int64_t{1}}}), 1);
      };
      const ValueId hope = b_.div(column(top[0], zero), divisor);
      ready = b_.op("And", {ready, b_.op("GreaterOrEqual", {column(pool.scores, last), hope})});
    }
    done().out = b_.op("Or", {done().in, ready});
    const ValueId order = b_.sub(twice_, b_.iota(twice_, ElementType::kInt64));
    const ValueId next = best_of(b_.op("Where", {ends, b_.number(ElementType::kInt64, -1), order}), beams_)[1];
    const auto of_next = [&](ValueId v, ValueId otherwise) {
      return b_.op("Where", {done().in, otherwise, b_.op("GatherElements", {v, next}, {{"axis", int64_t{1}}})});
    };
    total().out = of_next(top[0], b_.number(kScore, 0));
    const ValueId from = b_.add(of_next(beam, b_.number(ElementType::kInt64, 0)), first_row_);
    const ValueId open = b_.cast(b_.op("Not", {done().out}), kToken);
    const ValueId any = b_.op("ReduceMax", {open}, {{"keepdims", int64_t{0}}});
    ValueId kept;
    if (b_.wants(2)) kept = b_.op("Where", {at(b_, done().in, 2), b_.number(kScore, 0), sums});
    return {b_.reshape(of_next(token, search_.pad()), {-1, 1}), b_.reshape(from, {-1}),
            b_.cast(any, ElementType::kBool), kept};
  }

  void finish() {
    const ValueId kept = count_of(b_, b_.in(4)), sequences = search_.result();
    const ValueId open = b_.op("Where", {done().out, none(), b_.div(total().out, divisor_of(sequences))});
    best().in = best().out;
    texts().in = texts().out;
    const ValueId shape = b_.concat({batch_, beams_, b_.ints({-1})}, 0);
    const Pool pool = merged(open, b_.op("Reshape", {whole(sequences), shape}));
    // More than there are beams is an error of the Reshape.
    const auto give = [&](size_t output, ValueId v, ValueId dims) {
      if (b_.wants(output)) b_.give(output, b_.op("Reshape", {first(v, kept), dims}));
    };
    give(0, pool.texts, b_.concat({batch_, kept, search_.max_length()}, 0));
    give(1, pool.scores, b_.concat({batch_, kept}, 0));
    if (!b_.wants(2)) return;
    const ValueId made = search_.kept();
    const ValueId missing = b_.sub(search_.steps(), b_.dim(made, 0));
    const ValueId zeros = filled(b_, b_.number(kScore, 0), b_.concat({missing, batch_, beams_, b_.dim(made, 3)}, 0));
    b_.give(2, b_.concat({made, zeros}, 0));
  }

  std::vector<Carried> carried{5};

 private:
  struct Pool {
    ValueId scores, texts;
  };
  Carried &total() { return carried[0]; }  // of each beam, [batch, beams]
  Carried &best() { return carried[1]; }   // of texts that have ended, [batch, beams]
  Carried &texts() { return carried[2]; }  // [batch, beams, max_length]
  Carried &found() { return carried[3]; }  // how many have ended, [batch, 1]
  Carried &done() { return carried[4]; }   // [batch, 1]
  ValueId none() { return b_.number(kScore, -std::numeric_limits<double>::infinity()); }
  std::vector<ValueId> best_of(ValueId v, ValueId count) {
    return b_.ops("TopK", {v, count}, 2, {{"axis", int64_t{1}}});
  }
  ValueId first(ValueId v, ValueId count) { return b_.op("Slice", {v, b_.ints({0}), count, b_.ints({1})}); }
  ValueId whole(ValueId sequences) { return b_.concat({sequences, search_.rest(sequences)}, 1); }
  ValueId divisor_of(ValueId sequences) { return b_.op("Pow", {b_.cast(b_.dim(sequences, 1), kScore), penalty_}); }
  // rows [batch * beams, n], beam [batch, m]: [batch, m, n]
  ValueId taken(ValueId rows, ValueId beam) {
    return b_.op("Gather", {rows, b_.add(beam, first_row_)}, {{"axis", int64_t{0}}});
  }
  // The best of those that have ended before and these.
  Pool merged(ValueId scores, ValueId texts_now) {
    const std::vector<ValueId> top = best_of(b_.concat({best().in, scores}, 1), beams_);
    const ValueId all = b_.concat({texts().in, texts_now}, 1);
    const ValueId rows = b_.op("Reshape", {all, b_.concat({b_.ints({-1}), search_.max_length()}, 0)});
    const ValueId place = b_.add(top[1], b_.mul(first_row_, b_.ints({2})));
    return {top[0], b_.op("Gather", {rows, place}, {{"axis", int64_t{0}}})};
  }

  Body &b_;
  Search &search_;
  ValueId batch_, beams_, twice_, penalty_, first_row_;
};

Status beam_search(Body &b) {
  for (const size_t i : {size_t{10}, size_t{11}})
    if (b.has(i)) return b.unsupported(b.input_name(i) + " of BeamSearch");
  Search search(b, {1, 2, 6, 7, 8, 9});
  OPTC_TRY(search.read());
  Beams beams(b, search);
  OPTC_TRY(beams.start());
  OPTC_TRY(search.loop(beams.carried, [&](ValueId logits) { return beams.choose(logits); }));
  beams.finish();
  return {};
}

constexpr OpDef kOps[] = {
    body_row("com.microsoft.BeamSearch",
             {"input_ids max_length min_length? num_beams num_return_sequences length_penalty? repetition_penalty? "
              "vocab_mask? prefix_vocab_mask? attention_mask? decoder_input_ids? logits_processor?",
              "sequences sequences_scores scores",
              "decoder_start_token_id:i early_stopping:b eos_token_id:i! model_type:i no_repeat_ngram_size:i "
              "pad_token_id:i! vocab_size:i"},
             beam_search),
    body_row("com.microsoft.GreedySearch",
             {"input_ids max_length min_length? repetition_penalty? vocab_mask? prefix_vocab_mask? attention_mask?",
              "sequences",
              "decoder_start_token_id:i eos_token_id:i! model_type:i no_repeat_ngram_size:i pad_token_id:i! "
              "vocab_size:i"},
             greedy_search),
};

}  // namespace

std::span<const OpDef> contrib_generation_ops() { return kOps; }

}  // namespace optc
