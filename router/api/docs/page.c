#include "router/api/docs/page.h"
#include "page/docs.policy.h"
#include "page/index.policy.h"
#include "router/http/encoding.h"
#include <string.h>

enum { PAGE_MAX_BYTES = 8 << 20 };

/* The pages as byte lists, compressed, and their Content-Security-Policy: see the Makefile. */
static const unsigned char chat_page_gz[] = {
#include "page/index.gz.inc"
};
static const unsigned char docs_page_gz[] = {
#include "page/docs.gz.inc"
};

static const struct {
    const unsigned char *gz;
    size_t n_gz;
    const char *policy, *tag;
} pages[] = {
    [PAGE_CHAT] = {chat_page_gz, sizeof(chat_page_gz), INDEX_POLICY, INDEX_TAG},
    [PAGE_DOCS] = {docs_page_gz, sizeof(docs_page_gz), DOCS_POLICY, DOCS_TAG},
};

static bool header_has(const struct call *c, const char *name, const char *word)
{
    const char *value = c->x ? exchange_header(c->x, name) : NULL;
    return value && strstr(value, word);
}

bool page_wanted(const struct call *c) { return header_has(c, "accept", "text/html"); }

/* Browsers take it compressed; this is for programs. */
static void unpack(struct buf *out, enum page page)
{
    bool known;
    struct err e = ERR_INIT;
    const int rc = encoding_unpack(encoding_of("gzip", &known), (const char *)pages[page].gz,
                                   pages[page].n_gz, PAGE_MAX_BYTES, out, &e);
    if (rc) /* our own bytes: only memory can lack */
        out->oom = true;
}

void page_reply(struct call *c, enum page page)
{
    c->type = "text/html; charset=utf-8";
    if (c->x) {
        exchange_add(c->x, "content-security-policy", pages[page].policy);
        exchange_add(c->x, "x-content-type-options", "nosniff");
        exchange_add(c->x, "referrer-policy", "no-referrer");
        exchange_add(c->x, "cache-control", "no-cache");
        exchange_add(c->x, "vary", "accept, accept-encoding");
        exchange_add(c->x, "etag", pages[page].tag);
    }
    if (header_has(c, "if-none-match", pages[page].tag)) {
        c->status = 304;
    } else if (header_has(c, "accept-encoding", "gzip") &&
               !header_has(c, "accept-encoding", "gzip;q=0")) {
        exchange_add(c->x, "content-encoding", "gzip");
        buf_add(&c->out, (const char *)pages[page].gz, pages[page].n_gz);
    } else {
        unpack(&c->out, page);
    }
    call_reply(c);
}
