/* adapters.h - the adapters of a model, and which of them are on its device (S-LoRA, arXiv
 * 2311.03285).
 *
 * Adapters are never merged into the weights: decoder.c adds each token's update at run time.
 * Their files stay mapped. A pool of pages on the device holds the adapters in use, and others as
 * long as the memory is not needed. A row of A or B lies within one page, and any page will do.
 * So adapters of any size can be loaded and evicted without fragmentation.
 *
 * Adapters have numbers from 1 on; 0 is the base model. All ranks get the same calls in the same
 * order and decide the same: sizes are those of the rank with the largest part. One thread. */
#ifndef MODEL_SERVER_MODEL_LORA_ADAPTERS_H
#define MODEL_SERVER_MODEL_LORA_ADAPTERS_H
#include "model-server/model/lora/lora.h"

struct adapter_source {
    const char *name; /* what requests call it */
    const char *dir;  /* of adapter_config.json, or a GGUF file */
    uint32_t inside;  /* 1 + its place among those inside the checkpoint in `dir`; 0: none */
    bool optional;    /* it is logged and left out if it cannot be opened */
};

struct adapters;

/* Opens and checks all of them; none is on the device yet. `extra`: slots for later adapters.
 * `base` is copied; its pointers, `ops`, `d` and the names must outlive the result.
 * ERR_VALIDATION: two have the same name; an error of lora_open(), with the adapter's name; a
 * backend without adapters. */
struct adapters *adapters_open(const struct adapter_source *list, uint32_t n, uint32_t extra,
                               const struct lora_base *base, const struct backend_ops *ops,
                               struct device *d, struct err *e);
void adapters_close(struct adapters *a); /* NULL is fine */

/* Opens and checks one more, in the lowest free slot. Returns its number, or 0. ERR_VALIDATION:
 * as above, the name exists, no slot is free, or the pages cannot hold it. The name is copied. */
uint32_t adapters_add(struct adapters *a, const struct adapter_source *from, struct err *e);
/* Frees its slot. ERR_OVERLOADED, without any change: it is pinned. */
int adapters_remove(struct adapters *a, uint32_t number, struct err *e);

uint32_t adapters_count(const struct adapters *a); /* number of slots, including free ones */
uint32_t adapters_free_places(const struct adapters *a);
const char *adapters_name(const struct adapters *a, uint32_t number); /* "": a free place */
uint32_t adapters_find(const struct adapters *a, const char *name);   /* 0: unknown */
uint32_t adapters_pages(const struct adapters *a, uint32_t number);   /* that it takes */
/* Of its files (common/model_identity.h), when they were opened; 0: unknown. */
uint64_t adapters_content(const struct adapters *a, uint32_t number);
uint64_t adapters_page_bytes(const struct adapters *a);

/* Allocates the pool with `pages` pages of device memory. Its contents are lost, and nothing may
 * be pinned. ERR_VALIDATION if the largest adapter would not fit. */
int adapters_reserve(struct adapters *a, uint32_t pages, struct err *e);
uint32_t adapters_reserved(const struct adapters *a); /* pages */

/* Loads an adapter to the device, if it is not there, and keeps it until it was unpinned as
 * often. Unused ones are evicted, the least recently used first. ERR_OVERLOADED: other adapters
 * in use fill the pool. ERR_SYSTEM: its file was overwritten, see adapters_check(). */
int adapters_pin(struct adapters *a, uint32_t number, struct err *e);
void adapters_unpin(struct adapters *a, uint32_t number);
/* Fails once the file of an adapter was found written in place when it was loaded: this rank may
 * have computed with other numbers, and other ranks may not have noticed. */
int adapters_check(const struct adapters *a, struct err *e); /* NULL is fine */
uint64_t adapters_loads(const struct adapters *a);           /* number of loads to the device */

/* Its update of lora_base.head; NULL: it has none. */
const struct lora_head *adapters_head(const struct adapters *a, uint32_t number);
/* Input of backend_ops.lora(): [count + 1], empty for adapters that are not on the device. */
const struct lora_set *adapters_sets(const struct adapters *a, uint32_t layer, enum lora_site site);
#endif
