// lib_strings.h: StringConcat, StringSplit, StringNormalizer, RegexFullMatch, TfIdfVectorizer. Texts are UTF-8.
#pragma once
#include "lib_text.h"

static inline char *optc_lib_characters(OptcLibCall *call, OptcLibString *to, size_t size) {
  char *text = (char *)call->allocate(call->user, OPTC_LIB_EXTRA, size + 1);
  to->data = text;
  to->size = size;
  return text;
}

// inputs: X, Y (strings that broadcast). Output: X followed by Y.
static inline int optc_lib_string_concat(OptcLibCall *call) {
  const OptcLibTensor *a = &call->inputs[0], *b = &call->inputs[1];
  OptcLibTensor *y = &call->outputs[0];
  int64_t dims[OPTC_LIB_MAX_RANK];
  memcpy(dims, y->dims, sizeof dims);
  if (!optc_lib_allocate(call, 0, y->rank, dims)) return optc_lib_out_of_memory(call);
  const int64_t n = optc_lib_count(y);
  for (int64_t i = 0; i < n; ++i) {
    const OptcLibString *s = (const OptcLibString *)a->data + optc_lib_broadcast_at(a, y, i),
                        *t = (const OptcLibString *)b->data + optc_lib_broadcast_at(b, y, i);
    char *text = optc_lib_characters(call, (OptcLibString *)y->data + i, s->size + t->size);
    if (!text) return optc_lib_out_of_memory(call);
    memcpy(text, s->data, s->size);
    memcpy(text + s->size, t->data, t->size);
  }
  return 0;
}

static inline int optc_lib_is_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }
// The next part of s from *at on; 0 when there is none. Without a delimiter, runs of white space separate. After `left`
// splits the rest is one part.
static inline int optc_lib_next_part(const OptcLibString *s, const char *delimiter, size_t width, int64_t left,
                                     size_t *at, OptcLibString *part) {
  if (width == 0) {
    while (*at < s->size && optc_lib_is_space(s->data[*at])) ++*at;
    if (*at >= s->size) return 0;
    size_t end = *at;
    if (left == 0) {
      end = s->size;
    } else {
      while (end < s->size && !optc_lib_is_space(s->data[end])) ++end;
    }
    part->data = s->data + *at, part->size = end - *at;
    *at = end;
    return 1;
  }
  if (*at > s->size) return 0;
  size_t end = *at;
  if (left == 0) end = s->size;
  while (end < s->size && !(end + width <= s->size && memcmp(s->data + end, delimiter, width) == 0)) ++end;
  part->data = s->data + *at, part->size = end - *at;
  *at = end < s->size ? end + width : s->size + 1;
  return 1;
}
// inputs: X; attributes delimiter, maxsplit. Outputs: strings [..., most parts] filled up with "", i64 counts. Sizes:
// the dims of output 0.
static inline int optc_lib_string_split(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const char *delimiter = optc_lib_string_attribute(call, "delimiter", "");
  const OptcLibAttribute *maxsplit = optc_lib_attribute(call, "maxsplit");
  const size_t width = strlen(delimiter);
  const int64_t n = optc_lib_count(x), splits = maxsplit ? maxsplit->i : -1;
  if (x->rank + 1 > OPTC_LIB_MAX_RANK) return optc_lib_fault(call, "StringSplit: too many dimensions");
  int64_t most = 0, dims[OPTC_LIB_MAX_RANK];
  OptcLibTensor *counts = optc_lib_output(call, 1);
  if (counts && !optc_lib_allocate(call, 1, x->rank, x->dims)) return optc_lib_out_of_memory(call);
  for (int64_t i = 0; i < n; ++i) {
    int64_t parts = 0;
    size_t at = 0;
    OptcLibString part;
    while (optc_lib_next_part((const OptcLibString *)x->data + i, delimiter, width, splits - parts, &at, &part))
      ++parts;
    if (counts) ((int64_t *)counts->data)[i] = parts;
    most = parts > most ? parts : most;
  }
  for (int32_t k = 0; k < x->rank; ++k) call->sizes[k] = dims[k] = x->dims[k];
  call->sizes[x->rank] = dims[x->rank] = most;
  if (!optc_lib_output(call, 0)) return 0;
  if (!optc_lib_allocate(call, 0, x->rank + 1, dims)) return optc_lib_out_of_memory(call);
  OptcLibString *y = (OptcLibString *)call->outputs[0].data;
  for (int64_t i = 0; i < n; ++i) {
    size_t at = 0;
    for (int64_t p = 0; p < most; ++p)
      if (!optc_lib_next_part((const OptcLibString *)x->data + i, delimiter, width, splits - p, &at, &y[i * most + p]))
        y[i * most + p].data = "", y[i * most + p].size = 0;
  }
  return 0;
}

