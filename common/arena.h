/* arena.h - memory with one owner and one end.
 *
 * A request owns an arena; everything parsed, templated or tokenized for it is
 * carved from there, and request_free() is arena_reset(). Nothing allocated
 * from an arena is ever freed alone, so there is no ownership to track inside
 * a request. What outlives the request (a KV block, a connection) is not here. */
#ifndef COMMON_ARENA_H
#define COMMON_ARENA_H
#include <stddef.h>

struct arena {
    struct arena_chunk *top;
    size_t limit, used; /* bytes; the limit is how a request is bounded */
    struct arena_hook *hooks;
};

void arena_init(struct arena *a, size_t limit);
/* Zeroed memory, aligned to `align` (a power of two, at most 16); NULL past the limit. */
void *arena_alloc(struct arena *a, size_t n, size_t align);
char *arena_strdup(struct arena *a, const char *s, size_t n);
/* Run fn(arg) at reset, newest first: for the few things that are not memory. */
int arena_defer(struct arena *a, void (*fn)(void *), void *arg);
void arena_reset(struct arena *a);
#define ARENA_NEW(a, type, n) ((type *)arena_alloc((a), sizeof(type) * (n), _Alignof(type)))
#endif
