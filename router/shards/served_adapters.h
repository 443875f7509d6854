/* served_adapters.h - which adapters the shards serve: lists that never change, and where the
 * current one is found.
 *
 * A change makes another list, which takes the place of the old one on the shelf; a reader holds
 * the one that it found. An adapter that is loaded gets a number of its own, also under a name that
 * was used before: the number tells what it leaves in the KV cache apart. */
#ifndef ROUTER_SHARDS_SERVED_ADAPTERS_H
#define ROUTER_SHARDS_SERVED_ADAPTERS_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct served_adapter {
    char *name;
    char *path;      /* that it was loaded from at run time; NULL: the shards start with it */
    uint32_t pages;  /* that it takes on each rank while it is in use */
    uint32_t number; /* from 1 on; ascending within a list */
    bool leaving;    /* it is being unloaded: not for new requests */
};
struct served_adapters {
    atomic_uint holders;
    uint32_t n;
    struct served_adapter v[];
};

/* All four: a new list, held once by the caller; NULL: no memory. `s` is not released. */
struct served_adapters *served_adapters_none(void);
/* With one more at the end; name and path (or NULL) are copied. */
struct served_adapters *served_adapters_with(const struct served_adapters *s,
                                             const struct served_adapter *more);
struct served_adapters *served_adapters_without(const struct served_adapters *s, uint32_t number);
struct served_adapters *served_adapters_marked(const struct served_adapters *s, uint32_t number,
                                               bool leaving);
struct served_adapters *served_adapters_hold(struct served_adapters *s); /* once more; any thread */
void served_adapters_release(struct served_adapters *s); /* any thread; NULL: fine */
/* The one that new requests mean by the name, or NULL. */
const struct served_adapter *served_adapters_find(const struct served_adapters *s,
                                                  const char *name);

struct adapter_use {
    uint32_t known;   /* requests that name it, from their arrival to their end */
    uint32_t running; /* of them, in the shards' batches */
};

/* Where other threads find the list. */
struct adapter_shelf {
    pthread_mutex_t lock;
    struct served_adapters *now; /* NULL: nothing yet */
    struct adapter_use *use;     /* [now->n], as last noted; NULL: nothing noted */
};
void adapter_shelf_init(struct adapter_shelf *f);
void adapter_shelf_fini(struct adapter_shelf *f);
void adapter_shelf_put(struct adapter_shelf *f, struct served_adapters *s); /* holds it once more */
struct served_adapters *adapter_shelf_hold(struct adapter_shelf *f); /* to be released; or NULL */
/* How much each of `now` is used; without memory, what was noted before is there. */
void adapter_shelf_note(struct adapter_shelf *f, const struct adapter_use *use);
/* fn for each that is served: its name, and how much it is used. */
void adapter_shelf_each(struct adapter_shelf *f,
                        void (*fn)(void *arg, const char *name, const struct adapter_use *u),
                        void *arg);
bool adapter_shelf_has(struct adapter_shelf *f, const char *name); /* for new requests */
#endif
