// The client API of 0.8.2 to 0.9: records have no timestamp and no headers.

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

final class Records {
    static Map<TopicPartition, Long> find(KafkaConsumer<byte[], byte[]> client, Map<TopicPartition, Long> targets) {
        throw new UnsupportedOperationException("this client finds offsets for groups only");
    }

    static ProducerRecord<byte[], byte[]> make(
            String topic, int partition, Long timestamp, byte[] key, byte[] value, List<Object> headers) {
        return new ProducerRecord<>(topic, partition, key, value);
    }

    static void describe(ConsumerRecord<byte[], byte[]> record, Map<String, Object> out) {
        out.put("timestamp", null);
        out.put("timestamp_type", null);
        out.put("headers", null);
    }
}
