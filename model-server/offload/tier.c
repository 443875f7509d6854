#include "model-server/offload/tier.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/thread/cond.h"
#include "model-server/offload/folder.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1 << 14,
    READY_SHARE = 2, /* a fetch loads at most half of the memory */
    KEPT_SHARE = 2   /* peers are kept at most one half of it */
};
#define END_NS INT64_C(5000000000)

struct entry {
    struct entry *chain;       /* in its bucket */
    struct entry *prev, *next; /* by use, coldest first */
    struct entry *dirty_next;
    size_t n;
    int64_t kept_ns; /* kept for a peer until then; 0: not */
    uint32_t pins;   /* references of the writer, a fetch, a peer */
    bool dirty;      /* to be written */
    bool stale;      /* removed from the table: freed with its last pin */
    uint8_t key[KV_KEY];
    _Alignas(16) char record[];
};

struct kv_tier {
    char *dir;
    uint64_t dir_bytes, memory_bytes;
    struct kv_layout layout;
    struct kv_folder *folder; /* NULL: none */
    pthread_t writer;
    bool has_writer;
    pthread_mutex_t reading; /* held during a fetch, and while the engine copies what it loaded */
    pthread_mutex_t lock;    /* what follows */
    pthread_cond_t wake;
    struct entry *bucket[BUCKETS];
    struct entry *head, *tail; /* by use */
    struct entry *dirty, **dirty_end;
    uint64_t bytes, evictions, kept; /* kept: bytes, for peers */
    pthread_cond_t arrived;          /* signals a record for which a peer may wait */
    bool stopping;
    int64_t stop_ns;
    /* of the last fetch; under `reading` */
    uint64_t ready_id;
    struct entry **ready;
    uint32_t n_ready, cursor;
};

/* ------------------------------------------------------------------ the table; under the lock */

static struct entry **bucket_of(struct kv_tier *t, const uint8_t *key)
{
    uint64_t h;
    memcpy(&h, key, sizeof(h)); /* a SHA-256 is a good hash value */
    return &t->bucket[hash_mix(h) % BUCKETS];
}

static struct entry *find(struct kv_tier *t, const uint8_t *key)
{
    struct entry *x = *bucket_of(t, key);
    while (x && memcmp(x->key, key, KV_KEY) != 0)
        x = x->chain;
    return x;
}

static void unlist(struct kv_tier *t, struct entry *x)
{
    *(x->prev ? &x->prev->next : &t->head) = x->next;
    *(x->next ? &x->next->prev : &t->tail) = x->prev;
}

static void list(struct kv_tier *t, struct entry *x)
{
    x->prev = t->tail;
    x->next = NULL;
    *(t->tail ? &t->tail->next : &t->head) = x;
    t->tail = x;
}

static void unpin(struct kv_tier *t, struct entry *x)
{
    assert(x->pins > 0);
    if (--x->pins > 0 || !x->stale)
        return;
    t->bytes -= x->n;
    free(x);
}

static void keep_no_more(struct kv_tier *t, struct entry *x)
{
    t->kept -= x->kept_ns ? x->n : 0;
    x->kept_ns = 0;
}

/* Removes it from the table; its memory is freed with its last pin. */
static void take_out(struct kv_tier *t, struct entry *x)
{
    keep_no_more(t, x);
    struct entry **at = bucket_of(t, x->key);
    while (*at != x)
        at = &(*at)->chain;
    *at = x->chain;
    unlist(t, x);
    x->stale = true;
    x->pins++;
    unpin(t, x);
}

static void put_in(struct kv_tier *t, struct entry *x)
{
    struct entry *old = find(t, x->key), **at = bucket_of(t, x->key);
    if (old)
        take_out(t, old);
    x->chain = *at;
    *at = x;
    list(t, x);
    pthread_cond_broadcast(&t->arrived);
}

/* Makes room for n more bytes by evicting records that are not in use, kept or unwritten. */
static bool make_room(struct kv_tier *t, size_t n)
{
    const int64_t now = t->kept ? clock_ns() : 0;
    for (struct entry *x = t->head; x && t->bytes + n > t->memory_bytes;) {
        struct entry *next = x->next;
        if (x->pins == 0 && !x->dirty && (!x->kept_ns || x->kept_ns <= now)) {
            take_out(t, x);
            t->evictions++;
        }
        x = next;
    }
    return t->bytes + n <= t->memory_bytes;
}

/* ------------------------------------------------------------------ the writing thread */

