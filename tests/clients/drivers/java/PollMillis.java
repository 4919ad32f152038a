// Waiting for records before 2.0: a number of milliseconds; a committed offset asked for alone.

import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

final class Poll {
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> client, long ms) {
        return client.poll(ms);
    }

    static OffsetAndMetadata committed(KafkaConsumer<byte[], byte[]> client, TopicPartition place) {
        return client.committed(place);
    }
}
