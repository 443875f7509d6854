#include "model-server/packed/packed.h"
#include "common/clock.h"
#include "common/gguf/set.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "model-server/packed/folder.h"
#include <ctype.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LABEL_ROOM = 96, NAME_SHOWN = 40, SHOWN_KEY = 8 };

struct packed {
    struct packed_options o; /* `dir` is copied, the rest of it is not kept */
    char *path, *temp, label[LABEL_ROOM];
    const char *name; /* in `path` */
    uint8_t key[PACKED_KEY];
    struct packed_file file;
    uint32_t taken;
    bool mapped; /* the file is in use */
    bool stale;  /* the file does not match the rest of the load */
    struct packed_item *items;
    uint32_t n, cap;
    bool incomplete; /* a matrix could not be recorded: nothing is written */
    pthread_t writer;
    bool writing;
    struct pacer pacer; /* of the writer */
};

/* ---------------------------------------------------------------- names */

/* "<last part of the model's path>-<8 digits of all of it and of the words>" */
static void make_label(struct packed *p, const struct packed_options *o)
{
    char model[PATH_MAX];
    char *whole = realpath(gguf_model_path(o->model, model), NULL);
    const char *path = whole ? whole : o->model, *slash = strrchr(path, '/');
    const uint64_t of = hash_bytes(hash_bytes(0, path, strlen(path)), o->words, strlen(o->words));
    size_t n = 0;
    for (const char *s = slash ? slash + 1 : path; *s && n < NAME_SHOWN; s++)
        p->label[n++] = isalnum((unsigned char)*s) || *s == '.' || *s == '_' ? *s : '_';
    snprintf(p->label + n, sizeof(p->label) - n, "-%08x", (unsigned)(of >> 32));
    free(whole);
}

static int make_key(struct packed *p, const struct packed_options *o, struct err *e)
{
    char layout[128], *words = NULL;
    struct model_identity of[2] = {0}; /* the model's and that of the draft heads */
    o->ops->weight_layout(o->dev, layout, sizeof(layout));
    if (asprintf(&words, "packed %s %s %s", VERSION, layout, o->words) < 0)
        return err_nomem(e);
    int rc = model_identity_with(o->files, words, &of[0], e);
    free(words);
    if (rc == 0 && o->heads)
        rc = model_identity(o->heads, &of[1], e);
    if (rc == 0 && gnutls_hash_fast(GNUTLS_DIG_SHA256, of, sizeof(of), p->key) < 0)
        rc = err_nomem(e);
    return rc;
}

static int make_paths(struct packed *p, const struct packed_options *o, struct err *e)
{
    char hex[2 * SHOWN_KEY + 1];
    make_label(p, o);
    if (make_key(p, o, e))
        return -1;
    for (int i = 0; i < SHOWN_KEY; i++)
        snprintf(hex + (size_t)2 * i, 3, "%02x", p->key[i]);
    char *dir = strdup(o->dir);
    p->o.dir = dir;
    if (!dir || asprintf(&p->path, "%s/%s-%s.packed", dir, p->label, hex) < 0 ||
        asprintf(&p->temp, "%s.tmp", p->path) < 0)
        return err_nomem(e);
    p->name = strrchr(p->path, '/') + 1;
    return 0;
}

/* ---------------------------------------------------------------- reading */

struct checking {
    const struct packed_file *f;
    atomic_bool bad;
};

static void check_chunks(void *arg, int thread, size_t begin, size_t end)
{
    struct checking *c = arg;
    (void)thread;
    for (size_t i = begin; i < end && !atomic_load(&c->bad); i++)
        if (!packed_file_check(c->f, (uint32_t)i))
            atomic_store(&c->bad, true);
}

/* Checks all of it, with all threads: then its pages are in memory and mapped when the service is
 * ready. */
static bool check_payload(const struct packed *p)
{
    struct checking c = {.f = &p->file};
    if (p->o.ops->host_run)
        p->o.ops->host_run(p->o.dev, check_chunks, &c, p->file.n_sums);
    else
        check_chunks(&c, 0, 0, p->file.n_sums);
    return !atomic_load(&c.bad);
}

static void complain(const struct packed *p, const char *why)
{
    LOG(LOG_WARN, "a file of packed weights is not used, and written anew", LOGS("file", p->path),
        LOGS("why", why));
}

static void find_file(struct packed *p)
{
    const int64_t start = clock_ns();
    switch (packed_file_open(&p->file, p->path, p->key)) {
    case PACKED_MISSING:
        return;
    case PACKED_DAMAGED:
        complain(p, "it is damaged");
        return;
    case PACKED_FOREIGN:
        complain(p, "it is of another model, rank, version or layout");
        return;
    case PACKED_FINE:
        break;
    }
    if (!check_payload(p)) {
        packed_file_close(&p->file);
        complain(p, "it is damaged");
        return;
    }
    p->mapped = true;
    LOG(LOG_INFO, "packed weights from cache", LOGS("file", p->path), LOGI("bytes", p->file.size),
        LOGI("matrices", p->file.n), LOGD("seconds", (double)(clock_ns() - start) * 1e-9));
}