static void enlist_dirty(struct kv_tier *t, struct entry *x)
{
    x->dirty = true;
    x->pins++; /* the list's */
    x->dirty_next = NULL;
    *t->dirty_end = x;
    t->dirty_end = &x->dirty_next;
    pthread_cond_signal(&t->wake);
}

static struct entry *next_dirty(struct kv_tier *t)
{
    while (!t->dirty && !t->stopping)
        pthread_cond_wait(&t->wake, &t->lock);
    struct entry *x = t->dirty;
    if (!x || (t->stopping && clock_ns() > t->stop_ns))
        return NULL;
    if (!(t->dirty = x->dirty_next))
        t->dirty_end = &t->dirty;
    return x;
}

static void *write_behind(void *arg)
{
    struct kv_tier *t = arg;
    struct entry *x;
    kv_folder_trim(t->folder);
    pthread_mutex_lock(&t->lock);
    while ((x = next_dirty(t))) {
        pthread_mutex_unlock(&t->lock);
        kv_record_seal(&t->layout, x->record);
        (void)kv_folder_write(t->folder, x->record, x->n, x->key); /* it stays in memory */
        pthread_mutex_lock(&t->lock);
        x->dirty = false;
        unpin(t, x);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void end_writer(struct kv_tier *t)
{
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    t->stop_ns = clock_ns() + END_NS;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    if (t->has_writer)
        pthread_join(t->writer, NULL);
    t->has_writer = t->stopping = false;
    for (struct entry *x; (x = t->dirty);) {
        t->dirty = x->dirty_next;
        x->dirty = false;
        unpin(t, x);
    }
    t->dirty_end = &t->dirty;
}

/* ------------------------------------------------------------------ life */

struct kv_tier *kv_tier_new(const struct kv_tier_options *o, struct err *e)
{
    struct kv_tier *t = calloc(1, sizeof(*t));
    if (!t || (o->dir && !(t->dir = strdup(o->dir)))) {
        free(t);
        return err_nomem(e), NULL;
    }
    t->dir_bytes = o->dir_bytes;
    t->memory_bytes = o->memory_bytes;
    t->dirty_end = &t->dirty;
    pthread_mutex_init(&t->reading, NULL);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    cond_init(&t->arrived);
    return t;
}

/* Under `reading`. */
static void forget_ready(struct kv_tier *t)
{
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < t->n_ready; i++)
        unpin(t, t->ready[i]);
    pthread_mutex_unlock(&t->lock);
    free(t->ready);
    t->ready = NULL;
    t->n_ready = t->cursor = 0;
    t->ready_id = 0;
}

static void close_layout(struct kv_tier *t)
{
    pthread_mutex_lock(&t->reading);
    forget_ready(t);
    end_writer(t);
    pthread_mutex_lock(&t->lock);
    while (t->head)
        take_out(t, t->head);
    kv_folder_close(t->folder);
    t->folder = NULL;
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_unlock(&t->reading);
}

void kv_tier_free(struct kv_tier *t)
{
    if (!t)
        return;
    close_layout(t);
    pthread_cond_destroy(&t->arrived);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->reading);
    free(t->dir);
    free(t);
}

int kv_tier_layout(struct kv_tier *t, const struct kv_layout *l, struct err *e)
{
    if (memcmp(&t->layout, l, sizeof(*l)) == 0)
        return 0;
    close_layout(t);
    pthread_mutex_lock(&t->lock);
    t->layout = *l;
    pthread_mutex_unlock(&t->lock);
    if (!t->dir)
        return 0;
    struct kv_folder *f = kv_folder_open(t->dir, t->dir_bytes, l, e);
    if (!f)
        return -1;
    pthread_mutex_lock(&t->lock);
    t->folder = f;
    pthread_mutex_unlock(&t->lock);
    t->has_writer = pthread_create(&t->writer, NULL, write_behind, t) == 0;
    return t->has_writer ? 0 : err_set(e, ERR_SYSTEM, "cannot start a thread");
}

const struct kv_layout *kv_tier_laid_out(const struct kv_tier *t) { return &t->layout; }

/* ------------------------------------------------------------------ in */

static struct entry *entry_of(void *record)
{
    return (struct entry *)((char *)record - offsetof(struct entry, record));
}

