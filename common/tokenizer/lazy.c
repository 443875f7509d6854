/* The rest of a tokenizer that was loaded lazily: a second tokenizer, which is whole. */
#include "common/tokenizer/tokenizer_impl.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct tok_lazy {
    char *dir;
    pthread_mutex_t lock;
    struct tokenizer *whole; /* NULL: not needed so far */
};

struct tok_lazy *lazy_new(const char *dir, struct err *e)
{
    struct tok_lazy *l = calloc(1, sizeof(*l));
    if (!l || !(l->dir = strdup(dir))) {
        free(l);
        return err_nomem(e), NULL;
    }
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

void lazy_free(struct tok_lazy *l)
{
    if (!l)
        return;
    tokenizer_free(l->whole);
    pthread_mutex_destroy(&l->lock);
    free(l->dir);
    free(l);
}

const struct tokenizer *tokenizer_whole(const struct tokenizer *t, struct err *e)
{
    struct tok_lazy *l = t->lazy;
    if (!l)
        return t;
    pthread_mutex_lock(&l->lock);
    if (!l->whole)
        l->whole = tokenizer_load(l->dir, e);
    const struct tokenizer *whole = l->whole;
    pthread_mutex_unlock(&l->lock);
    return whole;
}
