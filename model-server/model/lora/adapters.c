#include "model-server/model/lora/adapters.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/model_identity.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* With slots for later adapters the page is larger, because their rows are not known yet. */
enum { SMALLEST_PAGE = 64 * 1024, OPEN_PAGE = 256 * 1024, ROW_ALIGN = 64 };

struct adapter {
    const char *name; /* "": a free place */
    char *own_name;   /* of one that was added */
    struct lora_adapter file;
    uint64_t content; /* hash of its files; 0: unknown */
    /* page: [n_pages], the pool's pages that hold it while it is on the device */
    uint32_t n_pages, *page;
    uint32_t pins;
    uint64_t used;     /* time of last use on the pool's clock; 0: not on the device */
    const void **rows; /* device addresses: for each pair its rows of A, then of B */
};

struct adapters {
    struct lora_base base;
    const struct backend_ops *ops;
    struct device *dev;
    struct adapter *v; /* [n + 1], number 0 unused */
    uint32_t n;        /* places */
    size_t page_bytes;
    char *pool, *staging; /* on the device; one page on the host */
    uint32_t n_pages, *free, n_free;
    uint64_t clock, loads;
    struct err spoilt;     /* kind ERR_NONE: no file was found overwritten */
    struct lora_set *sets; /* [layer][site][n + 1] */
};

/* ---------------------------------------------------------------- layout */

static size_t row_bytes(uint32_t elements, enum dtype t)
{
    return (elements * dtype_size(t) + ROW_ALIGN - 1) & ~(size_t)(ROW_ALIGN - 1);
}

/* Rows are placed one after the other, each within one page. */
struct page_cursor {
    size_t page_bytes, at; /* `at`: in the page */
    uint32_t page;
};

/* Place of the next row: page c->page, at the returned offset. */
static size_t next_row(struct page_cursor *c, size_t bytes)
{
    if (c->at + bytes > c->page_bytes) {
        c->page++;
        c->at = 0;
    }
    size_t at = c->at;
    c->at += bytes;
    return at;
}

static size_t a_bytes(const struct lora_pair *p) { return row_bytes(p->most_columns, p->dtype); }
static size_t b_bytes(const struct lora_pair *p) { return row_bytes(p->most_n, p->dtype); }

static uint32_t count_pages(const struct lora_adapter *l, size_t page_bytes)
{
    struct page_cursor c = {.page_bytes = page_bytes};
    for (uint32_t i = 0; i < l->n; i++)
        for (uint32_t r = 0; r < 2 * l->pairs[i].rank; r++)
            next_row(&c, r < l->pairs[i].rank ? a_bytes(&l->pairs[i]) : b_bytes(&l->pairs[i]));
    return c.page + 1;
}

uint64_t adapters_content(const struct adapters *a, uint32_t number)
{
    return a->v[number].content;
}

const struct lora_head *adapters_head(const struct adapters *a, uint32_t number)
{
    const struct lora_head *h = &a->v[number].file.head;
    return h->a ? h : NULL;
}

static struct lora_set *set_of(const struct adapters *a, uint32_t layer, enum lora_site site,
                               uint32_t number)
{
    return &a->sets[((size_t)layer * LORA_SITES + site) * (a->n + (size_t)1) + number];
}

const struct lora_set *adapters_sets(const struct adapters *a, uint32_t layer, enum lora_site site)
{
    return set_of(a, layer, site, 0);
}

/* ---------------------------------------------------------------- opening */

static uint64_t content_of(const char *dir)
{
    struct model_identity files;
    struct err unknown = ERR_INIT;
    uint64_t h = 0;
    if (model_identity(dir, &files, &unknown) == 0)
        memcpy(&h, files.content, sizeof(h));
    return h;
}

