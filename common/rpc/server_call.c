/* server_call.c - the life of call objects: armed, in use, armed again or freed. */
#include "common/clock.h"
#include "common/rpc/server_impl.h"
#include <stdlib.h>

static void arm_this(struct rpc_server *s, struct server_call *k)
{
    *k = (struct server_call){.op = {server_call_arrived, "arrival"},
                              .s = s,
                              .why = grpc_empty_slice(),
                              .trailer = grpc_empty_slice()};
    grpc_call_details_init(&k->details);
    grpc_metadata_array_init(&k->md);
    rpc_expect(s->loop, &k->op);
    grpc_completion_queue *q = rpc_loop_queue(s->loop);
    grpc_server_request_call(s->grpc, &k->c, &k->details, &k->md, q, q, &k->op);
}

void server_call_arm(struct rpc_server *s)
{
    struct server_call *k = calloc(1, sizeof(*k));
    if (!k) {
        atomic_fetch_add(&s->unarmed, 1);
        return;
    }
    atomic_fetch_add(&s->n_calls, 1);
    arm_this(s, k);
}

/* Whether this one is to be armed again. */
static bool lacks_one(struct rpc_server *s)
{
    int n = atomic_load(&s->unarmed);
    while (n > 0 && !atomic_compare_exchange_weak(&s->unarmed, &n, n - 1)) {
    }
    return n > 0;
}

void server_stop_when_empty(struct rpc_server *s)
{
    if (s->is_down && atomic_load(&s->n_calls) == 0)
        rpc_loop_stop(s->loop);
}

void server_call_free(struct server_call *k)
{
    struct rpc_server *s = k->s;
    if (k->holds) {
        pthread_mutex_lock(&s->lock);
        rpc_session_end(&s->session, k->session, clock_ms());
        pthread_mutex_unlock(&s->lock);
    }
    if (k->in)
        grpc_byte_buffer_destroy(k->in);
    if (k->out)
        grpc_byte_buffer_destroy(k->out);
    grpc_slice_unref(k->why);
    grpc_slice_unref(k->trailer);
    grpc_call_details_destroy(&k->details);
    grpc_metadata_array_destroy(&k->md);
    if (k->c)
        grpc_call_unref(k->c);
    if (lacks_one(s)) {
        arm_this(s, k);
        return;
    }
    free(k);
    atomic_fetch_sub(&s->n_calls, 1);
    server_stop_when_empty(s);
}
