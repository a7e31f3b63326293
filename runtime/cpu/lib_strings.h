// lib_strings.h: StringConcat, StringSplit, StringNormalizer, RegexFullMatch, TfIdfVectorizer. Texts are UTF-8.
#pragma once
#include "lib_regex.h"
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

// A text in another case: characters by Unicode's simple mappings, what is no UTF-8 as it is. `to` holds 2 * size + 1
// bytes; gives the length.
static inline size_t optc_lib_change_case(const char *text, size_t size, int upper, char *to) {
  size_t n = 0;
  for (const char *p = text, *end = text + size; p < end;) {
    const char *start = p;
    const uint32_t c = optc_regex_next(&p, end), u = upper ? optc_unicode_upper(c) : optc_unicode_lower(c);
    if (u == c) {
      while (start < p) to[n++] = *start++;
    } else if (u < 0x80) {
      to[n++] = (char)u;
    } else {
      if (u < 0x800) {
        to[n++] = (char)(0xc0 | u >> 6);
      } else if (u < 0x10000) {
        to[n++] = (char)(0xe0 | u >> 12), to[n++] = (char)(0x80 | (u >> 6 & 63));
      } else {
        to[n++] = (char)(0xf0 | u >> 18), to[n++] = (char)(0x80 | (u >> 12 & 63)),
        to[n++] = (char)(0x80 | (u >> 6 & 63));
      }
      to[n++] = (char)(0x80 | (u & 63));
    }
  }
  return n;
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
      if (exact) {
        drop = size == s->size && memcmp(stop->strings[k], s->data, size) == 0;
      } else {
        char *a = (char *)malloc(2 * (size + s->size) + 2), *b = a + 2 * size + 1;
        if (!a) return optc_lib_out_of_memory(call);
        const size_t n_a = optc_lib_change_case(stop->strings[k], size, 0, a);
        drop = n_a == optc_lib_change_case(s->data, s->size, 0, b) && memcmp(a, b, n_a) == 0;
        free(a);
      }
    }
    if (drop) continue;
    char *text = optc_lib_characters(call, &kept[count], change ? 2 * s->size : s->size);
    if (!text) return optc_lib_out_of_memory(call);
    if (change)
      kept[count].size = optc_lib_change_case(s->data, s->size, change == 2, text);
    else
      memcpy(text, s->data, s->size);
    ++count;
  }
  if (count == 0) kept[0].data = "", kept[0].size = 0, count = 1;
  int64_t dims[2] = {1, count};
  call->sizes[0] = count;
  if (!optc_lib_allocate(call, 0, x->rank, x->rank == 2 ? dims : dims + 1)) return optc_lib_out_of_memory(call);
  memcpy(call->outputs[0].data, kept, (size_t)count * sizeof(OptcLibString));
  return 0;
}

// inputs: X; attribute pattern (lib_regex.h). Output: bool: whether all of an element matches.
static inline int optc_lib_regex_full_match(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const char *pattern = optc_lib_string_attribute(call, "pattern", "");
  const int64_t n = optc_lib_count(x);
  OptcRegex regex = optc_regex_compile(pattern, strlen(pattern));
  OptcRegexRun run = {};
  int status = regex.error                         ? optc_lib_fault(call, regex.error)
               : !optc_regex_prepare(&run, &regex) ? optc_lib_out_of_memory(call)
                                                   : 0;
  for (int64_t i = 0; i < n && status == 0; ++i) {
    const OptcLibString *s = (const OptcLibString *)x->data + i;
    const char *text = s->data ? s->data : "", *begin, *end;
    ((uint8_t *)call->outputs[0].data)[i] = optc_regex_search(&run, text, s->size, text, 1, &begin, &end) != 0;
  }
  free(run.memory);
  optc_regex_free(&regex);
  return status;
}

