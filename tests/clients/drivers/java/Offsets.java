// Committed offsets with KafkaConsumer, from 0.9 on: by whoever is no member of the group.

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.ArrayList;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

final class Offsets {
    static void commit(Map<String, Object> command) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
        for (Map<String, Object> one : Lines.list(command.get("offsets"))) {
            offsets.put(Lines.placeOf(one), new OffsetAndMetadata((Long) one.get("offset")));
        }
        try (KafkaConsumer<byte[], byte[]> client =
                Consuming.consumer((String) command.get("group"), new Properties())) {
            client.assign(new ArrayList<>(offsets.keySet()));
            client.commitSync(offsets);
        }
    }

    static void committed(Map<String, Object> command) {
        try (KafkaConsumer<byte[], byte[]> client =
                Consuming.consumer((String) command.get("group"), new Properties())) {
            for (Map<String, Object> one : Lines.list(command.get("partitions"))) {
                OffsetAndMetadata found = Poll.committed(client, Lines.placeOf(one));
                Map<String, Object> answer = Lines.place(one);
                answer.put("offset", found == null ? null : found.offset());
                Lines.say(answer);
            }
        }
    }
}
