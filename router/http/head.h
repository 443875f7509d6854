/* head.h - is the head of a request what every reader takes it for?
 *
 * Requests are smuggled past a proxy with heads that two readers understand differently.
 * libmicrohttpd 0.9.75 is a lenient reader: it joins folded lines, ends a line at a bare CR or LF,
 * and cuts a value at a NUL. It shows headers as strings only, where such bytes are gone. They can
 * still be seen in its buffer: it parses in place, and writes a NUL over the colon and over each
 * byte of a line end. So the strings of a plain head lie one behind the other, with gaps of known
 * size. In any other head, one is not where it is expected.
 *
 * Another layout (a later libmicrohttpd) makes all requests fail, which every test shows. */
#ifndef ROUTER_HTTP_HEAD_H
#define ROUTER_HTTP_HEAD_H
#include <microhttpd.h>
#include <stdbool.h>

struct http_head {
    bool ambiguous; /* refuse it: what follows on this connection may not be a request */
    bool chunked;   /* the body comes in chunks */
};

/* `method` and `version` as the access handler got them in its first call for a request; `target`
 * and `target_end` as the URI callback saw the raw target. Loop thread, in that first call only. */
struct http_head http_head_check(struct MHD_Connection *mhd, const char *method, const char *target,
                                 const char *target_end, const char *version);
#endif