// Case of one UTF-8 character, in place: ASCII, Latin-1 and basic Greek and Cyrillic, whose two-byte forms keep their
// length.
static inline void optc_lib_change_case(char *text, size_t size, int upper) {
  for (size_t i = 0; i < size;) {
    const unsigned char c = (unsigned char)text[i];
    if (c < 0x80) {
      if (upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z') text[i] = (char)(c ^ 32);
      ++i;
      continue;
    }
    const size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (length == 2 && i + 1 < size) {
      uint32_t u = (uint32_t)(c & 31) << 6 | ((unsigned char)text[i + 1] & 63);
      if (upper) {
        if (u >= 0xe0 && u <= 0xfe && u != 0xf7)
          u -= 32;
        else if ((u >= 0x3b1 && u <= 0x3c9 && u != 0x3c2) || (u >= 0x430 && u <= 0x44f))
          u -= 32;
        else if (u >= 0x450 && u <= 0x45f)
          u -= 80;
      } else {
        if (u >= 0xc0 && u <= 0xde && u != 0xd7)
          u += 32;
        else if ((u >= 0x391 && u <= 0x3a9 && u != 0x3a2) || (u >= 0x410 && u <= 0x42f))
          u += 32;
        else if (u >= 0x400 && u <= 0x40f)
          u += 80;
      }
      text[i] = (char)(0xc0 | u >> 6);
      text[i + 1] = (char)(0x80 | (u & 63));
    }
    i += length;
  }
}
// inputs: X [n] or [1, n]; attributes case_change_action, is_case_sensitive, stopwords. Output: X without the stop
// words, in the wanted case; one empty string when nothing is left. Size: the length (the last dim).
static inline int optc_lib_string_normalizer(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const char *action = optc_lib_string_attribute(call, "case_change_action", "NONE");
  const OptcLibAttribute *stop = optc_lib_attribute(call, "stopwords");
  const int exact = optc_lib_int_attribute(call, "is_case_sensitive", 0) != 0, change = action[0] == 'L'   ? 1
                                                                                        : action[0] == 'U' ? 2
                                                                                                           : 0;
  const int64_t n = optc_lib_count(x);
  OptcLibString *kept =
      (OptcLibString *)call->allocate(call->user, OPTC_LIB_EXTRA, (size_t)(n + 1) * sizeof(OptcLibString));
  if (!kept) return optc_lib_out_of_memory(call);
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const OptcLibString *s = (const OptcLibString *)x->data + i;
    int drop = 0;
    for (size_t k = 0; stop && k < stop->count && !drop; ++k) {
      const size_t size = strlen(stop->strings[k]);
      if (size != s->size) continue;
      if (exact) {
        drop = memcmp(stop->strings[k], s->data, size) == 0;
      } else {
        char *a = (char *)malloc(2 * size + 1);
        if (!a) return optc_lib_out_of_memory(call);
        memcpy(a, stop->strings[k], size), memcpy(a + size, s->data, size);
        optc_lib_change_case(a, 2 * size, 0);
        drop = memcmp(a, a + size, size) == 0;
        free(a);
      }
    }
    if (drop) continue;
    char *text = optc_lib_characters(call, &kept[count], s->size);
    if (!text) return optc_lib_out_of_memory(call);
    memcpy(text, s->data, s->size);
    if (change) optc_lib_change_case(text, s->size, change == 2);
    ++count;
  }
  if (count == 0) kept[0].data = "", kept[0].size = 0, count = 1;
  int64_t dims[2] = {1, count};
  call->sizes[0] = count;
  if (!optc_lib_allocate(call, 0, x->rank, x->rank == 2 ? dims : dims + 1)) return optc_lib_out_of_memory(call);
  memcpy(call->outputs[0].data, kept, (size_t)count * sizeof(OptcLibString));
  return 0;
}

