#include "common/rpc/session.h"
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int rpc_session_draw(char out[RPC_SESSION_TEXT], struct err *e)
{
    uint64_t v[2];
    if (getrandom(v, sizeof(v), 0) != (ssize_t)sizeof(v))
        return err_sys(e, "getrandom");
    snprintf(out, RPC_SESSION_TEXT, "%016llx%016llx", (unsigned long long)v[0],
             (unsigned long long)v[1]);
    return 0;
}

static bool owns(const struct rpc_session *s, const char *id) { return strcmp(s->owner, id) == 0; }

bool rpc_session_begin(struct rpc_session *s, const char *id, int64_t now_ms)
{
    if (!*id)
        return true;
    const bool free =
        !*s->owner || (s->in_flight == 0 && now_ms - s->seen_ms > RPC_SESSION_LEASE_MS);
    if (!owns(s, id) && !free)
        return false;
    snprintf(s->owner, sizeof(s->owner), "%s", id);
    s->in_flight++;
    s->seen_ms = now_ms;
    return true;
}

void rpc_session_end(struct rpc_session *s, const char *id, int64_t now_ms)
{
    if (!*id)
        return;
    s->in_flight--;
    s->seen_ms = now_ms;
}

void rpc_session_seen(struct rpc_session *s, const char *id, int64_t now_ms)
{
    if (*id && owns(s, id))
        s->seen_ms = now_ms;
}
