/* Clients of other servers ask for it: they are told why there is none. */
#include "router/call/call.h"

static int work(struct call *c, struct err *e)
{
    (void)c;
    return err_set(e, ERR_VALIDATION,
                   "This server generates text; it has no embeddings. Serve an embedding model "
                   "with a server for such models.");
}

const struct route route_embeddings = {
    .method = "POST",
    .paths = {"/v1/embeddings", "/embeddings"},
    .summary = "400, always: there are no embeddings.",
    .refuses = true,
    .work = work,
};
