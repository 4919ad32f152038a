// Asking for offsets since 0.10.1: starts, ends and times, without a group.

import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;

final class Finding {
    private static final long START = -2;
    private static final long END = -1;

    static Map<TopicPartition, Long> find(KafkaConsumer<byte[], byte[]> client, Map<TopicPartition, Long> targets) {
        Set<Long> kinds = new HashSet<>(targets.values());
        if (kinds.equals(Collections.singleton(START))) {
            return client.beginningOffsets(targets.keySet());
        }
        if (kinds.equals(Collections.singleton(END))) {
            return client.endOffsets(targets.keySet());
        }
        Map<TopicPartition, Long> found = new LinkedHashMap<>();
        Map<TopicPartition, OffsetAndTimestamp> offsets = client.offsetsForTimes(targets);
        for (TopicPartition place : targets.keySet()) {
            OffsetAndTimestamp one = offsets.get(place);
            found.put(place, one == null ? null : one.offset());
        }
        return found;
    }
}
