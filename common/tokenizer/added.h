/* added.h - added tokens: texts that are cut out of the input before the model sees it. */
#ifndef COMMON_TOKENIZER_ADDED_H
#define COMMON_TOKENIZER_ADDED_H
#include "common/json.h"
#include "common/tokenizer/step.h"
#include "common/tokenizer/text.h"
#include "common/tokenizer/trie.h"
#include "common/tokenizer/vocab.h"

struct added_token {
    uint32_t id;
    bool single_word;    /* not inside a word */
    bool lstrip, rstrip; /* takes the white space before / behind it along */
    bool normalized;     /* looked for after normalization */
    bool special;        /* left out by skip_special_tokens */
};
struct added {
    struct vocab text;     /* by id */
    struct added_token *v; /* in order of the file */
    uint32_t n;
    uint8_t *special; /* bit set by id, ids below `special_ids` */
    uint32_t special_ids;
    struct trie raw, normal; /* to indices of v: not normalized / normalized ones */
    size_t longest;
};
/* `j`: the "added_tokens" list (NULL: none); ids come from the model, or follow it. `normalizer` is
 * applied to the normalized ones. */
int added_load(struct added *a, const cJSON *j, const struct vocab *model,
               const struct steps *normalizer, struct err *e);
void added_free(struct added *a);
static inline bool added_special(const struct added *a, uint32_t id)
{
    return id < a->special_ids && a->special[id / 8] >> id % 8 & 1;
}
/* Cut the tokens of one trie out of every span that is no token yet: leftmost, longest. */
int added_cut(const struct added *a, const struct trie *t, struct step_work *w, struct err *e);
#endif
