#include "common/hub/download.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/gguf/set.h"
#include "common/hub/blob.h"
#include "common/hub/cache.h"
#include "common/hub/index.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { TRIES = 5, GO_ON_MS = 500, RETRY_AFTER_MAX_S = 120 };
enum { LISTING_MAX = 64 << 20, LOCK_POLL_MS = 200, LOCK_NOTICE_MS = 10000 };

struct download_job {
    const struct hub_settings *settings;
    struct hub_http *http;
    const char *id, *revision; /* of the repository */
    const char *packing;       /* quantisation of the GGUF model; NULL: unspecified */
    cJSON *listing;
    struct store store;
};

struct file {
    const char *name;
    char etag[HUB_ETAG_MAX];
    int64_t size; /* -1: unknown */
};

/* ---------------------------------------------------------------- attempts */
/* Waits for the next attempt; false: none is left. `went_on`: this attempt brought bytes and does
 * not count. */
static bool next_try(const struct download_job *j, int *n, const struct hub_reply *r, bool went_on,
                     const struct err *e)
{
    int ms = 1000 * (int)j->settings->retry_s;
    if (r->verdict != HUB_AGAIN)
        return false;
    if (went_on)
        *n = 0;
    else if (++*n >= TRIES)
        return false;
    if (went_on)
        ms = GO_ON_MS;
    else if (r->retry_after_s > ms / 1000)
        ms = 1000 *
             (int)(r->retry_after_s < RETRY_AFTER_MAX_S ? r->retry_after_s : RETRY_AFTER_MAX_S);
    log_msg(LOG_WARN, "%s", e->msg);
    if (!went_on)
        log_msg(LOG_INFO, "Retrying in %d second%s (%d/%d)", ms / 1000, ms == 1000 ? "" : "s", *n,
                TRIES - 1);
    return hub_wait(j->http, ms) == 0;
}

/* Explains a status to the user. */
static int explain(const struct download_job *j, const struct hub_reply *r, struct err *e)
{
    const char *host = j->settings->endpoint;
    bool token = j->settings->token[0];
    if (r->verdict == HUB_STOPPED || r->status < 400)
        return -1;
    if (!strcmp(r->error_code, "GatedRepo"))
        return err_set(e, ERR_VALIDATION,
                       "%s is gated: accept its conditions at %s/%s, then set HF_TOKEN to a token "
                       "of that account",
                       j->id, host, j->id);
    if (!strcmp(r->error_code, "RevisionNotFound"))
        return err_set(e, ERR_VALIDATION, "%s has no revision %s: see %s/%s/tree/main", j->id,
                       j->revision, host, j->id);
    if (r->status == 401 && token && strcmp(r->error_code, "RepoNotFound") != 0)
        return err_set(e, ERR_VALIDATION,
                       "%s does not accept the token: set HF_TOKEN to a valid one", host);
    if (r->status == 403)
        return err_set(e, ERR_VALIDATION,
                       "%s: the %s may not read it at %s: set HF_TOKEN to one "
                       "that may%s%s",
                       j->id, token ? "token" : "public", host, r->error[0] ? " - " : "", r->error);
    if (r->status == 401 || r->status == 404)
        return err_set(e, ERR_VALIDATION,
                       "%s is not at %s, or it is private: check the name; for a private one set "
                       "HF_TOKEN to a token that may read it",
                       j->id, host);
    if (r->status == 429)
        return err_wrap(e, "%s asks for fewer requests: try later%s", host,
                        token ? "" : ", or set HF_TOKEN");
    return -1;
}

static int unreachable(const struct download_job *j, const struct hub_reply *r, struct err *e)
{
    if (r->status || r->verdict == HUB_STOPPED)
        return explain(j, r, e);
    return err_wrap(e, "cannot reach the hub (proxies: https_proxy; another hub: HF_ENDPOINT; "
                       "without a network give a folder)");
}

/* ---------------------------------------------------------------- the listing */
static int gather(void *to, const struct hub_reply *r, const char *p, size_t n, struct err *e)
{
    struct buf *b = to;
    (void)r;
    buf_add(b, p, n);
    if (b->oom)
        return err_nomem(e);
    return b->len <= LISTING_MAX ? 0 : err_set(e, ERR_VALIDATION, "the listing has no end");
}

