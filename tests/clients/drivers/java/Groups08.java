// Groups and offsets in 0.8.2: members coordinate through ZooKeeper, which no broker here has; offsets
// are committed and fetched with v1, which Kafka keeps in __consumer_offsets (v0 was for ZooKeeper).

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetCommitResponse;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetFetchResponse;
import kafka.javaapi.consumer.SimpleConsumer;

final class Grouping {
    private static UnsupportedOperationException none() {
        return new UnsupportedOperationException("the groups of this client need ZooKeeper");
    }

    static void join(Map<String, Object> command) {
        throw none();
    }

    static void poll(Map<String, Object> command) {
        throw none();
    }

    static void rewind(Map<String, Object> command) {
        throw none();
    }

    static void leave() {
        throw none();
    }
}

final class Offsets {
    static void commit(Map<String, Object> command) {
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
        for (Map<String, Object> one : Lines.list(command.get("offsets"))) {
            OffsetAndMetadata offset = new OffsetAndMetadata(
                    (Long) one.get("offset"), OffsetAndMetadata.NoMetadata(), System.currentTimeMillis());
            offsets.put(Consuming.placeOf(one), offset);
        }
        SimpleConsumer client = Consuming.consumer();
        try {
            OffsetCommitResponse response = client.commitOffsets(new OffsetCommitRequest(
                    (String) command.get("group"), offsets, 0, "matrix", (short) 1));
            if (response.hasError()) {
                throw new IllegalStateException(String.valueOf(response.errors()));
            }
        } finally {
            client.close();
        }
    }

    static void committed(Map<String, Object> command) {
        List<TopicAndPartition> places = new ArrayList<>();
        for (Map<String, Object> one : Lines.list(command.get("partitions"))) {
            places.add(Consuming.placeOf(one));
        }
        SimpleConsumer client = Consuming.consumer();
        try {
            OffsetFetchResponse response = client.fetchOffsets(new OffsetFetchRequest(
                    (String) command.get("group"), places, (short) 1, 0, "matrix"));
            for (Map<String, Object> one : Lines.list(command.get("partitions"))) {
                OffsetMetadataAndError found = response.offsets().get(Consuming.placeOf(one));
                if (found.error() != 0) {
                    throw new IllegalStateException("error " + found.error());
                }
                Map<String, Object> answer = Lines.place(one);
                answer.put("offset", found.offset() < 0 ? null : found.offset());
                Lines.say(answer);
            }
        } finally {
            client.close();
        }
    }
}
