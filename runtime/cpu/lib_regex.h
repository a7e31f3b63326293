// lib_regex.h: regular expressions in RE2's syntax, matched in time linear in the text: the pattern becomes a program
// for a machine that follows all alternatives at once (K. Thompson, "Regular Expression Search Algorithm", CACM 11
// (1968); priorities of threads as in R. Cox, "Regular Expression Matching: the Virtual Machine Approach" (2009)).
// Texts are UTF-8. Known: literals, ., classes ([a-z], \d \w \s, [:alpha:], negations), groups (also (?:..),
// (?P<n>..)),
// |, * + ? {m,n} greedy and lazy, ^ $ \A \z \b \B, \Q..\E, escapes of characters, flags i m s U. Not known: classes by
// Unicode property (\pL), \C.
#pragma once
#include "lib_unicode.h"
#include "lib_util.h"

enum OptcRegexOp { kOptcRegexClass, kOptcRegexSplit, kOptcRegexJump, kOptcRegexAssert, kOptcRegexMatch };
struct OptcRegexStep {
  int32_t op;
  int32_t a, b;  // class: range numbers [a, b); split: offsets, the better one first; jump: offset; assert: which
};
struct OptcRegexRange {
  uint32_t low, high;
};
struct OptcRegex {
  OptcRegexStep *steps;
  OptcRegexRange *ranges;
  int32_t step_count, step_room, range_count, range_room;
  const char *error;  // null: the pattern is right
  // While it is compiled.
  const char *at, *end;
  int depth, fold, multiline, dot_all, swap;  // flags i, m, s, U
};
static const int32_t kOptcRegexMaxSteps = 100000;
static const int kOptcRegexMaxDepth = 200;

static inline void optc_regex_free(OptcRegex *r) {
  free(r->steps);
  free(r->ranges);
  r->steps = nullptr, r->ranges = nullptr;
}
static inline void optc_regex_fail(OptcRegex *r, const char *text) {
  if (!r->error) r->error = text;
}
// Inserts a step at position `at` (all offsets over it stay inside what is moved).
static inline void optc_regex_insert(OptcRegex *r, int32_t at, int32_t op, int32_t a, int32_t b) {
  if (r->error) return;
  if (r->step_count >= kOptcRegexMaxSteps) return optc_regex_fail(r, "the pattern is too large");
  if (r->step_count == r->step_room) {
    const int32_t room = r->step_room ? 2 * r->step_room : 64;
    OptcRegexStep *more = (OptcRegexStep *)realloc(r->steps, (size_t)room * sizeof *more);
    if (!more) return optc_regex_fail(r, "out of memory");
    r->steps = more, r->step_room = room;
  }
  memmove(r->steps + at + 1, r->steps + at, (size_t)(r->step_count - at) * sizeof *r->steps);
  r->steps[at].op = op, r->steps[at].a = a, r->steps[at].b = b;
  ++r->step_count;
}
static inline void optc_regex_emit(OptcRegex *r, int32_t op, int32_t a, int32_t b) {
  optc_regex_insert(r, r->step_count, op, a, b);
}
static inline void optc_regex_range(OptcRegex *r, uint32_t low, uint32_t high) {
  if (r->error) return;
  if (r->range_count >= 4 * kOptcRegexMaxSteps) return optc_regex_fail(r, "the pattern is too large");
  if (r->range_count == r->range_room) {
    const int32_t room = r->range_room ? 2 * r->range_room : 64;
    OptcRegexRange *more = (OptcRegexRange *)realloc(r->ranges, (size_t)room * sizeof *more);
    if (!more) return optc_regex_fail(r, "out of memory");
    r->ranges = more, r->range_room = room;
  }
  r->ranges[r->range_count].low = low, r->ranges[r->range_count].high = high;
  ++r->range_count;
}
// Turns the ranges from `first` on into their complement.
static inline void optc_regex_complement(OptcRegex *r, int32_t first) {
  for (int32_t i = first + 1; i < r->range_count; ++i) {  // by insertion: classes are short
    const OptcRegexRange x = r->ranges[i];
    int32_t k = i;
    for (; k > first && r->ranges[k - 1].low > x.low; --k) r->ranges[k] = r->ranges[k - 1];
    r->ranges[k] = x;
  }
  const int32_t last = r->range_count;
  uint32_t next = 0;
  for (int32_t i = first; i < last && !r->error; ++i) {
    const OptcRegexRange x = r->ranges[i];
    if (x.low > next) optc_regex_range(r, next, x.low - 1);
    if (x.high + 1 > next) next = x.high + 1;
  }
  if (next <= 0x10ffff) optc_regex_range(r, next, 0x10ffff);
  if (r->error) return;
  memmove(r->ranges + first, r->ranges + last, (size_t)(r->range_count - last) * sizeof *r->ranges);
  r->range_count -= last - first;
}

