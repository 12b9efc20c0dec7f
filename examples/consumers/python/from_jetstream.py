"""Keeps the current state of what the bridge sends to JetStream, by a durable pull consumer."""

import argparse
import asyncio
import signal
from urllib.parse import unquote

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from state import State

BATCH = 100


def attributes_of(msg):
    names = {name.lower(): value for name, value in (msg.headers or {}).items()}
    return {name[3:]: unquote(value) for name, value in names.items() if name.startswith("ce-")}


async def consume(state, messages):
    """Applies a batch, and then acknowledges it. If this program is killed in between, the batch comes again, and changes
    nothing."""
    batch = []
    for msg in messages:
        attributes = attributes_of(msg)
        if "id" in attributes and "type" in attributes:
            batch.append((attributes, msg.data, None))
        else:
            print(msg.subject, "is skipped: it is not an event", flush=True)  # otherwise it would be delivered again and again
    repeated = state.apply(batch)
    print(f"{len(messages)} messages, {repeated} of them repeated", flush=True)
    for msg in messages:
        await msg.ack()


async def main(options):
    state = State(options.state, sweep=options.subject == ">")  # when this consumer reads all of the stream
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    client = await nats.connect(options.nats, max_reconnect_attempts=-1)
    js = client.jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=options.ack_wait, max_ack_pending=BATCH)
    consumer = await js.pull_subscribe(options.subject, durable=options.durable, stream=options.stream, config=config)
    # What a predecessor had fetched when it was killed comes again after ack_wait. Waiting for that keeps the order.
    if (await consumer.consumer_info()).num_ack_pending > 0:
        await asyncio.sleep(options.ack_wait)

    while not stop.is_set():
        try:
            messages = await consumer.fetch(BATCH, timeout=1)
        except asyncio.TimeoutError:  # nothing new; nats.errors.TimeoutError is one
            continue
        await consume(state, messages)  # an error ends the program; it must be started again
    await client.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nats", default="nats://127.0.0.1:4222", help="the server")
    parser.add_argument("--stream", default="K8S")
    parser.add_argument("--subject", default=">", help="which subjects")
    parser.add_argument("--durable", default="example-python", help="the name of the consumer on the server")
    parser.add_argument("--state", default="state.sqlite", help="the file of the state")
    parser.add_argument("--ack-wait", type=float, default=30, help="seconds after which the server sends again what was not acknowledged")
    asyncio.run(main(parser.parse_args()))
