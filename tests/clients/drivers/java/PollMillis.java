// Waiting for records before 4.0: a number of milliseconds.

import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

final class Poll {
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> client) {
        return client.poll(200);
    }
}
