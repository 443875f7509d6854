/* token_set_impl.h - private to constraint_mask.c: flattened tries.
 *
 * A vocabulary is stored twice. The fine trie has a node for each prefix of a token's bytes. The
 * class trie merges bytes that few states distinguish: all words of five lower-case letters share
 * one path of five nodes. It has a tenth of the nodes. A walk uses the class trie, and the fine
 * nodes only where a state distinguishes bytes of a class. */
#ifndef COMMON_CONSTRAINT_TOKEN_SET_IMPL_H
#define COMMON_CONSTRAINT_TOKEN_SET_IMPL_H
#include "common/constraint/term.h"
#include "common/constraint/token_set.h"

struct flat_node {
    uint32_t past;       /* the first node that is not below this one */
    uint32_t ids, n_ids; /* tokens that end here: offset in `id`, count */
    uint16_t depth;      /* 1: a first byte */
    uint8_t byte, class_of;
};
struct flat_trie {
    struct flat_node *node; /* n nodes; in a token_set one more, whose `ids` ends the list */
    uint32_t n;
    uint32_t *id; /* in the order of the texts */
    /* In a token_set; NULL in a picked trie: */
    uint32_t *up;   /* [n] parent node; undefined for first bytes */
    uint32_t *leaf; /* node of each entry of `id` */
};

enum { TOKEN_BYTES = 1024 }; /* longer tokens are never allowed */

enum { BYTE_CLASSES = 64 }; /* maximum */
struct byte_classes {
    uint8_t n;
    uint8_t of[256];
    struct byte_set member[BYTE_CLASSES];
};
void byte_classes_fill(struct byte_classes *c);

struct class_node {
    uint32_t past;         /* as in flat_node */
    uint32_t ids, n_ids;   /* tokens that end here */
    uint32_t fine, n_fine; /* fine nodes of this path: offset in `fine`, count */
    uint32_t dense;        /* 1 + index of a bit set of the same tokens; 0: none */
    uint16_t depth;
    uint8_t class_of;
};
struct class_trie {
    struct class_node *node;
    uint32_t n;
    uint32_t *id, *fine, *dense;
};
/* Builds the class trie of `t`. -1: out of memory; call class_trie_free() in either case. */
int class_trie_fill(struct class_trie *out, const struct flat_trie *t, uint32_t vocab);
void class_trie_free(struct class_trie *t);

/* ASCII bytes allowed unescaped in a JSON string: most tokens of most vocabularies consist of
 * them. */
static inline bool plain_byte(uint8_t b) { return b >= 0x20 && b < 0x7f && b != '"' && b != '\\'; }

#define NO_PLACE UINT32_MAX
struct token_set {
    uint32_t vocab, n_end, longest; /* longest token in bytes */
    uint32_t *end;
    struct flat_trie plain, rest;                  /* tokens of plain bytes only; other tokens */
    struct class_trie plain_classes, rest_classes; /* the same tokens */
    uint32_t *plain_mask;                          /* [(vocab + 31) / 32] all tokens of `plain` */
    uint32_t *place; /* [vocab] index in the `id` of its trie; NO_PLACE: in none */
};

/* Builds a trie of only the tokens whose bits are set in `wanted`. -1: out of memory, and *out is
 * empty. */
int flat_trie_pick(struct flat_trie *out, const struct token_set *from, const uint32_t *wanted);
void flat_trie_free(struct flat_trie *t);
#endif