// The character at p, which moves behind it; a byte that is no UTF-8 counts as the character 0xfffd.
static inline uint32_t optc_regex_next(const char **p, const char *end) {
  const unsigned char *s = (const unsigned char *)*p;
  const uint32_t c = s[0];
  const int more = c < 0x80                ? 0
                   : c >= 0xc2 && c < 0xe0 ? 1
                   : c >= 0xe0 && c < 0xf0 ? 2
                   : c >= 0xf0 && c < 0xf5 ? 3
                                           : -1;
  uint32_t u = more == 1 ? c & 31 : more == 2 ? c & 15 : more == 3 ? c & 7 : c;
  int good = more >= 0 && end - *p > more;
  for (int k = 1; good && k <= more; ++k) {
    good = (s[k] & 0xc0) == 0x80;
    u = u << 6 | (s[k] & 63);
  }
  *p += good ? more + 1 : 1;
  return good ? u : 0xfffd;
}

// \d \w \s and the names of [:name:]; negated ones by the caller. 0: none of these.
static inline int optc_regex_named(OptcRegex *r, const char *name, size_t size) {
  static const struct {
    const char *name, *ranges;  // pairs of characters
  } kNames[] = {{"d", "09"},           {"w", "09AZ__az"},   {"s", "\t\n\f\r  "},  {"digit", "09"},
                {"alpha", "AZaz"},     {"alnum", "09AZaz"}, {"upper", "AZ"},      {"lower", "az"},
                {"space", "\t\r  "},   {"blank", "\t\t  "}, {"word", "09AZ__az"}, {"xdigit", "09AFaf"},
                {"punct", "!/:@[`{~"}, {"print", " ~"},     {"graph", "!~"},      {"cntrl", "\x01\x1f\x7f\x7f"},
                {"ascii", "\x01\x7f"}};
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
    if (strlen(kNames[i].name) != size || memcmp(kNames[i].name, name, size) != 0) continue;
    for (const char *p = kNames[i].ranges; *p; p += 2) optc_regex_range(r, (unsigned char)p[0], (unsigned char)p[1]);
    if (size > 1 && (name[0] == 'c' || name[1] == 's')) optc_regex_range(r, 0, 0);  // cntrl, ascii
    return 1;
  }
  return 0;
}

static inline int optc_regex_digit(char c, int base) {
  const int v = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 99;
  return v < base ? v : -1;
}
// What stands behind a backslash: a character, or (1 as the result) a class, whose ranges were added.
static inline int optc_regex_escape(OptcRegex *r, uint32_t *character) {
  if (r->at == r->end) return optc_regex_fail(r, "a backslash ends the pattern"), 0;
  const char c = *r->at;
  if (strchr("dwsDWS", c)) {
    const int32_t first = r->range_count;
    const char lower = (char)(c | 32);
    optc_regex_named(r, &lower, 1);
    if (c != lower) optc_regex_complement(r, first);
    ++r->at;
    return 1;
  }
  static const char kNames[] = "tnrfva", kValues[] = "\t\n\r\f\v\a";
  if (const char *named = c ? strchr(kNames, c) : nullptr) {
    *character = (uint32_t)kValues[named - kNames];
    ++r->at;
  } else if (c == 'x') {
    ++r->at;
    uint32_t u = 0;
    int digits = 0;
    const int braces = r->at < r->end && *r->at == '{';
    r->at += braces;
    while (r->at < r->end && digits < (braces ? 6 : 2) && optc_regex_digit(*r->at, 16) >= 0)
      u = u * 16 + (uint32_t)optc_regex_digit(*r->at++, 16), ++digits;
    if (digits == 0 || (!braces && digits != 2) || u > 0x10ffff || (braces && (r->at == r->end || *r->at++ != '}')))
      return optc_regex_fail(r, "an escape \\x has no number"), 0;
    *character = u;
  } else if (c == '0') {
    uint32_t u = 0;
    for (int digits = 0; r->at < r->end && digits < 3 && optc_regex_digit(*r->at, 8) >= 0; ++digits)
      u = u * 8 + (uint32_t)optc_regex_digit(*r->at++, 8);
    *character = u;
  } else if ((unsigned char)c < 0x80 && !((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))) {
    *character = (uint32_t)c;
    ++r->at;
  } else {
    optc_regex_fail(r, c == 'p' || c == 'P' || c == 'C' ? "the pattern has a class by Unicode property"
                                                        : "the pattern has an escape that is not known");
  }
  return 0;
}

