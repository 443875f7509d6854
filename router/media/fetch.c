#include "router/media/fetch.h"
#include "common/clock.h"
#include "router/media/address.h"
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { URL_MAX = 8192, HEADERS_MAX = 64 << 10, REDIRECTS_MAX = 3 };

/* ---------------------------------------------------------------- the URL */
static int refuse_url(struct err *e, const char *why)
{
    return err_set(e, ERR_VALIDATION, "the image URL is not allowed: %s", why);
}

/* Refuses bytes that two parsers could read differently. */
static int check_bytes(const char *url, struct err *e)
{
    const size_t n = strnlen(url, URL_MAX + 1);
    if (n > URL_MAX)
        return refuse_url(e, "it is too long");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)url[i] <= ' ' || url[i] == 0x7f || url[i] == '\\')
            return refuse_url(e, "it has a blank, a control character or a backslash");
    return 0;
}

static bool domain_matches(const char *domain, const char *host, size_t n)
{
    if (domain[0] != '.')
        return strlen(domain) == n && !strncasecmp(domain, host, n);
    const size_t k = strlen(domain);
    return (n >= k && !strncasecmp(domain, host + n - k, k)) ||
           (n == k - 1 && !strncasecmp(domain + 1, host, n));
}

static int check_host(const struct media_fetch_options *o, const char *host, struct err *e)
{
    size_t n = strlen(host);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)host[i] >= 0x80 || host[i] == '%')
            return refuse_url(e, "its host is not in ASCII");
    if (n && host[n - 1] == '.') /* a trailing dot, which names the same host */
        n--;
    if (!n)
        return refuse_url(e, "it has no host");
    for (const char *const *d = o->domains; d && *d; d++)
        if (domain_matches(*d, host, n))
            return 0;
    return o->domains ? refuse_url(e, "its host is not in the list of allowed domains") : 0;
}

/* A part of the URL as parsed by libcurl; NULL: absent. */
static char *part(CURLU *u, CURLUPart what, unsigned flags)
{
    char *text = NULL;
    return curl_url_get(u, what, &text, flags) == CURLUE_OK ? text : NULL;
}

static int check_parts(const struct media_fetch_options *o, CURLU *u, struct err *e)
{
    char *scheme = part(u, CURLUPART_SCHEME, 0), *host = part(u, CURLUPART_HOST, 0);
    char *port = part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT);
    char *user = part(u, CURLUPART_USER, 0), *password = part(u, CURLUPART_PASSWORD, 0);
    int rc = 0;
    if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
        rc = refuse_url(e, "it is neither http nor https");
    else if (user || password)
        rc = refuse_url(e, "it has a user or a password");
    else if (!o->allow_loopback && (!port || (strcmp(port, "80") != 0 && strcmp(port, "443") != 0)))
        rc = refuse_url(e, "its port is neither 80 nor 443");
    else
        rc = check_host(o, host ? host : "", e);
    for (char **p = (char *[]){scheme, host, port, user, password}, **end = p + 5; p < end; p++)
        curl_free(*p);
    return rc;
}

/* The parsed URL that is both checked and requested. NULL: refused. */
static CURLU *parse(const struct media_fetch_options *o, const char *url, struct err *e)
{
    CURLU *u = NULL;
    if (check_bytes(url, e))
        return NULL;
    if (!(u = curl_url())) {
        err_nomem(e);
        return NULL;
    }
    if (curl_url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER | CURLU_URLENCODE) != CURLUE_OK)
        refuse_url(e, "it is malformed");
    else if (check_parts(o, u, e) == 0)
        return u;
    curl_url_cleanup(u);
    return NULL;
}

int media_url_check(const struct media_fetch_options *o, const char *url, struct err *e)
{
    CURLU *u = parse(o, url, e);
    curl_url_cleanup(u);
    return u ? 0 : -1;
}

/* ---------------------------------------------------------------- one request */
struct fetch {
    const struct media_fetch_options *options;
    struct buf *out;
    size_t headers;
    bool refused_address, too_large, too_many_headers;
};

static size_t on_header(char *line, size_t one, size_t n, void *arg)
{
    struct fetch *f = arg;
    (void)line;
    f->headers += one * n;
    f->too_many_headers = f->headers > HEADERS_MAX;
    return f->too_many_headers ? 0 : n;
}

static size_t on_body(char *p, size_t one, size_t n, void *arg)
{
    struct fetch *f = arg;
    (void)one;
    f->too_large = n > f->options->max_bytes - f->out->len;
    if (f->too_large)
        return n ? 0 : 1; /* any other value aborts */
    buf_add(f->out, p, n);
    return f->out->oom ? 0 : n;
}

