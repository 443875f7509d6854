/* adapters.h - the adapters of a model and which of them are on its device (S-LoRA, arXiv
 * 2311.03285).
 *
 * Adapters are never merged into the weights: decoder.c adds each token's update as it goes. Their
 * files stay mapped; a pool of pages on the device holds those that are in use, and others as long
 * as nothing else needs the memory. A row of A or B lies within one page; which pages is of no
 * meaning, so that adapters of any size come and go without leaving holes.
 *
 * Adapters have numbers from 1 on; 0 is the model as it is. All ranks get the same calls in the
 * same order and come to the same decisions: sizes are those of the rank with the largest part.
 * One thread. */
#ifndef MODEL_SERVER_MODEL_ADAPTERS_H
#define MODEL_SERVER_MODEL_ADAPTERS_H
#include "model-server/model/lora.h"

struct adapter_source {
    const char *name; /* what requests call it */
    const char *dir;  /* of adapter_config.json */
};

struct adapters;

/* Opens and checks all of them; nothing is on the device yet. `extra`: places for adapters that
 * come later. `base` is copied; what it points to, `ops`, `d` and the names must outlive the
 * result. ERR_VALIDATION: two of one name; what lora_open() says, with the adapter's name; a
 * backend without adapters. */
struct adapters *adapters_open(const struct adapter_source *list, uint32_t n, uint32_t extra,
                               const struct lora_base *base, const struct backend_ops *ops,
                               struct device *d, struct err *e);
void adapters_close(struct adapters *a); /* NULL is fine */

/* Opens and checks one more, in the lowest free place: its number, or 0. ERR_VALIDATION: as for the
 * others, one of that name is there, no place is free, or the pages do not hold it. The name is
 * copied. */
uint32_t adapters_add(struct adapters *a, const struct adapter_source *from, struct err *e);
/* Its place is free again. ERR_OVERLOADED, and nothing has changed: it is pinned. */
int adapters_remove(struct adapters *a, uint32_t number, struct err *e);

uint32_t adapters_count(const struct adapters *a); /* places, with those that are free */
uint32_t adapters_free_places(const struct adapters *a);
const char *adapters_name(const struct adapters *a, uint32_t number); /* "": a free place */
uint32_t adapters_find(const struct adapters *a, const char *name);   /* 0: unknown */
uint32_t adapters_pages(const struct adapters *a, uint32_t number);   /* that it takes */
uint64_t adapters_page_bytes(const struct adapters *a);

/* Gives the pool `pages` pages of device memory; what was there is gone, and nothing may be pinned.
 * ERR_VALIDATION where the largest adapter would not fit. */
int adapters_reserve(struct adapters *a, uint32_t pages, struct err *e);
uint32_t adapters_reserved(const struct adapters *a); /* pages */

/* Brings an adapter to the device, if it is not there, and keeps it there until it was unpinned as
 * often; unused ones are evicted, the one unused for longest first. ERR_OVERLOADED: the
 * others are in use. */
int adapters_pin(struct adapters *a, uint32_t number, struct err *e);
void adapters_unpin(struct adapters *a, uint32_t number);
uint64_t adapters_loads(const struct adapters *a); /* times that one was brought to the device */

/* What backend_ops.lora() wants: [count + 1], empty for adapters that are not on the device. */
const struct lora_set *adapters_sets(const struct adapters *a, uint32_t layer, enum lora_site site);
#endif