// Adds the other cases of the ranges from `first` on, where the flag i is set.
static inline void optc_regex_fold(OptcRegex *r, int32_t first) {
  const int32_t last = r->range_count;
  for (int32_t i = first; r->fold && i < last && !r->error; ++i) {
    const OptcRegexRange x = r->ranges[i];
    if (x.high - x.low > 0x3000) continue;  // such a range has both cases already
    for (uint32_t u = x.low; u <= x.high; ++u) {
      const uint32_t upper = optc_unicode_upper(u), lower = optc_unicode_lower(u);
      if (upper != u) optc_regex_range(r, upper, upper);
      if (lower != u) optc_regex_range(r, lower, lower);
    }
  }
}
// Behind '['.
static inline void optc_regex_class(OptcRegex *r) {
  const int32_t first = r->range_count;
  const int negate = r->at < r->end && *r->at == '^';
  r->at += negate;
  for (int start = 1;; start = 0) {
    if (r->error) return;
    if (r->at == r->end) return optc_regex_fail(r, "a [ has no ]");
    if (*r->at == ']' && !start) break;
    if (*r->at == '[' && r->end - r->at > 1 && r->at[1] == ':') {
      const char *name = r->at + 2, *stop = name;
      while (stop + 1 < r->end && !(stop[0] == ':' && stop[1] == ']')) ++stop;
      const int not_in = *name == '^';
      const int32_t before = r->range_count;
      if (stop + 1 >= r->end || !optc_regex_named(r, name + not_in, (size_t)(stop - name - not_in)) || stop - name < 3)
        return optc_regex_fail(r, "a class [:name:] is not known");
      if (not_in) optc_regex_complement(r, before);
      r->at = stop + 2;
      continue;
    }
    uint32_t low = 0, high;
    if (*r->at == '\\') {
      ++r->at;
      if (optc_regex_escape(r, &low)) continue;
    } else {
      low = optc_regex_next(&r->at, r->end);
    }
    high = low;
    if (r->end - r->at > 1 && *r->at == '-' && r->at[1] != ']') {
      ++r->at;
      if (*r->at == '\\') {
        ++r->at;
        if (optc_regex_escape(r, &high)) return optc_regex_fail(r, "a range of characters ends in a class");
      } else {
        high = optc_regex_next(&r->at, r->end);
      }
      if (high < low) return optc_regex_fail(r, "a range of characters has no end");
    }
    optc_regex_range(r, low, high);
  }
  ++r->at;
  optc_regex_fold(r, first);
  if (negate) optc_regex_complement(r, first);
  optc_regex_emit(r, kOptcRegexClass, first, r->range_count);
}
static inline void optc_regex_character(OptcRegex *r, uint32_t c) {
  const int32_t first = r->range_count;
  optc_regex_range(r, c, c);
  optc_regex_fold(r, first);
  optc_regex_emit(r, kOptcRegexClass, first, r->range_count);
}

enum { kOptcRegexBegin, kOptcRegexEnd, kOptcRegexLineBegin, kOptcRegexLineEnd, kOptcRegexWord, kOptcRegexNoWord };
static inline void optc_regex_alternatives(OptcRegex *r);