static int open_one(struct adapters *a, uint32_t number, const struct adapter_source *from,
                    struct err *e)
{
    struct adapter *ad = &a->v[number];
    size_t rows = 0;
    if (adapters_find(a, from->name))
        return err_set(e, ERR_VALIDATION, "two adapters are called `%s`", from->name);
    ad->name = from->name;
    if (from->inside ? lora_open_inside(&ad->file, from->dir, from->inside - 1, &a->base, e)
                     : lora_open(&ad->file, from->dir, &a->base, e))
        return err_wrap(e, "adapter `%s`", from->name);
    ad->content = content_of(from->dir);
    for (uint32_t i = 0; i < ad->file.n; i++) {
        const struct lora_pair *p = &ad->file.pairs[i];
        while (a->page_bytes < a_bytes(p) || a->page_bytes < b_bytes(p))
            a->page_bytes *= 2;
        rows += 2 * (size_t)p->rank;
    }
    assert(rows); /* lora_open() refuses an adapter without pairs */
    ad->rows = calloc(rows, sizeof(*ad->rows));
    return ad->rows ? 0 : err_nomem(e);
}

static int count_room(struct adapter *ad, size_t page_bytes, struct err *e)
{
    ad->n_pages = count_pages(&ad->file, page_bytes);
    return (ad->page = calloc(ad->n_pages, sizeof(*ad->page))) ? 0 : err_nomem(e);
}

static void empty(struct adapter *ad)
{
    lora_close(&ad->file);
    free(ad->page);
    free(ad->rows);
    free(ad->own_name);
    *ad = (struct adapter){.name = ""};
}

/* Its files were spoilt while it was served: the others are served on. False: memory is short, and
 * it would be there on other ranks. */
static bool leave_out(struct adapters *a, uint32_t number, struct err *e)
{
    if (e->sys == ENOMEM)
        return false;
    LOG(LOG_ERROR, "an adapter cannot be read and is not served",
        LOGS("adapter", a->v[number].name), LOGS("error", e->msg));
    empty(&a->v[number]);
    *e = (struct err)ERR_INIT;
    return true;
}

static int open_all(struct adapters *a, const struct adapter_source *list, uint32_t n,
                    struct err *e)
{
    if (!a->ops->lora)
        return err_set(e, ERR_VALIDATION, "the %s backend has no adapters", a->ops->name);
    a->v = calloc(a->n + (size_t)1, sizeof(*a->v));
    a->sets = calloc((size_t)spec_all_layers(a->base.spec) * LORA_SITES * (a->n + (size_t)1),
                     sizeof(*a->sets));
    if (!a->v || !a->sets)
        return err_nomem(e);
    for (uint32_t i = 0; i <= a->n; i++)
        a->v[i].name = "";
    for (uint32_t i = 1; i <= n; i++)
        if (open_one(a, i, &list[i - 1], e) && (!list[i - 1].optional || !leave_out(a, i, e)))
            return -1;
    for (uint32_t i = 1; i <= n; i++) /* now that the page size is known */
        if (a->v[i].rows && count_room(&a->v[i], a->page_bytes, e))
            return -1;
    return (a->staging = malloc(a->page_bytes)) ? 0 : err_nomem(e);
}

struct adapters *adapters_open(const struct adapter_source *list, uint32_t n, uint32_t extra,
                               const struct lora_base *base, const struct backend_ops *ops,
                               struct device *d, struct err *e)
{
    struct adapters *a = calloc(1, sizeof(*a));
    if (!a)
        return err_nomem(e), NULL;
    *a = (struct adapters){.base = *base,
                           .ops = ops,
                           .dev = d,
                           .n = n + extra,
                           .page_bytes = extra ? OPEN_PAGE : SMALLEST_PAGE};
    if (open_all(a, list, n, e)) {
        adapters_close(a);
        return NULL;
    }
    return a;
}

void adapters_close(struct adapters *a)
{
    if (!a)
        return;
    for (uint32_t i = 1; a->v && i <= a->n; i++)
        empty(&a->v[i]);
    if (a->pool)
        a->ops->free(a->dev, a->pool);
    free(a->v), free(a->sets), free(a->staging), free(a->free);
    free(a);
}

uint32_t adapters_count(const struct adapters *a) { return a->n; }
const char *adapters_name(const struct adapters *a, uint32_t number) { return a->v[number].name; }
uint32_t adapters_pages(const struct adapters *a, uint32_t number) { return a->v[number].n_pages; }
uint64_t adapters_page_bytes(const struct adapters *a) { return a->page_bytes; }
uint32_t adapters_reserved(const struct adapters *a) { return a->n_pages; }
uint64_t adapters_loads(const struct adapters *a) { return a->loads; }