/* Allocates a record; its bytes count from here on. NULL: no room. Under the lock. */
static struct entry *new_entry(struct kv_tier *t, const uint8_t *key, size_t n)
{
    struct entry *x = make_room(t, n) ? malloc(sizeof(*x) + n) : NULL;
    if (!x)
        return NULL;
    *x = (struct entry){.n = n};
    memcpy(x->key, key, KV_KEY);
    t->bytes += n;
    return x;
}

static void copy_parts(const struct kv_layout *l, void *to, void *from, unsigned parts)
{
    for (unsigned i = 0; i < KV_N_PARTS; i++)
        if (parts >> i & 1)
            memcpy(kv_record_part(l, to, i), kv_record_part(l, from, i), l->bytes[i]);
}

bool kv_tier_begin(struct kv_tier *t, const uint8_t key[KV_KEY], unsigned parts, void **out)
{
    *out = NULL;
    pthread_mutex_lock(&t->lock);
    struct entry *old = find(t, key);
    const unsigned had = old ? kv_record_parts(old->record) : 0;
    if (old) {
        unlist(t, old);
        list(t, old);
        old->pins++; /* not evicted for the new one */
    }
    const bool has_all = (had & parts) == parts;
    struct entry *x = has_all ? NULL : new_entry(t, key, kv_record_bytes(&t->layout, had | parts));
    if (x) {
        kv_record_begin(&t->layout, x->record, key, had | parts);
        if (old)
            copy_parts(&t->layout, x->record, old->record, had);
        *out = x->record;
    }
    if (old)
        unpin(t, old);
    pthread_mutex_unlock(&t->lock);
    return has_all || x;
}

void kv_tier_put(struct kv_tier *t, void *record)
{
    struct entry *x = entry_of(record);
    pthread_mutex_lock(&t->lock);
    put_in(t, x);
    if (t->folder)
        enlist_dirty(t, x);
    pthread_mutex_unlock(&t->lock);
}

void kv_tier_drop(struct kv_tier *t, void *record)
{
    struct entry *x = entry_of(record);
    pthread_mutex_lock(&t->lock);
    t->bytes -= x->n;
    pthread_mutex_unlock(&t->lock);
    free(x);
}

/* ------------------------------------------------------------------ out */

static struct entry *pin(struct kv_tier *t, const uint8_t *key)
{
    struct entry *x = find(t, key);
    if (!x)
        return NULL;
    unlist(t, x);
    list(t, x);
    x->pins++;
    return x;
}

/* Reads it from the folder. *room false: it does not fit. */
static struct entry *read_in(struct kv_tier *t, const uint8_t *key, bool *room)
{
    size_t n = 0;
    void *record = t->folder ? kv_folder_read(t->folder, key, &n) : NULL;
    if (!record)
        return NULL;
    pthread_mutex_lock(&t->lock);
    struct entry *x = find(t, key) ? NULL : new_entry(t, key, n);
    if (x) {
        memcpy(x->record, record, n);
        put_in(t, x);
    }
    x = pin(t, key); /* otherwise the engine has just stored it */
    pthread_mutex_unlock(&t->lock);
    *room = x != NULL;
    free(record);
    return x;
}

uint32_t kv_tier_fetch(struct kv_tier *t, uint64_t id, const uint8_t *const *keys, uint32_t n,
                       uint8_t *parts, uint32_t *from_disk, bool *more)
{
    uint64_t sum = 0;
    bool room = true;
    *from_disk = 0;
    *more = false;
    pthread_mutex_lock(&t->reading);
    forget_ready(t);
    t->ready = calloc((size_t)n + 1, sizeof(struct entry *));
    t->ready_id = id;
    while (t->ready && t->n_ready < n && room) {
        pthread_mutex_lock(&t->lock);
        struct entry *x = pin(t, keys[t->n_ready]);
        pthread_mutex_unlock(&t->lock);
        if (!x) {
            x = read_in(t, keys[t->n_ready], &room);
            *from_disk += x != NULL;
        }
        if (!x)
            break;
        parts[t->n_ready] = (uint8_t)kv_record_parts(x->record);
        t->ready[t->n_ready++] = x;
        sum += x->n;
        room = sum < t->memory_bytes / READY_SHARE;
    }
    *more = !room && t->n_ready > 0 && t->n_ready < n;
    const uint32_t got = t->n_ready;
    pthread_mutex_unlock(&t->reading);
    return got;
}

/* ------------------------------------------------------------------ peers */

uint64_t kv_tier_memory(const struct kv_tier *t) { return t->memory_bytes; }

