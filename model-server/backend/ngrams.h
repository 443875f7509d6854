/* ngrams.h - embeddings of hashed n-grams: parameters of embed_ngrams() of a backend.
 *
 * A table has rows for the n-grams of one length that end at a token. An n-gram's row is its hash
 * modulo the table's size: the exclusive or of its ids, each times a factor of its distance to the
 * token (hashed tables of n-grams: arXiv 2501.16975). */
#ifndef MODEL_SERVER_BACKEND_NGRAMS_H
#define MODEL_SERVER_BACKEND_NGRAMS_H
#include <stdint.h>

enum { NGRAM_IDS = 8 }; /* ids */

/* Rows [first, first + size) of the matrix of all tables. */
struct ngram_table {
    uint32_t length; /* of its n-grams: 2 .. ngrams.most */
    uint32_t size, first;
};

struct ngrams {
    uint32_t most;                    /* the longest n-gram: 2 .. NGRAM_IDS */
    uint32_t n;                       /* tables */
    const struct ngram_table *tables; /* [n] */
    uint64_t by[NGRAM_IDS];           /* factors of the token's id, of the one before it ... */
    /* A sequence begins behind this id. An id that is before it, or before the first token, counts
     * as this id. */
    uint32_t end;
    uint32_t *rows; /* [T, n] scratch memory: rows of the matrix */
};
/* Floats of a cell: bits of the last ids, the oldest first. */
static inline uint64_t ngram_floats(const struct ngrams *p) { return p->most - 1; }

/* The row of a token whose id, and those before it, are id[0 .. length). */
static inline uint32_t ngram_row(const struct ngram_table *t, const uint64_t *by,
                                 const uint32_t *id)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < t->length; i++)
        hash ^= id[i] * by[i];
    return t->first + (uint32_t)(hash % t->size);
}
#endif
