/* publisher.h - publishes KV events over ZeroMQ, in vLLM's format.
 *
 * A PUB socket sends each batch as three frames: topic, sequence number (8 bytes, big endian, from
 * 0), payload. A ROUTER socket replays recent batches: a request of [sequence number] is answered
 * with [sequence number, payload] for each batch from there on, then with [-1, empty]. Late
 * subscribers, and those that missed a number, use it. A thread serves both sockets. A slow
 * subscriber loses batches and blocks nothing. */
#ifndef ROUTER_EVENTS_PUBLISHER_H
#define ROUTER_EVENTS_PUBLISHER_H
#include "common/buf.h"
#include "common/err.h"

struct kv_publisher;
/* Opens the publisher. `config`: the JSON of --kv-events-config with vLLM's names:
 * enable_kv_cache_events, publisher ("zmq"), endpoint, replay_endpoint, buffer_steps, hwm,
 * max_queue_size, topic. *out NULL: events are disabled. Errors name the field or the fault of an
 * endpoint. */
int kv_publisher_open(const char *config, struct kv_publisher **out, struct err *e);
void kv_publisher_close(struct kv_publisher *p); /* NULL is allowed */
/* Publishes one batch; any thread, never blocks. Takes the bytes of `payload`. If max_queue_size
 * batches are queued, the batch is dropped together with its sequence number. */
void kv_publish(struct kv_publisher *p, struct buf *payload);
#endif