// A regular expression by backtracking: alternation, groups, ., [...], \d \w \s \D \W \S \b \B, * + ? {m,n} and their
// lazy forms, ^ and $. `steps` bounds the work, since backtracking can be exponential.
typedef struct OptcLibRegex {
  const char *pattern, *pattern_end, *text_end, *text;
  int64_t steps;
  int bad;
} OptcLibRegex;
typedef int (*OptcLibThen)(OptcLibRegex *, const char *, void *);

static inline const char *optc_lib_regex_skip_class(const char *p,
                                                    const char *end) {  // behind the ']' of the class that begins at p
  ++p;
  if (p < end && *p == '^') ++p;
  if (p < end && *p == ']') ++p;
  while (p < end && *p != ']') p += *p == '\\' ? 2 : 1;
  return p < end ? p + 1 : nullptr;
}
static inline const char *optc_lib_regex_skip_atom(const char *p, const char *end) {
  if (p >= end) return nullptr;
  if (*p == '\\') return p + 2 <= end ? p + 2 : nullptr;
  if (*p == '[') return optc_lib_regex_skip_class(p, end);
  if (*p == '(') {
    int depth = 0;
    while (p < end) {
      if (*p == '\\') {
        p += 2;
        continue;
      }
      if (*p == '[') {
        p = optc_lib_regex_skip_class(p, end);
        if (!p) return nullptr;
        continue;
      }
      depth += *p == '(';
      depth -= *p == ')';
      ++p;
      if (depth == 0) return p;
    }
    return nullptr;
  }
  const unsigned char c = (unsigned char)*p;
  const size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
  return p + length <= end ? p + length : end;
}
static inline int optc_lib_regex_escape(char kind, unsigned char c) {
  const int digit = c >= '0' && c <= '9', word = digit || c == '_' || (c | 32) >= 97
                                                     ? (digit || c == '_' || ((c | 32) >= 'a' && (c | 32) <= 'z'))
                                                     : 0;
  switch (kind) {
    case 'd':
      return digit;
    case 'D':
      return !digit;
    case 'w':
      return word;
    case 'W':
      return !word;
    case 's':
      return optc_lib_is_space((char)c);
    case 'S':
      return !optc_lib_is_space((char)c);
    case 'n':
      return c == '\n';
    case 't':
      return c == '\t';
    case 'r':
      return c == '\r';
    default:
      return c == (unsigned char)kind;
  }
}
static inline int optc_lib_regex_class(const char *p, const char *end,
                                       unsigned char c) {  // p behind '['; end at the ']'
  int negate = 0, hit = 0;
  if (p < end && *p == '^') negate = 1, ++p;
  for (int first = 1; p < end; first = 0) {
    (void)first;
    if (*p == '\\' && p + 1 < end) {
      hit |= optc_lib_regex_escape(p[1], c);
      p += 2;
    } else if (p + 2 < end && p[1] == '-') {
      hit |= c >= (unsigned char)p[0] && c <= (unsigned char)p[2];
      p += 3;
    } else {
      hit |= c == (unsigned char)*p++;
    }
  }
  return hit != negate;
}

static inline int optc_lib_regex_sequence(OptcLibRegex *r, const char *p, const char *end, const char *t,
                                          OptcLibThen then, void *user);
