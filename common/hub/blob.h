/* blob.h - one file of the hub, into the cache: resumed where an earlier try stopped, and under its
 * name only once size and digest are right. */
#ifndef COMMON_HUB_BLOB_H
#define COMMON_HUB_BLOB_H
#include "common/hub/http.h"
#include "common/hub/store.h"

struct blob {
    struct hub_http *http;
    const struct store *store;
    const char *name, *url; /* of the file, for messages; where it is */
    char etag[HUB_ETAG_MAX];
    int64_t size; /* -1: the hub does not say */
    bool went_on; /* out: there is more of the file than before */
};

/* One try; the caller holds the lock of the blob. r->verdict as of http.h: also HUB_AGAIN when size
 * or digest are wrong (the partial file is gone then); HUB_REFUSED when the disk is full. */
int blob_fetch(struct blob *b, struct hub_reply *r, struct err *e);
#endif
