#include "launcher/process/health.h"
#include "common/rpc/target.h"
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdbool.h>

enum { RETRY_MS = 100 }; /* loading takes between a second and minutes */

static grpc_channel *connect_to(const char *address)
{
    grpc_arg args[] = {
        {GRPC_ARG_INTEGER, (char *)"grpc.initial_reconnect_backoff_ms", {.integer = RETRY_MS}},
        {GRPC_ARG_INTEGER, (char *)"grpc.min_reconnect_backoff_ms", {.integer = RETRY_MS}},
        {GRPC_ARG_INTEGER, (char *)"grpc.max_reconnect_backoff_ms", {.integer = RETRY_MS}},
        {GRPC_ARG_INTEGER, (char *)"grpc.enable_http_proxy", {.integer = 0}},
    };
    grpc_channel_args all = {sizeof(args) / sizeof(args[0]), args};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *ch = grpc_channel_create(address, plain, &all);
    grpc_channel_credentials_release(plain);
    return ch;
}

/* One unary call with an empty message. Returns its status and message (gpr_free). */
static grpc_status_code call_health(grpc_channel *ch, grpc_completion_queue *cq,
                                    gpr_timespec deadline, char **words)
{
    grpc_slice empty = grpc_empty_slice(), details = grpc_empty_slice();
    grpc_byte_buffer *request = grpc_raw_byte_buffer_create(&empty, 1), *answer = NULL;
    grpc_metadata_array head, tail;
    grpc_status_code code = GRPC_STATUS_UNKNOWN;
    grpc_slice method = grpc_slice_from_static_string("/generate.v3.TextGenerationService/Health");
    grpc_call *call = grpc_channel_create_call(ch, NULL, GRPC_PROPAGATE_DEFAULTS, cq, method, NULL,
                                               deadline, NULL);
    grpc_metadata_array_init(&head);
    grpc_metadata_array_init(&tail);
    const grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA, .flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &head},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &answer},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &tail,
                                        .status = &code,
                                        .status_details = &details}},
    };
    if (grpc_call_start_batch(call, ops, sizeof(ops) / sizeof(ops[0]), cq, NULL) == GRPC_CALL_OK)
        grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    *words = grpc_slice_to_c_string(details);
    grpc_slice_unref(details);
    grpc_metadata_array_destroy(&head);
    grpc_metadata_array_destroy(&tail);
    grpc_byte_buffer_destroy(request);
    if (answer)
        grpc_byte_buffer_destroy(answer);
    grpc_call_unref(call);
    return code;
}

/* True of an answer that this address will give again: no other one follows from this server. */
static bool is_final(grpc_status_code code)
{
    return code == GRPC_STATUS_OK || code == GRPC_STATUS_UNIMPLEMENTED ||
           code == GRPC_STATUS_UNAUTHENTICATED || code == GRPC_STATUS_DEADLINE_EXCEEDED;
}

/* Until the server answers, also if it ends during a call, which is then refused, cancelled or
 * broken: its supervisor gets the signal of its end later, which decides whether another one
 * follows. */
static grpc_status_code call_until(grpc_channel *ch, grpc_completion_queue *cq,
                                   gpr_timespec deadline, char **words)
{
    for (;;) {
        const grpc_status_code code = call_health(ch, cq, deadline, words);
        if (is_final(code))
            return code;
        gpr_free(*words);
        gpr_sleep_until(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                     gpr_time_from_millis(RETRY_MS, GPR_TIMESPAN)));
    }
}

int health_wait(const char *address, int64_t timeout_ms, struct err *e)
{
    gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
    gpr_timespec deadline = timeout_ms
                                ? gpr_time_add(now, gpr_time_from_millis(timeout_ms, GPR_TIMESPAN))
                                : gpr_inf_future(GPR_CLOCK_MONOTONIC);
    char *words, target[512];
    rpc_target_await(address, timeout_ms ? timeout_ms : INT64_MAX / 2);
    grpc_init();
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_channel *ch = connect_to(rpc_target(address, target, sizeof(target)));
    grpc_status_code code = call_until(ch, cq, deadline, &words);

    grpc_channel_destroy(ch);
    grpc_completion_queue_shutdown(cq);
    while (grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type !=
           GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(cq);
    int rc = code == GRPC_STATUS_OK
                 ? 0
                 : err_set(e, ERR_UNHEALTHY, "%s does not answer: %s (grpc status %d)", address,
                           words, code);
    gpr_free(words);
    grpc_shutdown();
    return rc;
}
