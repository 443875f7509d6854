/* head.h - rejects request heads that two parsers could read differently (request smuggling).
 *
 * libmicrohttpd 0.9.75 is lenient: it joins folded lines, ends a line at a bare CR or LF, and cuts
 * a value at a NUL. Its API shows headers as strings, in which such bytes are lost. But it parses
 * in place, and writes a NUL over the colon and over each byte of a line end. So in a plain head
 * the strings lie one after the other, with gaps of known size. In any other head, one string is
 * not where it is expected.
 *
 * A different buffer layout (a later libmicrohttpd) would make all requests fail, which every test
 * shows. */
#ifndef ROUTER_HTTP_HEAD_H
#define ROUTER_HTTP_HEAD_H
#include <microhttpd.h>
#include <stdbool.h>

struct http_head {
    bool ambiguous; /* refuse it: what follows on this connection may not be a request */
    bool chunked;   /* the body is chunked */
};

/* Checks a head. `method` and `version` are the arguments of the access handler's first call for a
 * request; `target` and `target_end` delimit the raw target of the URI callback. Loop thread, in
 * that first call only. */
struct http_head http_head_check(struct MHD_Connection *mhd, const char *method, const char *target,
                                 const char *target_end, const char *version);
#endif
