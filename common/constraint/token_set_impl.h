/* token_set_impl.h - the flat tries, for constraint_mask.c. */
#ifndef COMMON_CONSTRAINT_TOKEN_SET_IMPL_H
#define COMMON_CONSTRAINT_TOKEN_SET_IMPL_H
#include "common/constraint/token_set.h"

struct flat_node {
    uint32_t past;       /* the first node that is not below this one */
    uint32_t ids, n_ids; /* tokens that end here: where in `id`, how many */
    uint16_t depth;      /* 1: a first byte */
    uint8_t byte;
};
struct flat_trie {
    struct flat_node *node; /* one more than n in those of a token_set: its `ids` end theirs */
    uint32_t n;
    uint32_t *id; /* in the order of the texts */
};

/* What a JSON string may hold anywhere, one byte a character: most of most vocabularies. */
static inline bool plain_byte(uint8_t b) { return b >= 0x20 && b < 0x7f && b != '"' && b != '\\'; }

#define NO_PLACE UINT32_MAX
struct token_set {
    uint32_t vocab, n_end, longest; /* bytes of the longest token */
    uint32_t *end;
    struct flat_trie plain, rest; /* tokens of plain bytes only; the others */
    uint32_t *plain_mask;         /* [(vocab + 31) / 32] all tokens of `plain` */
    uint32_t *place; /* [vocab] where in the `id` of its trie; NO_PLACE: it is in none */
};

/* The nodes on the way to the tokens whose bits are set in `wanted`, and no other tokens: a trie of
 * its own. -1: out of memory, and *out is empty. */
int flat_trie_pick(struct flat_trie *out, const struct token_set *from, const uint32_t *wanted);
void flat_trie_free(struct flat_trie *t);
#endif