static inline int optc_lib_same_item(const OptcLibTensor *a, int64_t i, const OptcLibTensor *b, int64_t j) {
  if (a->type == 8)
    return optc_lib_compare_strings((const OptcLibString *)a->data + i, (const OptcLibString *)b->data + j) == 0;
  return optc_lib_int_at(a, i) == optc_lib_int_at(b, j);
}
static inline uint64_t optc_lib_hash_item(const OptcLibTensor *t, int64_t i) {
  return t->type == 8 ? optc_lib_hash_text((const OptcLibString *)t->data + i) : (uint64_t)optc_lib_int_at(t, i);
}
// n items from number `at` on, `step` apart.
static inline uint64_t optc_lib_hash_gram(const OptcLibTensor *t, int64_t at, int64_t n, int64_t step) {
  uint64_t h = (uint64_t)n;
  for (int64_t k = 0; k < n; ++k) h = optc_lib_spread(h ^ optc_lib_hash_item(t, at + k * step));
  return h;
}
typedef struct {
  int64_t at, n, column;  // of the pool; n 0: free
} OptcLibGram;
// A hash table of the n-grams of least to most items; a pool may hold one twice. 0, or the status of a fault.
static inline int optc_lib_grams(OptcLibCall *call, int64_t least, int64_t most, OptcLibGram **table, uint64_t *mask) {
  const OptcLibTensor *pool = &call->inputs[1];
  const OptcLibAttribute *counts = optc_lib_attribute(call, "ngram_counts"),
                         *indexes = optc_lib_attribute(call, "ngram_indexes");
  const int64_t size = call->outputs[0].dims[call->outputs[0].rank - 1], items = optc_lib_count(pool);
  uint64_t slots = 16;
  while (slots < 2 * (uint64_t)items) slots *= 2;
  OptcLibGram *grams = *table = (OptcLibGram *)calloc((size_t)slots, sizeof(OptcLibGram));
  if (!grams) return optc_lib_out_of_memory(call);
  *mask = slots - 1;
  size_t gram = 0;
  for (size_t g = 0; g < counts->count; ++g) {
    const int64_t n = (int64_t)g + 1, start = counts->ints[g],
                  end = g + 1 < counts->count ? counts->ints[g + 1] : items;
    for (int64_t at = start; at >= 0 && at + n <= end && end <= items; at += n, ++gram) {
      if (n < least || n > most) continue;
      if (gram >= indexes->count || indexes->ints[gram] < 0 || indexes->ints[gram] >= size)
        return optc_lib_fault(call, "TfIdfVectorizer: an index is out of range");
      uint64_t slot = optc_lib_hash_gram(pool, at, n, 1) & *mask;
      while (grams[slot].n) slot = (slot + 1) & *mask;
      grams[slot].at = at, grams[slot].n = n, grams[slot].column = indexes->ints[gram];
    }
  }
  return 0;
}
// inputs: X [n] or [N, n], pool (strings or i64, the n-grams one after another); attributes mode, min_gram_length,
// max_gram_length, max_skip_count, ngram_counts, ngram_indexes, weights. Output: f32 [..., size].
static inline int optc_lib_tfidf(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *pool = &call->inputs[1];
  const OptcLibAttribute *indexes = optc_lib_attribute(call, "ngram_indexes"),
                         *weights = optc_lib_attribute(call, "weights");
  const int64_t least = optc_lib_int_attribute(call, "min_gram_length", 1),
                most = optc_lib_int_attribute(call, "max_gram_length", 1),
                skips = optc_lib_int_attribute(call, "max_skip_count", 0),
                lengths = (int64_t)optc_lib_attribute(call, "ngram_counts")->count;
  const char *mode = optc_lib_string_attribute(call, "mode", "TF");
  const OptcLibTensor *y = &call->outputs[0];
  const int64_t size = y->dims[y->rank - 1], rows = y->rank == 2 ? y->dims[0] : 1, length = x->dims[x->rank - 1];
  float *out = (float *)y->data, *column = (float *)malloc((size_t)(size + 1) * sizeof(float));  // weights
  OptcLibGram *grams = nullptr;
  uint64_t mask = 0;
  const int status = column ? optc_lib_grams(call, least, most, &grams, &mask) : optc_lib_out_of_memory(call);
  if (status != 0) {
    free(column), free(grams);
    return status;
  }
  for (int64_t i = 0; i < rows * size; ++i) out[i] = 0;
  for (int64_t n = least > 1 ? least : 1; n <= most && n <= lengths; ++n)
    for (int64_t step = 1; step <= (n == 1 ? 1 : skips + 1) && (n - 1) * step < length; ++step)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i + (n - 1) * step < length; ++i) {
          const int64_t from = row * length + i;
          uint64_t slot = optc_lib_hash_gram(x, from, n, step) & mask;
          for (; grams[slot].n; slot = (slot + 1) & mask) {
            int same = grams[slot].n == n;
            for (int64_t k = 0; same && k < n; ++k)
              same = optc_lib_same_item(x, from + k * step, pool, grams[slot].at + k);
            if (same) out[row * size + grams[slot].column] += 1;
          }
        }
  const int idf = optc_lib_same(mode, "IDF"), both = optc_lib_same(mode, "TFIDF");
  // weights are by n-gram; those of one column are that column's
  for (int64_t i = 0; i < size; ++i) column[i] = 1;
  for (size_t g = 0; weights && g < indexes->count && g < weights->count; ++g)
    if (indexes->ints[g] >= 0 && indexes->ints[g] < size) column[indexes->ints[g]] = weights->floats[g];
  for (int64_t i = 0; (idf || both) && i < rows * size; ++i)
    out[i] = idf ? (out[i] > 0 ? column[i % size] : 0) : out[i] * column[i % size];
  free(column), free(grams);
  return 0;
}
