/* token_set_impl.h - the flat tries, for constraint_mask.c.
 *
 * A vocabulary is laid out twice. The fine trie has a node for each beginning of a token's bytes.
 * The trie by classes takes bytes that few states tell apart as one: all words of five lower-case
 * letters are one way of five nodes. It has a tenth of the nodes. A walk goes there, and into the
 * fine nodes below only where a state tells bytes of a class apart. */
#ifndef COMMON_CONSTRAINT_TOKEN_SET_IMPL_H
#define COMMON_CONSTRAINT_TOKEN_SET_IMPL_H
#include "common/constraint/term.h"
#include "common/constraint/token_set.h"

struct flat_node {
    uint32_t past;       /* the first node that is not below this one */
    uint32_t ids, n_ids; /* tokens that end here: where in `id`, how many */
    uint16_t depth;      /* 1: a first byte */
    uint8_t byte, class_of;
};
struct flat_trie {
    struct flat_node *node; /* one more than n in those of a token_set: its `ids` end theirs */
    uint32_t n;
    uint32_t *id; /* in the order of the texts */
    /* Of those of a token_set; NULL in a picked one: */
    uint32_t *up;   /* [n] the node above; of first bytes anything */
    uint32_t *leaf; /* the node of each of `id` */
};

enum { TOKEN_BYTES = 1024 }; /* longer tokens are never allowed */

enum { BYTE_CLASSES = 64 }; /* at most */
struct byte_classes {
    uint8_t n;
    uint8_t of[256];
    struct byte_set member[BYTE_CLASSES];
};
void byte_classes_fill(struct byte_classes *c);

struct class_node {
    uint32_t past;         /* as in a flat_node */
    uint32_t ids, n_ids;   /* tokens that end here */
    uint32_t fine, n_fine; /* the fine nodes of this way: where in `fine`, how many */
    uint32_t dense;        /* the same tokens as a bit set: its number + 1; 0: there is none */
    uint16_t depth;
    uint8_t class_of;
};
struct class_trie {
    struct class_node *node;
    uint32_t n;
    uint32_t *id, *fine, *dense;
};
/* The fine trie `t` by classes. -1: out of memory; class_trie_free() is due then, too. */
int class_trie_fill(struct class_trie *out, const struct flat_trie *t, uint32_t vocab);
void class_trie_free(struct class_trie *t);

/* What a JSON string may hold anywhere, one byte a character: most of most vocabularies. */
static inline bool plain_byte(uint8_t b) { return b >= 0x20 && b < 0x7f && b != '"' && b != '\\'; }

#define NO_PLACE UINT32_MAX
struct token_set {
    uint32_t vocab, n_end, longest; /* bytes of the longest token */
    uint32_t *end;
    struct flat_trie plain, rest;                  /* tokens of plain bytes only; the others */
    struct class_trie plain_classes, rest_classes; /* the same tokens */
    uint32_t *plain_mask;                          /* [(vocab + 31) / 32] all tokens of `plain` */
    uint32_t *place; /* [vocab] where in the `id` of its trie; NO_PLACE: it is in none */
};

/* The nodes on the way to the tokens whose bits are set in `wanted`, and no other tokens: a trie of
 * its own. -1: out of memory, and *out is empty. */
int flat_trie_pick(struct flat_trie *out, const struct token_set *from, const uint32_t *wanted);
void flat_trie_free(struct flat_trie *t);
#endif
