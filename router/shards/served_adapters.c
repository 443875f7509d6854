#include "router/shards/served_adapters.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct served_adapters *list_new(uint32_t room)
{
    struct served_adapters *s = calloc(1, sizeof(*s) + room * sizeof(s->v[0]));
    if (s)
        atomic_store(&s->holders, 1);
    return s;
}

static bool append(struct served_adapters *s, const struct served_adapter *a)
{
    struct served_adapter *to = &s->v[s->n];
    assert(s->n == 0 || to[-1].number < a->number);
    *to = *a;
    to->name = strdup(a->name);
    to->path = a->path ? strdup(a->path) : NULL;
    s->n++; /* counted first, so that a partial copy is freed with the list */
    return to->name && (to->path || !a->path);
}

/* Copies `s` without number `without` (0: all), then appends `more` (NULL: nothing). */
static struct served_adapters *copy(const struct served_adapters *s, uint32_t without,
                                    const struct served_adapter *more)
{
    struct served_adapters *to = list_new(s->n + 1);
    bool ok = to != NULL;
    for (uint32_t i = 0; ok && i < s->n; i++)
        if (s->v[i].number != without)
            ok = append(to, &s->v[i]);
    if (ok && more)
        ok = append(to, more);
    if (ok)
        return to;
    served_adapters_release(to);
    return NULL;
}

struct served_adapters *served_adapters_none(void) { return list_new(0); }

struct served_adapters *served_adapters_with(const struct served_adapters *s,
                                             const struct served_adapter *more)
{
    return copy(s, 0, more);
}

struct served_adapters *served_adapters_without(const struct served_adapters *s, uint32_t number)
{
    assert(number != 0);
    return copy(s, number, NULL);
}

struct served_adapters *served_adapters_marked(const struct served_adapters *s, uint32_t number,
                                               bool leaving)
{
    struct served_adapters *to = copy(s, 0, NULL);
    for (uint32_t i = 0; to && i < to->n; i++)
        if (to->v[i].number == number)
            to->v[i].leaving = leaving;
    return to;
}

struct served_adapters *served_adapters_hold(struct served_adapters *s)
{
    atomic_fetch_add(&s->holders, 1);
    return s;
}

void served_adapters_release(struct served_adapters *s)
{
    if (!s || atomic_fetch_sub(&s->holders, 1) > 1)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        free(s->v[i].name);
        free(s->v[i].path);
    }
    free(s);
}

static const struct served_adapter *find(const struct served_adapters *s, const char *name,
                                         bool leaving)
{
    for (uint32_t i = 0; i < s->n; i++)
        if ((leaving || !s->v[i].leaving) && strcmp(s->v[i].name, name) == 0)
            return &s->v[i];
    return NULL;
}

const struct served_adapter *served_adapters_find(const struct served_adapters *s, const char *name)
{
    return find(s, name, false);
}

bool served_adapters_same(const struct served_adapters *s, const struct served_adapter *a)
{
    const struct served_adapter *ours = find(s, a->name, true);
    return ours && (ours->leaving || !other_files(ours->content, a->content));
}

/* ------------------------------------------------------------------ the shelf */

void adapter_shelf_init(struct adapter_shelf *f)
{
    pthread_mutex_init(&f->lock, NULL);
    f->now = NULL;
    f->use = NULL;
}

void adapter_shelf_fini(struct adapter_shelf *f)
{
    served_adapters_release(f->now);
    free(f->use);
    pthread_mutex_destroy(&f->lock);
}

void adapter_shelf_put(struct adapter_shelf *f, struct served_adapters *s)
{
    served_adapters_hold(s);
    pthread_mutex_lock(&f->lock);
    struct served_adapters *old = f->now;
    struct adapter_use *use = f->use;
    f->now = s;
    f->use = NULL; /* the counts were of the old list */
    pthread_mutex_unlock(&f->lock);
    free(use);
    served_adapters_release(old);
}

struct served_adapters *adapter_shelf_hold(struct adapter_shelf *f)
{
    pthread_mutex_lock(&f->lock);
    struct served_adapters *s = f->now ? served_adapters_hold(f->now) : NULL;
    pthread_mutex_unlock(&f->lock);
    return s;
}

void adapter_shelf_note(struct adapter_shelf *f, const struct adapter_use *use)
{
    pthread_mutex_lock(&f->lock);
    const uint32_t n = f->now ? f->now->n : 0;
    if (n && !f->use)
        f->use = calloc(n, sizeof(*f->use));
    if (n && f->use)
        memcpy(f->use, use, n * sizeof(*use));
    pthread_mutex_unlock(&f->lock);
}

void adapter_shelf_each(struct adapter_shelf *f,
                        void (*fn)(void *arg, const char *name, const struct adapter_use *u),
                        void *arg)
{
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; f->now && i < f->now->n; i++)
        fn(arg, f->now->v[i].name, f->use ? &f->use[i] : &(struct adapter_use){0});
    pthread_mutex_unlock(&f->lock);
}

static bool shelf_lists(struct adapter_shelf *f, const char *name, bool leaving)
{
    struct served_adapters *s = adapter_shelf_hold(f);
    const bool has = s && find(s, name, leaving);
    served_adapters_release(s);
    return has;
}

bool adapter_shelf_has(struct adapter_shelf *f, const char *name)
{
    return shelf_lists(f, name, false);
}

bool adapter_shelf_knows(struct adapter_shelf *f, const char *name)
{
    return shelf_lists(f, name, true);
}