uint32_t adapters_find(const struct adapters *a, const char *name)
{
    uint32_t i = *name ? a->n : 0;
    while (i && strcmp(a->v[i].name, name) != 0)
        i--;
    return i;
}

static uint32_t free_place(const struct adapters *a)
{
    for (uint32_t i = 1; i <= a->n; i++)
        if (!*a->v[i].name)
            return i;
    return 0;
}

uint32_t adapters_free_places(const struct adapters *a)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i <= a->n; i++)
        n += !*a->v[i].name;
    return n;
}

/* ---------------------------------------------------------------- coming and going */

static void evict(struct adapters *a, uint32_t number)
{
    struct adapter *ad = &a->v[number];
    for (uint32_t i = 0; i < ad->n_pages; i++)
        a->free[a->n_free++] = ad->page[i];
    for (uint32_t i = 0; i < ad->file.n; i++)
        set_of(a, ad->file.pairs[i].layer, ad->file.pairs[i].site, number)->n_parts = 0;
    ad->used = 0;
}

static int fits(const struct adapters *a, const struct adapter *ad, uint32_t pages, struct err *e)
{
    return ad->n_pages <= pages
               ? 0
               : err_set(e, ERR_VALIDATION,
                         "adapter `%s` takes %llu bytes on each rank, %llu are allowed: raise "
                         "`--adapter-memory-fraction`",
                         ad->name, (unsigned long long)ad->n_pages * a->page_bytes,
                         (unsigned long long)pages * a->page_bytes);
}

uint32_t adapters_add(struct adapters *a, const struct adapter_source *from, struct err *e)
{
    const uint32_t number = free_place(a);
    const size_t page_bytes = a->page_bytes;
    struct adapter *ad = &a->v[number];
    if (!*from->name)
        return err_set(e, ERR_VALIDATION, "an adapter needs a name"), 0;
    if (!number)
        return err_set(e, ERR_VALIDATION, "there is no place for another adapter: %u are there",
                       a->n),
               0;
    struct adapter_source own = {strdup(from->name), from->dir, from->inside};
    if (!own.name)
        return err_nomem(e), 0;
    int rc = open_one(a, number, &own, e);
    ad->own_name = (char *)(uintptr_t)own.name;
    if (!rc && a->page_bytes != page_bytes)
        rc =
            err_set(e, ERR_VALIDATION, "adapter `%s`: its rows are longer than a page of %zu bytes",
                    own.name, page_bytes);
    a->page_bytes = page_bytes; /* it defines the layout of the pool */
    if (rc || count_room(ad, page_bytes, e) || (a->pool && fits(a, ad, a->n_pages, e))) {
        empty(ad);
        return 0;
    }
    return number;
}

int adapters_remove(struct adapters *a, uint32_t number, struct err *e)
{
    struct adapter *ad = &a->v[number];
    assert(number && number <= a->n);
    if (ad->pins)
        return err_set(e, ERR_OVERLOADED, "adapter `%s` is in use by %u requests", ad->name,
                       ad->pins);
    if (ad->used)
        evict(a, number);
    empty(ad);
    return 0;
}

int adapters_reserve(struct adapters *a, uint32_t pages, struct err *e)
{
    for (uint32_t i = 1; i <= a->n; i++) {
        assert(!a->v[i].pins);
        if (a->v[i].used)
            evict(a, i);
        if (fits(a, &a->v[i], pages, e))
            return -1;
    }
    if (a->pool)
        a->ops->free(a->dev, a->pool);
    free(a->free);
    a->n_pages = a->n_free = 0;
    a->free = calloc(pages, sizeof(*a->free));
    a->pool = a->ops->alloc(a->dev, pages * a->page_bytes, e);
    if (!a->free || !a->pool)
        return a->pool ? err_nomem(e) : -1;
    for (uint32_t i = pages; i > 0; i--) /* the first page is assigned first */
        a->free[a->n_free++] = i - 1;
    a->n_pages = pages;
    return 0;
}

