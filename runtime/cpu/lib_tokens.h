// lib_tokens.h: com.microsoft.Tokenizer.
#pragma once
#include "lib_regex.h"

struct OptcLibTokens {
  OptcLibString *items;
  int64_t count, room;
};
static inline int optc_lib_token(OptcLibTokens *to, const char *begin, const char *end) {
  if (to->count == to->room) {
    const int64_t room = to->room ? 2 * to->room : 64;
    OptcLibString *more = (OptcLibString *)realloc(to->items, (size_t)room * sizeof *more);
    if (!more) return 0;
    to->items = more, to->room = room;
  }
  to->items[to->count].data = begin;
  to->items[to->count++].size = (size_t)(end - begin);
  return 1;
}
static inline int64_t optc_lib_token_length(const OptcLibString *s) {
  int64_t n = 0;
  for (const char *p = s->data, *end = s->data + s->size; p < end; ++n) optc_regex_next(&p, end);
  return n;
}
// The matches of an expression in a text (split: the parts between them) that are not empty. 0: out of memory.
static inline int optc_lib_tokens_by(OptcRegexRun *run, const OptcLibString *s, int split, OptcLibTokens *to) {
  const char *end = s->data + s->size, *from = s->data, *rest = from, *b, *e;
  while (from < end && optc_regex_search(run, s->data, s->size, from, 0, &b, &e)) {
    if (e == b) {  // no token, and no separator
      from = b;
      if (from < end) optc_regex_next(&from, end);
      continue;
    }
    if (split ? b > rest && !optc_lib_token(to, rest, b) : !optc_lib_token(to, b, e)) return 0;
    from = rest = e;
  }
  return !split || rest == end || optc_lib_token(to, rest, end);
}

// inputs: X [C] or [N, C]; attributes tokenexp, or separators (expressions; a tokenexp of "." or one separator that is
// empty: each character is a token, ends of lines too), of which the longest match counts, mincharnum (shorter tokens
// are left out), mark (a token of \x02 before and one of \x03 behind), pad_value. Output: the tokens of each element,
// filled up to the most of them. Size: that number.
static inline int optc_lib_tokenize(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const int64_t n = optc_lib_count(x), least = optc_lib_int_attribute(call, "mincharnum", 1);
  const int mark = optc_lib_int_attribute(call, "mark", 0) != 0;
  const OptcLibAttribute *separators = optc_lib_attribute(call, "separators");
  const char *expression = optc_lib_string_attribute(call, "tokenexp", "");
  const int characters =
      *expression ? !strcmp(expression, ".") : separators && separators->count == 1 && !separators->strings[0][0];
  const int64_t stages = characters ? 0 : *expression ? 1 : (int64_t)separators->count;
  OptcRegex *regex = (OptcRegex *)calloc((size_t)stages + 1, sizeof *regex);
  OptcRegexRun *run = (OptcRegexRun *)calloc((size_t)stages + 1, sizeof *run);
  int64_t *first = (int64_t *)calloc((size_t)n + 1, sizeof *first);
  OptcLibTokens kept = {}, now = {}, next = {};
  int good = regex && run && first;
  for (int64_t k = 0; good && k < stages; ++k) {
    const char *pattern = *expression ? expression : separators->strings[k];
    regex[k] = optc_regex_compile(pattern, strlen(pattern));
    good = !regex[k].error && optc_regex_prepare(&run[k], &regex[k]);
    run[k].longest = 1;
  }
  int64_t most = 0, tokens = 0;  // without marks
  for (int64_t i = 0; good && i < n; ++i) {
    const OptcLibString *s = (const OptcLibString *)x->data + i;
    static const char kMarks[] = "\x02\x03";
    now.count = 0;
    good = s->size == 0 || optc_lib_token(&now, s->data, s->data + s->size);
    if (characters) {
      now.count = 0;
      for (const char *p = s->data, *end = s->data + s->size; good && s->size && p < end;) {
        const char *begin = p;
        optc_regex_next(&p, end);
        good = optc_lib_token(&now, begin, p);
      }
    }
    for (int64_t k = 0; good && k < stages; ++k) {
      next.count = 0;
      for (int64_t t = 0; good && t < now.count; ++t)
        good = optc_lib_tokens_by(&run[k], &now.items[t], !*expression, &next);
      const OptcLibTokens other = now;
      now = next, next = other;
    }
    first[i] = kept.count;
    if (good && mark) good = optc_lib_token(&kept, kMarks, kMarks + 1);
    for (int64_t t = 0; good && t < now.count; ++t)
      if (optc_lib_token_length(&now.items[t]) >= least && ++tokens)
        good = optc_lib_token(&kept, now.items[t].data, now.items[t].data + now.items[t].size);
    if (good && mark) good = optc_lib_token(&kept, kMarks + 1, kMarks + 2);
    first[i + 1] = kept.count;
    if (kept.count - first[i] > most) most = kept.count - first[i];
  }
  if (tokens == 0) most = 0;  // then there are no marks either
  int64_t dims[OPTC_LIB_MAX_RANK] = {};
  for (int32_t k = 0; k < x->rank; ++k) dims[k] = x->dims[k];
  dims[x->rank] = most;
  call->sizes[0] = most;
  good = good && optc_lib_allocate(call, 0, x->rank + 1, dims);
  const char *pad = optc_lib_string_attribute(call, "pad_value", "");
  for (int64_t i = 0; good && i < n; ++i) {
    OptcLibString *to = (OptcLibString *)call->outputs[0].data + i * most;
    const int64_t count = first[i + 1] - first[i];
    for (int64_t t = 0; t < most; ++t) {
      if (t < count)
        to[t] = kept.items[first[i] + t];
      else
        to[t].data = pad, to[t].size = strlen(pad);
    }
  }
  for (int64_t k = 0; regex && run && k < stages; ++k) {
    free(run[k].memory);
    optc_regex_free(&regex[k]);
  }
  free(regex), free(run), free(first), free(kept.items), free(now.items), free(next.items);
  return good ? 0 : optc_lib_out_of_memory(call);
}
