// Reading assigned partitions and asking for offsets with KafkaConsumer, from 0.9 on.

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

final class Consuming {
    static KafkaConsumer<byte[], byte[]> consumer(String group, Properties more) {
        Properties settings = new Properties();
        String deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        settings.put("bootstrap.servers", Driver.server);
        settings.put("key.deserializer", deserializer);
        settings.put("value.deserializer", deserializer);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("fetch.max.wait.ms", "50");
        settings.put("check.crcs", "true");
        settings.putAll(more);
        return new KafkaConsumer<>(settings);
    }

    static void consume(Map<String, Object> command) {
        Map<TopicPartition, Long> missing = new LinkedHashMap<>();
        Map<TopicPartition, List<Object>> found = new LinkedHashMap<>();
        Properties more = new Properties();
        if (command.get("isolation") != null) {
            more.put("isolation.level", command.get("isolation"));
        }
        try (KafkaConsumer<byte[], byte[]> client = consumer("matrix", more)) {
            List<Map<String, Object>> wanted = Lines.list(command.get("partitions"));
            for (Map<String, Object> one : wanted) {
                TopicPartition place = Lines.placeOf(one);
                missing.put(place, (Long) one.get("count"));
                found.put(place, new ArrayList<>());
            }
            client.assign(new ArrayList<>(found.keySet()));
            for (Map<String, Object> one : wanted) {
                client.seek(Lines.placeOf(one), (Long) one.get("from"));
            }
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos((Long) command.get("timeout_ms"));
            while (!missing.isEmpty() && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : Poll.poll(client, 200)) {
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    List<Object> records = found.get(place);
                    Map<String, Object> line = new LinkedHashMap<>();
                    line.put("offset", record.offset());
                    line.put("key", Lines.text(record.key()));
                    line.put("value", Lines.text(record.value()));
                    Records.describe(record, line);
                    records.add(line);
                    Long count = missing.get(place);
                    if (count != null && records.size() >= count) {
                        missing.remove(place);
                    }
                }
            }
        }
        for (Map.Entry<TopicPartition, List<Object>> entry : found.entrySet()) {
            Map<String, Object> answer = Lines.lineOf(entry.getKey());
            answer.put("records", entry.getValue());
            Lines.say(answer);
        }
    }

    static void find(Map<String, Object> command) {
        Map<TopicPartition, Long> targets = new LinkedHashMap<>();
        for (Map<String, Object> one : Lines.list(command.get("partitions"))) {
            targets.put(Lines.placeOf(one), (Long) one.get("timestamp"));
        }
        try (KafkaConsumer<byte[], byte[]> client = consumer("matrix", new Properties())) {
            for (Map.Entry<TopicPartition, Long> entry : Finding.find(client, targets).entrySet()) {
                Map<String, Object> answer = Lines.lineOf(entry.getKey());
                answer.put("offset", entry.getValue());
                Lines.say(answer);
            }
        }
    }
}
