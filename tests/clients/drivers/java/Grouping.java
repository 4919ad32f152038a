// A member of a group with KafkaConsumer, from 0.9 on. It commits what it was handed out, and tells of
// records only once their commit succeeded: what a rebalance took away before is somebody else's.

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;

final class Grouping {
    private static KafkaConsumer<byte[], byte[]> member;
    private static boolean atLeastOnce; // it tells of records whatever becomes of their commit
    private static final Map<TopicPartition, Map<Long, String>> pending = new LinkedHashMap<>();

    static void join(Map<String, Object> command) {
        Properties settings = new Properties();
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "30000"); // as SESSION_TIMEOUT_MS of lines.py
        settings.put("heartbeat.interval.ms", "200");
        settings.put("metadata.max.age.ms", "2000");
        if ("range".equals(command.get("assignor"))) {
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        pending.clear();
        atLeastOnce = Boolean.TRUE.equals(command.get("at_least_once"));
        member = Consuming.consumer((String) command.get("group"), settings);
        member.subscribe(Collections.singletonList((String) command.get("topic")));
    }

    static void poll(Map<String, Object> command) {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos((Long) command.get("ms"));
        List<Object> records = new ArrayList<>();
        do {
            for (ConsumerRecord<byte[], byte[]> record : Poll.poll(member, 50)) {
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                pending.computeIfAbsent(place, any -> new LinkedHashMap<>())
                        .put(record.offset(), Lines.text(record.value()));
            }
            if (!atLeastOnce) {
                forget();
            }
            if (!pending.isEmpty()) {
                settle(records);
            }
        } while (records.isEmpty() && System.nanoTime() < deadline);
        List<Object> assignment = new ArrayList<>();
        for (TopicPartition place : member.assignment()) {
            assignment.add(Lines.lineOf(place));
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("assignment", assignment);
        answer.put("records", records);
        Lines.say(answer);
    }

    /** Forgets what a rebalance took away, and what goes on from what is committed: it is handed out again. */
    private static void forget() {
        Set<TopicPartition> owned = member.assignment();
        for (Iterator<Map.Entry<TopicPartition, Map<Long, String>>> all = pending.entrySet().iterator(); all.hasNext();) {
            Map.Entry<TopicPartition, Map<Long, String>> entry = all.next();
            if (owned.contains(entry.getKey())) {
                long position = member.position(entry.getKey());
                entry.getValue().keySet().removeIf(offset -> offset >= position);
            }
            if (!owned.contains(entry.getKey()) || entry.getValue().isEmpty()) {
                all.remove();
            }
        }
    }

    private static void settle(List<Object> records) {
        if (atLeastOnce) {
            tell(records);
        }
        try {
            member.commitSync();
        } catch (KafkaException failed) {
            String name = failed.getClass().getSimpleName();
            boolean goesOn = atLeastOnce && failed instanceof RetriableException;
            if (goesOn || name.equals("CommitFailedException") || name.equals("RebalanceInProgressException")) {
                return; // the next poll joins again; what stays ours is committed then
            }
            throw failed;
        }
        tell(records);
    }

    private static void tell(List<Object> records) {
        for (Map.Entry<TopicPartition, Map<Long, String>> entry : pending.entrySet()) {
            for (Map.Entry<Long, String> one : entry.getValue().entrySet()) {
                Map<String, Object> line = Lines.lineOf(entry.getKey());
                line.put("offset", one.getKey());
                line.put("value", one.getValue());
                records.add(line);
            }
        }
        pending.clear();
    }

    static void rewind(Map<String, Object> command) {
        Map<TopicPartition, Long> targets = new LinkedHashMap<>();
        for (TopicPartition place : member.assignment()) {
            targets.put(place, (Long) command.get("timestamp"));
        }
        pending.clear();
        for (Map.Entry<TopicPartition, Long> found : Finding.find(member, targets).entrySet()) {
            member.seek(found.getKey(), found.getValue());
        }
    }

    static void leave() {
        member.close();
        member = null;
    }
}