static int list(struct download_job *j, struct err *e)
{
    char path[HUB_NAME_MAX + 32];
    struct buf text = BUF_INIT;
    struct hub_reply r;
    int rc, n = 0;
    snprintf(path, sizeof(path), "api/models/%s/revision", j->id);
    char *url CLEANUP(cleanup_free) = hub_url(j->http, path, j->revision, NULL);
    if (!url)
        return err_nomem(e);
    do {
        buf_reset(&text);
        rc = hub_get(j->http, url, 0, gather, &text, &r, e);
    } while (rc && next_try(j, &n, &r, false, e));
    if (rc)
        unreachable(j, &r, e);
    else if (!(j->listing = json_parse(text.p ? text.p : "", text.len, e)))
        rc = err_wrap(e, "%s", url);
    else if (!hub_is_commit(json_str(j->listing, "sha", "")))
        rc = err_set(e, ERR_VALIDATION, "%s: no commit in the answer", url);
    buf_free(&text);
    return rc;
}

static bool is_listed(const struct download_job *j, const char *name)
{
    const cJSON *f;
    cJSON_ArrayForEach(f, json_get(j->listing, "siblings"))
    {
        if (!strcmp(json_str(f, "rfilename", ""), name))
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------- one file */
static int look_up(const struct download_job *j, struct file *f, const char *url, struct err *e)
{
    struct hub_reply r;
    int rc, n = 0;
    do
        rc = hub_head(j->http, url, &r, e);
    while (rc && next_try(j, &n, &r, false, e));
    if (rc)
        return unreachable(j, &r, e);
    if (!r.etag[0])
        return err_set(e, ERR_VALIDATION, "%s: no usable ETag in the answer", url);
    memcpy(f->etag, r.etag, sizeof(f->etag));
    f->size = r.size;
    return 0;
}

/* Waits for the blob's lock; or returns when another process has completed the blob. */
static int lock(const struct download_job *j, const struct file *f, int *fd, struct err *e)
{
    int64_t since = clock_ms(), notice = 0;
    while ((*fd = store_lock(&j->store, f->etag, e)) == -2) {
        int64_t now = clock_ms();
        if (now - since >= notice) {
            log_msg(LOG_INFO, "Waiting for another process that downloads %s", f->name);
            notice += LOCK_NOTICE_MS;
        }
        if (hub_wait(j->http, LOCK_POLL_MS))
            return err_set(e, ERR_SYSTEM, "stopped by a signal");
    }
    return *fd < 0 ? -1 : 0;
}

static int has_room(const struct download_job *j, const struct file *f, struct err *e)
{
    char partial[STORE_PATH_MAX];
    struct stat st;
    int64_t room = store_free_bytes(&j->store), have = 0;
    store_blob(&j->store, f->etag, ".incomplete", partial);
    if (stat(partial, &st) == 0)
        have = st.st_size;
    if (room < 0 || f->size - have <= room)
        return 0;
    return err_set(e, ERR_SYSTEM,
                   "%s needs %" PRId64 " MB and %s has %" PRId64
                   " MB free: make room, or name another folder by HF_HUB_CACHE",
                   f->name, (f->size - have) / 1000000 + 1, j->settings->cache, room / 1000000);
}

static int fetch_locked(const struct download_job *j, const struct file *f, const char *url,
                        struct err *e)
{
    struct blob b = {.http = j->http, .store = &j->store, .name = f->name, .url = url};
    struct hub_reply r = {0};
    int64_t since = clock_ms();
    int rc, n = 0;
    if (store_has_blob(&j->store, f->etag))
        return 0;
    if (has_room(j, f, e))
        return -1;
    b.size = f->size;
    memcpy(b.etag, f->etag, sizeof(b.etag));
    log_msg(LOG_INFO, "Download file: %s", f->name);
    do
        rc = blob_fetch(&b, &r, e);
    while (rc && next_try(j, &n, &r, b.went_on, e));
    if (rc)
        return explain(j, &r, e);
    LOG(LOG_INFO, "Downloaded", LOGS("file", f->name),
        LOGD("seconds", (double)(clock_ms() - since) / 1e3));
    return 0;
}

static int fetch(const struct download_job *j, const char *name, struct err *e)
{
    struct file f = {.name = name};
    char path[HUB_NAME_MAX + HUB_COMMIT_MAX + 16];
    int fd CLEANUP(cleanup_fd) = -1;
    char folder[HUB_NAME_MAX] = "";
    const char *slash = strchr(name, '/'); /* files of a module have one slash */
    snprintf(path, sizeof(path), "%s/resolve", j->id);
    if (slash) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - name), name);
        snprintf(path, sizeof(path), "%s/resolve/%s", j->id, j->store.commit);
    }
    char *url CLEANUP(cleanup_free) =
        hub_url(j->http, path, slash ? folder : j->store.commit, slash ? slash + 1 : name);
    if (!url)
        return err_nomem(e);
    if (look_up(j, &f, url, e) || lock(j, &f, &fd, e) || fetch_locked(j, &f, url, e))
        return err_wrap(e, "%s", name);
    return store_link(&j->store, name, f.etag, e);
}

