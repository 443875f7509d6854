#include "model-server/sample/bad_words.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int check(const struct bad_words *b, uint32_t vocab, struct err *e)
{
    size_t left = b->n_ids;
    for (size_t i = 0; i < b->n; left -= b->len[i++])
        if (b->len[i] == 0 || b->len[i] > left)
            return err_set(e, ERR_VALIDATION, "bad word %zu of %u tokens, where %zu are left", i,
                           b->len[i], left);
    if (left)
        return err_set(e, ERR_VALIDATION, "%zu tokens belong to no bad word", left);
    for (size_t i = 0; i < b->n_ids; i++)
        if (b->id[i] >= vocab)
            return err_set(e, ERR_VALIDATION,
                           "a bad word has token %u, which is not in the vocabulary", b->id[i]);
    return 0;
}

int bad_words_copy(struct bad_words *out, const struct bad_words *from, uint32_t vocab,
                   struct err *e)
{
    *out = (struct bad_words){0};
    if (check(from, vocab, e) != 0)
        return -1;
    if (!from->n)
        return 0;
    out->id = malloc(from->n_ids * sizeof(*out->id));
    out->len = malloc(from->n * sizeof(*out->len));
    if (!out->id || !out->len) {
        bad_words_free(out);
        return err_nomem(e);
    }
    memcpy(out->id, from->id, from->n_ids * sizeof(*out->id));
    memcpy(out->len, from->len, from->n * sizeof(*out->len));
    out->n_ids = from->n_ids;
    out->n = from->n;
    out->looks_back = from->n_ids > from->n;
    return 0;
}

void bad_words_free(struct bad_words *b)
{
    free(b->id);
    free(b->len);
    *b = (struct bad_words){0};
}

/* True if the answer ends with all of the word except its last token. */
static bool begun(const uint32_t *word, uint32_t len, const uint32_t *generated, size_t n_generated)
{
    const size_t n = len - 1;
    return n == 0 ||
           (n <= n_generated && !memcmp(word, generated + (n_generated - n), n * sizeof(*word)));
}

size_t bad_words_next(const struct bad_words *b, const uint32_t *generated, size_t n_generated,
                      uint32_t *out)
{
    size_t n = 0;
    const uint32_t *word = b->id;
    for (size_t i = 0; i < b->n; word += b->len[i++])
        if (begun(word, b->len[i], generated, n_generated))
            out[n++] = word[b->len[i] - 1];
    return n;
}

void bad_words_forbid(const struct bad_words *b, const uint32_t *generated, size_t n_generated,
                      float *row)
{
    const uint32_t *word = b->id;
    for (size_t i = 0; i < b->n; word += b->len[i++])
        if (begun(word, b->len[i], generated, n_generated))
            row[word[b->len[i] - 1]] = -INFINITY;
}
