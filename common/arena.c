#include "common/arena.h"
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

struct arena_chunk {
    struct arena_chunk *next;
    size_t len, cap;
    alignas(16) char mem[];
};
struct arena_hook {
    struct arena_hook *next;
    void (*fn)(void *);
    void *arg;
};

void arena_init(struct arena *a, size_t limit) { *a = (struct arena){.limit = limit}; }

void *arena_alloc(struct arena *a, size_t n, size_t align)
{
    struct arena_chunk *c = a->top;
    size_t at = c ? (c->len + align - 1) & ~(align - 1) : 0;

    if (!c || at > c->cap || n > c->cap - at) {
        size_t step = c ? c->cap * 2 : 4064; /* doubles, so that large requests need few mallocs */
        if (step > (1u << 20))
            step = 1u << 20;
        size_t cap = n > step ? n : step;
        if (cap > a->limit - a->used && n <= a->limit - a->used)
            cap = a->limit - a->used; /* the last chunk may be smaller */
        if (cap > a->limit - a->used) {
            a->full = true;
            return NULL;
        }
        if (!(c = malloc(sizeof(*c) + cap)))
            return NULL;
        *c = (struct arena_chunk){a->top, 0, cap};
        a->top = c;
        a->used += cap;
        at = 0;
        ASAN_POISON_MEMORY_REGION(c->mem, cap);
    }
    c->len = at + n;
    ASAN_UNPOISON_MEMORY_REGION(c->mem + at, n);
    return memset(c->mem + at, 0, n);
}

char *arena_strdup(struct arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1, 1);
    if (p && n)
        memcpy(p, s, n);
    return p;
}

int arena_defer(struct arena *a, void (*fn)(void *), void *arg)
{
    struct arena_hook *h = ARENA_NEW(a, struct arena_hook, 1);
    if (!h)
        return -1;
    *h = (struct arena_hook){a->hooks, fn, arg};
    a->hooks = h;
    return 0;
}

void arena_reset(struct arena *a)
{
    for (struct arena_hook *h = a->hooks; h; h = h->next)
        h->fn(h->arg);
    for (struct arena_chunk *c = a->top, *next; c; c = next) {
        next = c->next;
        ASAN_UNPOISON_MEMORY_REGION(c->mem, c->cap);
        free(c);
    }
    arena_init(a, a->limit);
}