static inline int optc_lib_regex_alternatives(OptcLibRegex *r, const char *p, const char *end, const char *t,
                                              OptcLibThen then, void *user) {
  const char *start = p;
  while (p < end) {
    if (*p == '|') {
      if (optc_lib_regex_sequence(r, start, p, t, then, user)) return 1;
      start = ++p;
      continue;
    }
    const char *next = optc_lib_regex_skip_atom(p, end);
    if (!next) {
      r->bad = 1;
      return 0;
    }
    p = next;
  }
  return optc_lib_regex_sequence(r, start, end, t, then, user);
}
typedef struct OptcLibRepeat {
  const char *atom, *atom_end, *rest, *end, *last;
  int64_t low, high, count;
  int lazy;
  OptcLibThen then;
  void *user;
} OptcLibRepeat;
static inline int optc_lib_regex_repeat(OptcLibRegex *r, const char *t, void *user);
static inline int optc_lib_regex_atom(OptcLibRegex *r, const OptcLibRepeat *s, const char *t, OptcLibThen then,
                                      void *user) {
  const char *p = s->atom;
  if (*p == '(') {
    const char *inside = p + 1;
    if (s->atom_end - inside > 2 && inside[0] == '?' && inside[1] == ':') inside += 2;
    return optc_lib_regex_alternatives(r, inside, s->atom_end - 1, t, then, user);
  }
  if (*p == '^') return t == r->text && then(r, t, user);
  if (*p == '$') return t == r->text_end && then(r, t, user);
  if (*p == '\\' && (p[1] == 'b' || p[1] == 'B')) {  // a word's border
    const int before = t > r->text && optc_lib_regex_escape('w', (unsigned char)t[-1]),
              after = t < r->text_end && optc_lib_regex_escape('w', (unsigned char)*t);
    return (before != after) == (p[1] == 'b') && then(r, t, user);
  }
  if (t >= r->text_end) return 0;
  const unsigned char c = (unsigned char)*t;
  if (*p == '\\') return optc_lib_regex_escape(p[1], c) && then(r, t + 1, user);
  const size_t wide = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
  if (*p == '.') return c != '\n' && t + wide <= r->text_end && then(r, t + wide, user);
  if (*p == '[') return optc_lib_regex_class(p + 1, s->atom_end - 1, c) && then(r, t + 1, user);
  const size_t n = (size_t)(s->atom_end - p);
  return t + n <= r->text_end && memcmp(p, t, n) == 0 && then(r, t + n, user);
}
static inline int optc_lib_regex_repeat(OptcLibRegex *r, const char *t, void *user) {
  OptcLibRepeat *s = (OptcLibRepeat *)user;
  if (r->bad || --r->steps < 0) return 0;
  if (s->count >= s->low && s->lazy && optc_lib_regex_sequence(r, s->rest, s->end, t, s->then, s->user)) return 1;
  if ((s->high < 0 || s->count < s->high) && !(s->count > s->low && t == s->last)) {
    OptcLibRepeat more = *s;
    ++more.count;
    more.last = t;
    if (optc_lib_regex_atom(r, s, t, optc_lib_regex_repeat, &more)) return 1;
  }
  return s->count >= s->low && !s->lazy && optc_lib_regex_sequence(r, s->rest, s->end, t, s->then, s->user);
}
static inline int optc_lib_regex_sequence(OptcLibRegex *r, const char *p, const char *end, const char *t,
                                          OptcLibThen then, void *user) {
  if (r->bad || --r->steps < 0) return 0;
  if (p >= end) return then(r, t, user);
  OptcLibRepeat s = {p, optc_lib_regex_skip_atom(p, end), nullptr, end, nullptr, 1, 1, 0, 0, then, user};
  if (!s.atom_end || strchr("*+?{)", *p)) {
    r->bad = 1;
    return 0;
  }
  const char *q = s.atom_end;
  if (q < end && (*q == '*' || *q == '+' || *q == '?')) {
    s.low = *q == '+', s.high = *q == '?' ? 1 : -1;
    ++q;
  } else if (q < end && *q == '{') {
    char *after;
    s.low = strtoll(q + 1, &after, 10);
    s.high = *after == ',' ? (after[1] == '}' ? -1 : strtoll(after + 1, &after, 10)) : s.low;
    while (after < end && *after != '}') ++after;
    if (after >= end || s.low < 0) {
      r->bad = 1;
      return 0;
    }
    q = after + 1;
  }
  if (q < end && *q == '?' && q != s.atom_end) s.lazy = 1, ++q;
  s.rest = q;
  return optc_lib_regex_repeat(r, t, &s);
}
static inline int optc_lib_regex_end(OptcLibRegex *r, const char *t, void *user) {
  (void)user;
  return t == r->text_end;
}
// inputs: X; attribute pattern. Output: bool: whether all of an element matches.
static inline int optc_lib_regex_full_match(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const char *pattern = optc_lib_string_attribute(call, "pattern", "");
  const int64_t n = optc_lib_count(x);
  for (int64_t i = 0; i < n; ++i) {
    const OptcLibString *s = (const OptcLibString *)x->data + i;
    OptcLibRegex r = {pattern, pattern + strlen(pattern), s->data + s->size, s->data, 10000000, 0};
    const int hit = optc_lib_regex_alternatives(&r, pattern, r.pattern_end, s->data, optc_lib_regex_end, nullptr);
    if (r.bad) return optc_lib_fault(call, "RegexFullMatch: the pattern has a form that is not supported");
    if (r.steps < 0) return optc_lib_fault(call, "RegexFullMatch: the match takes too long");
    ((uint8_t *)call->outputs[0].data)[i] = hit != 0;
  }
  return 0;
}

