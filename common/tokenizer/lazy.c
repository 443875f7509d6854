/* The rest of a tokenizer that was loaded lazily: a second tokenizer, which is whole. */
#include "common/file/file_stamp.h"
#include "common/gguf/set.h"
#include "common/model/first_module.h"
#include "common/model/model_file.h"
#include "common/tokenizer/folder_impl.h"
#include "common/tokenizer/tokenizer_impl.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* tokenizer.json, or the files of which it is made without one (common/tokenizer/folder.c). */
static const char *const names[] = {"tokenizer.json",
                                    "tokenizer.model",
                                    "tiktoken.model",
                                    "vocab.json",
                                    "merges.txt",
                                    "vocab.txt",
                                    "added_tokens.json",
                                    "special_tokens_map.json",
                                    "tokenizer_config.json",
                                    FOLDER_RWKV,
                                    FOLDER_PLAMO};
enum { FILES = sizeof(names) / sizeof(names[0]) };

struct tok_lazy {
    char *dir;
    struct file_stamp read[FILES]; /* when the first part was read */
    pthread_mutex_t lock;
    struct tokenizer *whole; /* NULL: not needed so far */
};

static struct file_stamp stamp_in(const char *dir, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path)
               ? file_stamp_at(path)
               : (struct file_stamp){0};
}

/* Files that are not there, or not read beside tokenizer.json, stay unknown. */
static void stamp_folder(const char *dir, struct file_stamp v[FILES])
{
    v[0] = stamp_in(dir, names[0]);
    for (size_t i = 1; i < FILES && !v[0].inode; i++)
        v[i] = stamp_in(dir, names[i]);
}

static void stamp(const char *path, struct file_stamp v[FILES])
{
    char of[PATH_MAX];
    struct stat st;
    const char *file = gguf_model_path(path, of);
    memset(v, 0, FILES * sizeof(*v));
    if (stat(file, &st) != 0)
        return;
    if (!S_ISDIR(st.st_mode)) {
        v[0] = file_stamp_of(&st);
        return;
    }
    const bool own = stamp_in(path, names[0]).inode || tokenizer_folder_has(path);
    stamp_folder(!own && first_module_folder(path, of) ? of : path, v);
}

static bool same(const struct file_stamp a[FILES], const struct file_stamp b[FILES])
{
    bool all = true;
    for (size_t i = 0; i < FILES; i++)
        all = all && file_stamp_same(&a[i], &b[i]);
    return all;
}

struct tok_lazy *lazy_new(const char *dir, struct err *e)
{
    struct tok_lazy *l = calloc(1, sizeof(*l));
    if (!l || !(l->dir = strdup(dir))) {
        free(l);
        return err_nomem(e), NULL;
    }
    stamp(dir, l->read);
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

/* Other files may have other ids for the same text, which the first part decodes. */
static struct tokenizer *load_rest(const struct tok_lazy *l, struct err *e)
{
    struct tokenizer *t = tokenizer_load(l->dir, e);
    struct file_stamp now[FILES];
    stamp(l->dir, now);
    if (!t || same(l->read, now))
        return t;
    tokenizer_free(t);
    err_set(e, ERR_SYSTEM, "%s: the tokenizer's files were replaced since the start", l->dir);
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
