// The tokenizer of BERT's family: text to the ids of word pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

class WordPiece {
 public:
  // `vocabulary`: a file with one piece a line, whose id is the line's number; pieces that continue a word begin with
  // ##. Throws std::runtime_error with the reason.
  explicit WordPiece(const std::string &vocabulary);

  // The ids of `text` (UTF-8) between [CLS] and [SEP]. Text is cleaned of control characters, lower-cased, freed of
  // accents and parted at white space, punctuation and each Chinese character; each word becomes the longest pieces,
  // from its begin on, or [UNK]. At most `limit` ids, [CLS] and [SEP] included; `cut`, where given, says whether there
  // were more.
  std::vector<int64_t> encode(std::string_view text, size_t limit, bool *cut = nullptr) const;

  size_t size() const { return ids_.size(); }

 private:
  void append_pieces(std::string_view word, std::vector<int64_t> &ids) const;
  int64_t id(const char *piece, const std::string &path) const;

  std::unordered_map<std::string, int64_t> ids_;
  int64_t unknown_ = 0, begin_ = 0, end_ = 0;
};