static inline int optc_lib_same_item(const OptcLibTensor *a, int64_t i, const OptcLibTensor *b, int64_t j) {
  if (a->type == 8)
    return optc_lib_compare_strings((const OptcLibString *)a->data + i, (const OptcLibString *)b->data + j) == 0;
  return optc_lib_int_at(a, i) == optc_lib_int_at(b, j);
}
// inputs: X [n] or [N, n], pool (strings or i64, the n-grams one after another); attributes mode, min_gram_length,
// max_gram_length, max_skip_count, ngram_counts, ngram_indexes, weights. Output: f32 [..., size].
static inline int optc_lib_tfidf(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *pool = &call->inputs[1];
  const OptcLibAttribute *counts = optc_lib_attribute(call, "ngram_counts"),
                         *indexes = optc_lib_attribute(call, "ngram_indexes"),
                         *weights = optc_lib_attribute(call, "weights");
  const int64_t least = optc_lib_int_attribute(call, "min_gram_length", 1),
                most = optc_lib_int_attribute(call, "max_gram_length", 1),
                skips = optc_lib_int_attribute(call, "max_skip_count", 0);
  const char *mode = optc_lib_string_attribute(call, "mode", "TF");
  const OptcLibTensor *y = &call->outputs[0];
  const int64_t size = y->dims[y->rank - 1], rows = y->rank == 2 ? y->dims[0] : 1, length = x->dims[x->rank - 1],
                items = optc_lib_count(pool);
  float *out = (float *)y->data;
  for (int64_t i = 0; i < rows * size; ++i) out[i] = 0;
  for (int64_t row = 0; row < rows; ++row) {
    size_t gram = 0;
    for (size_t g = 0; g < counts->count; ++g) {
      const int64_t n = (int64_t)g + 1, start = counts->ints[g],
                    end = g + 1 < counts->count ? counts->ints[g + 1] : items;
      for (int64_t at = start; at + n <= end && end <= items; at += n, ++gram) {
        if (n < least || n > most) continue;
        if (gram >= indexes->count || indexes->ints[gram] < 0 || indexes->ints[gram] >= size)
          return optc_lib_fault(call, "TfIdfVectorizer: an index is out of range");
        for (int64_t step = 1; step <= (n == 1 ? 1 : skips + 1); ++step)
          for (int64_t i = 0; i + (n - 1) * step < length; ++i) {
            int same = 1;
            for (int64_t k = 0; same && k < n; ++k)
              same = optc_lib_same_item(x, row * length + i + k * step, pool, at + k);
            if (same) out[row * size + indexes->ints[gram]] += 1;
          }
      }
    }
  }
  const int idf = optc_lib_same(mode, "IDF"), both = optc_lib_same(mode, "TFIDF");
  // weights are by n-gram; those of one column are that column's
  for (int64_t i = 0; (idf || both) && i < rows * size; ++i) {
    float w = 1;
    for (size_t g = 0; weights && weights->count && g < indexes->count && g < weights->count; ++g)
      if (indexes->ints[g] == i % size) w = weights->floats[g];
    out[i] = idf ? (out[i] > 0 ? w : 0) : out[i] * w;
  }
  return 0;
}
