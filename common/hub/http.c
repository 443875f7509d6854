#include "common/hub/http.h"
#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { POLL_MS = 1000, REDIRECTS_MAX = 10 };

struct hub_http {
    const struct hub_settings *settings;
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    int stop_fd;
    char curl_error[CURL_ERROR_SIZE];
};

struct transfer {
    hub_sink *sink;
    void *to;
    struct hub_reply *reply;
    struct err *err;
    bool sink_failed;
};

/* ---------------------------------------------------------------- headers */
static bool header_is(const char *line, size_t n, const char *name, char *value, size_t cap)
{
    size_t k = strlen(name);
    if (n <= k || strncasecmp(line, name, k) != 0 || line[k] != ':')
        return false;
    for (k++; k < n && (line[k] == ' ' || line[k] == '\t');)
        k++;
    while (n > k && (unsigned char)line[n - 1] <= ' ')
        n--;
    snprintf(value, cap, "%.*s", (int)(n - k), line + k);
    return true;
}

/* "HTTP/1.1 206 Partial Content": the sink needs the status before the transfer ends. */
static long status_of(const char *line, size_t n)
{
    const char *blank = memchr(line, ' ', n);
    return blank ? strtol(blank, NULL, 10) : 0;
}

static size_t on_header(char *line, size_t one, size_t n, void *arg)
{
    struct hub_reply *r = ((struct transfer *)arg)->reply;
    char v[512];
    (void)one;
    if (n > 5 && !strncasecmp(line, "HTTP/", 5)) /* the next answer of a redirect chain */
        *r = (struct hub_reply){
            .status = status_of(line, n), .size = -1, .length = -1, .range_start = -1};
    else if (header_is(line, n, "x-linked-etag", v, sizeof(v)))
        r->linked = hub_etag(v, r->etag) == 0;
    else if (header_is(line, n, "etag", v, sizeof(v)) && !r->linked)
        hub_etag(v, r->etag);
    else if (header_is(line, n, "x-linked-size", v, sizeof(v)))
        r->size = strtoll(v, NULL, 10);
    else if (header_is(line, n, "content-length", v, sizeof(v)))
        r->length = strtoll(v, NULL, 10);
    else if (header_is(line, n, "content-range", v, sizeof(v)) && !strncasecmp(v, "bytes ", 6))
        r->range_start = strtoll(v + 6, NULL, 10);
    else if (header_is(line, n, "retry-after", v, sizeof(v)))
        r->retry_after_s = strtol(v, NULL, 10);
    else if (header_is(line, n, "x-error-code", v, sizeof(v)))
        snprintf(r->error_code, sizeof(r->error_code), "%.60s", v);
    else if (header_is(line, n, "x-error-message", v, sizeof(v)))
        snprintf(r->error, sizeof(r->error), "%.190s", v);
    return n;
}

static size_t on_body(char *p, size_t one, size_t n, void *arg)
{
    struct transfer *t = arg;
    (void)one;
    if (t->sink && t->sink(t->to, t->reply, p, n, t->err)) {
        t->sink_failed = true;
        return n ? 0 : 1; /* any other value aborts */
    }
    return n;
}

/* ---------------------------------------------------------------- one request */
static bool worth_another_try(long status)
{
    return status == 408 || status == 416 || status == 425 || status == 429 || status >= 500;
}

static bool lasting(CURLcode c)
{
    return c == CURLE_URL_MALFORMAT || c == CURLE_UNSUPPORTED_PROTOCOL ||
           c == CURLE_PEER_FAILED_VERIFICATION || c == CURLE_SSL_CACERT_BADFILE ||
           c == CURLE_OUT_OF_MEMORY || c == CURLE_TOO_MANY_REDIRECTS;
}

static int judge(struct hub_http *h, const char *url, CURLcode code, struct transfer *t)
{
    struct hub_reply *r = t->reply;
    const char *words = h->curl_error[0] ? h->curl_error : curl_easy_strerror(code);
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &r->status);
    if (r->size < 0 && r->status == 200)
        r->size = r->length;
    r->verdict = HUB_OK;
    if (t->sink_failed) {
        r->verdict = HUB_REFUSED;
        return -1;
    }
    if (r->status >= 400) {
        r->verdict = worth_another_try(r->status) ? HUB_AGAIN : HUB_REFUSED;
        return err_set(t->err, ERR_VALIDATION, "%.200s: HTTP status %ld%s%s", url, r->status,
                       r->error[0] ? ": " : "", r->error);
    }
    if (code != CURLE_OK) {
        r->verdict = lasting(code) ? HUB_REFUSED : HUB_AGAIN;
        return err_set(t->err, ERR_SYSTEM, "%.200s: %.200s", url, words);
    }
    return 0;
}

