/* vocab.h - token texts by id, and ids by text. Filled once, then read by any number of threads. */
#ifndef COMMON_TOKENIZER_VOCAB_H
#define COMMON_TOKENIZER_VOCAB_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NO_ID UINT32_MAX
enum { VOCAB_MAX_ID = 1 << 23 };

struct vocab {
    struct buf text; /* all texts, each NUL-terminated */
    struct vocab_at {
        uint32_t at, len;
    } * tok;              /* by id; at == NO_ID: unused id */
    uint32_t size, cap;   /* largest id + 1 */
    uint32_t count, mask; /* distinct texts; slots - 1 */
    uint32_t puts;        /* texts that were added: more than `count` if one was added twice */
    uint64_t seed;        /* of the hash, so that a file cannot be built to cause collisions */
    struct vocab_slot {
        uint32_t hash, id; /* id == NO_ID: free */
    } * slot;
};

struct vocab_key {
    const char *s;
    size_t n;
};

void vocab_free(struct vocab *v);
/* Allocates memory for n texts of this many bytes together, whose ids are below n: a load without
 * it moves the tables a dozen times. -1: out of memory. */
int vocab_reserve(struct vocab *v, uint32_t n, size_t bytes);
/* Adds a text; an existing text gets the new id, and its old id keeps the text. */
int vocab_put(struct vocab *v, const char *s, size_t n, uint32_t id, struct err *e);
uint32_t vocab_find(const struct vocab *v, const char *s, size_t n); /* NO_ID: absent */
/* The same for n texts. A large vocabulary is in no near cache: here the misses overlap. */
void vocab_find_all(const struct vocab *v, const struct vocab_key *key, size_t n, uint32_t *id);
/* Has every text one id? */
static inline bool vocab_unique(const struct vocab *v) { return v->count == v->puts; }
/* NUL-terminated; NULL: unused id. */
const char *vocab_text(const struct vocab *v, uint32_t id, size_t *n);
#endif
