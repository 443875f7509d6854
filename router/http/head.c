#include "router/http/head.h"
#include <string.h>
#include <strings.h>

struct head_walk {
    const char *at; /* start of the next line of the head */
    int lengths, codings, hosts;
    bool odd;
};

/* RFC 9110, 5.6.2: this also refuses a blank before the colon. */
static bool is_token(const char *s)
{
    for (const char *p = s; *p; p++)
        if (*p <= ' ' || *p > '~' || strchr("\"(),/:;<=>?@[\\]{}", *p))
            return false;
    return *s;
}

static bool has_controls(const char *s)
{
    for (const char *p = s; *p; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
            return true;
    return false;
}

/* A CR and an LF were at `p`, not only one of them. */
static bool was_line_end(const char *p) { return !p[0] && !p[1]; }

static enum MHD_Result look_at_line(void *cls, enum MHD_ValueKind kind, const char *name,
                                    size_t name_len, const char *value, size_t value_len)
{
    struct head_walk *w = cls;
    (void)kind;
    if (w->odd || name != w->at || strlen(name) != name_len || !is_token(name)) {
        w->odd = true;
        return MHD_NO;
    }
    const char *p = name + name_len + 1;
    p += strspn(p, " \t");
    if (p != value || strlen(value) != value_len || has_controls(value) ||
        !was_line_end(value + value_len)) {
        w->odd = true;
        return MHD_NO;
    }
    w->at = value + value_len + 2;
    w->lengths += !strcasecmp(name, "content-length");
    w->hosts += !strcasecmp(name, "host");
    if (!strcasecmp(name, "transfer-encoding")) {
        w->codings++;
        w->odd |= strcasecmp(value, "chunked") != 0; /* a transfer coding that we do not support */
    }
    return MHD_YES;
}

/* RFC 9110, 2.5: a higher minor version is read as HTTP/1.1. libmicrohttpd refuses other major
 * versions. */
static bool is_version(const char *s)
{
    return !strncmp(s, "HTTP/1.", 7) && s[7] >= '0' && s[7] <= '9' && !s[8];
}

/* METHOD SP TARGET SP VERSION CRLF, with single blanks. */
static bool plain_first_line(const char *method, const char *target, const char *target_end,
                             const char *version)
{
    return is_token(method) && target == method + strlen(method) + 1 && version == target_end + 1 &&
           is_version(version) && was_line_end(version + strlen(version));
}

/* Checks the empty line, and the end as libmicrohttpd sees it. NULs that look like a line end, or
 * line ends of one byte, shift one against the other. */
static bool plain_end(struct MHD_Connection *mhd, const char *method, const struct head_walk *w)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info && info->header_size == (size_t)(w->at + 2 - method) && was_line_end(w->at);
}

struct http_head http_head_check(struct MHD_Connection *mhd, const char *method, const char *target,
                                 const char *target_end, const char *version)
{
    struct head_walk w = {.at = version + strlen(version) + 2};
    if (!target || !plain_first_line(method, target, target_end, version))
        return (struct http_head){.ambiguous = true};
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, look_at_line, &w);
    bool old = !strcmp(version, "HTTP/1.0"); /* HTTP/1.0 has no chunked coding */
    return (struct http_head){.ambiguous = w.odd || !plain_end(mhd, method, &w) || w.hosts > 1 ||
                                           w.lengths + w.codings > 1 || (old && w.codings),
                              .chunked = w.codings > 0};
}
