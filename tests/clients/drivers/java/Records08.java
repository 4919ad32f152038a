// The client API of 0.8.2: records have no timestamp and no headers; who reads is not this API's consumer.

import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;

final class Records {
    static ProducerRecord<byte[], byte[]> make(
            String topic, int partition, Long timestamp, byte[] key, byte[] value, List<Object> headers) {
        return new ProducerRecord<>(topic, partition, key, value);
    }
}