static int make_room(struct adapters *a, const struct adapter *ad, struct err *e)
{
    while (a->n_free < ad->n_pages) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i <= a->n; i++)
            if (a->v[i].used && !a->v[i].pins && (!oldest || a->v[i].used < a->v[oldest].used))
                oldest = i;
        if (!oldest)
            return err_set(e, ERR_OVERLOADED,
                           "adapter `%s` takes %u of %u pages, and %u are free beside the adapters "
                           "in use",
                           ad->name, ad->n_pages, a->n_pages, a->n_free);
        evict(a, oldest);
    }
    return 0;
}

/* A page that is filled on the host and then sent to the device. */
struct writer {
    struct adapters *a;
    struct adapter *ad;
    struct page_cursor c;
    struct err *e;
};

static int send(struct writer *w)
{
    char *to = w->a->pool + w->ad->page[w->c.page] * w->a->page_bytes;
    return w->a->ops->upload(w->a->dev, to, w->a->staging, w->c.at, w->e);
}

/* Space for a row; *device: its address there. NULL: the previous page could not be sent. */
static void *write_row(struct writer *w, size_t bytes, const void **device)
{
    struct page_cursor c = w->c;
    size_t at = next_row(&c, bytes);
    if (c.page != w->c.page && send(w))
        return NULL;
    w->c = c;
    *device = w->a->pool + w->ad->page[c.page] * w->a->page_bytes + at;
    return w->a->staging + at;
}

static int write_pair(struct writer *w, const struct lora_pair *p, const void **rows)
{
    for (uint32_t r = 0; r < p->rank; r++) {
        void *to = write_row(w, a_bytes(p), &rows[r]);
        if (!to)
            return -1;
        lora_copy_a(p, r, to);
    }
    for (uint32_t r = 0; r < p->rank; r++) {
        void *to = write_row(w, b_bytes(p), &rows[p->rank + r]);
        if (!to)
            return -1;
        lora_copy_b(p, &w->a->base, r, to);
    }
    return 0;
}

static int check_file(struct adapters *a, const struct adapter *ad, struct err *e)
{
    if (lora_check(&ad->file, e) == 0)
        return 0;
    err_wrap(e, "adapter `%s`", ad->name);
    a->spoilt = *e;
    return -1;
}

static int load(struct adapters *a, uint32_t number, struct err *e)
{
    struct adapter *ad = &a->v[number];
    const int64_t start = clock_ns();
    struct writer w = {.a = a, .ad = ad, .c = {.page_bytes = a->page_bytes}, .e = e};
    const void **rows = ad->rows;
    for (uint32_t i = 0; i < ad->n_pages; i++)
        ad->page[i] = a->free[--a->n_free];
    ad->used = ++a->clock;
    for (uint32_t i = 0; i < ad->file.n; i++) {
        const struct lora_pair *p = &ad->file.pairs[i];
        struct lora_set *s = set_of(a, p->layer, p->site, number);
        if (write_pair(&w, p, rows)) {
            evict(a, number);
            return -1;
        }
        assert(s->n_parts < LORA_MAX_PARTS);
        s->part[s->n_parts++] = (struct lora){.a = rows,
                                              .b = rows + p->rank,
                                              .dtype = p->dtype,
                                              .rank = p->rank,
                                              .first = p->first,
                                              .n = p->n,
                                              .scale = p->scale};
        rows += 2 * (size_t)p->rank;
    }
    if (send(&w) || check_file(a, ad, e)) {
        evict(a, number);
        return -1;
    }
    a->loads++;
    LOG(LOG_DEBUG, "adapter loaded", LOGS("adapter", ad->name), LOGI("pages", ad->n_pages),
        LOGD("seconds", (double)(clock_ns() - start) * 1e-9));
    return 0;
}

int adapters_check(const struct adapters *a, struct err *e)
{
    if (!a || a->spoilt.kind == ERR_NONE)
        return 0;
    *e = a->spoilt;
    return -1;
}

int adapters_pin(struct adapters *a, uint32_t number, struct err *e)
{
    struct adapter *ad = &a->v[number];
    assert(number && number <= a->n);
    if (!ad->used && (check_file(a, ad, e) || make_room(a, ad, e) || load(a, number, e)))
        return -1;
    ad->used = ++a->clock;
    ad->pins++;
    return 0;
}

void adapters_unpin(struct adapters *a, uint32_t number)
{
    assert(a->v[number].pins);
    a->v[number].pins--;
}