// Behind '(': a group, or flags for the rest of the enclosing one.
static inline void optc_regex_group(OptcRegex *r) {
  const int fold = r->fold, multiline = r->multiline, dot_all = r->dot_all, swap = r->swap;
  if (r->at < r->end && *r->at == '?') {
    ++r->at;
    if (r->at < r->end && (*r->at == 'P' || *r->at == '<')) {  // a name
      r->at += *r->at == 'P';
      const char *name = r->at < r->end && *r->at == '<' ? r->at + 1 : r->end;
      if (name >= r->end || *name == '=' || *name == '!')
        return optc_regex_fail(r, "the pattern looks around, which RE2 does not know");
      while (name < r->end && *name != '>') ++name;
      if (name == r->end) return optc_regex_fail(r, "a group's name has no end");
      r->at = name + 1;
    } else {
      for (int on = 1;; ++r->at) {
        if (r->at == r->end) return optc_regex_fail(r, "a ( has no )");
        if (*r->at == ':' || *r->at == ')') break;
        if (*r->at == '-' && on)
          on = 0;
        else if (*r->at == 'i')
          r->fold = on;
        else if (*r->at == 'm')
          r->multiline = on;
        else if (*r->at == 's')
          r->dot_all = on;
        else if (*r->at == 'U')
          r->swap = on;
        else
          return optc_regex_fail(r, "the pattern has a group that RE2 does not know");
      }
      if (*r->at++ == ')') return;
    }
  }
  optc_regex_alternatives(r);
  if (r->error) return;
  if (r->at == r->end) return optc_regex_fail(r, "a ( has no )");
  ++r->at;
  r->fold = fold, r->multiline = multiline, r->dot_all = dot_all, r->swap = swap;
}

// One atom.
static inline void optc_regex_atom(OptcRegex *r) {
  const char c = *r->at;
  uint32_t u = 0;
  if (c == '(') {
    ++r->at;
    optc_regex_group(r);
  } else if (c == '[') {
    ++r->at;
    optc_regex_class(r);
  } else if (c == '.') {
    ++r->at;
    const int32_t first = r->range_count;
    if (r->dot_all) {
      optc_regex_range(r, 0, 0x10ffff);
    } else {
      optc_regex_range(r, 0, 9);
      optc_regex_range(r, 11, 0x10ffff);
    }
    optc_regex_emit(r, kOptcRegexClass, first, r->range_count);
  } else if (c == '^' || c == '$') {
    ++r->at;
    optc_regex_emit(r, kOptcRegexAssert, (c == '$') + (r->multiline ? kOptcRegexLineBegin : kOptcRegexBegin), 0);
  } else if (c == '*' || c == '+' || c == '?') {
    optc_regex_fail(r, "a repetition repeats nothing");
  } else if (c == '\\' && r->end - r->at > 1 && strchr("AzbB", r->at[1])) {
    static const char kNames[] = "AzbB";
    static const int32_t kKinds[] = {kOptcRegexBegin, kOptcRegexEnd, kOptcRegexWord, kOptcRegexNoWord};
    optc_regex_emit(r, kOptcRegexAssert, kKinds[strchr(kNames, r->at[1]) - kNames], 0);
    r->at += 2;
  } else if (c == '\\' && r->end - r->at > 1 &&
             r->at[1] == 'Q') {  // literal up to \E: its characters one after another
    const char *p = r->at + 2;
    while (p < r->end && !(p[0] == '\\' && p + 1 < r->end && p[1] == 'E'))
      optc_regex_character(r, optc_regex_next(&p, r->end));
    r->at = p < r->end ? p + 2 : p;
  } else if (c == '\\') {
    ++r->at;
    const int32_t first = r->range_count;
    if (optc_regex_escape(r, &u)) {
      optc_regex_emit(r, kOptcRegexClass, first, r->range_count);
    } else if (!r->error) {
      optc_regex_character(r, u);
    }
  } else {
    optc_regex_character(r, optc_regex_next(&r->at, r->end));
  }
}

