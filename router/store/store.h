/* store.h - persistent store of responses and conversations, in one SQLite file in a folder. A
 * conversation is a response without a predecessor: its object, and its items as the input.
 *
 * One thread does all file access, in the order of submission, so that a stored response can be
 * read afterwards. Pending writes are committed together and synced (WAL, synchronous FULL): after
 * a crash each response is either complete or absent. A failed write is logged and the response is
 * not stored. If an earlier state of it was stored, that becomes STORED_LOST.
 *
 * Bounded by bytes and by count: the least recently used responses are deleted first. Each response
 * belongs to an owner and is invisible to others. */
#ifndef ROUTER_STORE_STORE_H
#define ROUTER_STORE_STORE_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { STORE_ID = 72, STORE_OWNER = 65, STORE_CHAIN_MAX = 1024 };

struct store_options {
    const char *folder; /* created if missing, with access for this user only */
    uint64_t max_bytes; /* of bodies; the file is slightly larger */
    uint32_t max_count; /* responses */
    uint32_t ttl_s;     /* seconds after its last use until a response is deleted */
};

enum store_kind {
    STORE_PUT,   /* insert or replace */
    STORE_GET,   /* one response */
    STORE_CHAIN, /* it and its predecessors, oldest first; each counts as used */
    STORE_DELETE,
    STORE_EDIT /* change one in place: no other job sees it between its reading and writing */
};
enum store_state {
    STORED_ENDED,
    STORED_RUNNING,
    STORED_LOST /* it was running when the process ended, or its end could not be written */
};
struct stored {
    char id[STORE_ID], previous[STORE_ID]; /* previous "": start of a conversation */
    enum store_state state;
    char *response,
        /* JSON: the response object as sent; the list of its own input items */
        *input;
};

struct store_job {
    enum store_kind kind;
    char owner[STORE_OWNER];
    /* PUT: the content; the store takes ownership of its strings. EDIT: `id`, and `input` for
     * edit(). Others: `id` only. */
    struct stored what;
    /* EDIT: store thread. Changes v's strings, which malloc() made; `with` is what.input. An error
     * of any kind leaves what is stored as it is. */
    int (*edit)(struct stored *v, const char *with, struct err *e);
    /* Called on the store thread, which returns ownership of the job. PUT, EDIT: may be NULL, and
     * the store frees the job; otherwise it is called after the commit. */
    void (*done)(struct store_job *j);
    void *arg;
    struct err err; /* ERR_NOT_FOUND; ERR_SYSTEM; PUT: ERR_VALIDATION: larger than the store */
    struct stored *found;
    uint32_t n_found;
    struct store_job *next; /* private */
};

struct store;
/* Opens or creates the store, and locks it for other processes until store_close(). ERR_SYSTEM: one
 * has had it open for ten seconds, or the file is no store. ERR_VALIDATION: another version. */
struct store *store_open(const struct store_options *o, struct err *e);
/* Completes pending writes and ends the thread; NULL is allowed. No submission may follow. */
void store_close(struct store *s);
/* Any thread; never blocks on the disk. done() is called even on failure. */
void store_submit(struct store *s, struct store_job *j);
/* ERR_NOT_FOUND, in OpenAI's words: the prefix of the id says what it names. */
int store_missing(const char *id, struct err *e);
#define STORE_CONVERSATION "conv_" /* the prefix of a conversation's id */
static inline bool store_is_conversation(const char *id)
{
    return !strncmp(id, STORE_CONVERSATION, strlen(STORE_CONVERSATION));
}
/* Frees what a job owns, but not the job. */
void store_job_clear(struct store_job *j);
#endif
