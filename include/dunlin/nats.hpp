// nats.hpp - work queues, messages, requests and key-value buckets between machines, over NATS with JetStream. A
// library of its own on top of libnats (CMake: dunlin::nats, pkg-config: dunlin-nats).
#pragma once

#include <dunlin/config.hpp>

#include <dunlin/nats/bucket.hpp>
#include <dunlin/nats/cluster.hpp>
#include <dunlin/nats/codec.hpp>
#include <dunlin/nats/delivery.hpp>
#include <dunlin/nats/error.hpp>
#include <dunlin/nats/message.hpp>
#include <dunlin/nats/queue.hpp>
#include <dunlin/nats/service.hpp>
#include <dunlin/nats/subscription.hpp>
