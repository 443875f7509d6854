/* blob.h - downloads one file of the hub into the cache. Resumes partial downloads, and publishes
 * the file only after its size and digest were verified. */
#ifndef COMMON_HUB_BLOB_H
#define COMMON_HUB_BLOB_H
#include "common/hub/http.h"
#include "common/hub/store.h"

struct blob {
    struct hub_http *http;
    const struct store *store;
    const char *name, *url; /* of the file, for messages; its URL */
    char etag[HUB_ETAG_MAX];
    int64_t size; /* bytes; -1: the hub does not report it */
    bool went_on; /* output: bytes were added to the partial file */
};

/* One attempt; the caller holds the blob's lock. r->verdict as in http.h: also HUB_AGAIN if size or
 * digest are wrong (the partial file is deleted then); HUB_REFUSED if the disk is full. */
int blob_fetch(struct blob *b, struct hub_reply *r, struct err *e);
#endif
