// Asking for offsets before 0.10.1: a consumer of a group begins at a start or an end, no more.

import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

final class Finding {
    static Map<TopicPartition, Long> find(KafkaConsumer<byte[], byte[]> client, Map<TopicPartition, Long> targets) {
        throw new UnsupportedOperationException("this client finds offsets for groups only");
    }
}