/* Called for every connection, with the address to connect to. */
static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct fetch *f = arg;
    const bool test = f->options->allow_loopback && media_address_is_loopback(&a->addr);
    if (purpose != CURLSOCKTYPE_IPCXN || (!test && !media_address_allowed(&a->addr))) {
        f->refused_address = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static void prepare(CURL *c, CURLU *u, struct fetch *f, struct curl_slist *headers, long left_ms)
{
    curl_easy_setopt(c, CURLOPT_CURLU, u);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    curl_easy_setopt(c, CURLOPT_PROXY, ""); /* ignores the environment's proxy */
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_HTTP_CONTENT_DECODING, 0L); /* no decompression */
    curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)f->options->max_bytes);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, left_ms);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, left_ms);
    curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(c, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, f);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, f);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    if (f->options->ca_file)
        curl_easy_setopt(c, CURLOPT_CAINFO, f->options->ca_file);
}

static int judge(const struct fetch *f, CURLcode code, struct err *e)
{
    if (f->out->oom || code == CURLE_OUT_OF_MEMORY)
        return err_nomem(e);
    if (f->refused_address)
        return refuse_url(e, "its host is not at a public address");
    if (f->too_large || code == CURLE_FILESIZE_EXCEEDED)
        return err_set(e, ERR_VALIDATION, "the image has more than %zu bytes",
                       f->options->max_bytes);
    switch (code) {
    case CURLE_OK:
        return 0;
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(e, ERR_VALIDATION, "the image could not be fetched within %u ms",
                       f->options->timeout_ms);
    case CURLE_COULDNT_RESOLVE_HOST:
        return err_set(e, ERR_VALIDATION, "the image could not be fetched: unknown host");
    case CURLE_COULDNT_CONNECT:
        return err_set(e, ERR_VALIDATION, "the image could not be fetched: no connection");
    case CURLE_PEER_FAILED_VERIFICATION:
        return err_set(e, ERR_VALIDATION,
                       "the image could not be fetched: the host's certificate is not trusted");
    default:
        return err_set(e, ERR_VALIDATION,
                       "the image could not be fetched: the answer was broken or incomplete");
    }
}

/* ---------------------------------------------------------------- redirects */
/* The next URL after a redirect, parsed and checked. NULL: refused, or no redirect. */
static CURLU *next_url(CURL *c, const struct media_fetch_options *o, const char *from,
                       struct err *e)
{
    char *url = NULL;
    curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &url);
    if (!url) {
        err_set(e, ERR_VALIDATION, "the image could not be fetched: a redirect leads nowhere");
        return NULL;
    }
    if (!strncasecmp(from, "https:", 6) && strncasecmp(url, "https:", 6) != 0) {
        refuse_url(e, "it redirects from https to something else");
        return NULL;
    }
    return parse(o, url, e);
}

static bool is_redirect(long status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* One hop: requests *u, and replaces it by the next URL after a redirect. 1: continue. */
static int hop(CURL *c, CURLU **u, struct fetch *f, struct curl_slist *headers, long left_ms,
               struct err *e)
{
    long status = 0;
    char *from = part(*u, CURLUPART_URL, 0);
    int rc = from ? 0 : err_nomem(e);
    if (rc == 0) {
        buf_reset(f->out);
        f->headers = 0;
        curl_easy_reset(c);
        prepare(c, *u, f, headers, left_ms);
        const CURLcode code = curl_easy_perform(c);
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
        rc = judge(f, code, e);
    }
    if (rc == 0 && is_redirect(status)) {
        CURLU *next = next_url(c, f->options, from, e);
        curl_url_cleanup(*u);
        *u = next;
        rc = next ? 1 : -1;
    } else if (rc == 0 && status != 200) {
        rc = err_set(e, ERR_VALIDATION, "the image could not be fetched: HTTP status %ld", status);
    }
    curl_free(from);
    return rc;
}

static int follow(CURL *c, CURLU **u, struct fetch *f, struct curl_slist *headers, struct err *e)
{
    const int64_t deadline = clock_ms() + f->options->timeout_ms;
    for (int redirects = 0; redirects <= REDIRECTS_MAX; redirects++) {
        const int64_t left = deadline - clock_ms();
        if (left <= 0)
            return judge(f, CURLE_OPERATION_TIMEDOUT, e);
        const int rc = hop(c, u, f, headers, (long)left, e);
        if (rc <= 0)
            return rc;
    }
    return err_set(e, ERR_VALIDATION,
                   "the image could not be fetched: there are more than %d redirects",
                   REDIRECTS_MAX);
}

int media_fetch(const struct media_fetch_options *o, const char *url, struct buf *out,
                struct err *e)
{
    struct fetch f = {.options = o, .out = out};
    CURLU *u = parse(o, url, e);
    if (!u)
        return -1;
    CURL *c = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Accept-Encoding: identity");
    struct curl_slist *more =
        headers ? curl_slist_append(headers, "User-Agent: router/" VERSION) : NULL;
    struct curl_slist *all =
        more ? curl_slist_append(headers, "Accept: image/png, image/jpeg, image/webp, image/gif")
             : NULL;
    const int rc = c && all ? follow(c, &u, &f, headers, e) : err_nomem(e);
    curl_easy_cleanup(c);
    curl_slist_free_all(headers);
    curl_url_cleanup(u);
    if (rc)
        buf_free(out);
    return rc;
}
