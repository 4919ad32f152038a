// The client API since 0.11: records have a timestamp, its type, and headers.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;

final class Records {
    static ProducerRecord<byte[], byte[]> make(
            String topic, int partition, Long timestamp, byte[] key, byte[] value, List<Object> headers) {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, timestamp, key, value);
        if (headers != null) {
            for (Object one : headers) {
                List<?> pair = (List<?>) one;
                record.headers().add((String) pair.get(0), Lines.raw((String) pair.get(1)));
            }
        }
        return record;
    }

    static void describe(ConsumerRecord<byte[], byte[]> record, Map<String, Object> out) {
        TimestampType type = record.timestampType();
        out.put("timestamp", record.timestamp());
        out.put("timestamp_type", type == TimestampType.CREATE_TIME ? "create"
                : type == TimestampType.LOG_APPEND_TIME ? "append" : "none");
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.<Object>asList(header.key(), Lines.text(header.value())));
        }
        out.put("headers", headers);
    }
}
