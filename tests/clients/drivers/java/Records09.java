// The client API of 0.9: records have no timestamp and no headers.

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

final class Records {
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
