/* store_impl.h - private: the thread of a store (store.c), and its rows in SQLite (rows.c). */
#ifndef ROUTER_STORE_STORE_IMPL_H
#define ROUTER_STORE_STORE_IMPL_H
#include "router/store/store.h"
#include <pthread.h>
#include <sqlite3.h>

enum statement {
    S_PUT,
    S_GET,
    S_USED,
    S_LOSE,
    S_SIZE,
    S_DELETE,
    S_CLOCK,
    S_EXPIRE,
    S_OLDEST,
    S_BEGIN,
    S_COMMIT,
    S_ROLLBACK,
    S_TOTAL,
    N_STATEMENTS
};

/* A response whose end could not be written, and neither could its new state. */
struct lost {
    char id[STORE_ID];
    struct lost *next;
};

struct store {
    struct store_options o;
    sqlite3 *db; /* owned by the thread */
    sqlite3_stmt *st[N_STATEMENTS];
    uint64_t bytes, count;
    struct lost *lost; /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    struct store_job *first, **last; /* under the lock, like the next two */
    size_t waiting;                  /* bytes of queued writes */
    bool stop;
};

/* Rows. Called by the store's thread alone, except before it starts and after it has ended. An
 * error is ERR_SYSTEM with SQLite's words, unless it says otherwise. */

/* Opens or makes the file in the folder; responses that were running are lost. */
int rows_open(struct store *s, struct err *e);
void rows_close(struct store *s);
/* Runs a statement that returns no rows. */
int rows_step(struct store *s, enum statement which, struct err *e);
/* Ends a failed transaction, and counts rows again. */
void rows_undo(struct store *s);
/* Deletes the least recently used responses; within a transaction. */
int rows_make_room(struct store *s, struct err *e);
/* Writes a response and makes room for it; within a transaction. ERR_VALIDATION: it is larger than
 * the store. */
int rows_put(struct store *s, const char *owner, const struct stored *v, struct err *e);
/* ERR_NOT_FOUND: no such response. The caller frees the texts of *out, also after an error. */
int rows_get(struct store *s, const char *id, const char *owner, struct stored *out, struct err *e);
/* ERR_NOT_FOUND: no such response. */
int rows_delete(struct store *s, const char *id, const char *owner, struct err *e);
/* What STORE_CHAIN and STORE_EDIT do, each in one transaction; the error is the job's. */
int rows_chain(struct store *s, struct store_job *j);
int rows_edit(struct store *s, struct store_job *j);
/* A running response is lost from now on. */
int rows_lose(struct store *s, const char *id);
#endif
