/* publisher.h - KV events over ZeroMQ, as vLLM publishes them.
 *
 * A PUB socket sends each batch as three frames: topic, sequence number (8 bytes, big endian, from
 * 0), payload. A ROUTER socket sends the last batches again: a request of [sequence number] is
 * answered with [sequence number, payload] for each batch from there on, then with [-1, empty]. Who
 * subscribes late, or has missed a number, asks there. Both are served by a thread of their own; a
 * subscriber that does not read loses batches and holds nothing up. */
#ifndef ROUTER_EVENTS_PUBLISHER_H
#define ROUTER_EVENTS_PUBLISHER_H
#include "common/buf.h"
#include "common/err.h"

struct kv_publisher;
/* `config`: the JSON of --kv-events-config, vLLM's names: enable_kv_cache_events, publisher
 * ("zmq"), endpoint, replay_endpoint, buffer_steps, hwm, max_queue_size, topic. *out NULL: it asks
 * for no events. Errors name the field, or what is wrong with an endpoint. */
int kv_publisher_open(const char *config, struct kv_publisher **out, struct err *e);
void kv_publisher_close(struct kv_publisher *p); /* NULL is fine */
/* One batch; any thread, never waits. Takes the bytes of `payload`. Where the thread is behind by
 * max_queue_size batches, the batch is dropped, and its number with it. */
void kv_publish(struct kv_publisher *p, struct buf *payload);
#endif
