/* The rest of a tokenizer that was loaded lazily: a second tokenizer, which is whole. */
#include "common/file_stamp.h"
#include "common/tokenizer/tokenizer_impl.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tok_lazy {
    char *dir;
    struct file_stamp read; /* of the file when its first part was read */
    pthread_mutex_t lock;
    struct tokenizer *whole; /* NULL: not needed so far */
};

/* Unknown where the tokenizer is made of other files than tokenizer.json. */
static struct file_stamp stamp_of(const char *dir)
{
    char path[PATH_MAX];
    struct stat st;
    const bool folder = stat(dir, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(path, sizeof(path), folder ? "%s/tokenizer.json" : "%s", dir);
    return file_stamp_at(path);
}

struct tok_lazy *lazy_new(const char *dir, struct err *e)
{
    struct tok_lazy *l = calloc(1, sizeof(*l));
    if (!l || !(l->dir = strdup(dir))) {
        free(l);
        return err_nomem(e), NULL;
    }
    l->read = stamp_of(dir);
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

/* Another file may have other ids for the same text, which the first part decodes. */
static struct tokenizer *load_rest(const struct tok_lazy *l, struct err *e)
{
    struct tokenizer *t = tokenizer_load(l->dir, e);
    const struct file_stamp now = stamp_of(l->dir);
    if (!t || file_stamp_same(&l->read, &now))
        return t;
    tokenizer_free(t);
    err_set(e, ERR_SYSTEM, "%s: the tokenizer's file was replaced since the start", l->dir);
    return NULL;
}

const struct tokenizer *tokenizer_whole(const struct tokenizer *t, struct err *e)
{
    struct tok_lazy *l = t->lazy;
    if (!l)
        return t;
    pthread_mutex_lock(&l->lock);
    if (!l->whole)
        l->whole = load_rest(l, e);
    const struct tokenizer *whole = l->whole;
    pthread_mutex_unlock(&l->lock);
    return whole;
}
