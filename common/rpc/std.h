/* std.h - standard services of a gRPC server: health and reflection.
 *
 * Put RPC_STD_METHODS at the end of a server's table. Reflection describes the files in proto/. */
#ifndef COMMON_RPC_STD_H
#define COMMON_RPC_STD_H
#include "common/rpc/server.h"
#include "proto/health.pb-c.h"
#include "proto/reflection.pb-c.h"

/* A server that answers is SERVING; "" is the server, other names must be services of proto/. */
const ProtobufCMessage *rpc_std_health(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                       struct err *e);
const ProtobufCMessage *rpc_std_reflect(void *ctx, const ProtobufCMessage *in,
                                        struct rpc_call *call, struct err *e);

/* Reflection v1 and v1alpha differ only in the name. */
#define RPC_STD_REFLECTION(version)                                                                \
    {                                                                                              \
        "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo",                      \
            &grpc__reflection__v1alpha__server_reflection_request__descriptor, RPC_STREAM,         \
            rpc_std_reflect                                                                        \
    }
#define RPC_STD_METHODS                                                                            \
    {"/grpc.health.v1.Health/Check", &grpc__health__v1__health_check_request__descriptor,          \
     RPC_AT_ONCE, rpc_std_health},                                                                 \
        RPC_STD_REFLECTION("v1"), RPC_STD_REFLECTION("v1alpha")
#endif
