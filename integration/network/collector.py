"""An OpenTelemetry collector for tests: takes OTLP over gRPC and keeps the spans, read with OpenTelemetry's own classes."""

import threading
import time
from concurrent import futures

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb


class Collector:
    def __init__(self, port=0, status=None, delay=0, reject=0):
        self.spans, self.resources, self.lock = [], [], threading.Lock()
        self.over = threading.Event()
        self.calls, self.status, self.delay, self.reject = 0, status, delay, reject
        export = grpc.unary_unary_rpc_method_handler(
            self.export,
            request_deserializer=pb.ExportTraceServiceRequest.FromString,
            response_serializer=lambda m: m.SerializeToString(),
        )
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        name = "opentelemetry.proto.collector.trace.v1.TraceService"
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Export": export}),))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.server.start()
        self.url = f"http://127.0.0.1:{self.port}"

    def export(self, request, context):
        self.calls += 1
        self.over.wait(self.delay)
        if self.status:
            context.abort(self.status, "not now")
        with self.lock:
            for r in request.resource_spans:
                service = value({a.key: a for a in r.resource.attributes}["service.name"])
                for scope in r.scope_spans:
                    self.spans += [(service, s) for s in scope.spans]
        answer = pb.ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = self.reject
        return answer

    def of(self, trace_id):
        with self.lock:
            return [(service, s) for service, s in self.spans if s.trace_id.hex() == trace_id]

    def wait(self, trace_id, n, seconds=30):
        """The spans of a trace, when at least n of them have come."""
        end = time.monotonic() + seconds
        while len(self.of(trace_id)) < n and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.3)  # to see what should not come
        return self.of(trace_id)

    def stop(self):
        self.over.set()
        self.server.stop(0)


def value(attribute):
    v = attribute.value
    kind = v.WhichOneof("value")
    return [x.string_value for x in v.array_value.values] if kind == "array_value" else getattr(v, kind)


def attributes(span):
    return {a.key: value(a) for a in span.attributes}