/* ---------------------------------------------------------------- the files of a snapshot */
static int fetch_companions(const struct download_job *j, struct err *e)
{
    const cJSON *f;
    cJSON_ArrayForEach(f, json_get(j->listing, "siblings"))
    {
        const char *name = json_str(f, "rfilename", "");
        const bool wanted =
            hub_is_companion(name) || hub_is_module_file(name) || hub_is_template(name);
        if (wanted && fetch(j, name, e))
            return -1;
    }
    return 0;
}

static int fetch_shards(const struct download_job *j, const char *file, struct err *e)
{
    char dir[STORE_PATH_MAX];
    struct hub_index index;
    int64_t since = clock_ms();
    int rc = 0;
    store_snapshot(&j->store, dir);
    if (fetch(j, file, e) || hub_index_open(&index, dir, file, e))
        return -1;
    for (size_t i = 0; i < index.n && rc == 0; i++) {
        rc = fetch(j, index.names[i], e);
        if (rc == 0)
            LOG(LOG_INFO, "Download", LOGI("files", i + 1), LOGI("of", index.n),
                LOGD("eta_seconds", (double)(clock_ms() - since) / 1e3 / (double)(i + 1) *
                                        (double)(index.n - i - 1)));
    }
    hub_index_close(&index);
    return rc;
}

static int no_weights(const struct download_job *j, struct err *e)
{
    const cJSON *f;
    const char *instead = NULL;
    cJSON_ArrayForEach(f, json_get(j->listing, "siblings"))
    {
        const char *name = json_str(f, "rfilename", ""), *end = strrchr(name, '.');
        if (end && (!strcmp(end, ".bin") || !strcmp(end, ".pt") || !strcmp(end, ".pth") ||
                    !strcmp(end, ".safetensors")))
            instead = name;
    }
    return err_set(e, ERR_VALIDATION,
                   "%s (revision %s) has no " HUB_WEIGHTS ", no " HUB_INDEX
                   ", no .gguf, no " HUB_TORCH_WEIGHTS "%s%s%s",
                   j->id, j->revision, instead ? "; " : "", instead ? instead : "",
                   instead ? " is not read here: use a repository with " HUB_WEIGHTS : "");
}

/* The (first) file of the GGUF model with this quantisation; any of *n if several match. */
static const char *find_gguf(const struct download_job *j, const char *packing, int *n)
{
    const cJSON *f;
    const char *found = NULL;
    *n = 0;
    cJSON_ArrayForEach(f, json_get(j->listing, "siblings"))
    {
        const char *name = json_str(f, "rfilename", "");
        if (!hub_is_file_name(name) || !gguf_is_first(name) ||
            (packing && !gguf_name_says(name, packing)))
            continue;
        found = name;
        ++*n;
    }
    return found;
}

/* The GGUF model to download. NULL: none, or ambiguous. */
static const char *gguf_meant(const struct download_job *j)
{
    int n;
    const char *name = find_gguf(j, j->packing, &n);
    if (n > 1 && !j->packing)
        name = find_gguf(j, HUB_USUAL_PACKING, &n);
    return n == 1 ? name : NULL;
}

static int no_gguf(const struct download_job *j, struct err *e)
{
    struct buf names = BUF_INIT;
    const cJSON *f;
    cJSON_ArrayForEach(f, json_get(j->listing, "siblings"))
    {
        const char *name = json_str(f, "rfilename", "");
        if (hub_is_file_name(name) && gguf_is_first(name))
            buf_fmt(&names, "%s%s", names.len ? ", " : "", name);
    }
    err_set(e, ERR_VALIDATION, "%s (revision %s): %s%s GGUF file is meant; there are: %s", j->id,
            j->revision, j->packing ? "no single one of " : "it is not said which",
            j->packing ? j->packing : "", names.p ? names.p : "none");
    buf_free(&names);
    return -1;
}

/* The projector of images whose name contains `packing`, or the first one if that is NULL; NULL:
 * there is none. */
static const char *find_projector(const struct download_job *j, const char *packing)
{
    const cJSON *f;
    cJSON_ArrayForEach(f, json_get(j->listing, "siblings"))
    {
        const char *name = json_str(f, "rfilename", "");
        if (hub_is_file_name(name) && gguf_is_projector(name) &&
            (!packing || gguf_name_says(name, packing)))
            return name;
    }
    return NULL;
}

/* As llama-server does, one projector comes with a model; in 16 bits if there is a choice. */
static int fetch_projector(const struct download_job *j, struct err *e)
{
    static const char *const order[] = {"F16", "BF16", NULL};
    const char *name = NULL;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]) && !name; i++)
        name = find_projector(j, order[i]);
    return name ? fetch(j, name, e) : 0;
}

