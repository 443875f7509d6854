#include "common/hub/blob.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/hub/digest.h"
#include "common/log/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOTICE_MS = 5000, CHUNK = 1 << 20 };

struct partial_blob {
    struct blob *blob;
    struct digest digest; /* of [0, have); used while the size is known */
    int fd;
    int64_t asked, have; /* bytes: start of the requested Range; bytes in the file */
    int64_t received;
    int64_t since, notice; /* ms */
    bool began;
};

/* Digest of the first `n` bytes of the file. */
static int digest_file(struct partial_blob *p, int64_t n, int64_t size, struct err *e)
{
    digest_drop(&p->digest);
    if (digest_begin(&p->digest, p->blob->etag, size, e))
        return -1;
    char *bytes CLEANUP(cleanup_free) = malloc(CHUNK);
    if (!bytes)
        return err_nomem(e);
    for (int64_t at = 0; at < n;) {
        int64_t left = n - at;
        ssize_t k = pread(p->fd, bytes, (size_t)(left < CHUNK ? left : CHUNK), at);
        if (k <= 0)
            return err_sys(e, "cannot read the partial file of %s", p->blob->name);
        digest_add(&p->digest, bytes, (size_t)k);
        at += k;
        if (hub_wait(p->blob->http, 0))
            return err_set(e, ERR_SYSTEM, "stopped by a signal");
    }
    return 0;
}

static int start_over(struct partial_blob *p, struct err *e)
{
    p->have = 0;
    if (ftruncate(p->fd, 0))
        return err_sys(e, "cannot truncate the partial file of %s", p->blob->name);
    return digest_file(p, 0, p->blob->size, e);
}

static int write_all(struct partial_blob *p, const char *bytes, size_t n, struct err *e)
{
    while (n) {
        ssize_t k = pwrite(p->fd, bytes, n, p->have);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == ENOSPC || errno == EDQUOT))
            return err_sys(
                e,
                "not enough disk space for %s in %s: free some, or name another folder by "
                "HF_HUB_CACHE (what came is kept)",
                p->blob->name, p->blob->store->root);
        if (k < 0)
            return err_sys(e, "cannot write %s below %s", p->blob->name, p->blob->store->root);
        digest_add(&p->digest, bytes, (size_t)k);
        bytes += k;
        n -= (size_t)k;
        p->have += k;
        p->received += k;
    }
    return 0;
}

static void notice(struct partial_blob *p)
{
    const struct blob *b = p->blob;
    int64_t now = clock_ms();
    if (now - p->notice < NOTICE_MS)
        return;
    p->notice = now;
    LOG(LOG_INFO, "Downloading", LOGS("file", b->name), LOGI("mb", p->have / 1000000),
        LOGI("of_mb", b->size < 0 ? -1 : b->size / 1000000),
        LOGI("mb_per_s", p->received / (now - p->since + 1) / 1000));
}

/* A 200 answer to a Range request is the whole file. */
static int take(void *to, const struct hub_reply *r, const char *bytes, size_t n, struct err *e)
{
    struct partial_blob *p = to;
    if (!p->began) {
        p->began = true;
        if (r->status == 206 && r->range_start != p->asked)
            return err_set(e, ERR_VALIDATION, "%s: the server sent another range than asked for",
                           p->blob->name);
        if (r->status != 206 && p->asked && start_over(p, e))
            return -1;
    }
    if (p->blob->size >= 0 && p->have + (int64_t)n > p->blob->size)
        return err_set(e, ERR_VALIDATION, "%s: more than the %" PRId64 " bytes the hub promised",
                       p->blob->name, p->blob->size);
    if (write_all(p, bytes, n, e))
        return -1;
    notice(p);
    return 0;
}

/* The file is complete and verified. */
static int finish(struct partial_blob *p, const char *partial, struct hub_reply *r, struct err *e)
{
    const struct blob *b = p->blob;
    char path[STORE_PATH_MAX];
    if (b->size >= 0 && p->have < b->size) { /* kept: the next attempt resumes */
        r->verdict = HUB_AGAIN;
        return err_set(e, ERR_SYSTEM,
                       "%s: the connection ended after %" PRId64 " of %" PRId64 " bytes", b->name,
                       p->have, b->size);
    }
    if (b->size < 0 && digest_file(p, p->have, p->have, e))
        return -1;
    if (!digest_matches(&p->digest, b->etag)) {
        unlink(partial);
        p->have = 0;
        r->verdict = HUB_AGAIN;
        return err_set(e, ERR_VALIDATION, "%s: the bytes do not match their digest %s", b->name,
                       b->etag);
    }
    store_blob(b->store, b->etag, "", path);
    if (fdatasync(p->fd) || rename(partial, path))
        return err_sys(e, "cannot keep %.300s", path);
    return 0;
}

static int open_partial(struct partial_blob *p, const char *path, struct err *e)
{
    struct stat st;
    p->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (p->fd < 0 || fstat(p->fd, &st))
        return err_sys(e, "cannot open %.300s", path);
    p->have = st.st_size;
    if (p->blob->size < 0 || p->have > p->blob->size)
        return start_over(p, e); /* cannot be verified: start over */
    if (p->have)
        LOG(LOG_INFO, "Resuming a partial download", LOGS("file", p->blob->name),
            LOGI("mb", p->have / 1000000));
    return digest_file(p, p->have, p->blob->size, e);
}

int blob_fetch(struct blob *b, struct hub_reply *r, struct err *e)
{
    char partial[STORE_PATH_MAX];
    struct partial_blob p = {.blob = b, .fd = -1, .since = clock_ms(), .notice = clock_ms()};

    *r = (struct hub_reply){.verdict = HUB_REFUSED};
    store_blob(b->store, b->etag, ".incomplete", partial);
    int rc = open_partial(&p, partial, e);
    p.asked = p.have;
    if (rc == 0 && (b->size < 0 || p.have < b->size)) {
        rc = hub_get(b->http, b->url, p.asked, take, &p, r, e);
        if (r->status == 416) /* the partial data are of another file */
            unlink(partial);
    }
    if (rc == 0) {
        r->verdict = HUB_REFUSED;
        rc = finish(&p, partial, r, e);
    }
    b->went_on = b->size >= 0 && p.have > p.asked;
    digest_drop(&p.digest);
    if (p.fd >= 0)
        close(p.fd);
    return rc;
}