void kv_tier_keep(struct kv_tier *t, const uint8_t key[KV_KEY], int64_t until_ns)
{
    pthread_mutex_lock(&t->lock);
    struct entry *x = find(t, key);
    if (x && !x->kept_ns && t->kept + x->n <= t->memory_bytes / KEPT_SHARE) {
        t->kept += x->n;
        x->kept_ns = until_ns;
    } else if (x && x->kept_ns) {
        x->kept_ns = until_ns;
    }
    pthread_mutex_unlock(&t->lock);
}

/* The writer may be sealing it: its header is computed again. */
static void *sealed_copy(const struct kv_layout *l, struct entry *x)
{
    const unsigned parts = kv_record_parts(x->record);
    void *out = malloc(x->n);
    if (!out)
        return NULL;
    kv_record_begin(l, out, x->key, parts);
    memcpy((char *)out + KV_RECORD_HEAD, x->record + KV_RECORD_HEAD, x->n - KV_RECORD_HEAD);
    kv_record_seal(l, out);
    return out;
}

void *kv_tier_read(struct kv_tier *t, const uint8_t identity[KV_IDENTITY],
                   const uint8_t key[KV_KEY], int64_t until_ns, size_t *n, bool *foreign)
{
    const struct timespec until = clock_timespec(until_ns);
    void *out = NULL;
    pthread_mutex_lock(&t->lock);
    struct entry *x = pin(t, key);
    while (!x && until_ns && pthread_cond_timedwait(&t->arrived, &t->lock, &until) == 0)
        x = pin(t, key);
    const struct kv_layout l = t->layout;
    *foreign = memcmp(identity, l.identity, KV_IDENTITY) != 0;
    pthread_mutex_unlock(&t->lock);
    if (!x)
        return NULL;
    *n = x->n;
    if (!*foreign)
        out = sealed_copy(&l, x);
    pthread_mutex_lock(&t->lock);
    if (out)
        keep_no_more(t, x);
    unpin(t, x);
    pthread_mutex_unlock(&t->lock);
    return out;
}

enum kv_verdict kv_tier_insert(struct kv_tier *t, const uint8_t key[KV_KEY], const void *record,
                               size_t n, bool *room)
{
    pthread_mutex_lock(&t->reading); /* the layout stays */
    enum kv_verdict v = kv_record_check_head(&t->layout, record, n, key);
    if (v == KV_FINE)
        v = kv_record_check(&t->layout, record);
    *room = true;
    if (v == KV_FINE) {
        pthread_mutex_lock(&t->lock);
        struct entry *x = find(t, key) ? NULL : new_entry(t, key, n);
        *room = x || find(t, key);
        if (x) {
            memcpy(x->record, record, n);
            put_in(t, x);
        }
        pthread_mutex_unlock(&t->lock);
    }
    pthread_mutex_unlock(&t->reading);
    return v;
}

/* ------------------------------------------------------------------ loading */

bool kv_tier_hold(struct kv_tier *t) { return pthread_mutex_trylock(&t->reading) == 0; }
void kv_tier_release(struct kv_tier *t) { pthread_mutex_unlock(&t->reading); }

const void *kv_tier_ready(struct kv_tier *t, uint64_t id, const uint8_t key[KV_KEY],
                          enum kv_part part)
{
    if (t->ready_id != id)
        return NULL;
    for (uint32_t i = 0; i < t->n_ready; i++) {
        if (t->cursor >= t->n_ready)
            t->cursor = 0;
        struct entry *x = t->ready[t->cursor];
        /* keys are requested in order */
        if (memcmp(x->key, key, KV_KEY) != 0)
            t->cursor++;
        else
            return kv_record_parts(x->record) >> part & 1
                       ? kv_record_part(&t->layout, x->record, part)
                       : NULL;
    }
    return NULL;
}

struct kv_tier_stats kv_tier_stats(struct kv_tier *t)
{
    struct kv_tier_stats s = {0};
    pthread_mutex_lock(&t->lock);
    if (t->folder) {
        const struct kv_folder_stats f = kv_folder_stats(t->folder);
        s = (struct kv_tier_stats){.disk_bytes = f.bytes,
                                   .disk_evictions = f.evictions,
                                   .damaged = f.damaged,
                                   .foreign = f.foreign,
                                   .failed_writes = f.failed_writes,
                                   .written = f.written};
    }
    s.memory_bytes = t->bytes;
    s.memory_evictions = t->evictions;
    pthread_mutex_unlock(&t->lock);
    return s;
}