static int fetch_gguf(const struct download_job *j, struct err *e)
{
    char part[HUB_NAME_MAX];
    const char *first = gguf_meant(j);
    for (uint32_t i = 1; gguf_part_name(first, i, part, sizeof(part)); i++)
        if (fetch(j, part, e))
            return -1;
    return fetch_projector(j, e);
}

enum layout { NOTHING, ADAPTER, SINGLE, SHARDS, GGUF, TORCH_ADAPTER, TORCH_SINGLE, TORCH_SHARDS };

static enum layout layout(const struct download_job *j)
{
    int n;
    if (j->packing)
        return GGUF;
    if (is_listed(j, HUB_ADAPTER_CONFIG) && is_listed(j, HUB_ADAPTER_WEIGHTS))
        return ADAPTER;
    if (is_listed(j, HUB_ADAPTER_CONFIG) && is_listed(j, HUB_TORCH_ADAPTER))
        return TORCH_ADAPTER;
    return is_listed(j, HUB_WEIGHTS)         ? SINGLE
           : is_listed(j, HUB_INDEX)         ? SHARDS
           : find_gguf(j, NULL, &n)          ? GGUF
           : is_listed(j, HUB_TORCH_WEIGHTS) ? TORCH_SINGLE
           : is_listed(j, HUB_TORCH_INDEX)   ? TORCH_SHARDS
                                             : NOTHING;
}

static int fetch_weights(const struct download_job *j, struct err *e)
{
    switch (layout(j)) {
    case ADAPTER:
        return fetch(j, HUB_ADAPTER_WEIGHTS, e);
    case SINGLE:
        return fetch(j, HUB_WEIGHTS, e);
    case SHARDS:
        return fetch_shards(j, HUB_INDEX, e);
    case TORCH_ADAPTER:
        return fetch(j, HUB_TORCH_ADAPTER, e);
    case TORCH_SINGLE:
        return fetch(j, HUB_TORCH_WEIGHTS, e);
    case TORCH_SHARDS:
        return fetch_shards(j, HUB_TORCH_INDEX, e);
    case GGUF:
        return fetch_gguf(j, e);
    case NOTHING:
        break;
    }
    return no_weights(j, e);
}

static int fetch_all(struct download_job *j, struct err *e)
{
    if (list(j, e))
        return -1;
    if (layout(j) == NOTHING) /* before anything is downloaded in vain */
        return no_weights(j, e);
    const bool gguf = layout(j) == GGUF;
    if (gguf && !gguf_meant(j))
        return no_gguf(j, e);
    if (store_open(&j->store, j->settings->cache, j->id, json_str(j->listing, "sha", ""), e) ||
        (!gguf && fetch_companions(j, e)) || fetch_weights(j, e))
        return -1;
    return store_ref(&j->store, j->revision, e);
}

int hub_download(const struct hub_settings *s, const char *id, const char *revision, int stop_fd,
                 struct err *e)
{
    struct download_job j = {
        .settings = s, .id = id, .revision = revision && *revision ? revision : "main"};
    struct err ignored = ERR_INIT;
    char *cached CLEANUP(cleanup_free) = hub_resolve(id, revision, &ignored);
    enum hub_parts parts = cached ? hub_parts(cached) : HUB_NO_WEIGHTS;
    if (parts == HUB_WHOLE) {
        log_msg(LOG_INFO, "Files are already present on the host. Skipping download.");
        return 0;
    }
    char repository[HUB_NAME_MAX];
    if (hub_is_packed(id, repository, &j.packing))
        j.id = repository;
    if (!*id)
        return err_set(e, ERR_VALIDATION, "the name of the model is empty");
    if (!hub_is_repository(j.id))
        return err_set(e, ERR_VALIDATION,
                       "%s: no such folder or GGUF file, and no name of a repository (org/name)",
                       id);
    if (!hub_is_revision(j.revision))
        return err_set(e, ERR_VALIDATION, "%s: `%s` is not a branch, tag or commit", id,
                       j.revision);
    if (s->offline && parts == HUB_ONLY_WEIGHTS)
        return 0;
    if (s->offline)
        return err_set(e, ERR_VALIDATION,
                       "%s (revision %s) is not whole in the cache %s, and HF_HUB_OFFLINE forbids "
                       "to fetch it",
                       id, j.revision, s->cache);
    if (!(j.http = hub_http_open(s, stop_fd, e)))
        return -1;
    int rc = fetch_all(&j, e);
    if (rc && parts == HUB_ONLY_WEIGHTS && hub_wait(j.http, 0) == 0) {
        log_msg(LOG_WARN, "%s; using the cached files", e->msg);
        rc = 0;
    }
    if (rc && !cached)
        err_wrap(e, "%s is not a folder or GGUF file here, and was not fetched from the hub", id);
    hub_http_close(j.http);
    cJSON_Delete(j.listing);
    return rc;
}
