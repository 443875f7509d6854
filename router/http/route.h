/* route.h - one HTTP route per file api/<protocol>/route_<name>.c, which defines route_<name>.
 *
 * The table is generated from the folder (routes.h). docs/http-api.md, GET /docs and the OpenAPI
 * document are generated from it. */
#ifndef ROUTER_HTTP_ROUTE_H
#define ROUTER_HTTP_ROUTE_H
#include "common/buf.h"
#include "common/err.h"
#include "common/model/sentence.h"
#include "router/http/errors.h"
#include <stdbool.h>

struct call; /* router/call/call.h: one request being served */

enum { ROUTE_PATHS = 6, ROUTE_ARGUMENTS = 4 };
/* Whether a request needs one of the API keys, if there are any: always; only with
 * --api-key-all-routes, as the route describes the server; never, as the route is a health probe.
 */
enum route_access { ACCESS_KEY, ACCESS_DESCRIBES, ACCESS_PROBE };
struct route {
    const char *method; /* "GET" (also answers HEAD), "POST" or "DELETE" */
    /* a path that ends in "/" + "*" matches everything below it; each "*" before that matches one
     * segment */
    const char *paths[ROUTE_PATHS];
    const char *arguments[ROUTE_ARGUMENTS]; /* query arguments that call.arguments receives */
    enum error_shape errors;                /* its protocol's errors; 0: TGI's */
    const char *summary;                    /* one sentence for the documentation */
    /* POST: description of the body for the documentation */
    const char *body;
    /* POST: schemas of both bodies, names in router/api/docs/schemas.json; gives NULL: events only
     */
    const char *takes, *gives;
    const char *example; /* POST: a JSON body that this route answers with 200 */
    /* The task it requires, if set: other models answer 400. TASK_RERANK also allows other
     * non-generating models. */
    enum model_task task;
    /* never answers 200, or only with a flag: not in the OpenAPI document */
    bool refuses;
    /* GET: with a WebSocket, each text message is the body of a request of that route, one after
     * the other. Each event of its answer is a message. NULL: none. */
    const struct route *messages;
    bool probe;      /* called by machines every few seconds: logged at DEBUG */
    bool no_body;    /* POST: body and content type are optional */
    bool carries_on; /* work() and on_loop() run to their end although the client left */
    /* POST: the body is JSON whatever its content type says, as its protocol's servers have it,
     * whose documents call curl with -d alone. Not of a web page: a browser would send it unasked.
     */
    bool any_type;
    enum route_access access;
    /* POST: the name of the model where it is in the path, in the arena; NULL there: none. Not set:
     * the body's `model`. Worker thread. */
    const char *(*model)(struct call *c);
    /* GET: answers at once with call_reply(), on the loop thread. */
    void (*reply)(struct call *c);
    /* POST: runs on a worker thread, with the body in c->body. Either creates generations
     * (call_generate()) or writes an answer to c->out. Errors of any kind; the text is for the
     * client. CALL_LATER (call.h): it will run again. */
    int (*work)(struct call *c, struct err *e);
};

extern const struct route *const routes[];
extern const unsigned n_routes;

/* The route of a request, or NULL. `*allow` is "GET, HEAD, ..." if only the method is wrong,
 * otherwise empty. HEAD finds GET. */
const struct route *route_find(const char *method, const char *path, char allow[64]);
/* The path without `*` nearest to an unknown one, a static string; NULL: none is near. A path that
 * ends with all of a known one, as /v1/v1/models does, is near to that. */
const char *route_near(const char *path);
/* The error format for this path, whatever the method. Unknown paths below /v1/ use OpenAI's. */
enum error_shape route_errors(const char *path);
/* Appends the reference page. */
void routes_markdown(struct buf *out);
/* Appends the OpenAPI document, as JSON, of a server whose model has this task: routes of other
 * tasks are left out. TASK_AUTO: all routes. `prefix`: of all paths, as clients see them; "": none.
 */
void routes_openapi(struct buf *out, enum model_task task, const char *prefix);
#endif
