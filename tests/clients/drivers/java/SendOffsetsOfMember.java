// Offsets sent to a transaction since 2.5: with the member's id and generation (KIP-447).

import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

final class SendOffsets {
    static void send(
            KafkaProducer<byte[], byte[]> client,
            Map<TopicPartition, OffsetAndMetadata> offsets,
            KafkaConsumer<byte[], byte[]> member,
            String group) {
        client.sendOffsetsToTransaction(offsets, member.groupMetadata());
    }
}
