// The client API of 0.10: records have a timestamp and its type, and no headers.

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.record.TimestampType;

final class Records {
    static ProducerRecord<byte[], byte[]> make(
            String topic, int partition, Long timestamp, byte[] key, byte[] value, List<Object> headers) {
        return new ProducerRecord<>(topic, partition, timestamp, key, value);
    }

    static void describe(ConsumerRecord<byte[], byte[]> record, Map<String, Object> out) {
        TimestampType type = record.timestampType();
        out.put("timestamp", record.timestamp());
        out.put("timestamp_type", type == TimestampType.CREATE_TIME ? "create"
                : type == TimestampType.LOG_APPEND_TIME ? "append" : "none");
        out.put("headers", null);
    }
}