struct packed *packed_open(const struct packed_options *o)
{
    struct err e = ERR_INIT;
    if (!o->ops->weight_mapped) {
        LOG(LOG_WARN, "--packed-cache is not used: this device keeps its weights to itself",
            LOGS("device", o->ops->name));
        return NULL;
    }
    struct packed *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->o = *o;
    p->o.dir = NULL;
    pacer_init(&p->pacer);
    if (make_paths(p, o, &e)) {
        LOG(LOG_WARN, "--packed-cache is not used", LOGS("why", e.msg));
        packed_close(p);
        return NULL;
    }
    find_file(p);
    return p;
}

uint64_t packed_mapped(const struct packed *p) { return p && p->mapped ? p->file.size : 0; }

int packed_check(const struct packed *p, struct err *e)
{
    return !p || !p->mapped || packed_file_intact(&p->file)
               ? 0
               : err_set(e, ERR_SYSTEM, "packed weights were overwritten while in use: %s",
                         p->path);
}

/* ---------------------------------------------------------------- matrices of a load */

static void note_item(struct packed *p, const struct weight *w, uint64_t what,
                      const struct packed_note *notes)
{
    struct weight_image im;
    if (p->n == p->cap) {
        const uint32_t cap = p->cap ? 2 * p->cap : 256;
        struct packed_item *v = realloc(p->items, cap * sizeof(*v));
        if (v)
            p->items = v, p->cap = cap;
    }
    p->incomplete |= p->n == p->cap || !p->o.ops->weight_image(w, &im);
    if (p->incomplete)
        return;
    struct packed_item *x = &p->items[p->n++];
    *x = (struct packed_item){.entry.what = what};
    memcpy(x->entry.head, im.head, sizeof(im.head));
    memcpy(x->entry.notes, notes, sizeof(x->entry.notes));
    memcpy(x->piece, im.piece, sizeof(x->piece));
}

struct weight *packed_take(struct packed *p, uint64_t what, const struct packed_note **notes)
{
    struct err e = ERR_INIT;
    if (!p || !p->mapped || p->stale)
        return NULL;
    const struct packed_entry *x = &p->file.entries[p->taken];
    struct weight_image im;
    struct weight *w = NULL;
    if (p->taken < p->file.n && x->what == what) {
        im = packed_file_image(&p->file, p->taken);
        w = p->o.ops->weight_mapped(p->o.dev, &im, &e);
    }
    if (!w) { /* earlier matrices remain valid */
        complain(p, e.kind ? e.msg : "it has other matrices");
        p->stale = true;
        return NULL;
    }
    *notes = x->notes;
    p->taken++;
    note_item(p, w, what, x->notes);
    return w;
}

void packed_add(struct packed *p, const struct weight *w, uint64_t what,
                const struct packed_note notes[PACKED_NOTES])
{
    if (p)
        note_item(p, w, what, notes);
}

/* ---------------------------------------------------------------- writing */

static int write_file(struct packed *p, struct err *e)
{
    const uint64_t bytes = packed_file_bytes(p->items, p->n);
    if (!packed_folder_make(p->o.dir))
        return err_sys(e, "%s", p->o.dir);
    if (!packed_folder_trim(p->o.dir, p->label, p->name, bytes, p->o.most_bytes))
        return err_set(e, ERR_SYSTEM, "%llu bytes are more than --packed-cache-size allows",
                       (unsigned long long)bytes);
    const int fd = packed_folder_begin(p->temp);
    if (fd < 0 && errno == EWOULDBLOCK) {
        LOG(LOG_INFO, "packed weights are being written by another process", LOGS("file", p->path));
        return 1;
    }
    if (fd < 0)
        return err_sys(e, "%s", p->temp);
    int rc = packed_file_write(fd, p->items, p->n, p->key, &p->pacer, e);
    if (rc == 0 && rename(p->temp, p->path) != 0)
        rc = err_sys(e, "rename");
    if (rc)
        (void)unlink(p->temp);
    close(fd); /* and the lock goes */
    return rc;
}

static void *run_writer(void *arg)
{
    struct packed *p = arg;
    struct err e = ERR_INIT;
    const int64_t start = clock_ns();
    const int rc = write_file(p, &e);
    if (rc == 0)
        LOG(LOG_INFO, "packed weights written", LOGS("file", p->path),
            LOGI("bytes", packed_file_bytes(p->items, p->n)), LOGI("matrices", p->n),
            LOGD("seconds", (double)(clock_ns() - start) * 1e-9));
    else if (rc < 0)
        LOG(LOG_WARN, "packed weights are not kept for the next start", LOGS("file", p->path),
            LOGS("why", e.msg));
    return NULL;
}

void packed_keep(struct packed *p)
{
    if (!p || p->writing || !p->n || (p->mapped && !p->stale && p->taken == p->file.n))
        return;
    if (p->incomplete)
        LOG(LOG_WARN, "packed weights are not kept for the next start", LOGS("file", p->path),
            LOGS("why", "a matrix cannot be kept, or there is no memory"));
    else
        p->writing = pthread_create(&p->writer, NULL, run_writer, p) == 0;
}

void packed_close(struct packed *p)
{
    if (!p)
        return;
    pacer_stop(&p->pacer);
    if (p->writing)
        pthread_join(p->writer, NULL);
    pacer_destroy(&p->pacer);
    packed_file_close(&p->file);
    free((void *)(uintptr_t)p->o.dir);
    free(p->path);
    free(p->temp);
    free(p->items);
    free(p);
}
