"""Reads a topic up to its present end with Confluent's deserializer, and prints a line of JSON for each record: the
partition and the event, which is null if the record is a tombstone.

    python3 consumer.py BROKERS REGISTRY TOPIC
"""

import json
import sys

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.error import SerializationError
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

brokers, registry, topic = sys.argv[1:]
deserialize = JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": registry}))


def event_of(message):
    context = SerializationContext(message.topic(), MessageField.VALUE, message.headers())
    return deserialize(message.value(), context)  # None for a tombstone


def read(message):
    event = event_of(message)
    if event is not None:
        # The deserializer checks the value by the schema that the header names, and does not read it without one.
        for value, headers in (b'{"specversion": "1.0"}', message.headers()), (message.value(), []):
            try:
                deserialize(value, SerializationContext(message.topic(), MessageField.VALUE, headers))
            except SerializationError:
                continue
            sys.exit(f"accepted {value!r} with the headers {headers}")
    print(json.dumps({"partition": message.partition(), "event": event}))


consumer = Consumer(
    {"bootstrap.servers": brokers, "group.id": "e2e", "enable.auto.commit": False, "enable.partition.eof": True}
)
for partition in consumer.list_topics(topic).topics[topic].partitions:
    consumer.assign([TopicPartition(topic, partition, 0)])
    while True:
        message = consumer.poll()
        if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
            break
        if message.error():
            sys.exit(str(message.error()))
        read(message)
consumer.close()