/* Uses the multi interface, so that stop_fd is polled during a transfer. */
static int perform(struct hub_http *h, const char *url, struct transfer *t)
{
    struct curl_waitfd stop = {.fd = h->stop_fd, .events = CURL_WAIT_POLLIN};
    CURLMcode m = curl_multi_add_handle(h->multi, h->easy);
    CURLcode code = CURLE_OK;
    const CURLMsg *msg;
    int running = 1, left;
    bool stopped = false;

    h->curl_error[0] = '\0';
    *t->reply = (struct hub_reply){.size = -1, .length = -1, .range_start = -1};
    while (m == CURLM_OK && running && !stopped) {
        m = curl_multi_perform(h->multi, &running);
        if (m == CURLM_OK && running)
            m = curl_multi_poll(h->multi, &stop, h->stop_fd >= 0, POLL_MS, NULL);
        stopped = stop.revents != 0;
    }
    while ((msg = curl_multi_info_read(h->multi, &left)))
        if (msg->msg == CURLMSG_DONE)
            code = msg->data.result;
    curl_multi_remove_handle(h->multi, h->easy);
    if (stopped) {
        t->reply->verdict = HUB_STOPPED;
        return err_set(t->err, ERR_SYSTEM, "stopped by a signal");
    }
    if (m != CURLM_OK) {
        t->reply->verdict = HUB_REFUSED;
        return err_set(t->err, ERR_SYSTEM, "libcurl: %s", curl_multi_strerror(m));
    }
    return judge(h, url, code, t);
}

static void prepare(struct hub_http *h, const char *url, struct transfer *t)
{
    const struct hub_settings *s = h->settings;
    CURL *c = h->easy;
    bool https = !strncasecmp(s->endpoint, "https:", 6);
    curl_easy_reset(c); /* keeps connections */
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L); /* do not wait for name resolution */
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, h->curl_error);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, https ? "https" : "http,https");
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h->headers);
    /* sizes and ranges are those of the file */
    curl_easy_setopt(c, CURLOPT_ACCEPT_ENCODING, "identity");
    if (s->ca_file[0])
        curl_easy_setopt(c, CURLOPT_CAINFO, s->ca_file);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, s->connect_s);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, s->idle_s);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
}

int hub_get(struct hub_http *h, const char *url, int64_t from, hub_sink *sink, void *to,
            struct hub_reply *r, struct err *e)
{
    struct transfer t = {.sink = sink, .to = to, .reply = r, .err = e};
    char range[40];
    prepare(h, url, &t);
    curl_easy_setopt(h->easy, CURLOPT_FOLLOWLOCATION, 1L);
    snprintf(range, sizeof(range), "%lld-", (long long)from);
    if (from > 0)
        curl_easy_setopt(h->easy, CURLOPT_RANGE, range);
    return perform(h, url, &t);
}

static bool within(const struct hub_settings *s, const char *url)
{
    size_t n = strlen(s->endpoint);
    return url && !strncmp(url, s->endpoint, n) && url[n] == '/';
}

int hub_head(struct hub_http *h, const char *url, struct hub_reply *r, struct err *e)
{
    struct transfer t = {.reply = r, .err = e};
    char *at = strdup(url);
    int rc = at ? 0 : err_nomem(e);
    for (int i = 0; at && i < REDIRECTS_MAX; i++) {
        char *next = NULL;
        prepare(h, at, &t);
        curl_easy_setopt(h->easy, CURLOPT_NOBODY, 1L);
        if ((rc = perform(h, at, &t)))
            break;
        curl_easy_getinfo(h->easy, CURLINFO_REDIRECT_URL, &next);
        if (r->linked || !within(h->settings, next))
            break;
        free(at);
        at = strdup(next);
        rc = at ? 0 : err_nomem(e);
    }
    free(at);
    return rc;
}

int hub_wait(const struct hub_http *h, int ms)
{
    struct pollfd p = {h->stop_fd, POLLIN, 0};
    return poll(&p, h->stop_fd >= 0, ms) > 0 ? -1 : 0;
}

/* ---------------------------------------------------------------- life */
char *hub_url(const struct hub_http *h, const char *path, const char *a, const char *b)
{
    struct buf url = BUF_INIT;
    buf_fmt(&url, "%s/%s", h->settings->endpoint, path);
    for (const char *const *part = (const char *const[]){a, b, NULL}; *part; part++) {
        char *text = curl_easy_escape(h->easy, *part, 0);
        if (!text)
            url.oom = true;
        buf_fmt(&url, "/%s", text ? text : "");
        curl_free(text);
    }
    if (url.oom) {
        buf_free(&url);
        return NULL;
    }
    return buf_take(&url);
}

static int add_header(struct hub_http *h, const char *name, const char *value)
{
    char line[600];
    snprintf(line, sizeof(line), "%s%s", name, value);
    struct curl_slist *l = curl_slist_append(h->headers, line);
    if (l)
        h->headers = l;
    return l ? 0 : -1;
}

struct hub_http *hub_http_open(const struct hub_settings *s, int stop_fd, struct err *e)
{
    struct hub_http *h = calloc(1, sizeof(*h));
    if (h && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {
        *h = (struct hub_http){.settings = s,
                               .stop_fd = stop_fd,
                               .multi = curl_multi_init(),
                               .easy = curl_easy_init()};
        if (h->multi && h->easy && !add_header(h, "User-Agent: ", "model-server/" VERSION) &&
            (!s->token[0] || !add_header(h, "Authorization: Bearer ", s->token)))
            return h;
    }
    hub_http_close(h);
    err_nomem(e);
    return NULL;
}

void hub_http_close(struct hub_http *h)
{
    if (!h)
        return;
    curl_easy_cleanup(h->easy);
    curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->headers);
    curl_global_cleanup();
    free(h);
}
