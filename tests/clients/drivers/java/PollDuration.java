// Waiting for records since 4.0: a Duration alone.

import java.time.Duration;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

final class Poll {
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> client) {
        return client.poll(Duration.ofMillis(200));
    }
}
