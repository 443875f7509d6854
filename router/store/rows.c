/* The rows of the store, by statements of SQLite; on the thread of store.c. */
#include "router/store/store_impl.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* BUSY_MS: a router that is being replaced may still finish its last requests. */
enum { CHAIN_BYTES = 64 << 20, BUSY_MS = 10000, SCHEMA = 1 };

static const char *const statements[N_STATEMENTS] = {
    [S_PUT] = "INSERT OR REPLACE INTO responses (id, owner, previous, state, used, bytes, response,"
              " input) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [S_GET] = "SELECT previous, state, response, input FROM responses"
              " WHERE id = ?1 AND owner = ?2 AND used > ?3",
    [S_USED] = "UPDATE responses SET used = ?2 WHERE id = ?1",
    [S_LOSE] = "UPDATE responses SET state = 2 WHERE id = ?1 AND state = 1",
    [S_SIZE] = "SELECT bytes FROM responses WHERE id = ?1",
    [S_DELETE] = "DELETE FROM responses WHERE id = ?1 AND owner = ?2 AND used > ?3"
                 " RETURNING bytes",
    [S_CLOCK] = "UPDATE responses SET used = ?1 WHERE used > ?1",
    [S_EXPIRE] = "DELETE FROM responses WHERE used <= ?1",
    [S_OLDEST] = "DELETE FROM responses WHERE rowid ="
                 " (SELECT rowid FROM responses ORDER BY used, rowid LIMIT 1) RETURNING bytes",
    [S_BEGIN] = "BEGIN IMMEDIATE",
    [S_COMMIT] = "COMMIT",
    [S_ROLLBACK] = "ROLLBACK",
    [S_TOTAL] = "SELECT count(*), coalesce(sum(bytes), 0) FROM responses"};

static int failed(struct store *s, struct err *e)
{
    return err_set(e, ERR_SYSTEM, "the response store: %s", sqlite3_errmsg(s->db));
}

static void bind_text(sqlite3_stmt *st, int at, const char *text)
{
    sqlite3_bind_text(st, at, text, -1, SQLITE_STATIC);
}

int rows_step(struct store *s, enum statement which, struct err *e)
{
    const int rc = sqlite3_step(s->st[which]);
    sqlite3_reset(s->st[which]);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : failed(s, e);
}

static int64_t now_s(void) { return (int64_t)time(NULL); }
static int64_t oldest_s(const struct store *s) { return now_s() - s->o.ttl_s; }

static int count(struct store *s, struct err *e)
{
    sqlite3_stmt *st = s->st[S_TOTAL];
    const int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        s->count = (uint64_t)sqlite3_column_int64(st, 0);
        s->bytes = (uint64_t)sqlite3_column_int64(st, 1);
    }
    sqlite3_reset(st);
    return rc == SQLITE_ROW ? 0 : failed(s, e);
}

void rows_undo(struct store *s)
{
    struct err ignored;
    (void)rows_step(s, S_ROLLBACK, &ignored);
    (void)count(s, &ignored);
}

/* Runs a statement that deletes one row at most, and returns its bytes. *any: there was one. A
 * count() instead would read the whole table for each. */
static int remove_one(struct store *s, enum statement which, bool *any, struct err *e)
{
    sqlite3_stmt *st = s->st[which];
    int rc = sqlite3_step(st);
    const uint64_t bytes = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    *any = rc == SQLITE_ROW;
    while (rc == SQLITE_ROW) /* the deletion ends, and is committed, behind the last row */
        rc = sqlite3_step(st);
    sqlite3_reset(st);
    if (rc != SQLITE_DONE)
        return failed(s, e);
    s->bytes -= bytes;
    s->count -= *any;
    return 0;
}

int store_missing(const char *id, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "%s with id '%.70s' not found.",
                   store_is_conversation(id) ? "Conversation" : "Response", id);
}

/* If the clock was set back, what was used before counts as used now. Otherwise it would stay
 * longer than its time, and each new response would be the first to be deleted. */
static int follow_clock(struct store *s, struct err *e)
{
    sqlite3_bind_int64(s->st[S_CLOCK], 1, now_s());
    return rows_step(s, S_CLOCK, e);
}

