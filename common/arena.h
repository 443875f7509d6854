/* arena.h - region allocator: many allocations, one owner, freed together.
 *
 * A request owns an arena, and everything parsed, templated or tokenized for it is allocated there.
 * arena_reset() frees it all. Nothing allocated from an arena is freed separately, so there is no
 * ownership to track inside a request. Objects that outlive the request (KV blocks, connections)
 * are allocated elsewhere. One thread at a time. */
#ifndef COMMON_ARENA_H
#define COMMON_ARENA_H
#include <stdbool.h>
#include <stddef.h>

struct arena {
    struct arena_chunk *top;
    size_t limit, used; /* bytes; `limit` bounds the memory of a request */
    bool full;          /* the limit refused an allocation: the request is too large */
    struct arena_hook *hooks;
};

void arena_init(struct arena *a, size_t limit);
/* Zeroed memory, aligned to `align` (a power of two, at most 16). NULL: over the limit, or out of
 * memory. */
void *arena_alloc(struct arena *a, size_t n, size_t align);
char *arena_strdup(struct arena *a, const char *s, size_t n);
/* Registers fn(arg) to run at reset, newest first, for resources other than memory. -1: out of
 * memory. */
int arena_defer(struct arena *a, void (*fn)(void *), void *arg);
/* Runs the deferred functions and frees all memory. The arena is empty and usable again. */
void arena_reset(struct arena *a);
#define ARENA_NEW(a, type, n) ((type *)arena_alloc((a), sizeof(type) * (n), _Alignof(type)))
#endif