// {m}, {m,} or {m,n} at the place; 0: the brace is a literal.
static inline int optc_regex_counts(OptcRegex *r, int *low, int *high) {
  const char *p = r->at + 1;
  int n[2] = {0, -1}, digits = 0;
  for (; p < r->end && *p >= '0' && *p <= '9'; ++p, ++digits) n[0] = n[0] > 10000 ? n[0] : n[0] * 10 + (*p - '0');
  if (digits == 0 || p == r->end) return 0;
  if (*p == ',') {
    ++p;
    if (p < r->end && *p >= '0' && *p <= '9')
      for (n[1] = 0; p < r->end && *p >= '0' && *p <= '9'; ++p) n[1] = n[1] > 10000 ? n[1] : n[1] * 10 + (*p - '0');
  } else {
    n[1] = n[0];
  }
  if (p == r->end || *p != '}') return 0;
  if (n[0] > 1000 || n[1] > 1000 || (n[1] >= 0 && n[1] < n[0]))
    optc_regex_fail(r, "a repetition has counts that are not possible");
  *low = n[0], *high = n[1];
  r->at = p + 1;
  return 1;
}
// An atom with its repetitions.
static inline void optc_regex_repeat(OptcRegex *r) {
  const OptcRegex before = *r;  // flags and place, to compile the atom again
  const int32_t start = r->step_count;
  optc_regex_atom(r);
  const char *atom_end = r->at;
  int repeated = 0;
  while (!r->error && r->at < r->end) {
    int low = 0, high = -1;
    const char c = *r->at;
    if (c == '{') {
      if (!optc_regex_counts(r, &low, &high)) return;
    } else if (c == '*' || c == '+' || c == '?') {
      low = c == '+', high = c == '?' ? 1 : -1;
      ++r->at;
    } else {
      return;
    }
    if (repeated++) return optc_regex_fail(r, "a repetition repeats a repetition");
    int lazy = 0;
    if (r->at < r->end && *r->at == '?') lazy = 1, ++r->at;
    lazy ^= r->swap;
    const char *after = r->at;
    const int fold = r->fold, multiline = r->multiline, dot_all = r->dot_all, swap = r->swap;
    // The atom once more, from its text.
#define OPTC_REGEX_AGAIN()                                                                                 \
  (r->at = before.at, r->fold = before.fold, r->multiline = before.multiline, r->dot_all = before.dot_all, \
   r->swap = before.swap, optc_regex_atom(r), r->at = atom_end)
    const int32_t size = r->step_count - start;
    for (int k = 1; k < low && !r->error; ++k) OPTC_REGEX_AGAIN();
    if (high < 0 && low > 0) {  // x{m,}: the last one again and again
      const int32_t last = r->step_count - size;
      optc_regex_emit(r, kOptcRegexSplit, lazy ? 1 : last - r->step_count, lazy ? last - r->step_count : 1);
    } else if (high < 0) {
      optc_regex_insert(r, start, kOptcRegexSplit, lazy ? size + 2 : 1, lazy ? 1 : size + 2);
      optc_regex_emit(r, kOptcRegexJump, start - r->step_count, 0);
    } else if (high == 0) {
      if (!r->error) r->step_count = start;
    } else {  // up to high - low more, each only behind the one before: a split in front of each, all to the end
      const int32_t first = low > 0 ? r->step_count : start;
      for (int k = low > 0 ? low : 1; k < high && !r->error; ++k) OPTC_REGEX_AGAIN();
      const int32_t optional = low > 0 ? high - low : high;
      for (int32_t k = 0; k < optional && !r->error; ++k) {
        const int32_t at = first + k * (size + 1), end = first + optional * (size + 1) - at;
        optc_regex_insert(r, at, kOptcRegexSplit, lazy ? end : 1, lazy ? 1 : end);
      }
    }
#undef OPTC_REGEX_AGAIN
    r->at = after;
    r->fold = fold, r->multiline = multiline, r->dot_all = dot_all, r->swap = swap;
  }
}
static inline void optc_regex_alternatives(OptcRegex *r) {
  if (++r->depth > kOptcRegexMaxDepth) return optc_regex_fail(r, "groups nest too deep");
  int32_t start = r->step_count, chain = -1;
  for (;;) {
    while (!r->error && r->at < r->end && *r->at != '|' && *r->at != ')') optc_regex_repeat(r);
    if (r->error || r->at == r->end || *r->at == ')') break;
    ++r->at;
    optc_regex_insert(r, start, kOptcRegexSplit, 1, r->step_count + 2 - start);
    optc_regex_emit(r, kOptcRegexJump, chain, 0);
    chain = r->step_count - 1;
    start = r->step_count;
  }
  while (!r->error && chain >= 0) {
    const int32_t next = r->steps[chain].a;
    r->steps[chain].a = r->step_count - chain;
    chain = next;
  }
  --r->depth;
}
// Compiles a pattern; `error` says what is wrong with it. To be freed in either case.
static inline OptcRegex optc_regex_compile(const char *pattern, size_t size) {
  OptcRegex r = {};
  r.at = pattern;
  r.end = pattern + size;
  optc_regex_alternatives(&r);
  if (!r.error && r.at != r.end) optc_regex_fail(&r, "a ) has no (");
  optc_regex_emit(&r, kOptcRegexMatch, 0, 0);
  return r;
}

// --- The machine

