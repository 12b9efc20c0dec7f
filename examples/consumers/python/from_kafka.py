"""Keeps the current state of what the bridge sends to Kafka, as a member of a consumer group."""

import argparse
import signal

from confluent_kafka import Consumer, KafkaError, KafkaException

from state import State

BATCH = 100


def attributes_of(record):
    return {name[3:]: value.decode() for name, value in record.headers() or [] if name.startswith("ce_")}


def consume(state, consumer, records):
    """Applies a batch, and then commits it. If this program is killed in between, the batch comes again, and changes
    nothing."""
    batch = []
    for record in records:
        if record.error():
            if record.error().retriable() or record.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                print("trying again:", record.error(), flush=True)
                continue
            raise KafkaException(record.error())
        attributes = attributes_of(record)
        if record.value() is None or "id" in attributes and "type" in attributes:
            batch.append((attributes, record.value(), f"{record.topic()}/{(record.key() or b'').decode()}"))
        else:  # otherwise it would be read again and again
            print(f"{record.topic()}/{record.partition()} #{record.offset()} is skipped: it is not an event", flush=True)
    repeated = state.apply(batch)
    if any(not record.error() for record in records):
        print(f"{len(records)} messages, {repeated} of them repeated", flush=True)
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as err:  # the next commit covers it, or the records come again
            print("not committed:", err, flush=True)


def main(options):
    state = State(options.state)
    running = [True]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: running.clear())

    consumer = Consumer({
        "bootstrap.servers": options.brokers,
        "group.id": options.group,
        "group.instance.id": options.member,  # a restart within the session's time moves no partition to others
        "auto.offset.reset": "earliest",  # of a new group
        "enable.auto.commit": False,
    })
    consumer.subscribe(options.topics.split(","))
    while running:
        records = consumer.consume(BATCH, timeout=0.5)  # half a second to fill the batch
        if records:
            consume(state, consumer, records)  # an error ends the program; it must be started again
    consumer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", default="127.0.0.1:9092", help="with commas between them")
    parser.add_argument("--topics", default="k8s", help="with commas between them; ^ begins a regular expression")
    parser.add_argument("--group", default="example-python", help="the consumer group")
    parser.add_argument("--member", default="1", help="the name of this member, which keeps its partitions over a restart")
    parser.add_argument("--state", default="state.sqlite", help="the file of the state")
    main(parser.parse_args())
