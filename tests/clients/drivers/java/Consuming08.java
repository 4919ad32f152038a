// Reading and asking for offsets with the Scala SimpleConsumer of 0.8.2: Fetch v0 and ListOffsets v0,
// straight to the broker. The high-level consumer of that release keeps its groups in ZooKeeper.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;

final class Consuming {
    private static final int FETCH_BYTES = 1 << 20;
    private static final int PARTITIONS_AT_ONCE = 50;

    static SimpleConsumer consumer() {
        String host = Driver.server.substring(0, Driver.server.lastIndexOf(':'));
        int port = Integer.parseInt(Driver.server.substring(host.length() + 1));
        return new SimpleConsumer(host, port, 60000, 1 << 16, "matrix");
    }

    static TopicAndPartition placeOf(Map<String, Object> source) {
        return new TopicAndPartition((String) source.get("topic"), Lines.number(source.get("partition")));
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        return data;
    }

    private static Map<String, Object> describe(MessageAndOffset message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("offset", message.offset());
        line.put("key", Lines.text(message.message().hasKey() ? bytes(message.message().key()) : null));
        line.put("value", Lines.text(message.message().isNull() ? null : bytes(message.message().payload())));
        line.put("timestamp", null);
        line.put("timestamp_type", null);
        line.put("headers", null);
        return line;
    }

    /** Reads one partition's messages of one answer; the offset to go on with. */
    private static long read(FetchResponse response, TopicAndPartition place, long from, List<Object> records) {
        long next = from;
        for (MessageAndOffset message : response.messageSet(place.topic(), place.partition())) {
            // A compressed message comes back whole, from before the offset too.
            if (message.offset() >= next) {
                records.add(describe(message));
                next = message.nextOffset();
            }
        }
        return next;
    }

    static void consume(Map<String, Object> command) {
        List<Map<String, Object>> wanted = Lines.list(command.get("partitions"));
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos((Long) command.get("timeout_ms"));
        SimpleConsumer client = consumer();
        try {
            for (int first = 0; first < wanted.size(); first += PARTITIONS_AT_ONCE) {
                consumeSome(client, wanted.subList(first, Math.min(first + PARTITIONS_AT_ONCE, wanted.size())), deadline);
            }
        } finally {
            client.close();
        }
    }

    private static void consumeSome(SimpleConsumer client, List<Map<String, Object>> wanted, long deadline) {
        Map<TopicAndPartition, Long> next = new LinkedHashMap<>();
        Map<TopicAndPartition, Long> counts = new LinkedHashMap<>();
        Map<TopicAndPartition, List<Object>> found = new LinkedHashMap<>();
        Map<TopicAndPartition, String> problems = new LinkedHashMap<>();
        for (Map<String, Object> one : wanted) {
            next.put(placeOf(one), (Long) one.get("from"));
            counts.put(placeOf(one), (Long) one.get("count"));
            found.put(placeOf(one), new ArrayList<>());
        }
        while (!next.isEmpty() && System.nanoTime() < deadline) {
            FetchRequestBuilder request = new FetchRequestBuilder().clientId("matrix").maxWait(50).minBytes(1);
            for (Map.Entry<TopicAndPartition, Long> one : next.entrySet()) {
                TopicAndPartition place = one.getKey();
                request.addFetch(place.topic(), place.partition(), one.getValue(), FETCH_BYTES);
            }
            FetchResponse response = client.fetch(request.build());
            for (TopicAndPartition place : new ArrayList<>(next.keySet())) {
                short code = response.errorCode(place.topic(), place.partition());
                if (code != 0) {
                    problems.put(place, "error " + code);
                    next.remove(place);
                    continue;
                }
                List<Object> records = found.get(place);
                next.put(place, read(response, place, next.get(place), records));
                if (records.size() >= counts.get(place)) {
                    next.remove(place);
                }
            }
        }
        for (Map<String, Object> one : wanted) {
            Map<String, Object> answer = Lines.place(one);
            answer.put("records", found.get(placeOf(one)));
            if (problems.containsKey(placeOf(one))) {
                answer.put("problem", problems.get(placeOf(one)));
            }
            Lines.say(answer);
        }
    }

    static void find(Map<String, Object> command) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> targets = new LinkedHashMap<>();
        for (Map<String, Object> one : Lines.list(command.get("partitions"))) {
            targets.put(placeOf(one), new PartitionOffsetRequestInfo((Long) one.get("timestamp"), 1));
        }
        SimpleConsumer client = consumer();
        try {
            OffsetResponse response = client.getOffsetsBefore(new OffsetRequest(targets, (short) 0, "matrix"));
            for (Map<String, Object> one : Lines.list(command.get("partitions"))) {
                long[] offsets = response.offsets((String) one.get("topic"), Lines.number(one.get("partition")));
                Map<String, Object> answer = Lines.place(one);
                answer.put("offset", offsets.length == 0 ? null : offsets[0]);
                Lines.say(answer);
            }
        } finally {
            client.close();
        }
    }
}