struct OptcRegexThreads {
  int32_t *step;
  const char **begin;
  int32_t count;
};
struct OptcRegexRun {
  const OptcRegex *regex;
  const char *text, *end;
  OptcRegexThreads now, next;
  int32_t *seen, *stack;  // seen[step]: the position's number at which it was last added
  int32_t mark;
  int longest;  // of the matches that begin first the longest one, not that of the first alternative
  void *memory;
};
// Memory for the runs of a compiled pattern; 0: out of memory.
static inline int optc_regex_prepare(OptcRegexRun *run, const OptcRegex *regex) {
  const size_t n = (size_t)regex->step_count;
  memset(run, 0, sizeof *run);
  run->regex = regex;
  run->memory = calloc(n, 2 * sizeof(const char *) + 5 * sizeof(int32_t));
  if (!run->memory) return 0;
  run->now.begin = (const char **)run->memory;
  run->next.begin = run->now.begin + n;
  run->now.step = (int32_t *)(run->next.begin + n);
  run->next.step = run->now.step + n;
  run->seen = run->next.step + n;
  run->stack = run->seen + n;  // 2 n
  return 1;
}
static inline int optc_regex_is_word(const char *p, const char *begin, const char *end) {
  if (p < begin || p >= end) return 0;
  const char c = *p;
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}
static inline int optc_regex_holds(const OptcRegexRun *run, int32_t kind, const char *p) {
  switch (kind) {
    case kOptcRegexBegin:
      return p == run->text;
    case kOptcRegexEnd:
      return p == run->end;
    case kOptcRegexLineBegin:
      return p == run->text || p[-1] == '\n';
    case kOptcRegexLineEnd:
      return p == run->end || *p == '\n';
    default:
      return (optc_regex_is_word(p - 1, run->text, run->end) != optc_regex_is_word(p, run->text, run->end)) ==
             (kind == kOptcRegexWord);
  }
}
// Adds a thread and those that it becomes without a character, the better ones first.
static inline void optc_regex_add(OptcRegexRun *run, OptcRegexThreads *to, int32_t step, const char *p,
                                  const char *begin) {
  int32_t depth = 0;
  run->stack[depth++] = step;
  while (depth > 0) {
    const int32_t at = run->stack[--depth];
    if (run->seen[at] == run->mark) continue;
    run->seen[at] = run->mark;
    const OptcRegexStep *s = &run->regex->steps[at];
    if (s->op == kOptcRegexSplit) {
      run->stack[depth++] = at + s->b;
      run->stack[depth++] = at + s->a;
    } else if (s->op == kOptcRegexJump) {
      run->stack[depth++] = at + s->a;
    } else if (s->op == kOptcRegexAssert) {
      if (optc_regex_holds(run, s->a, p)) run->stack[depth++] = at + 1;
    } else {
      to->step[to->count] = at;
      to->begin[to->count++] = begin;
    }
  }
}
// The first match of a text that begins at or behind `from` (of those the one that backtracking would find), or
// `whole`: whether all of the text matches. The match goes to *begin, *end.
static inline int optc_regex_search(OptcRegexRun *run, const char *text, size_t size, const char *from, int whole,
                                    const char **begin, const char **end) {
  run->text = text;
  run->end = text + size;
  run->now.count = 0;
  memset(run->seen, 0, (size_t)run->regex->step_count * sizeof *run->seen);
  run->mark = 0;
  int found = 0;
  const char *p = from;
  ++run->mark;
  for (;;) {
    if (!found && (!whole || p == text)) optc_regex_add(run, &run->now, 0, p, p);
    if (run->now.count == 0 && (found || whole)) break;
    const char *behind = p;
    const uint32_t c = p < run->end ? optc_regex_next(&behind, run->end) : 0xffffffffu;
    ++run->mark;
    run->next.count = 0;
    for (int32_t i = 0; i < run->now.count; ++i) {
      if (found && run->now.begin[i] > *begin) break;  // those behind it begin later, too
      const OptcRegexStep *s = &run->regex->steps[run->now.step[i]];
      if (s->op == kOptcRegexMatch) {
        if (whole && p != run->end) continue;
        found = 1;
        *begin = run->now.begin[i], *end = p;
        if (run->longest) continue;
        break;  // those behind it are worse
      }
      int hit = 0;
      for (int32_t k = s->a; k < s->b && !hit; ++k)
        hit = c >= run->regex->ranges[k].low && c <= run->regex->ranges[k].high;
      if (hit) optc_regex_add(run, &run->next, run->now.step[i] + 1, behind, run->now.begin[i]);
    }
    const OptcRegexThreads other = run->now;
    run->now = run->next;
    run->next = other;
    if (p == run->end) break;
    p = behind;
  }
  return found;
}
