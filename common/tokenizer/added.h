/* added.h - added tokens: texts that are matched in the input before the model tokenizes it. */
#ifndef COMMON_TOKENIZER_ADDED_H
#define COMMON_TOKENIZER_ADDED_H
#include "common/json/json.h"
#include "common/tokenizer/step.h"
#include "common/tokenizer/text.h"
#include "common/tokenizer/trie.h"
#include "common/tokenizer/vocab.h"

struct added_token {
    uint32_t id;
    bool single_word;    /* does not match inside a word */
    bool lstrip, rstrip; /* includes the white space before / after it */
    bool normalized;     /* matched after normalization */
    bool special;        /* dropped by skip_special_tokens */
};
struct added {
    struct vocab text;     /* by id */
    struct added_token *v; /* in file order */
    uint32_t n;
    uint8_t *special; /* bit set by id, for ids below `special_ids` */
    uint32_t special_ids;
    struct trie raw, normal; /* indices into v: tokens not normalized / normalized */
    size_t longest;
};
/* `j`: the "added_tokens" list (NULL: none). Ids are the model's, or follow them. `normalizer` is
 * applied to normalized tokens. */
int added_load(struct added *a, const cJSON *j, const struct vocab *model,
               const struct steps *normalizer, struct err *e);
void added_free(struct added *a);
static inline bool added_special(const struct added *a, uint32_t id)
{
    return id < a->special_ids && a->special[id / 8] >> id % 8 & 1;
}
/* Splits every span that is not a token at the tokens of one trie: leftmost, longest match. */
int added_cut(const struct added *a, const struct trie *t, struct step_work *w, struct err *e);
#endif