int rows_make_room(struct store *s, struct err *e)
{
    sqlite3_bind_int64(s->st[S_EXPIRE], 1, oldest_s(s));
    if (follow_clock(s, e) != 0 || rows_step(s, S_EXPIRE, e) != 0)
        return -1;
    if (sqlite3_changes(s->db) > 0 && count(s, e) != 0)
        return -1;
    bool any = true;
    while (any && s->count && (s->count > s->o.max_count || s->bytes > s->o.max_bytes))
        if (remove_one(s, S_OLDEST, &any, e) != 0)
            return -1;
    return 0;
}

int rows_put(struct store *s, const char *owner, const struct stored *v, struct err *e)
{
    sqlite3_stmt *st = s->st[S_PUT], *size = s->st[S_SIZE];
    const uint64_t bytes = strlen(v->response) + strlen(v->input);
    if (bytes > s->o.max_bytes)
        return err_set(e, ERR_VALIDATION, "it is larger than the whole store");
    bind_text(size, 1, v->id);
    if (sqlite3_step(size) == SQLITE_ROW) {
        s->bytes -= (uint64_t)sqlite3_column_int64(size, 0);
        s->count--;
    }
    sqlite3_reset(size);
    bind_text(st, 1, v->id);
    bind_text(st, 2, owner);
    bind_text(st, 3, v->previous);
    sqlite3_bind_int(st, 4, (int)v->state);
    sqlite3_bind_int64(st, 5, now_s());
    sqlite3_bind_int64(st, 6, (int64_t)bytes);
    bind_text(st, 7, v->response);
    bind_text(st, 8, v->input);
    if (rows_step(s, S_PUT, e) != 0)
        return -1;
    s->bytes += bytes;
    s->count++;
    return rows_make_room(s, e);
}

static char *column(sqlite3_stmt *st, int at)
{
    const char *text = (const char *)sqlite3_column_text(st, at);
    return text ? strdup(text) : NULL;
}

static bool is_lost(const struct store *s, const char *id)
{
    const struct lost *l = s->lost;
    while (l && strcmp(l->id, id) != 0)
        l = l->next;
    return l != NULL;
}

int rows_get(struct store *s, const char *id, const char *owner, struct stored *out, struct err *e)
{
    sqlite3_stmt *st = s->st[S_GET];
    *out = (struct stored){0};
    bind_text(st, 1, id);
    bind_text(st, 2, owner);
    sqlite3_bind_int64(st, 3, oldest_s(s));
    const int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        snprintf(out->id, sizeof(out->id), "%s", id);
        snprintf(out->previous, sizeof(out->previous), "%s",
                 (const char *)sqlite3_column_text(st, 0));
        out->state = (enum store_state)sqlite3_column_int(st, 1);
        if (out->state == STORED_RUNNING && is_lost(s, id))
            out->state = STORED_LOST;
        out->response = column(st, 2);
        out->input = column(st, 3);
    }
    sqlite3_reset(st);
    if (rc == SQLITE_DONE)
        return store_missing(id, e);
    if (rc != SQLITE_ROW)
        return failed(s, e);
    return out->response && out->input ? 0 : err_nomem(e);
}

static int chain(struct store *s, struct store_job *j)
{
    char id[STORE_ID];
    size_t bytes = 0;
    memcpy(id, j->what.id, sizeof(id));
    j->found = calloc(STORE_CHAIN_MAX, sizeof(*j->found));
    if (!j->found)
        return err_nomem(&j->err);
    while (*id) {
        struct err ignored;
        struct stored *v = &j->found[j->n_found];
        if (j->n_found == STORE_CHAIN_MAX || bytes > CHAIN_BYTES)
            return err_set(&j->err, ERR_VALIDATION, "the stored conversation is too long");
        j->n_found++;
        if (rows_get(s, id, j->owner, v, &j->err) != 0)
            return -1;
        assert(v->response && v->input);
        bytes += strlen(v->response) + strlen(v->input);
        bind_text(s->st[S_USED], 1, id);
        sqlite3_bind_int64(s->st[S_USED], 2, now_s());
        (void)rows_step(s, S_USED, &ignored); /* a full disk must not prevent reading */
        memcpy(id, v->previous, sizeof(id));
    }
    for (uint32_t i = 0; i < j->n_found / 2; i++) {
        struct stored swap = j->found[i];
        j->found[i] = j->found[j->n_found - 1 - i];
        j->found[j->n_found - 1 - i] = swap;
    }
    return 0;
}

