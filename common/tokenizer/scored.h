/* scored.h - SentencePiece scores as BPE merges.
 *
 * SentencePiece merges the two neighbours whose joint piece has the highest score (arXiv
 * 1808.06226). As ranks of merges: every way to cut a piece into two pieces, by its score; among
 * equals those with the longer left part first, then the longer right one, then in order of the
 * pieces, and of the parts, as transformers' converter has them. */
#ifndef COMMON_TOKENIZER_SCORED_H
#define COMMON_TOKENIZER_SCORED_H
#include "common/buf.h"
#include "common/err.h"
#include <stddef.h>
#include <stdint.h>

struct scored_piece {
    const char *p; /* UTF-8 */
    size_t n;      /* 0: it takes no part in merges */
    float score;
};
/* The pieces `left` and `right` become `id`, whose text is theirs. Of pieces with one text it names
 * one. */
struct scored_merge {
    uint32_t id, left, right;
    uint32_t left_chars, right_chars;
    uint32_t cut; /* bytes of the left part */
};
/* All merges in order of their ranks: *out has *count, and the caller frees it. `ids`: a vocabulary
 * with the texts of all pieces and their ids, or NULL. */
struct vocab;
int scored_merges(const struct scored_piece *v, uint32_t n, const struct vocab *ids,
                  struct scored_merge **out, size_t *count, struct err *e);
/* `["left","right"]` for each merge, with commas between them, appended to `out`. */
int scored_merges_json(const struct scored_piece *v, uint32_t n, struct buf *out, struct err *e);
#endif
