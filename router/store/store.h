/* store.h - responses that clients may ask for again: one SQLite file in a folder.
 *
 * A thread of its own does all that touches the file, in the order of submission: who has stored a
 * response finds it afterwards. Writes that wait are committed together, with the file and its log
 * on the disk (WAL, synchronous FULL): after a crash each response is there whole or not at all.
 * What cannot be written is not stored, and the log says so; the answer was given all the same.
 *
 * Bounded by bytes and by count: what was unused for longest is deleted first. Each response
 * belongs to an owner, and to others it is not there. */
#ifndef ROUTER_STORE_STORE_H
#define ROUTER_STORE_STORE_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STORE_ID = 72, STORE_OWNER = 65, STORE_CHAIN_MAX = 1024 };

struct store_options {
    const char *folder; /* made if it is missing, for this user alone */
    uint64_t max_bytes; /* of bodies; the file is a little larger */
    uint32_t max_count; /* responses */
    uint32_t ttl_s;     /* one that was not continued for so long is deleted */
};

enum store_kind {
    STORE_PUT,   /* write, or write again */
    STORE_GET,   /* one response */
    STORE_CHAIN, /* it and all that it continues, the oldest first; each counts as used */
    STORE_DELETE
};
enum store_state {
    STORED_ENDED,
    STORED_RUNNING,
    STORED_LOST /* it was running when the process ended */
};
struct stored {
    char id[STORE_ID], previous[STORE_ID]; /* previous "": it begins a conversation */
    enum store_state state;
    char *response,
        *input; /* JSON: the object as it was answered; the list of its own input items */
};

struct store_job {
    enum store_kind kind;
    char owner[STORE_OWNER];
    /* PUT: what is written; its strings become the store's. Others: `id` alone. */
    struct stored what;
    /* Store's thread; the job is the callee's again. PUT: NULL, and the store frees the job. */
    void (*done)(struct store_job *j);
    void *arg;
    struct err err; /* ERR_NOT_FOUND; ERR_SYSTEM */
    struct stored *found;
    uint32_t n_found;
    struct store_job *next; /* private */
};

struct store;
/* ERR_VALIDATION: another process has it open, or the file is not such a store. */
struct store *store_open(const struct store_options *o, struct err *e);
/* Writes what waits, ends the thread; NULL is fine. No more submissions come. */
void store_close(struct store *s);
/* Any thread; never blocks on the disk. Jobs but PUT are done even when they fail. */
void store_submit(struct store *s, struct store_job *j);
/* Free what a job holds, and not the job. */
void store_job_clear(struct store_job *j);
#endif
