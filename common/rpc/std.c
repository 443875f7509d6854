/* Descriptors are read in their encoded form. A FileDescriptorSet is a list of files (field 1). Of
 * a file we need name (1), package (2) and service names (field 6, its field 1). */
#include "common/rpc/std.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const uint8_t descriptors[] = {
#include "descriptors.inc"
};

struct std_bytes {
    const uint8_t *p;
    size_t n;
};

static bool varint(struct std_bytes *b, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; b->n && shift < 64; shift += 7) {
        uint8_t c = *b->p++;
        b->n--;
        *v |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            return true;
    }
    return false;
}

/* Next length-delimited field; others are skipped. */
static bool next_field(struct std_bytes *b, uint64_t *field, struct std_bytes *value)
{
    uint64_t key, n;
    while (varint(b, &key) && varint(b, &n)) {
        if ((key & 7) != 2)
            continue;
        if (n > b->n)
            return false;
        *field = key >> 3;
        *value = (struct std_bytes){b->p, n};
        b->p += n;
        b->n -= n;
        return true;
    }
    return false;
}

/* The i-th value of `field` in a message; empty if absent. */
static struct std_bytes get(struct std_bytes message, uint64_t field, size_t i)
{
    struct std_bytes v;
    uint64_t f;
    while (next_field(&message, &f, &v))
        if (f == field && i-- == 0)
            return v;
    return (struct std_bytes){0};
}

static struct std_bytes file_at(size_t i)
{
    return get((struct std_bytes){descriptors, sizeof(descriptors)}, 1, i);
}

/* "package.Service" of the k-th service of a file; false: k is too large. */
static bool service_name(struct std_bytes file, size_t k, char out[200])
{
    struct std_bytes service = get(file, 6, k), name = get(service, 1, 0),
                     package = get(file, 2, 0);
    if (!service.p)
        return false;
    snprintf(out, 200, "%.*s.%.*s", (int)package.n, package.p, (int)name.n, name.p);
    return true;
}

static bool is_service(const char *name)
{
    char s[200];
    for (size_t i = 0; file_at(i).p; i++)
        for (size_t k = 0; service_name(file_at(i), k, s); k++)
            if (strcmp(s, name) == 0)
                return true;
    return false;
}

/* ---------------------------------------------------------------- health */

const ProtobufCMessage *rpc_std_health(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                       struct err *e)
{
    const Grpc__Health__V1__HealthCheckRequest *q = (const void *)in;
    Grpc__Health__V1__HealthCheckResponse *r =
        RPC_NEW(call->mem, Grpc__Health__V1__HealthCheckResponse, 1);
    (void)ctx;
    if (!r)
        return err_nomem(e), NULL;
    if (*q->service && !is_service(q->service)) {
        call->code = GRPC_STATUS_NOT_FOUND;
        return err_set(e, ERR_VALIDATION, "unknown service"), NULL;
    }
    grpc__health__v1__health_check_response__init(r);
    r->status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    return &r->base;
}

/* ---------------------------------------------------------------- reflection */

typedef Grpc__Reflection__V1alpha__ServerReflectionResponse Response;
typedef Grpc__Reflection__V1alpha__ServerReflectionRequest Request;

static int list_services(Response *r, struct rpc_mem *m)
{
    enum { MOST = 32 };
    Grpc__Reflection__V1alpha__ListServiceResponse *list =
        RPC_NEW(m, Grpc__Reflection__V1alpha__ListServiceResponse, 1);
    Grpc__Reflection__V1alpha__ServiceResponse *v =
        RPC_NEW(m, Grpc__Reflection__V1alpha__ServiceResponse, MOST);
    Grpc__Reflection__V1alpha__ServiceResponse **p =
        RPC_NEW(m, Grpc__Reflection__V1alpha__ServiceResponse *, MOST);
    char name[200];
    if (!list || !v || !p)
        return -1;
    grpc__reflection__v1alpha__list_service_response__init(list);
    list->service = p;
    for (size_t i = 0; file_at(i).p; i++)
        for (size_t k = 0; list->n_service < MOST && service_name(file_at(i), k, name); k++) {
            size_t at = list->n_service++;
            grpc__reflection__v1alpha__service_response__init(&v[at]);
            v[at].name = rpc_mem_strdup(m, name, strlen(name));
            p[at] = &v[at];
        }
    r->list_services_response = list;
    r->message_response_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    return 0;
}

static int give_file(Response *r, struct std_bytes file, struct rpc_mem *m)
{
    Grpc__Reflection__V1alpha__FileDescriptorResponse *f =
        RPC_NEW(m, Grpc__Reflection__V1alpha__FileDescriptorResponse, 1);
    ProtobufCBinaryData *data = RPC_NEW(m, ProtobufCBinaryData, 1);
    if (!f || !data)
        return -1;
    grpc__reflection__v1alpha__file_descriptor_response__init(f);
    *data = (ProtobufCBinaryData){file.n, (uint8_t *)file.p};
    f->n_file_descriptor_proto = 1;
    f->file_descriptor_proto = data;
    r->file_descriptor_response = f;
    r->message_response_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    return 0;
}

static int refuse(Response *r, grpc_status_code code, const char *why, struct rpc_mem *m)
{
    Grpc__Reflection__V1alpha__ErrorResponse *x =
        RPC_NEW(m, Grpc__Reflection__V1alpha__ErrorResponse, 1);
    if (!x)
        return -1;
    grpc__reflection__v1alpha__error_response__init(x);
    x->error_code = code;
    x->error_message = (char *)why;
    r->error_response = x;
    r->message_response_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    return 0;
}

/* Each of our packages is one file: a symbol belongs to the file whose package is its longest
 * prefix. */
static struct std_bytes find_file(const char *name, uint64_t field)
{
    struct std_bytes file, best = {0};
    size_t longest = 0;
    for (size_t i = 0; (file = file_at(i)).p; i++) {
        struct std_bytes v = get(file, field, 0);
        bool match = v.p && strncmp(name, (const char *)v.p, v.n) == 0 &&
                     (name[v.n] == (field == 2 ? '.' : '\0'));
        if (match && v.n > longest) {
            longest = v.n;
            best = file;
        }
    }
    return best;
}

static int reflect(const Request *q, Response *r, struct rpc_mem *m)
{
    struct std_bytes file = {0};
    switch (q->message_request_case) {
    case GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        return list_services(r, m);
    case GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        file = find_file(q->file_by_filename, 1);
        break;
    case GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        file = find_file(q->file_containing_symbol, 2);
        break;
    default:
        return refuse(r, GRPC_STATUS_UNIMPLEMENTED, "no extensions here", m);
    }
    return file.p ? give_file(r, file, m) : refuse(r, GRPC_STATUS_NOT_FOUND, "not found", m);
}

const ProtobufCMessage *rpc_std_reflect(void *ctx, const ProtobufCMessage *in,
                                        struct rpc_call *call, struct err *e)
{
    Response *r = RPC_NEW(call->mem, Response, 1);
    (void)ctx;
    if (!r)
        return err_nomem(e), NULL;
    grpc__reflection__v1alpha__server_reflection_response__init(r);
    r->original_request = (Request *)in;
    return reflect((const Request *)in, r, call->mem) ? (err_nomem(e), NULL) : &r->base;
}