/* One commit, and so one sync of the disk, for a whole conversation. */
int rows_chain(struct store *s, struct store_job *j)
{
    struct err ignored;
    const bool begun = rows_step(s, S_BEGIN, &ignored) == 0;
    const int rc = chain(s, j);
    if (begun && rows_step(s, S_COMMIT, &ignored) != 0)
        (void)rows_step(s, S_ROLLBACK, &ignored);
    return rc;
}

int rows_delete(struct store *s, const char *id, const char *owner, struct err *e)
{
    bind_text(s->st[S_DELETE], 1, id);
    bind_text(s->st[S_DELETE], 2, owner);
    sqlite3_bind_int64(s->st[S_DELETE], 3, oldest_s(s));
    bool any;
    if (remove_one(s, S_DELETE, &any, e) != 0)
        return -1;
    return any ? 0 : store_missing(id, e);
}

/* In one transaction. j->found is what is stored now. */
int rows_edit(struct store *s, struct store_job *j)
{
    j->found = calloc(1, sizeof(*j->found));
    if (!j->found)
        return err_nomem(&j->err);
    j->n_found = 1;
    if (rows_step(s, S_BEGIN, &j->err) != 0)
        return -1;
    int rc = rows_get(s, j->what.id, j->owner, j->found, &j->err);
    rc = rc ? rc : j->edit(j->found, j->what.input, &j->err);
    rc = rc ? rc : rows_put(s, j->owner, j->found, &j->err);
    rc = rc ? rc : rows_step(s, S_COMMIT, &j->err);
    if (rc != 0) {
        rows_undo(s);
    }
    return rc;
}

int rows_lose(struct store *s, const char *id)
{
    struct err ignored;
    bind_text(s->st[S_LOSE], 1, id);
    return rows_step(s, S_LOSE, &ignored);
}

/* ------------------------------------------------------------------ the file */

static int run_sql(struct store *s, const char *sql, struct err *e)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(s, e);
}

static int64_t user_version(struct store *s)
{
    sqlite3_stmt *st = NULL;
    int64_t v = -1;
    if (sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        v = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return v;
}

static int make_tables(struct store *s, struct err *e)
{
    char sql[64];
    const int64_t v = user_version(s);
    if (v != 0 && v != SCHEMA)
        return v < 0 ? failed(s, e)
                     : err_set(e, ERR_VALIDATION, "the response store is of another version");
    snprintf(sql, sizeof(sql), "PRAGMA user_version = %d", SCHEMA);
    return run_sql(s,
                   "CREATE TABLE IF NOT EXISTS responses (id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
                   " previous TEXT NOT NULL, state INTEGER NOT NULL, used INTEGER NOT NULL,"
                   " bytes INTEGER NOT NULL, response TEXT NOT NULL, input TEXT NOT NULL);"
                   "CREATE INDEX IF NOT EXISTS by_use ON responses (used);",
                   e) ||
                   run_sql(s, sql, e)
               ? -1
               : 0;
}

int rows_open(struct store *s, struct err *e)
{
    char path[4096];
    if (mkdir(s->o.folder, 0700) != 0 && errno != EEXIST)
        return err_sys(e, "--response-store %s", s->o.folder);
    snprintf(path, sizeof(path), "%s/responses.sqlite", s->o.folder);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, "%s", path);
    close(fd);
    if (sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK)
        return failed(s, e);
    sqlite3_busy_timeout(s->db, BUSY_MS);
    if (run_sql(s, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;", e) != 0 ||
        run_sql(s, "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 16777216;", e) != 0 ||
        make_tables(s, e) != 0 || run_sql(s, "UPDATE responses SET state = 2 WHERE state = 1", e))
        return err_wrap(e, "%s", path);
    for (int i = 0; i < N_STATEMENTS; i++)
        if (sqlite3_prepare_v3(s->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &s->st[i],
                               NULL) != SQLITE_OK)
            return failed(s, e);
    return count(s, e);
}

void rows_close(struct store *s)
{
    for (int i = 0; i < N_STATEMENTS; i++)
        sqlite3_finalize(s->st[i]);
    sqlite3_close(s->db);
    for (struct lost *l = s->lost, *next; l; l = next) {
        next = l->next;
        free(l);
    }
}
