"""Kafka as the stream sees it: one consumer, one transactional producer per partition, topics.

    settings.py   what the connector needs to know
    membership.py the consumer's settings and the rebalance listener
    source.py     KafkaSource: the group's consumer, batches bounded in records and bytes
    reading.py    what has been read of one partition and not yet handed out
    unreadable.py what stops a partition's reading, in words
    log.py        looking into a log without joining the group
    log_access.py what assignment asks of a log; KafkaSource is one
    lenient.py    decoding what aiokafka's consumer cannot get past
    transaction.py messages and a group's offset in one Kafka transaction, all results checked
    emitter.py    KafkaEmitter: step 4, such a transaction for one partition
    publication.py a publisher's chunks, one transaction each, each once
    producer.py   aiokafka's transactional producer, stopped within a bound
    admin.py      one admin client, shared
    topics.py     creating and verifying topics
    topic_ids.py  telling a recreated topic from the one it replaced
    faults.py     aiokafka's errors in terms of `connectors.errors`

Besides the demo, which looks on from outside, only this folder knows aiokafka. What that gets wrong
when left alone is written beside the code that deals with it.
"""
