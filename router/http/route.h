/* route.h - one HTTP route = one file api/<protocol>/route_<name>.c that defines route_<name>.
 *
 * The table is generated from the folder (routes.h, generated); docs/http-api.md, GET /docs and the
 * OpenAPI document are printed from it. */
#ifndef ROUTER_HTTP_ROUTE_H
#define ROUTER_HTTP_ROUTE_H
#include "common/buf.h"
#include "common/err.h"
#include "common/sentence.h"
#include "router/http/errors.h"
#include <stdbool.h>

struct call; /* router/call/call.h: one request being served */

enum { ROUTE_PATHS = 4, ROUTE_ARGUMENTS = 4 };
struct route {
    const char *method;             /* "GET" (answers HEAD too), "POST" or "DELETE" */
    const char *paths[ROUTE_PATHS]; /* a path that ends in "/" + "*" matches everything below it; a
                                       "*" before that is one name */
    const char *arguments[ROUTE_ARGUMENTS]; /* of the query: those that call.arguments gets */
    enum error_shape errors;                /* of its protocol; 0: TGI's */
    const char *summary;                    /* one sentence for the documents */
    const char *body;                       /* POST: the body in words, for the documents */
    const char *takes, *gives; /* POST: schemas of both bodies, names in page/schemas.json; gives
                                  NULL: events alone */
    const char *example;       /* POST: a body that this route answers with 200; JSON */
    /* Models that it is for, where it says so: others answer 400, and TASK_RERANK's may be of other
     * kinds that are not to generate. */
    enum model_task task;
    bool refuses; /* never answers with 200, or only with a flag: not in the OpenAPI
                     document */
    bool probe;   /* asked by machines every few seconds: logged at DEBUG */
    bool no_body; /* POST: it may come without, and without a content type */
    bool open;    /* needs no key even when the router has one */
    /* GET: answer at once with call_reply(), on the loop thread. */
    void (*reply)(struct call *c);
    /* POST: on a worker thread, with the body in c->body. Either describe the generations wanted
     * (call_generate()) or fill c->out with an answer. Errors: any kind; the text is the client's.
     * CALL_LATER (call.h): it is run again. */
    int (*work)(struct call *c, struct err *e);
};

extern const struct route *const routes[];
extern const unsigned n_routes;

/* The route of a request, or NULL. `*allow` gets "GET, HEAD, ..." when only the method is wrong,
 * else an empty string. HEAD finds GET. */
const struct route *route_find(const char *method, const char *path, char allow[64]);
/* How errors on this path look, whatever the method. A path without a route is OpenAI's below /v1/.
 */
enum error_shape route_errors(const char *path);
void routes_markdown(struct buf *out);
void routes_openapi(struct buf *out);
#endif
