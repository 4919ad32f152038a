// Waiting for records since 2.0: a Duration; committed offsets asked for by sets.

import java.time.Duration;
import java.util.Collections;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

final class Poll {
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> client, long ms) {
        return client.poll(Duration.ofMillis(ms));
    }

    static OffsetAndMetadata committed(KafkaConsumer<byte[], byte[]> client, TopicPartition place) {
        return client.committed(Collections.singleton(place)).get(place);
    }
}
